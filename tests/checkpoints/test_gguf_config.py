"""The metadata of a GGUF file."""

import re
from dataclasses import replace

import numpy as np
import pytest

from checkpoints.checkpoint import open_checkpoint
from tests.checkpoints import writers
from tests.checkpoints.writers import CONFIG, GGUF_METADATA, gguf_tensors, known_weights


@pytest.fixture
def read(tmp_path):
    def read(change, architecture="llama", remove=(), config=CONFIG):
        metadata = {k: v for k, v in (GGUF_METADATA | change).items() if k not in remove}
        path = tmp_path / "m.gguf"
        tensors = gguf_tensors(known_weights(config), config)
        return open_checkpoint(writers.write_gguf(path, tensors, metadata, architecture=architecture))

    return read


def test_every_value_has_its_place(read):
    assert read({}).config == CONFIG


@pytest.mark.parametrize("name", ["qwen2moe", "gemma", "LLaMA", "mistral4"])
def test_an_unknown_architecture_is_named_with_the_supported_ones(read, name):
    with pytest.raises(
        ValueError,
        match=rf"m\.gguf: general\.architecture is '{name}'; .*supported architecture: llama, mistral3, qwen2, qwen3",
    ):
        read({}, architecture=name)


def test_mistral3_is_another_name_of_llama(tmp_path):
    metadata = {key.replace("llama.", "mistral3."): value for key, value in GGUF_METADATA.items()}
    path = tmp_path / "m.gguf"
    writers.write_gguf(path, gguf_tensors(known_weights()), metadata, architecture="mistral3")
    assert open_checkpoint(path).config == CONFIG
    np.testing.assert_array_equal(
        dict(open_checkpoint(path).weights(np.float32))["layers.0.qkv"], known_weights()["layers.0.qkv"]
    )


QWENS = {"qwen2": replace(CONFIG, qkv_bias=True), "qwen3": replace(CONFIG, qk_norm=True)}


def write_qwen(path, architecture, change):
    config = QWENS[architecture]
    metadata = {key.replace("llama.", f"{architecture}."): value for key, value in GGUF_METADATA.items()}
    tensors = gguf_tensors(known_weights(config), config, architecture=architecture)
    return writers.write_gguf(path, change(tensors), metadata, architecture=architecture)


@pytest.mark.parametrize("architecture", QWENS)
def test_the_architecture_says_what_its_layers_have(tmp_path, architecture):
    checkpoint = open_checkpoint(write_qwen(tmp_path / "m.gguf", architecture, lambda tensors: tensors))
    assert checkpoint.config == QWENS[architecture]
    expected = known_weights(QWENS[architecture])
    for name, values in checkpoint.weights(np.float32):
        np.testing.assert_array_equal(values, expected[name], err_msg=name)


@pytest.mark.parametrize(
    ("architecture", "name", "shape"),
    [
        ("qwen2", "blk.1.attn_q.bias", (64,)),
        ("qwen2", "blk.0.attn_k.bias", (32,)),
        ("qwen2", "blk.0.attn_v.bias", (32,)),
        ("qwen3", "blk.0.attn_q_norm.weight", (16,)),
        ("qwen3", "blk.1.attn_k_norm.weight", (16,)),
    ],
)
def test_what_only_a_qwen_has_is_needed_in_its_shape(tmp_path, architecture, name, shape):
    path = tmp_path / "m.gguf"
    write_qwen(path, architecture, lambda tensors: {key: tensors[key] for key in tensors if key != name})
    with pytest.raises(ValueError, match=rf"m\.gguf.*\n.*missing: {name}, shape {re.escape(str(shape))}$"):
        open_checkpoint(path)
    write_qwen(path, architecture, lambda tensors: tensors | {name: np.ones(8, np.float32)})
    with pytest.raises(ValueError, match=rf"misshapen: {name}, shape \(8,\), expected {re.escape(str(shape))}"):
        open_checkpoint(path)


@pytest.mark.parametrize(
    ("architecture", "name"),
    [("qwen2", "blk.0.attn_output.bias"), ("qwen2", "blk.0.attn_q_norm.weight"), ("qwen3", "blk.0.attn_q.bias")],
)
def test_what_a_qwen_does_not_have_is_unexpected(tmp_path, architecture, name):
    write_qwen(tmp_path / "m.gguf", architecture, lambda tensors: tensors | {name: np.ones(32, np.float32)})
    with pytest.raises(ValueError, match=rf"unexpected: {name}, shape \(32,\)"):
        open_checkpoint(tmp_path / "m.gguf")


