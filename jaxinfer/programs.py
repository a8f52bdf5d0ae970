"""The compiled programs of an engine: a bounded set, known before the first request and compiled ahead.

Each program is kept by its shape, and a missing one is an error, never a silent compile in the middle of serving:
that would stop every request for seconds. Sampling, masks, bias and penalties, and log-probabilities are programs of
their own, so that their variants add to the number of programs instead of multiplying it, and a step without a row that
asks for one does not launch it.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int32

from jaxinfer import ranking, sampler, slot_state
from jaxinfer.adjustments import adjust
from jaxinfer.config import EngineConfig
from jaxinfer.kv_cache import KVCache
from jaxinfer.model import Decoder
from jaxinfer.sampling_params import MAX_LOGPROBS
from jaxinfer.step_inputs import StepLayout
from jaxinfer.token_masks import num_words

_MAX_TILE = 64
"""Prompt tokens whose logits are alive at a time, in float32, while they are scored."""

_GROWTH = 4
"""Ratio of neighbouring sizes of the shape lists: a step computes at most about this much padding."""


class Draw(Enum):
    """Variants of the sample program, from the cheapest to the one that does all."""

    GREEDY = "greedy"
    PLAIN = "plain"
    TRUNCATED = "truncated"


def row_sizes(max_num_seqs: int) -> tuple[int, ...]:
    """The values of B: 1, 8, 32, ... and ``max_num_seqs`` itself, ascending."""
    sizes, size = [1], 8
    while size < max_num_seqs:
        sizes.append(size)
        size *= _GROWTH
    return tuple(dict.fromkeys([*sizes, max_num_seqs]))


def chunk_sizes(max_chunk_tokens: int, block_q: int) -> tuple[int, ...]:
    """The values of C: none, about a quarter of ``max_chunk_tokens`` in whole blocks, and all of it."""
    quarter = -(-max_chunk_tokens // (_GROWTH * block_q)) * block_q
    return tuple(dict.fromkeys([0, quarter, max_chunk_tokens]))


class Programs:
    """Every program that an engine runs.

    Args:
        model: the decoder; it is split once, here, into a flat tuple of arrays that each forward program takes.
            Flattening its hundreds of variables on each call would cost more than the call.
        config: the engine's limits, which fix the shapes.
        kv_cache: the cache that the programs will run on (its shapes and dtype count).
    """

    def __init__(self, model: Decoder, config: EngineConfig, kv_cache: KVCache) -> None:
        self._config, self._kv_cache_shape = config, jax.eval_shape(lambda cache: cache, kv_cache)
        self._vocab_size, self._hidden_size = model.config.vocab_size, model.config.hidden_size
        self._dtype = model.dtype
        self._graph, state = nnx.split(model)
        leaves, self._treedef = jax.tree.flatten(state)
        self.weights: tuple[jax.Array, ...] = tuple(leaves)
        self.rows = row_sizes(config.max_num_seqs)
        self.chunks = chunk_sizes(config.max_chunk_tokens, config.block_q)
        self.layouts = {(b, c): self._layout(b, c) for b in self.rows for c in self.chunks}
        self.forward: dict[tuple[int, int], jax.stages.Compiled] = {}
        self.sample: dict[tuple[Draw, int], jax.stages.Compiled] = {}
        self.forbid: dict[int, jax.stages.Compiled] = {}
        self.adjust: dict[int, jax.stages.Compiled] = {}
        self.set_slot: jax.stages.Compiled | None = None
        self.tile = min(_MAX_TILE, config.max_chunk_tokens)
        self._num_top = min(MAX_LOGPROBS, self._vocab_size)
        self.rank: dict[int, jax.stages.Compiled] = {}
        self.pick: dict[tuple[int, int], jax.stages.Compiled] = {}
        self.score: jax.stages.Compiled | None = None

    def shape_for(self, num_rows: int, num_chunk_tokens: int) -> tuple[int, int]:
        """The smallest (B, C) that holds a batch.

        Raises:
            ValueError: none does.
        """
        b = next((size for size in self.rows if size >= num_rows), None)
        c = next((size for size in self.chunks if size >= num_chunk_tokens), None)
        if b is None or c is None:
            raise ValueError(
                f"no program holds {num_rows} rows and {num_chunk_tokens} chunk tokens; "
                f"the largest has {self.rows[-1]} rows and {self.chunks[-1]} chunk tokens"
            )
        return b, c

    def compile(self) -> Iterator[tuple[int, int]]:
        """Compile all programs, one for each item; yields (programs done, programs in all)."""
        jobs = [*self._jobs()]
        for done, job in enumerate(jobs, start=1):
            job()
            yield done, len(jobs)

    def compile_reading(self) -> None:
        """Compile one forward program that holds every batch and nothing else: for who only looks at hidden states.

        The other shapes are dropped, so this one runs for smaller batches too.
        """
        b, c = self.rows[-1], self.chunks[-1]
        self.rows, self.chunks, self.layouts = (b,), (c,), {(b, c): self.layouts[b, c]}
        self._compile_forward(b, c)

    def _jobs(self) -> Iterator[Callable[[], None]]:
        for b, c in self.layouts:
            yield partial(self._compile_forward, b, c)
            if c > 0:
                yield partial(self._compile_pick, b, c)
        for b in self.rows:
            yield partial(self._compile_forbid, b)
            yield partial(self._compile_adjust, b)
            for draw in Draw:
                yield partial(self._compile_sample, draw, b)
            yield partial(self._compile_rank, b)
        yield self._compile_score
        yield self._compile_set_slot

    def forward_call(self, b: int, c: int) -> tuple[Any, tuple[Any, ...]]:
        """The forward program (B, C) before it is compiled: the jitted function, and its arguments or their shapes.

        To be compiled here, or for a device that is not there: model and cache may then be shapes alone.
        """
        layout = self.layouts[b, c]

        def forward(
            weights: tuple[Array, ...],
            kv_cache: KVCache,
            last_tokens: Int32[Array, "slots"],
            packed: Int32[Array, "size"],
        ) -> tuple[Float[Array, "B V"], KVCache, Float[Array, "T E"] | None]:
            logits, kv_cache, hidden = self.model(weights)(last_tokens, kv_cache, layout.unpack(packed))
            return logits, kv_cache, hidden if c > 0 else None

        arguments = (self.weights, self._kv_cache_shape, self._last_tokens_shape, self._packed_shape(b))
        return jax.jit(forward, donate_argnums=1), arguments

    def model(self, weights: tuple[Array, ...]) -> Decoder:
        """The model of these weights, inside a traced program."""
        return nnx.merge(self._graph, jax.tree.unflatten(self._treedef, weights))

    def _compile_forward(self, b: int, c: int) -> None:
        forward, arguments = self.forward_call(b, c)
        self.forward[b, c] = forward.lower(*arguments).compile()

    def sample_call(self, draw: Draw, b: int) -> tuple[Any, tuple[Any, ...]]:
        """The sample program of B rows before it is compiled, as ``forward_call``."""
        layout = self._layout(b, 0)

        def sample(
            logits: Float[Array, "B V"], last_tokens: Int32[Array, "slots"], packed: Int32[Array, "size"]
        ) -> tuple[Int32[Array, "B"], Int32[Array, "slots"]]:
            params = layout.unpack_sampling(packed)
            if draw is Draw.GREEDY:
                tokens = sampler.greedy(logits)
            else:
                tokens = sampler.sample(logits, params, truncate=draw is Draw.TRUNCATED)
            return tokens, last_tokens.at[params.sample_slot].set(tokens)

        return jax.jit(sample), (self._logits_shape(b), self._last_tokens_shape, self._packed_shape(b))

    def _compile_sample(self, draw: Draw, b: int) -> None:
        sample, arguments = self.sample_call(draw, b)
        self.sample[draw, b] = sample.lower(*arguments).compile()

    def forbid_call(self, b: int) -> tuple[Any, tuple[Any, ...]]:
        """The program of masks for B rows before it is compiled, as ``forward_call``.

        The logits are not donated: what they were before is asked for where log-probabilities are.
        """
        words = jax.ShapeDtypeStruct((b, num_words(self._vocab_size)), jnp.uint32)
        return jax.jit(sampler.forbid), (self._logits_shape(b), words)

    def _compile_forbid(self, b: int) -> None:
        forbid, arguments = self.forbid_call(b)
        self.forbid[b] = forbid.lower(*arguments).compile()

    def adjust_call(self, b: int) -> tuple[Any, tuple[Any, ...]]:
        """The program of bias and penalties for B rows before it is compiled, as ``forward_call``."""
        packed = jax.ShapeDtypeStruct((5, b), jnp.int32)
        arguments = (self._logits_shape(b), self._slot_state_shape, self._last_tokens_shape, packed)
        return jax.jit(adjust, donate_argnums=1), arguments

    def _compile_adjust(self, b: int) -> None:
        adjusting, arguments = self.adjust_call(b)
        self.adjust[b] = adjusting.lower(*arguments).compile()

    def set_slot_call(self) -> tuple[Any, tuple[Any, ...]]:
        """The program that starts a request with bias or penalties before it is compiled, as ``forward_call``."""
        state = self._slot_state_shape
        slot = jax.ShapeDtypeStruct((), jnp.int32)
        rows = (jax.ShapeDtypeStruct(array.shape[1:], array.dtype) for array in (state.bias, state.tally))
        return jax.jit(slot_state.set_slot, donate_argnums=0), (state, slot, *rows)

    def _compile_set_slot(self) -> None:
        setting, arguments = self.set_slot_call()
        self.set_slot = setting.lower(*arguments).compile()

    def rank_call(self, b: int) -> tuple[Any, tuple[Any, ...]]:
        """The program of the log-probabilities of B rows before it is compiled, as ``forward_call``.

        The most likely tokens are always among them: a variant without them would take longer to compile, at each
        start, than it saves.
        """
        rank = partial(ranking.rank, num_top=self._num_top)
        return jax.jit(rank), (self._logits_shape(b), jax.ShapeDtypeStruct((b,), jnp.int32))

    def _compile_rank(self, b: int) -> None:
        rank, arguments = self.rank_call(b)
        self.rank[b] = rank.lower(*arguments).compile()

    def _compile_pick(self, b: int, c: int) -> None:
        """Of the hidden states of a step those of the prompt tokens that are scored, a tile of them."""
        hidden = jax.ShapeDtypeStruct((b + c, self._hidden_size), self._dtype)
        places = jax.ShapeDtypeStruct((self.tile,), jnp.int32)
        self.pick[b, c] = jax.jit(lambda hidden, places: hidden[places]).lower(hidden, places).compile()

    def score_call(self) -> tuple[Any, tuple[Any, ...]]:
        """The program of the log-probabilities of a tile of prompt tokens before it is compiled, as ``forward_call``.

        From their hidden states and the tokens that follow them: a prompt's logits are not computed in its step, and
        those of a whole chunk would take more memory than all else.
        """

        def score(
            weights: tuple[Array, ...], hidden: Float[Array, "tile E"], token_ids: Int32[Array, "tile"]
        ) -> Int32[Array, "tile words"]:
            logits = self.model(weights).logits(hidden)
            return ranking.rank(logits, token_ids, num_top=self._num_top)

        hidden = jax.ShapeDtypeStruct((self.tile, self._hidden_size), self._dtype)
        return jax.jit(score), (self.weights, hidden, jax.ShapeDtypeStruct((self.tile,), jnp.int32))

    def _compile_score(self) -> None:
        score, arguments = self.score_call()
        self.score = score.lower(*arguments).compile()

    @property
    def _slot_state_shape(self) -> slot_state.SlotState:
        return jax.eval_shape(partial(slot_state.allocate, self._config.max_num_seqs, self._vocab_size))

    def _logits_shape(self, b: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((b, self._vocab_size), jnp.float32)

    @property
    def _last_tokens_shape(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((self._config.max_num_seqs + 1,), jnp.int32)

    def _packed_shape(self, b: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((self._layout(b, 0).size,), jnp.int32)

    def _layout(self, b: int, c: int) -> StepLayout:
        config = self._config
        return StepLayout(
            num_rows=b,
            num_chunk_tokens=c,
            max_chunk_tokens=config.max_chunk_tokens,
            block_q=config.block_q,
            table_widths=config.table_widths,
            num_slots=config.max_num_seqs,
        )
