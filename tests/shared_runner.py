"""One runner under many engines: its programs take seconds to compile, and an engine over them is free.

Each engine has a cache and a pool of its own, so engines of one runner do not meet. The models are random and small,
with a layer for each given window.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxinfer.batch import Batch
from jaxinfer.config import EngineConfig, ModelConfig
from jaxinfer.engine import Engine
from jaxinfer.programs import Draw
from jaxinfer.runner import ForwardStep, ModelRunner
from jaxinfer.tokenizers.protocol import Tokenizer
from jaxinfer.weights import weight_shapes
from tests.engines import keep_few_programs, random_decoder

VOCAB_SIZE = 96


class EngineRunner:
    """What one engine sees of a runner: with a cache of its own, and it counts what is computed.

    Attributes:
        num_tokens: computed tokens, by request id.
        batches: for each step the ids of its rows.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        # What nobody wrote shows in all that reads it.
        self._kv_cache = jax.tree.map(_unreadable, runner._kv_cache)
        self.num_tokens: Counter[str] = Counter()
        self.batches: list[list[str]] = []

    def forward(self, batch: Batch) -> ForwardStep:
        """A step of the runner."""
        for row in batch.rows:
            self.num_tokens[row.request.request_id] += row.num_tokens
        self.batches.append([row.request.request_id for row in batch.rows])
        self._runner._kv_cache, others = self._kv_cache, self._runner._kv_cache
        step = self._runner.forward(batch)
        self._runner._kv_cache, self._kv_cache = others, self._runner._kv_cache
        return step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)


@dataclass(frozen=True)
class SharedRunner:
    """A runner and the limits that it was built with."""

    runner: ModelRunner
    config: EngineConfig

    def engine(
        self, *, tokenizer: Tokenizer | None = None, eos_token_ids: Sequence[int] = (), **changes: Any
    ) -> Engine:
        """An engine with an empty cache; ``changes`` are of the limits, each at most as large as the runner's."""
        runner, config = EngineRunner(self.runner), replace(self.config, **changes)
        return Engine(runner, config, tokenizer=tokenizer, eos_token_ids=eos_token_ids)  # type: ignore[arg-type]


def _unreadable(array: jax.Array) -> jax.Array:
    """NaN; but int8 has none, whose scales do, and counters begin at 0."""
    return jnp.full_like(array, jnp.nan if jnp.issubdtype(array.dtype, jnp.floating) else 0)


def shared_runner(
    windows: Sequence[int | None],
    *,
    vocab_size: int = VOCAB_SIZE,
    kv_dtype: DTypeLike = jnp.float32,
    only_draws: bool = True,
    **limits: Any,
) -> SharedRunner:
    """A random model with these windows, and of its programs those for the most rows, without a chunk and with the
    longest; with ``only_draws`` those of greedy and plain draws and of masks alone."""
    model = ModelConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=48,
        num_layers=len(windows),
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        max_position_embeddings=2048,
        rope_theta=10000.0,
        norm_eps=1e-5,
        tie_embeddings=False,
        windows=tuple(windows),
    )
    rng = np.random.default_rng(0)
    weights = {
        name: rng.normal(0, 2 * shape[-1] ** -0.5 if len(shape) > 1 else 1, shape).astype(np.float32)
        for name, shape in weight_shapes(model).items()
    }
    config = EngineConfig(windows=model.group_windows, **limits)
    runner = ModelRunner(random_decoder(model, weights), config, kv_dtype=jnp.dtype(kv_dtype))
    keep_few_programs(runner)
    if not only_draws:
        runner.warm_up()
        return SharedRunner(runner, config)
    for shape in runner.programs.layouts:
        runner.programs._compile_forward(*shape)
    for draw in (Draw.GREEDY, Draw.PLAIN):
        runner.programs._compile_sample(draw, config.max_num_seqs)
    runner.programs._compile_forbid(config.max_num_seqs)
    return SharedRunner(runner, config)
