"""A random small Mistral with a short window, and its logits over five windows."""

import numpy as np
import torch
from transformers import MistralConfig, MistralForCausalLM

from reference.fixture import Array, Sources, require, write_reference
from reference.random_weights import fill_with_random_weights

WINDOW = 8
NUM_TOKENS = 40
SEED = 1


def make(sources: Sources) -> None:
    """Write the checkpoint in the Hugging Face layout and the logits of 40 random tokens."""
    folder = sources.fixtures / "tiny_mistral"
    model = build_model(WINDOW)
    token_ids = np.random.default_rng(SEED + 1).integers(3, model.config.vocab_size, NUM_TOKENS)
    logits = _logits(model, token_ids)
    require(1 <= logits.std() <= 3, f"logits spread with a std of 1 to 3, here {logits.std():.2f}")
    _check_window(token_ids, logits)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()  # transformers' defaults, which say nothing of this model
    write_reference(
        folder,
        {
            "token_ids": Array(token_ids.astype(np.int32), "T random tokens, five windows long"),
            "logits": Array(logits, "[T, V], eager attention in float32"),
        },
        f"Random float32 MistralForCausalLM: head_dim unlike hidden/heads, 4 query heads per kv head, window {WINDOW}.",
    )


def build_model(window: int | None, num_layers: int = 3) -> MistralForCausalLM:
    """The model with eager attention; the weights do not depend on ``window``."""
    config = MistralConfig(
        vocab_size=128,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=num_layers,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=256,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        sliding_window=window,
        tie_word_embeddings=False,
        attn_implementation="eager",
    )
    model = MistralForCausalLM(config).eval()
    fill_with_random_weights(model, SEED)
    return model


def _logits(model: MistralForCausalLM, token_ids: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return model(torch.from_numpy(token_ids)[None]).logits[0].numpy()


def _check_window(token_ids: np.ndarray, logits: np.ndarray) -> None:
    """A query attends to exactly W keys, its own included: seen from outside, not read from a mask."""
    full = _logits(build_model(None), token_ids)
    change = np.abs(full - logits).max(axis=1)
    require(change[:WINDOW].max() < 1e-5, "without the window the first W positions are the same")
    require(change[WINDOW:].min() > 1e-2, "without the window every later position differs")

    one_layer = build_model(WINDOW, num_layers=1)
    changed_ids = token_ids.copy()
    changed_ids[10] += 1 if changed_ids[10] < one_layer.config.vocab_size - 1 else -1
    change = np.abs(_logits(one_layer, changed_ids) - _logits(one_layer, token_ids)).max(axis=1)
    reached = np.flatnonzero(change > 1e-5)
    require(
        reached.tolist() == list(range(10, 10 + WINDOW)), f"one layer carries token 10 to W queries, here to {reached}"
    )
