"""Runs batches on the device: packs each one, launches its programs, and hands back what will be its tokens.

The runner owns the device's state: the weights, the KV cache, and of every slot the last token and what bias and
penalties need. Nothing here waits for the device but what reads a step's output, so the host schedules the next step
while this one runs; the last tokens stay on the device and feed the next step without passing through the host. A step
is launched in two parts, since what its draw may not take is sometimes known only when the step before has been read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int32, UInt32

from jaxinfer import kv_cache, slot_state
from jaxinfer.adjustments import any_adjusts, pack_adjustments
from jaxinfer.batch import Batch
from jaxinfer.config import EngineConfig
from jaxinfer.logprobs import RankedLogprobs
from jaxinfer.model import Decoder
from jaxinfer.programs import Draw, Programs
from jaxinfer.prompt_scores import PromptScores, TokensToScore
from jaxinfer.ranking import read_ranked
from jaxinfer.slot_state import slot_rows
from jaxinfer.token_masks import TokenBits, num_words


@dataclass(frozen=True)
class ForwardStep:
    """A step whose forward pass is launched and whose draw is not.

    Attributes:
        batch: its rows.
        packed: what its programs read, on the device.
        logits: of each row.
        hidden: of each token, in a step with a chunk.
        adjustments: what ``adjust`` reads, where a row has a bias or a penalty.
    """

    batch: Batch
    packed: Int32[Array, "size"]
    logits: Float[Array, "B V"]
    hidden: Float[Array, "T E"] | None
    adjustments: Int32[Array, "5 B"] | None


@dataclass(frozen=True)
class StepOutput:
    """What a launched step will have drawn.

    Attributes:
        batch: its rows.
        tokens: the token of each.
        ranked: what ``rank`` gave of them, where a row wants it.
        scores: likewise of tokens of prompts, where a row wants it.
    """

    batch: Batch
    tokens: Int32[Array, "B"]
    ranked: Int32[Array, "B words"] | None = None
    scores: PromptScores | None = None

    def read(self) -> list[int]:
        """The token of each row of the batch; waits for the device. It means nothing where the row does not sample."""
        return np.asarray(self.tokens)[: len(self.batch.rows)].tolist()

    def logprobs(self) -> RankedLogprobs:
        """Of the token that each row drew, by its raw distribution; for a step of which a row wants them."""
        return self._logprobs

    @cached_property
    def _logprobs(self) -> RankedLogprobs:
        assert self.ranked is not None, "no row of the step wants log-probabilities"
        return read_ranked(np.asarray(self.ranked))

    def prompt_logprobs(self, row: int) -> RankedLogprobs:
        """Of the prompt's tokens that follow those of the row's piece, for a row that wants them."""
        assert self.scores is not None, "no row of the step wants log-probabilities of its prompt"
        return self.scores.of(row)


class ModelRunner:
    """One model on one device.

    Args:
        model: the decoder with its weights on the device.
        config: the engine's limits; the cache is allocated from them here.
        kv_dtype: dtype of the cache.

    Raises:
        ValueError: the device has no room for the cache or the state of the slots, or the limits are those of a model
            with other windows.
    """

    def __init__(self, model: Decoder, config: EngineConfig, *, kv_dtype: jnp.dtype) -> None:
        if config.windows != model.config.group_windows:
            raise ValueError(f"windows is {config.windows}; the model's layers have {model.config.group_windows}")
        self._vocab_size, self._num_slots = model.config.vocab_size, config.max_num_seqs
        self._slot_state = slot_state.allocate(config.max_num_seqs, model.config.vocab_size)
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
        self._set_slot(self._num_slots, (np.zeros(self._vocab_size, np.float32), np.zeros(self._vocab_size, np.int32)))
        for b, c in self.programs.layouts:
            self._run_on_padding(b, c)
        self._last_tokens.block_until_ready()

    def _run_on_padding(self, b: int, c: int) -> None:
        """Every variant of each program that a step of this shape may launch."""
        padding, programs = Batch((), 0, 0), self.programs
        packed = self._pack(padding, (b, c))
        raw, hidden = self._forward((b, c), packed)
        logits = programs.forbid[b](raw, self._mask((), b))
        logits = self._adjust(logits, jax.device_put(pack_adjustments(padding, b, self._num_slots)))
        for draw in Draw:
            tokens = self._sample(draw, logits, packed)
        nowhere = np.zeros(programs.tile, np.int32)
        programs.rank[b](raw, tokens)
        if hidden is not None:
            self._score_tile((b, c), hidden, nowhere, nowhere)

    def forward(self, batch: Batch) -> ForwardStep:
        """Start a step, all but its draw; returns at once. Steps run in the order in which they are launched.

        What is read of the requests' slots is read here: they may have ended by the time of the draw.
        """
        shape = self.programs.shape_for(len(batch.rows), batch.num_chunk_tokens)
        packed, adjustments = self._pack(batch, shape), None
        logits, hidden = self._forward(shape, packed)
        if any_adjusts(batch):
            self._start_slots(batch)
            adjustments = jax.device_put(pack_adjustments(batch, shape[0], self._num_slots))
        return ForwardStep(batch, packed, logits, hidden, adjustments)

    def sample(self, step: ForwardStep, forbidden: Sequence[TokenBits | None] = ()) -> StepOutput:
        """Start the draw of a step; returns at once. To be called once, before the next step's forward pass.

        Args:
            step: what ``forward`` returned.
            forbidden: for each row of its batch the tokens that it may not draw, or None; the rows left out draw any.
        """
        logits = step.logits
        if any(words is not None for words in forbidden):
            logits = self.programs.forbid[logits.shape[0]](logits, self._mask(forbidden, logits.shape[0]))
        if step.adjustments is not None:
            logits = self._adjust(logits, step.adjustments)
        tokens = self._sample(_draw_for(step.batch), logits, step.packed)
        tokens.copy_to_host_async()
        return StepOutput(step.batch, tokens, self._rank(step, tokens), self._score(step))

    def _mask(self, forbidden: Sequence[TokenBits | None], num_rows: int) -> UInt32[Array, "B words"]:
        mask = np.zeros((num_rows, num_words(self._vocab_size)), np.uint32)
        for row, words in zip(mask, forbidden, strict=False):
            if words is not None:
                row[:] = words
        mask.flags.writeable = False  # the device may read this memory while the step runs
        return jax.device_put(mask)

    def _pack(self, batch: Batch, shape: tuple[int, int]) -> Int32[Array, "size"]:
        return jax.device_put(self.programs.layouts[shape].pack(batch))

    def _forward(
        self, shape: tuple[int, int], packed: Int32[Array, "size"]
    ) -> tuple[Float[Array, "B V"], Float[Array, "T E"] | None]:
        logits, self._kv_cache, hidden = self.programs.forward[shape](
            self.programs.weights, self._kv_cache, self._last_tokens, packed
        )
        return logits, hidden

    def _start_slots(self, batch: Batch) -> None:
        """Write the rows of requests that draw from a piece: for the first time, or since they were preempted."""
        for row in batch.rows[batch.num_decode_rows :]:
            if row.samples and row.request.params.adjusts_logits:
                assert row.request.slot is not None, "a running request has a slot"
                self._set_slot(row.request.slot, slot_rows(row.request, self._vocab_size))

    def _set_slot(self, slot: int, rows: tuple[Float32[np.ndarray, "V"], Int32[np.ndarray, "V"]]) -> None:
        assert self.programs.set_slot is not None, "the programs are compiled"
        self._slot_state = self.programs.set_slot(self._slot_state, np.int32(slot), *jax.device_put(rows))

    def _adjust(self, logits: Float[Array, "B V"], adjustments: Int32[Array, "5 B"]) -> Float[Array, "B V"]:
        logits, self._slot_state = self.programs.adjust[logits.shape[0]](
            logits, self._slot_state, self._last_tokens, adjustments
        )
        return logits

    def _sample(self, draw: Draw, logits: Float[Array, "B V"], packed: Int32[Array, "size"]) -> Int32[Array, "B"]:
        tokens, self._last_tokens = self.programs.sample[draw, logits.shape[0]](logits, self._last_tokens, packed)
        return tokens

    def _rank(self, step: ForwardStep, tokens: Int32[Array, "B"]) -> Int32[Array, "B words"] | None:
        """Log-probabilities of what was drawn, where a row wants them, by the logits as the model gave them."""
        if not any(row.samples and row.request.params.wants_logprobs for row in step.batch.rows):
            return None
        ranked = self.programs.rank[step.logits.shape[0]](step.logits, tokens)
        ranked.copy_to_host_async()
        return ranked

    def _score(self, step: ForwardStep) -> PromptScores | None:
        """Log-probabilities of the prompts' tokens that follow those of the step, where a row wants them."""
        pieces = step.batch.rows[step.batch.num_decode_rows :]
        if step.hidden is None or not any(row.scores_prompt for row in pieces):
            return None
        shape = (step.logits.shape[0], step.hidden.shape[0] - step.logits.shape[0])
        wanted, tiles = TokensToScore.of(step.batch, self.programs.layouts[shape]), []
        for places, token_ids in wanted.tiles(self.programs.tile):
            tiles.append(self._score_tile(shape, step.hidden, places, token_ids))
            tiles[-1].copy_to_host_async()
        return PromptScores(tiles, wanted.spans)

    def _score_tile(
        self,
        shape: tuple[int, int],
        hidden: Float[Array, "T E"],
        places: Int32[np.ndarray, "tile"],
        token_ids: Int32[np.ndarray, "tile"],
    ) -> Int32[Array, "tile words"]:
        assert self.programs.score is not None, "the programs are compiled"
        picked = self.programs.pick[shape](hidden, jax.device_put(places))
        return self.programs.score(self.programs.weights, picked, jax.device_put(token_ids))


def _draw_for(batch: Batch) -> Draw:
    """The cheapest variant that gives every sampling row what it asks for."""
    params = [row.request.params for row in batch.rows if row.samples]
    if all(p.greedy for p in params):
        return Draw.GREEDY
    return Draw.TRUNCATED if any(p.top_k > 0 or p.top_p < 1 for p in params if not p.greedy) else Draw.PLAIN
