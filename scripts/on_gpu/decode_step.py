"""The decode step of a whole model: what the device takes for it, and what the engine's loop takes."""

import time
from dataclasses import replace
from typing import Any

import jax

from jaxinfer.batch import Batch
from jaxinfer.config import EngineConfig
from jaxinfer.engine import Engine
from jaxinfer.runner import ModelRunner
from jaxinfer.sampling_params import SamplingParams
from scripts.on_gpu.peaks import Peaks
from scripts.on_gpu.settings import Settings

_CONTEXT = 1000
_STEPS, _WARM_STEPS = 60, 5
_MOST_AT_ONCE = 2**16
"""Prompt tokens of a step that is only counted."""


def decode_step(
    runner: ModelRunner, config: EngineConfig, weight_bytes: int, token_bytes: int, peaks: Peaks, settings: Settings
) -> dict[str, Any]:
    """Numbers of a step with ``max_num_seqs`` rows, each with a context of about 1,000 tokens.

    The prompts are not computed, only counted as read: the cache then holds zeros, which take as long to attend to.

    Args:
        runner: with the programs of this step.
        config: its limits.
        weight_bytes: bytes of weights that a step reads.
        token_bytes: bytes of the cache for each token.
        peaks: of the device.
        settings: of the part.

    Returns:
        By name of the column: the step in the engine's loop; the same programs launched back to back with nothing done
        in between, which is the device's own time unless a launch takes longer than that; the difference, the gap that
        the host leaves; and what a launch takes of the host.
    """
    num_rows = config.max_num_seqs
    context, steps = (20, 4) if settings.tiny else (_CONTEXT, _STEPS)
    engine, batch = _decoding(runner, config, context)
    on_host, on_device = _back_to_back(runner, batch, steps)
    for _ in range(_WARM_STEPS):
        engine.step()
    begin = time.perf_counter()
    for _ in range(steps):
        engine.step()
    in_loop = (time.perf_counter() - begin) / steps
    moved = weight_bytes + token_bytes * num_rows * context
    return {
        "context": context,
        "tokens/s": num_rows / in_loop,
        "ms in the loop": 1e3 * in_loop,
        "ms on the device": 1e3 * on_device,
        "host gap us": 1e6 * (in_loop - on_device),
        "launch us": 1e6 * on_host,
        "GB read": moved / 1e9,
        "% of bandwidth": peaks.share_of_bandwidth(moved, on_device),
    }


def _decoding(runner: ModelRunner, config: EngineConfig, context: int) -> tuple[Engine, Batch]:
    """An engine whose requests all decode, and their step."""
    at_once = replace(config, max_chunk_tokens=_MOST_AT_ONCE)  # what is only counted needs no program
    engine = Engine(runner, at_once, tokenizer=None, eos_token_ids=())
    for i in range(config.max_num_seqs):
        params = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)
        engine.add_request(str(i), [1] * context, params)
    while True:
        batch = engine.scheduler.schedule()
        assert batch is not None, "the requests have room for more tokens than are timed here"
        engine.scheduler.commit(batch, [1] * len(batch.rows))
        if batch.num_decode_rows == config.max_num_seqs:
            return engine, batch


def _back_to_back(runner: ModelRunner, batch: Batch, steps: int) -> tuple[float, float]:
    """Seconds of a launch on the host, and of a step on the device: the same step again and again."""
    for _ in range(_WARM_STEPS):
        jax.block_until_ready(runner.sample(runner.forward(batch)).tokens)
    begin = time.perf_counter()
    for _ in range(steps):
        tokens = runner.sample(runner.forward(batch)).tokens
    launched = time.perf_counter()
    jax.block_until_ready(tokens)
    return (launched - begin) / steps, (time.perf_counter() - begin) / steps
