"""The fixtures hold what they say: each is checked against the definition, in NumPy, or against itself.

A fixture that is wrong makes right code fail or, worse, wrong code pass; so the negative controls stand here too.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from jaxinfer.config import ModelConfig
from jaxinfer.weights import weight_shapes
from tests.numpy_decoder import decoder_logits
from tests.reference import (
    FIXTURES,
    STORIES,
    TINY_LLAMA,
    TINY_MISTRAL,
    TINY_TWO_GROUPS,
    TINY_WINDOWS,
    load_reference,
    read_hf_weights,
    read_safetensors,
)


def test_fixtures_stay_small() -> None:
    assert sum(path.stat().st_size for path in FIXTURES.rglob("*") if path.is_file()) < 3_000_000


@pytest.mark.parametrize("name", sorted(path.parent.name for path in FIXTURES.glob("*/reference.npz")))
def test_json_lists_the_arrays(name: str) -> None:
    reference = load_reference(name)
    listed = {key: (tuple(entry["shape"]), entry["dtype"]) for key, entry in reference.info["arrays"].items()}
    assert listed == {key: (array.shape, str(array.dtype)) for key, array in reference.arrays.items()}
    assert reference.info["command"].endswith(f"make_reference.py {name}")
    assert {"torch", "transformers"} <= reference.info["versions"].keys()


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("tiny_mistral", TINY_MISTRAL),
        ("tiny_llama_sharded", TINY_LLAMA),
        ("tiny_windows", TINY_WINDOWS),
        ("tiny_two_groups", TINY_TWO_GROUPS),
    ],
)
def test_logits_agree_with_the_definition(name: str, config: ModelConfig) -> None:
    reference = load_reference(name)
    weights = read_hf_weights(reference.folder, config)
    assert {key: values.shape for key, values in weights.items()} == weight_shapes(config)
    logits = decoder_logits(config, weights, reference.arrays["token_ids"])
    np.testing.assert_allclose(reference.arrays["logits"], logits, atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"windows": (7, 7, 7)},
        {"windows": (9, 9, 9)},
        {"windows": (8, 8, None)},
        {"rope_theta": 10500.0},
        {"norm_eps": 1e-3},
    ],
)
def test_tiny_mistral_tells_a_wrong_model(wrong: dict[str, object]) -> None:
    """Negative controls: the model is compared at 1e-4, where each of these faults shows."""
    reference = load_reference("tiny_mistral")
    weights = read_hf_weights(reference.folder, TINY_MISTRAL)
    logits = decoder_logits(replace(TINY_MISTRAL, **wrong), weights, reference.arrays["token_ids"])
    assert np.abs(reference.arrays["logits"] - logits).max() > 1e-3


@pytest.mark.parametrize(("name", "config"), [("tiny_windows", TINY_WINDOWS), ("tiny_two_groups", TINY_TWO_GROUPS)])
def test_the_windowed_models_tell_wrong_windows_at_every_late_position(name: str, config: ModelConfig) -> None:
    """Negative controls: one layer with another window, past three windows, where the engine is compared at 1e-4."""
    reference = load_reference(name)
    weights = read_hf_weights(reference.folder, config)
    for layer, window in enumerate(config.windows):
        for other in (11, 13, None) if window else (108,):
            windows = (*config.windows[:layer], other, *config.windows[layer + 1 :])
            logits = decoder_logits(replace(config, windows=windows), weights, reference.arrays["token_ids"])
            change = np.abs(reference.arrays["logits"] - logits).max(axis=1)
            first = 36 if window else 108
            assert change[first:].min() > 1e-3, (layer, other)


@pytest.mark.parametrize("name", ["tiny_windows", "tiny_two_groups"])
def test_the_windowed_texts_are_the_greedy_choice(name: str) -> None:
    reference = load_reference(name)
    num_prompt = reference.info["num_prompt_tokens"]
    token_ids, logits = reference.arrays["token_ids"], reference.arrays["logits"][num_prompt - 1 : -1]
    assert len(token_ids) == 10 * reference.info["window"]
    assert np.array_equal(logits.argmax(axis=1), token_ids[num_prompt:])
    second, first = np.sort(logits, axis=1)[:, -2:].T
    np.testing.assert_allclose(reference.arrays["greedy_margins"], first - second, atol=1e-6)
    assert (first - second).min() > 1e-3


def test_tiny_llama_is_in_shards_that_the_index_lists() -> None:
    folder = FIXTURES / "tiny_llama_sharded"
    index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))["weight_map"]
    found = {name: path.name for path in folder.glob("*.safetensors") for name in read_safetensors(path)}
    assert index == found
    assert len(set(index.values())) >= 3


def _turned_scores(q: np.ndarray, k: np.ndarray, first: slice, second: slice) -> np.ndarray:
    """Scores of one head when ``q`` stands at position 11 and ``k`` at 3, the pairs being (first, second)."""
    turn = 10000.0 ** (-np.arange(8) / 8)
    q_pairs = (q[..., first] + 1j * q[..., second]) * np.exp(11j * turn)
    k_pairs = (k[..., first] + 1j * k[..., second]) * np.exp(3j * turn)
    return (q_pairs * k_pairs.conj()).real.sum(-1)


def test_tiny_mistral_layout_is_the_same_model_with_pairs_interleaved() -> None:
    ours = read_safetensors(FIXTURES / "tiny_mistral" / "model.safetensors")
    theirs = read_safetensors(FIXTURES / "tiny_mistral_layout" / "consolidated.safetensors")
    x = np.random.default_rng(0).standard_normal((5, 48))
    for i in range(3):
        hf, mistral = f"model.layers.{i}.", f"layers.{i}."
        q, k = (x @ ours.pop(f"{hf}self_attn.{p}_proj.weight").T.astype(np.float64) for p in "qk")
        q_there, k_there = (x @ theirs.pop(f"{mistral}attention.w{p}.weight").T.astype(np.float64) for p in "qk")
        for head in range(8):
            rows, kv_rows = slice(16 * head, 16 * head + 16), slice(16 * (head // 4), 16 * (head // 4) + 16)
            scores = _turned_scores(q[:, rows], k[:, kv_rows], slice(0, 8), slice(8, 16))
            scores_there = _turned_scores(q_there[:, rows], k_there[:, kv_rows], slice(0, 16, 2), slice(1, 16, 2))
            np.testing.assert_allclose(scores, scores_there, atol=1e-9)
        for name, name_there in (
            ("self_attn.v_proj", "attention.wv"),
            ("self_attn.o_proj", "attention.wo"),
            ("mlp.gate_proj", "feed_forward.w1"),
            ("mlp.down_proj", "feed_forward.w2"),
            ("mlp.up_proj", "feed_forward.w3"),
            ("input_layernorm", "attention_norm"),
            ("post_attention_layernorm", "ffn_norm"),
        ):
            assert np.array_equal(ours.pop(f"{hf}{name}.weight"), theirs.pop(f"{mistral}{name_there}.weight"))
    for name, name_there in (("model.embed_tokens", "tok_embeddings"), ("model.norm", "norm"), ("lm_head", "output")):
        assert np.array_equal(ours.pop(name + ".weight"), theirs.pop(name_there + ".weight"))
    assert not ours
    assert not theirs


def test_stories_ids_are_the_greedy_choice_and_the_known_text(shared_data: Path) -> None:
    reference = load_reference("stories260K")
    greedy_ids = reference.arrays["greedy_ids"]
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(shared_data / "stories260K-hf" / "tokenizer.model"))
    text = (shared_data / "stories260K-greedy-200.txt").read_text(encoding="utf-8")
    assert tokenizer.decode(greedy_ids.tolist()) + "\n" == text

    weights = read_hf_weights(shared_data / "stories260K-hf", STORIES)
    logits = decoder_logits(STORIES, weights, [*reference.info["prompt_token_ids"], *greedy_ids[:-1]])
    assert np.array_equal(logits.argmax(axis=1), greedy_ids)
    second, first = np.sort(logits, axis=1)[:, -2:].T
    np.testing.assert_allclose(reference.arrays["greedy_margins"], first - second, atol=1e-4)


def test_smollm2_logits_agree_with_each_other() -> None:
    arrays = load_reference("smollm2").arrays
    columns, column_logits = arrays["columns"], arrays["column_logits"]
    top_ids, top_logits, logsumexp = arrays["top_ids"], arrays["top_logits"], arrays["logsumexp"]
    assert np.all(np.diff(columns) > 0)
    assert np.all(np.diff(top_logits, axis=1) <= 0)
    # Where a column is one of the largest 8 it has the same logit; elsewhere it is not above them.
    same = columns[None, :, None] == top_ids[:, None, :]  # [T, 256, 8]
    in_top = same.any(axis=2)
    top_of_column = np.where(same, top_logits[:, None, :], 0).sum(axis=2)
    assert in_top.any()
    assert np.array_equal(column_logits[in_top], top_of_column[in_top])
    assert np.all((column_logits <= top_logits[:, -1:]) | in_top)
    # What is stored is a part of the sum over the vocabulary.
    parts = np.concatenate([top_logits, np.where(in_top, -np.inf, column_logits)], axis=1).astype(np.float64)
    assert np.all(np.log(np.exp(parts - top_logits[:, :1]).sum(axis=1)) + top_logits[:, 0] < logsumexp)
    assert np.all(arrays["next_logits"] <= top_logits[:-1, 0])


def test_smollm2_foresees_english() -> None:
    """A model loaded wrongly (rows of q and k in the wrong order, say) has a perplexity in the hundreds or more."""
    arrays = load_reference("smollm2").arrays
    assert np.exp(np.mean(arrays["logsumexp"][:-1] - arrays["next_logits"])) < 25


def test_smollm2_knows_paris() -> None:
    reference = load_reference("smollm2")
    chat, *others = reference.info["prompts"]
    assert reference.info["chat"][0]["content"] in chat["text"]
    assert chat["answer"].startswith("The capital of France is Paris.<|im_end|>")
    assert len(others) == 3
    assert reference.arrays["greedy_ids"].shape == reference.arrays["greedy_margins"].shape == (4, 40)
    assert reference.arrays["greedy_margins"].min() >= 0
