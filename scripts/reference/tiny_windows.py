"""Random small models whose text is ten windows long: one with a window in every layer, one with it in half of them.

So long a text shows what a short one cannot: that keys which left the window are not needed any more, and in the second
model that those of the layers without a window still are.
"""

from typing import Any

import numpy as np
import torch
from transformers import MinistralConfig, MinistralForCausalLM, MistralConfig, MistralForCausalLM

from reference.fixture import Array, Sources, require, write_reference
from reference.greedy import greedy
from reference.random_weights import fill_with_random_weights

WINDOW = 12
NUM_TOKENS = 10 * WINDOW
NUM_PROMPT_TOKENS = 3
MIN_MARGIN = 1e-3
FULL, SLIDING = "full_attention", "sliding_attention"
LAYER_TYPES = [FULL, SLIDING, FULL, SLIDING]
SEED_ONE_GROUP = 0
SEED_TWO_GROUPS = 1
"""Of those tried the first ones that keep every choice clear of the second best by ``MIN_MARGIN``."""

SHAPE: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attn_implementation": "eager",
}


def make_one_group(sources: Sources) -> None:
    """Write ``tiny_windows``: a Mistral with the window in all four layers."""
    model = build_mistral(WINDOW)
    token_ids, margins = _text(model, SEED_ONE_GROUP)
    logits = _logits(model, token_ids)
    _check_layers(token_ids, logits, build_mistral(None))
    _require_reach(build_mistral(WINDOW, num_layers=1), token_ids, WINDOW)
    about = f"Random float32 MistralForCausalLM: 4 query heads per kv head, window {WINDOW} in every layer."
    _write(sources, "tiny_windows", about, model, token_ids, logits, margins)


def make_two_groups(sources: Sources) -> None:
    """Write ``tiny_two_groups``: a Ministral with the window in the second and the fourth of four layers."""
    model = build_ministral(LAYER_TYPES)
    token_ids, margins = _text(model, SEED_TWO_GROUPS)
    logits = _logits(model, token_ids)
    for i, kind in enumerate(LAYER_TYPES):
        other = SLIDING if kind == FULL else FULL
        _check_layers(token_ids, logits, build_ministral([*LAYER_TYPES[:i], other, *LAYER_TYPES[i + 1 :]]))
    _require_reach(build_ministral([SLIDING]), token_ids, WINDOW)
    _require_reach(build_ministral([FULL]), token_ids, NUM_TOKENS)
    about = f"Random float32 MinistralForCausalLM: layers without a window and with one of {WINDOW} in turn."
    _write(sources, "tiny_two_groups", about, model, token_ids, logits, margins)


def build_mistral(window: int | None, num_layers: int = 4) -> MistralForCausalLM:
    """The model of one group; the weights do not depend on ``window``."""
    config = MistralConfig(**SHAPE, num_hidden_layers=num_layers, sliding_window=window)
    model = MistralForCausalLM(config).eval()
    fill_with_random_weights(model, SEED_ONE_GROUP)
    return model


def build_ministral(layer_types: list[str]) -> MinistralForCausalLM:
    """The model of two groups, a layer for each of ``layer_types``; the weights do not depend on what these are."""
    config = MinistralConfig(
        **SHAPE, num_hidden_layers=len(layer_types), sliding_window=WINDOW, layer_types=layer_types
    )
    model = MinistralForCausalLM(config).eval()
    fill_with_random_weights(model, SEED_TWO_GROUPS)
    return model


def _text(model: torch.nn.Module, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A random prompt with the greedy continuation, int32 [T], and the margins of its choices [T - prompt]."""
    prompt = np.random.default_rng(seed + 1).integers(3, SHAPE["vocab_size"], NUM_PROMPT_TOKENS).astype(np.int32)
    continuation, margins = greedy(model, prompt.tolist(), NUM_TOKENS - NUM_PROMPT_TOKENS)
    require(margins.min() > MIN_MARGIN, f"every margin is above {MIN_MARGIN}, here {margins.min():.5f}")
    num_distinct = len(set(continuation[-3 * WINDOW :].tolist()))
    require(num_distinct > WINDOW, f"the text does not end in a loop, here {num_distinct} tokens in three windows")
    return np.concatenate([prompt, continuation]), margins


def _logits(model: torch.nn.Module, token_ids: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return model(torch.from_numpy(token_ids)[None]).logits[0].numpy()


def _check_layers(token_ids: np.ndarray, logits: np.ndarray, other: torch.nn.Module) -> None:
    """A model with other windows, W or none, is the same for the first W positions and another from there on."""
    change = np.abs(_logits(other, token_ids) - logits).max(axis=1)
    require(change[:WINDOW].max() < 1e-5, "with other windows the first W positions are the same")
    require(change[WINDOW:].min() > 1e-2, f"with other windows all others differ, here by {change[WINDOW:].min():.4f}")


def _require_reach(one_layer: torch.nn.Module, token_ids: np.ndarray, num_queries: int) -> None:
    """One layer carries a token to exactly ``num_queries`` queries, its own included: seen from outside the model."""
    changed_at = WINDOW + 1
    changed_ids = token_ids.copy()
    changed_ids[changed_at] += 1 if changed_ids[changed_at] < SHAPE["vocab_size"] - 1 else -1
    change = np.abs(_logits(one_layer, changed_ids) - _logits(one_layer, token_ids)).max(axis=1)
    reached = np.flatnonzero(change > 1e-5).tolist()
    wanted = list(range(changed_at, min(changed_at + num_queries, NUM_TOKENS)))
    require(reached == wanted, f"one layer carries token {changed_at} to {num_queries} queries, here to {reached}")


def _write(
    sources: Sources,
    name: str,
    about: str,
    model: MistralForCausalLM | MinistralForCausalLM,
    token_ids: np.ndarray,
    logits: np.ndarray,
    margins: np.ndarray,
) -> None:
    """Write the checkpoint in the Hugging Face layout and the arrays beside it."""
    require(1 <= logits.std() <= 3, f"logits spread with a std of 1 to 3, here {logits.std():.2f}")
    folder = sources.fixtures / name
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()  # transformers' defaults, which say nothing of this model
    write_reference(
        folder,
        {
            "token_ids": Array(token_ids, f"{NUM_PROMPT_TOKENS} random tokens and their greedy continuation, T in all"),
            "logits": Array(logits, "[T, V], eager attention in float32, one pass over the whole text"),
            "greedy_margins": Array(margins, "by how much each chosen logit is above the second"),
        },
        about,
        window=WINDOW,
        num_prompt_tokens=NUM_PROMPT_TOKENS,
    )
