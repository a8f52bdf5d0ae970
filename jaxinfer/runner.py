"""Runs batches on the device: packs each one, launches its programs, and hands back what will be its tokens.

The runner owns the device's state: the weights, the KV cache and the last token of every slot. Nothing here waits for
the device but what reads a step's output, so the host schedules the next step while this one runs; the last tokens stay
on the device and feed the next step without passing through the host. A step is launched in two parts, since what its
draw may not take is sometimes known only when the step before has been read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int32, UInt32

from jaxinfer import kv_cache
from jaxinfer.batch import Batch
from jaxinfer.config import EngineConfig
from jaxinfer.logprobs import RankedLogprobs
from jaxinfer.model import Decoder
from jaxinfer.programs import Draw, Programs
from jaxinfer.token_masks import TokenBits, num_words


@dataclass(frozen=True)
class ForwardStep:
    """A step whose forward pass is launched and whose draw is not.

    Attributes:
        batch: its rows.
        packed: what its programs read, on the device.
        logits: of each row.
    """

    batch: Batch
    packed: Int32[Array, "size"]
    logits: Float[Array, "B V"]


@dataclass(frozen=True)
class StepOutput:
    """What a launched step will have drawn."""

    batch: Batch
    tokens: Int32[Array, "B"]

    def read(self) -> list[int]:
        """The token of each row of the batch; waits for the device. It means nothing where the row does not sample."""
        return np.asarray(self.tokens)[: len(self.batch.rows)].tolist()

    def logprobs(self) -> RankedLogprobs:
        """Of the token that each row drew, by its raw distribution; for a step of which a row wants them."""
        raise NotImplementedError

    def prompt_logprobs(self, row: int) -> RankedLogprobs:
        """Of the prompt's tokens that follow those of the row's piece, the last of which may be no prompt token."""
        raise NotImplementedError


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
            logits = self.programs.forbid[b](logits, self._mask((), b))
            for draw in Draw:
                self._sample(draw, logits, self._pack(Batch((), 0, 0), (b, c)))
        self._last_tokens.block_until_ready()

    def forward(self, batch: Batch) -> ForwardStep:
        """Start a step, all but its draw; returns at once. Steps run in the order in which they are launched."""
        shape = self.programs.shape_for(len(batch.rows), batch.num_chunk_tokens)
        packed = self._pack(batch, shape)
        return ForwardStep(batch, packed, self._forward(shape, packed))

    def sample(self, step: ForwardStep, forbidden: Sequence[TokenBits | None] = ()) -> StepOutput:
        """Start the draw of a step; returns at once. To be called once, before the next step's forward pass.

        Args:
            step: what ``forward`` returned.
            forbidden: for each row of its batch the tokens that it may not draw, or None; the rows left out draw any.
        """
        logits = step.logits
        if any(words is not None for words in forbidden):
            logits = self.programs.forbid[logits.shape[0]](logits, self._mask(forbidden, logits.shape[0]))
        tokens = self._sample(_draw_for(step.batch), logits, step.packed)
        tokens.copy_to_host_async()
        return StepOutput(step.batch, tokens)

    def _mask(self, forbidden: Sequence[TokenBits | None], num_rows: int) -> UInt32[Array, "B words"]:
        mask = np.zeros((num_rows, num_words(self._vocab_size)), np.uint32)
        for row, words in zip(mask, forbidden, strict=False):
            if words is not None:
                row[:] = words
        mask.flags.writeable = False  # the device may read this memory while the step runs
        return jax.device_put(mask)

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


def _draw_for(batch: Batch) -> Draw:
    """The cheapest variant that gives every sampling row what it asks for."""
    params = [row.request.params for row in batch.rows if row.samples]
    if all(p.greedy for p in params):
        return Draw.GREEDY
    return Draw.TRUNCATED if any(p.top_k > 0 or p.top_p < 1 for p in params if not p.greedy) else Draw.PLAIN
