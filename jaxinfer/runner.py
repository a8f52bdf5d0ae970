"""Runs batches on the device: packs each one, launches its programs, and hands back what will be its tokens.

The runner owns the device's state: the weights, the KV cache and the last token of every slot. ``launch`` does not
wait for the device, so the host schedules the next step while this one runs; the last tokens stay on the device and
feed the next step without passing through the host.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int32

from jaxinfer import kv_cache, sampler
from jaxinfer.batch import Batch, ScheduledRow
from jaxinfer.config import EngineConfig
from jaxinfer.model import Decoder
from jaxinfer.programs import Draw, Programs


@dataclass(frozen=True)
class StepOutput:
    """What a launched step will have drawn."""

    batch: Batch
    tokens: Int32[Array, "B"]

    def read(self) -> list[int]:
        """The token of each row of the batch; waits for the device. It means nothing where the row does not sample."""
        return np.asarray(self.tokens)[: len(self.batch.rows)].tolist()


class ModelRunner:
    """One model on one device.

    Args:
        model: the decoder with its weights on the device.
        config: the engine's limits; the cache is allocated from them here.
        kv_dtype: dtype of the cache.

    Raises:
        ValueError: the device has no room for the cache, or the limits are those of a model with other windows.
    """

    def __init__(self, model: Decoder, config: EngineConfig, *, kv_dtype: jnp.dtype) -> None:
        if config.windows != model.config.group_windows:
            raise ValueError(f"windows is {config.windows}; the model's layers have {model.config.group_windows}")
        self._vocab_size = model.config.vocab_size
        self._kv_cache = kv_cache.allocate(
            model.config,
            num_pages=config.group_pages,
            page_size=config.page_size,
            max_num_seqs=config.max_num_seqs,
            dtype=kv_dtype,
        )
        self._last_tokens = jnp.zeros(config.max_num_seqs + 1, jnp.int32)
        self.programs = Programs(model, config, self._kv_cache)

    @property
    def vocab_size(self) -> int:
        """V; token ids of requests lie below it."""
        return self._vocab_size

    def warm_up(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Compile every program and run each once on padding; afterwards no step compiles anything.

        Args:
            progress: called with (programs compiled, programs in all).
        """
        for done, total in self.programs.compile():
            if progress is not None:
                progress(done, total)
        for b, c in self.programs.layouts:
            logits = self._forward((b, c), self._pack(Batch((), 0, 0), (b, c)))
            forbidden = np.zeros((b, sampler.mask_words(self._vocab_size)), np.uint32)
            logits = self.programs.forbid[b](logits, jax.device_put(forbidden))
            for draw in Draw:
                self._sample(draw, logits, self._pack(Batch((), 0, 0), (b, c)))
        self._last_tokens.block_until_ready()

    def launch(self, batch: Batch) -> StepOutput:
        """Start a step; returns at once. Steps run in the order in which they are launched."""
        shape = self.programs.shape_for(len(batch.rows), batch.num_chunk_tokens)
        packed = self._pack(batch, shape)
        logits = self._forward(shape, packed)
        forbidden = self._forbidden_tokens(batch, shape[0])
        if forbidden is not None:
            logits = self.programs.forbid[shape[0]](logits, jax.device_put(forbidden))
        tokens = self._sample(_draw_for(batch), logits, packed)
        tokens.copy_to_host_async()
        return StepOutput(batch, tokens)

    def _pack(self, batch: Batch, shape: tuple[int, int]) -> Int32[Array, "size"]:
        return jax.device_put(self.programs.layouts[shape].pack(batch))

    def _forward(self, shape: tuple[int, int], packed: Int32[Array, "size"]) -> Float[Array, "B V"]:
        logits, self._kv_cache = self.programs.forward[shape](
            self.programs.weights, self._kv_cache, self._last_tokens, packed
        )
        return logits

    def _sample(self, draw: Draw, logits: Float[Array, "B V"], packed: Int32[Array, "size"]) -> Int32[Array, "B"]:
        tokens, self._last_tokens = self.programs.sample[draw, logits.shape[0]](logits, self._last_tokens, packed)
        return tokens

    def _forbidden_tokens(self, batch: Batch, num_rows: int) -> np.ndarray | None:
        """A mask against the stop tokens of rows that have not reached min_tokens; None if no row needs one."""
        early = [(i, row) for i, row in enumerate(batch.rows) if _must_go_on(row)]
        if not early:
            return None
        forbidden = np.zeros((num_rows, sampler.mask_words(self._vocab_size)), np.uint32)
        for i, row in early:
            forbidden[i] = sampler.pack_token_mask(row.request.stop_token_ids, self._vocab_size)
        forbidden.flags.writeable = False  # the device may read this memory while the step runs
        return forbidden


def _must_go_on(row: ScheduledRow) -> bool:
    request = row.request
    return row.samples and row.sample_index < request.params.min_tokens and bool(request.stop_token_ids)


def _draw_for(batch: Batch) -> Draw:
    """The cheapest variant that gives every sampling row what it asks for."""
    params = [row.request.params for row in batch.rows if row.samples]
    if all(p.greedy for p in params):
        return Draw.GREEDY
    return Draw.TRUNCATED if any(p.top_k > 0 or p.top_p < 1 for p in params if not p.greedy) else Draw.PLAIN