def test_a_vocabulary_alone_is_no_model(shared_data):
    with pytest.raises(ValueError, match=r"missing: token_embd\.weight, shape \(32000, 4096\)"):
        open_checkpoint(shared_data / "tokenizers" / "ggml-vocab-llama-spm.gguf")
    with pytest.raises(ValueError, match=r"missing: token_embd\.weight, shape \(151936, 4096\)"):
        open_checkpoint(shared_data / "tokenizers" / "ggml-vocab-qwen2.gguf")


def test_a_missing_head_length_is_width_by_heads(read):
    config = replace(CONFIG, head_dim=8)
    lengths = ("llama.attention.key_length", "llama.attention.value_length", "llama.rope.dimension_count")
    assert read({}, remove=lengths, config=config).config == config


def test_missing_kv_heads_are_as_many_as_query_heads(read):
    config = replace(CONFIG, num_kv_heads=4)
    assert read({}, remove=("llama.attention.head_count_kv",), config=config).config == config


def test_a_missing_rotary_base_is_the_formats_10000(read):
    assert read({}, remove=("llama.rope.freq_base",)).config.rope_theta == 10_000.0


@pytest.mark.parametrize(("window", "expected"), [(7, 7), (0, None)])
def test_forms_of_the_window(read, window, expected):
    assert read({"llama.attention.sliding_window": window}).config.windows == (expected,) * 2


WINDOW, PATTERN = "llama.attention.sliding_window", "llama.attention.sliding_window_pattern"


@pytest.mark.parametrize(
    ("pattern", "windows"),
    [
        ([True, False], (7, None)),
        ([False, True], (None, 7)),
        ([1, 0], (7, None)),
        ([True, True], (7, 7)),
        ([False, False], (None, None)),
    ],
)
def test_a_pattern_says_which_layers_have_the_window(read, pattern, windows):
    assert read({WINDOW: 7, PATTERN: pattern}).config.windows == windows
    assert read({PATTERN: pattern}).config.windows == (None, None)


@pytest.mark.parametrize(
    "change", [{"llama.rope.scaling.type": "none"}, {"llama.rope.scaling.factor": 1.0}, {"split.count": 1}]
)
def test_what_changes_nothing_is_allowed(read, change):
    assert read(change).config == CONFIG


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"llama.expert_count": 8}, "a mixture of experts is not supported"),
        ({"llama.attention.temperature_scale": 0.1}, "grows with the position is not supported"),
        ({"llama.attention.value_length": 8}, r"value_length is 8; it must be equal to the length of a head, 16"),
        ({"llama.rope.dimension_count": 8}, r"dimension_count is 8; it must be equal"),
        ({"llama.attention.head_count_kv": 3}, "num_heads is 4 and num_kv_heads is 3"),
        ({"llama.attention.head_count_kv": [2, 2]}, "head_count_kv is GGUFArray.*; it must be a whole number"),
        ({"llama.block_count": 2**31}, r"llama\.block_count is 2147483648"),
        ({"split.count": 3}, r"split\.count is 3"),
        ({WINDOW: 7, PATTERN: 2}, "pattern is 2; it must be an array of 2 entries, one for each layer"),
        ({WINDOW: 7, PATTERN: [True]}, "pattern is .*; it must be an array of 2 entries"),
        ({WINDOW: 7, PATTERN: [True] * 3}, "pattern is .*; it must be an array of 2 entries"),
        ({WINDOW: 7, PATTERN: [1, 2]}, "pattern is .*; it must be an array of true and false"),
        ({WINDOW: 7, PATTERN: ["yes", "no"]}, "pattern is .*; it must be an array of true and false"),
        ({"tokenizer.ggml.eos_token_id": 48}, "eos_token_id is 48"),
    ],
)
def test_what_is_refused(read, change, message):
    with pytest.raises(ValueError, match=r"m\.gguf: .*" + message):
        read(change)


@pytest.mark.parametrize(
    "key",
    [
        "llama.block_count",
        "llama.context_length",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
    ],
)
def test_a_missing_key_is_named(read, key):
    with pytest.raises(ValueError, match=rf"m\.gguf: {key} is missing"):
        read({}, remove=(key,))


def test_a_text_ends_at_the_end_of_a_turn_too(read):
    checkpoint = read({"tokenizer.ggml.eot_token_id": 9, "tokenizer.ggml.eom_token_id": 2})
    assert checkpoint.eos_token_ids == (2, 9)
    assert read({"tokenizer.ggml.eom_token_id": 5}).eos_token_ids == (2, 5)


def test_a_padded_embedding_sets_the_vocabularys_size(read):
    assert read({"tokenizer.ggml.tokens": [str(i) for i in range(40)]}).config.vocab_size == 48


def test_values_are_float32_of_the_quantized_ones(read):
    assert dict(read({}).weights(np.float32))["embedding"].dtype == np.float32
