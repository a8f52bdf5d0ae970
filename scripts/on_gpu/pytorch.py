"""Part ``pytorch``: the decode step of the same model in PyTorch, as transformers has it, compiled as a whole.

It is the comparison that a user would make: static cache, ``torch.compile`` with CUDA graphs, greedy tokens.
"""

import inspect
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

from checkpoints import PRESETS
from scripts.on_gpu.part import Row
from scripts.on_gpu.settings import Settings

_TABLE = "Decode step in PyTorch"
_ROWS = (1, 32)
"""Few: to compile one takes most of a minute."""
_CONTEXT, _STEPS, _WARM_STEPS = 1000, 50, 8


def rows(settings: Settings) -> Iterator[Row]:
    """A row for each number of rows, or one that says what is missing."""
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        yield Row(_TABLE, {"note": f"not installed: {', '.join(missing)}"})
        return
    import torch  # here, since it need not be there

    if not torch.cuda.is_available() and not settings.tiny:
        yield Row(_TABLE, {"note": "this PyTorch has no CUDA"})
        return
    model = _model(settings)
    all_rows = (2,) if settings.tiny else _ROWS
    for i, num_rows in enumerate(all_rows):
        if settings.seconds_left <= 0:
            yield Row.of_what_was_not_run(_TABLE, len(all_rows) - i)
            return
        values = {"torch": torch.__version__, "B": num_rows}
        try:
            yield Row(_TABLE, values | _measured(model, num_rows, settings))
        except torch.cuda.OutOfMemoryError:
            yield Row(_TABLE, values | {"note": "does not fit"})
            return


def _model(settings: Settings) -> Any:
    """The 7B preset, or a tiny model, with the random weights that transformers begins a training with."""
    import torch
    from transformers import MistralConfig, MistralForCausalLM

    preset = PRESETS["mistral-7b-v0.1"]
    shape = {
        "vocab_size": preset.vocab_size,
        "hidden_size": preset.hidden_size,
        "intermediate_size": preset.intermediate_size,
        "num_hidden_layers": preset.num_layers,
        "num_attention_heads": preset.num_heads,
        "num_key_value_heads": preset.num_kv_heads,
    }
    if settings.tiny:
        shape = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
        shape |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cpu" if settings.tiny else "cuda"):
        # No window: the context is shorter, and a cache with one would cost this side time.
        return MistralForCausalLM(MistralConfig(**shape, sliding_window=None)).eval()


def _measured(model: Any, num_rows: int, settings: Settings) -> dict[str, Any]:
    """Numbers of a step with so many rows, after a prompt that is read without compiling anything."""
    import torch
    from transformers import StaticCache

    context, steps = (20, 4) if settings.tiny else (_CONTEXT, _STEPS)
    torch._dynamo.reset()  # so that a new number of rows is compiled as such, and not as any number
    begin = time.perf_counter()
    with torch.inference_mode():
        cache = StaticCache(config=model.config, max_cache_len=context + _WARM_STEPS + steps + 8)
        name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        prompt = torch.ones((num_rows, context), dtype=torch.long, device=model.device)
        model.model(prompt, **{name: cache}, use_cache=True)

        def step(tokens: Any) -> Any:
            return model(tokens, **{name: cache}, use_cache=True).logits[:, -1:].argmax(-1)

        compiled = step if settings.tiny else torch.compile(step, mode="reduce-overhead", dynamic=False)
        tokens = _run(compiled, prompt[:, :1], _WARM_STEPS)
        ready = time.perf_counter()
        _run(compiled, tokens, steps)
    seconds = (time.perf_counter() - ready) / steps
    return {
        "context": context,
        "tokens/s": num_rows / seconds,
        "ms": 1e3 * seconds,
        "s to compile": ready - begin,
    }


def _run(step: Callable[[Any], Any], tokens: Any, steps: int) -> Any:
    """The tokens after so many steps; waits for the device."""
    import torch

    for _ in range(steps):
        torch.compiler.cudagraph_mark_step_begin()
        tokens = step(tokens).clone()  # the graph's own memory is written again by its next run
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return tokens
