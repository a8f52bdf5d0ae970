"""Requests of real lengths through the engine's loop, all of them there from the start."""

import time
from pathlib import Path
from typing import Any

from jaxinfer.bench.lengths import read_lengths
from jaxinfer.config import EngineConfig
from jaxinfer.engine import Engine
from jaxinfer.runner import ModelRunner
from jaxinfer.sampling_params import SamplingParams
from scripts.on_gpu.settings import Settings

LONGEST_PROMPT, LONGEST_OUTPUT = 1024, 256
"""Longer ones are cut, so that a run takes seconds."""

_NUM_REQUESTS = 200


def serve(runner: ModelRunner, config: EngineConfig, lengths: Path, settings: Settings) -> dict[str, Any]:
    """Serve the first requests of the file, and say how fast.

    Args:
        runner: with programs for decode rows alone and for the largest chunk.
        config: its limits.
        lengths: a CSV file with the columns ``prompt_tokens`` and ``output_tokens``.
        settings: of the part; what is not done when its time is over counts as far as it came.

    Returns:
        By name of the column.

    Raises:
        ValueError: the file has no lengths, or a line that has none; the message names both.
    """
    requests = _lengths(lengths, settings)
    engine = Engine(runner, config, tokenizer=None, eos_token_ids=())
    for i, (num_prompt, num_output) in enumerate(requests):
        params = SamplingParams(temperature=0, max_tokens=num_output, ignore_eos=True)
        engine.add_request(str(i), [1 + i % 100] * num_prompt, params)
    begin, num_steps, outputs = time.perf_counter(), 0, []
    while engine.has_unfinished and settings.seconds_left > 0:
        outputs += engine.step()
        num_steps += 1
    seconds = time.perf_counter() - begin
    prompts = sum(len(output.prompt_token_ids) for output in outputs)
    drawn = sum(len(output.outputs[0].token_ids) for output in outputs)
    return {
        "finished": f"{len(outputs)} of {len(requests)}",
        "prompt tokens": prompts,
        "output tokens": drawn,
        "s": seconds,
        "steps": num_steps,
        "output tokens/s": drawn / seconds,
        "total tokens/s": (prompts + drawn) / seconds,
        "requests/s": len(outputs) / seconds,
    }


def _lengths(path: Path, settings: Settings) -> list[tuple[int, int]]:
    """Tokens of prompt and output of each request, cut to what the programs take."""
    number, *longest = (4, 24, 8) if settings.tiny else (_NUM_REQUESTS, LONGEST_PROMPT, LONGEST_OUTPUT)
    lengths = read_lengths(path, number)
    return [(min(prompt, longest[0]), max(1, min(output, longest[1]))) for prompt, output in lengths]
