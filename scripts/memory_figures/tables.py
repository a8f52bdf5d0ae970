"""The tables of ``docs/memory.md``: which cases are run, and what of each is shown."""

from collections.abc import Sequence

import jax.numpy as jnp

from checkpoints import PRESETS
from jaxinfer import kv_cache
from jaxinfer.config import CacheMode, EngineConfig
from scripts.markdown import markdown_table
from scripts.memory_figures.growth import most_pages
from scripts.memory_figures.load import Conversation, Figures, conversations, run
from scripts.memory_figures.pools import GPUS, MODEL, num_pages

Lengths = Sequence[tuple[int, int]]
"""Tokens of prompt and output of each conversation."""

NUM_REQUESTS = 200
_MAX_MODEL_LEN, _MAX_NUM_SEQS = 4096, 256


def load_table(lengths: Lengths) -> str:
    """One load and one budget: pages against reserved room, with the end of each request known and unknown."""
    rows = []
    for gpu in GPUS:
        for cache, max_tokens in (("contiguous", None), ("paged", None), ("paged", _MAX_MODEL_LEN)):
            figures = run(_config(gpu, cache), conversations(lengths, max_tokens=max_tokens))
            asked = "-" if cache == "contiguous" else "the output" if max_tokens is None else "as many as fit"
            rows.append([f"{gpu}: {num_pages(gpu):,}", cache, asked, *_load_cells(figures)])
    return markdown_table(
        "GPU: pages | cache | max_tokens | in flight, mean | peak | output tokens a step | steps | preemptions"
        " | tokens computed again | pool filled",
        rows,
    )


def ratio_table(lengths: Lengths) -> str:
    """Output tokens of a step, paged over contiguous, for other limits and a longer load."""
    rows = []
    for num_requests, max_model_len, max_num_seqs in (
        (NUM_REQUESTS, _MAX_MODEL_LEN, _MAX_NUM_SEQS),
        (NUM_REQUESTS, 2048, _MAX_NUM_SEQS),
        (NUM_REQUESTS, _MAX_MODEL_LEN, 64),
        (NUM_REQUESTS, 2048, 64),
        (len(lengths), _MAX_MODEL_LEN, _MAX_NUM_SEQS),
    ):
        limits = {"max_model_len": max_model_len, "max_num_seqs": max_num_seqs}
        load = conversations(lengths[:num_requests], max_tokens=max_model_len)
        ratios = (
            paged_ratio(*(_config(gpu, cache, **limits) for cache in ("paged", "contiguous")), load) for gpu in GPUS
        )
        rows.append(
            [f"{num_requests:,}", f"{max_model_len:,}", str(max_num_seqs), *(f"{ratio:.1f}" for ratio in ratios)]
        )
    return markdown_table(" | ".join(("requests", "max_model_len", "max_num_seqs", *GPUS)), rows)


def paged_ratio(paged: EngineConfig, contiguous: EngineConfig, load: Sequence[Conversation]) -> float:
    """How many times the output tokens of a step pages give, for one load."""
    return run(paged, load).tokens_per_step / run(contiguous, load).tokens_per_step


def prefix_table(lengths: Lengths, num_shared: int = 1000) -> str:
    """Requests that begin with the same tokens, with the prefix cache and without."""
    system_prompt = [1] * num_shared
    load = [
        Conversation(
            prompt_token_ids=system_prompt + each.prompt_token_ids,
            num_output_tokens=each.num_output_tokens,
            max_tokens=each.max_tokens,
        )
        for each in conversations(lengths, max_tokens=None)
    ]
    rows = []
    for prefix_cache in (False, True):
        figures = run(_config(GPUS[1], "paged", prefix_cache=prefix_cache), load)
        found, given = figures.counters.num_cached_tokens, figures.counters.num_prompt_tokens
        of_load = [f"{given:,}", f"{found:,}", f"{given - found:,}"]
        rows.append(
            ["on" if prefix_cache else "off", *of_load, f"{figures.mean_in_flight:.1f}", f"{figures.num_steps:,}"]
        )
    return markdown_table("prefix cache | prompt tokens | found | computed | in flight, mean | steps", rows)


def window_table() -> str:
    """What one request holds as it grows to ten windows, against a model without a window."""
    window = PRESETS[MODEL].group_windows[0]
    assert window is not None
    lengths = [window // 4, window, 2 * window, 10 * window]
    columns = (most_pages(each, lengths) for each in (window, None))
    rows = [[f"{length:,}", f"{held:,}", f"{full:,}"] for length, held, full in zip(lengths, *columns, strict=True)]
    return markdown_table(f"tokens | pages, window {window:,} | pages, no window", rows)


def dtype_table() -> str:
    """Bytes of a token in the caches of known models."""
    rows = []
    for name in ("mistral-7b-v0.1", "qwen2.5-7b", "qwen3-8b", "smollm2-135m"):
        model = PRESETS[name]
        bfloat16, int8 = (kv_cache.bytes_per_token(model, jnp.dtype(dtype)) for dtype in ("bfloat16", "int8"))
        rows.append([name, str(model.head_dim), f"{bfloat16:,}", f"{int8:,}", f"{int8 / bfloat16:.3f}"])
    return markdown_table("model | head_dim | bfloat16 | int8 | ratio", rows)


def _config(
    gpu: str,
    cache: CacheMode,
    *,
    max_model_len: int = _MAX_MODEL_LEN,
    max_num_seqs: int = _MAX_NUM_SEQS,
    prefix_cache: bool = True,
) -> EngineConfig:
    return EngineConfig(
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        num_kv_pages=num_pages(gpu),
        windows=PRESETS[MODEL].group_windows,
        cache=cache,
        prefix_cache=prefix_cache,
    )


def _load_cells(figures: Figures) -> list[str]:
    return [
        f"{figures.mean_in_flight:.1f}",
        str(figures.peak_in_flight),
        f"{figures.tokens_per_step:.1f}",
        f"{figures.num_steps:,}",
        f"{figures.counters.num_preemptions:,}",
        f"{figures.counters.num_recomputed_tokens:,}",
        f"{figures.mean_filled:.0%}",
    ]
