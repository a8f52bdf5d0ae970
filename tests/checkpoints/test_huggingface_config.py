"""config.json, as versions 4 and 5 of transformers write it."""

import re

import pytest

from checkpoints.huggingface_config import read_description
from tests.checkpoints.writers import CONFIG, HF_CONFIG, write_json

FULL, SLIDING = "full_attention", "sliding_attention"

# What Mistral-7B-v0.1 has on the hub, and the same as version 5 of transformers writes it.
MISTRAL_7B = {
    "architectures": ["MistralForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mistral",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 32000,
}

# What Qwen2.5-7B and Qwen3-8B have on the hub, as far as it matters.
QWEN2 = MISTRAL_7B | {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "max_position_embeddings": 131072,
    "max_window_layers": 28,
    "model_type": "qwen2",
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "rope_theta": 1000000.0,
    "sliding_window": 131072,
    "use_sliding_window": False,
    "vocab_size": 152064,
}
QWEN3 = MISTRAL_7B | {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "max_window_layers": 36,
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "use_sliding_window": False,
    "vocab_size": 151936,
}


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


@pytest.fixture
def read(tmp_path):
    def read(config, generation=None):
        write_json(tmp_path / "config.json", config)
        if generation is not None:
            write_json(tmp_path / "generation_config.json", generation)
        return read_description(tmp_path)

    return read


def test_every_value_has_its_place(read):
    assert read(HF_CONFIG).config == CONFIG


def test_mistral_7b(read):
    config = read(MISTRAL_7B).config
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (32, 8, 128)
    assert config.windows == (4096,) * 32
    assert (config.rope_theta, config.max_position_embeddings, config.tie_embeddings) == (10000.0, 32768, False)


def test_head_dim_is_what_the_config_says(read):
    """Mistral Nemo says 128 where hidden / heads is 160."""
    nemo = MISTRAL_7B | {"hidden_size": 5120, "head_dim": 128, "sliding_window": None, "rope_theta": 1e6}
    assert read(nemo).config.head_dim == 128


@pytest.mark.parametrize("config", [MISTRAL_7B, MISTRAL_7B | {"head_dim": None}])
def test_a_missing_head_dim_is_hidden_by_heads(read, config):
    assert read(config | {"hidden_size": 2048}).config.head_dim == 64


def test_a_missing_head_dim_that_does_not_divide_is_an_error(read):
    with pytest.raises(ValueError, match=r"config\.json: head_dim is missing; .*hidden_size 4100 .* 32 heads"):
        read(MISTRAL_7B | {"hidden_size": 4100})


@pytest.mark.parametrize(
    ("change", "theta"),
    [
        ({"rope_theta": 1000000}, 1e6),
        ({"rope_theta": None, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}, 1e6),
        ({"rope_theta": 5e5, "rope_parameters": {"rope_theta": 500000, "rope_type": "default"}}, 5e5),
        ({"rope_theta": 5e5, "rope_scaling": None}, 5e5),
        ({"rope_theta": 5e5, "rope_scaling": {"type": "default"}}, 5e5),
        ({"rope_theta": None, "rope_scaling": {"rope_type": "default", "rope_theta": 7.0}}, 7.0),
    ],
)
def test_the_rotary_base_is_read_from_both_places(read, change, theta):
    assert read(HF_CONFIG | change).config.rope_theta == theta


OLD = {"transformers_version": "4.32.1"}


@pytest.mark.parametrize("change", [{}, {"rope_parameters": {"rope_type": "default"}}, {"rope_parameters": None}])
@pytest.mark.parametrize("config", [HF_CONFIG, MISTRAL_7B | OLD, QWEN2 | OLD])
def test_a_missing_rotary_base_is_an_error(read, config, change):
    with pytest.raises(ValueError, match=r"config\.json: rope_theta is missing"):
        read(without(config, "rope_theta") | change)


@pytest.mark.parametrize("version", ["4.31.0.dev0", "4.28.0", "4.32.1", "3.9"])
def test_a_llama_older_than_the_key_means_10000(read, version):
    """Llama 2's own files are from 4.31, and have no ``rope_theta``."""
    old = HF_CONFIG | {"transformers_version": version}
    assert read(without(old, "rope_theta")).config.rope_theta == 10_000.0
    assert read(old).config.rope_theta == 5000.0


@pytest.mark.parametrize("version", ["4.33.0", "4.100.0", "5.0.0", "", "new", "4"])
def test_a_newer_llama_without_the_key_is_an_error(read, version):
    with pytest.raises(ValueError, match=r"config\.json: rope_theta is missing"):
        read(without(HF_CONFIG, "rope_theta") | {"transformers_version": version})


def test_two_rotary_bases_that_differ_are_an_error(read):
    with pytest.raises(ValueError, match=r"rope_theta is written twice and differs: \[5000\.0, 10000\.0\]"):
        read(HF_CONFIG | {"rope_parameters": {"rope_theta": 1e4}})


@pytest.mark.parametrize(
    "change", [{"partial_rotary_factor": 0.5}, {"rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 5000}}]
)
def test_a_part_of_the_head_is_refused(read, change):
    with pytest.raises(ValueError, match=r"partial_rotary_factor is 0\.5"):
        read(HF_CONFIG | change)


@pytest.mark.parametrize(
    ("change", "window"),
    [
        ({}, 4096),
        ({"sliding_window": 7}, 7),
        ({"sliding_window": None}, None),
        ({"sliding_window": 0}, None),
        ({"sliding_window": -1}, None),
        ({"use_sliding_window": False}, None),
        ({"use_sliding_window": True}, 4096),
    ],
)
def test_forms_of_the_window(read, change, window):
    assert read(MISTRAL_7B | change).config.windows == (window,) * 32


@pytest.mark.parametrize(
    ("change", "windows"),
    [
        ({}, (None, 4096, 4096, None)),
        ({"sliding_window": 7}, (None, 7, 7, None)),
        ({"sliding_window": None}, (None,) * 4),
        ({"sliding_window": 0}, (None,) * 4),
        ({"sliding_window": -1}, (None,) * 4),
        ({"use_sliding_window": False}, (None,) * 4),
        ({"use_sliding_window": True}, (None, 4096, 4096, None)),
        ({"layer_types": [SLIDING] * 4}, (4096,) * 4),
        ({"layer_types": [FULL] * 4}, (None,) * 4),
        ({"layer_types": None}, (4096,) * 4),
    ],
)
@pytest.mark.parametrize(
    "family", [{}, {"model_type": "ministral", "architectures": ["MinistralForCausalLM"]}], ids=["mistral", "ministral"]
)
def test_windows_on_some_layers(read, family, change, windows):
    some = MISTRAL_7B | family | {"num_hidden_layers": 4, "layer_types": [FULL, SLIDING, SLIDING, FULL]}
    assert read(some | change).config.windows == windows


@pytest.mark.parametrize(
    ("layer_types", "found"),
    [
        (
            [FULL, "chunked_attention", SLIDING],
            r"layer_types\[1\] is 'chunked_attention'; it must be full_attention or",
        ),
        ([FULL, SLIDING, "Full_attention"], r"layer_types\[2\] is 'Full_attention'"),
        ([FULL, None, SLIDING], r"layer_types\[1\] is missing; it must be a string"),
        ([FULL, [SLIDING], SLIDING], r"layer_types\[1\] is \['sliding_attention'\]; it must be a string"),
        ([FULL, SLIDING], "layer_types is .* a list of 3 entries, one for each layer, not of 2"),
        ([FULL] * 4, "layer_types is .* a list of 3 entries, one for each layer, not of 4"),
        ([], r"layer_types is \[\]; .* not of 0"),
        (SLIDING, "layer_types is 'sliding_attention'; it must be a list"),
        ({"0": FULL, "1": FULL, "2": FULL}, "layer_types is .*; it must be a list"),
    ],
)
def test_wrong_layer_types_are_named(read, layer_types, found):
    with pytest.raises(ValueError, match=r"config\.json: " + found):
        read(MISTRAL_7B | {"num_hidden_layers": 3, "layer_types": layer_types})


def test_defaults_of_mistrals_own_class(read):
    """MistralConfig: 8 kv heads and a window of 4096 where the keys are missing; null says otherwise for both.

    MinistralConfig has the same defaults.
    """
    for family in ({}, {"model_type": "ministral", "architectures": ["MinistralForCausalLM"]}):
        config = read(without(MISTRAL_7B, "num_key_value_heads", "sliding_window") | family).config
        assert (config.num_kv_heads, config.windows[0]) == (8, 4096)
        assert read(MISTRAL_7B | family | {"num_key_value_heads": None}).config.num_kv_heads == 32


def test_the_families_of_qwen_differ_in_bias_and_norm(read):
    for file, has_bias, has_norm in ((QWEN2, True, False), (QWEN3, False, True), (MISTRAL_7B, False, False)):
        config = read(file).config
        assert (config.qkv_bias, config.qk_norm) == (has_bias, has_norm)
    assert read(QWEN2).config.windows == (None,) * 28


@pytest.mark.parametrize(
    ("change", "windows"),
    [
        ({}, (None,) * 4),
        ({"use_sliding_window": True}, (None,) * 4),
        ({"use_sliding_window": True, "max_window_layers": 2}, (None, None, 4096, 4096)),
        ({"use_sliding_window": True, "max_window_layers": 0, "sliding_window": 7}, (7,) * 4),
        ({"use_sliding_window": True, "max_window_layers": 3, "sliding_window": None}, (None,) * 4),
        ({"use_sliding_window": False, "max_window_layers": 0}, (None,) * 4),
        ({"use_sliding_window": True, "layer_types": [SLIDING, FULL, FULL, SLIDING]}, (4096, None, None, 4096)),
        ({"layer_types": [SLIDING, FULL, FULL, SLIDING]}, (None,) * 4),
    ],
)
@pytest.mark.parametrize("family", [QWEN2, QWEN3], ids=["qwen2", "qwen3"])
def test_windows_of_qwen(read, family, change, windows):
    """Qwen2Config and Qwen3Config: no window by default, and then in the layers from ``max_window_layers`` (28) on."""
    bare = without(family, "use_sliding_window", "max_window_layers", "sliding_window")
    assert read(bare | {"num_hidden_layers": 4} | change).config.windows == windows
    many = bare | {"num_hidden_layers": 30, "use_sliding_window": True}
    assert read(many).config.windows == (None,) * 28 + (4096,) * 2


def test_defaults_of_qwens_own_classes(read):
    """32 kv heads, and for Qwen3 a head_dim of 128, where the keys are missing; null says otherwise for both."""
    odd = {"hidden_size": 2048, "num_attention_heads": 32}
    for family, head_dim in ((QWEN2, 64), (QWEN3, 128)):
        config = read(without(family, "num_key_value_heads", "head_dim") | odd).config
        assert (config.num_kv_heads, config.head_dim) == (32, head_dim)
        nulls = read(family | odd | {"num_attention_heads": 16, "num_key_value_heads": None, "head_dim": None}).config
        assert (nulls.num_kv_heads, nulls.head_dim) == (16, 128)


def test_defaults_of_llamas_own_class(read):
    """LlamaConfig: as many kv heads as query heads; it has no window, so a stray key is not one."""
    assert read(without(HF_CONFIG, "num_key_value_heads")).config.num_kv_heads == 4
    assert read(HF_CONFIG | {"sliding_window": 16}).config.windows == (None, None)
    config = read(without(HF_CONFIG, "hidden_act", "tie_word_embeddings", "architectures")).config
    assert config == CONFIG


@pytest.mark.parametrize(
    "key",
    [
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "max_position_embeddings",
        "rms_norm_eps",
    ],
)
@pytest.mark.parametrize("value", ["absent", None, "many", True, [3]])
def test_a_missing_or_malformed_value_is_named(read, key, value):
    config = without(HF_CONFIG, key) if value == "absent" else HF_CONFIG | {key: value}
    with pytest.raises(ValueError, match=rf"config\.json: {key} is "):
        read(config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_key_value_heads": 3}, r"config\.json: .*num_heads is 4 and num_kv_heads is 3"),
        ({"head_dim": 15}, r"config\.json: .*head_dim is 15"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers is 1000000000000; it must be between 1 and 4096"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_attention_heads": 0, "head_dim": None}, "0 heads"),
        ({"rope_theta": 0}, r"rope_theta is 0\.0"),
        ({"rope_theta": float("nan")}, "rope_theta is nan"),
        ({"rope_theta": 10**400}, "rope_theta is 1000"),
        ({"rope_theta": "1e4"}, "rope_theta is '1e4'; it must be a number"),
        ({"rms_norm_eps": -1e-5}, "norm_eps is -1e-05"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'; it must be true or false"),
        ({"rope_parameters": [1]}, r"rope_parameters is \[1\]; it must be a mapping"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; it must be silu"),
        ({"attention_bias": True}, "attention_bias is True: a bias in the attention is not supported"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config is .*gptq.* is not supported"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types is"),
        ({"eos_token_id": 48}, "eos_token_id is 48; it must be a token id below the vocabulary's 48"),
        ({"eos_token_id": [2, -1]}, r"eos_token_id is \[2, -1\]"),
        ({"eos_token_id": "</s>"}, "eos_token_id is '</s>'; it must be a whole number"),
    ],
)
def test_what_is_refused(read, change, message):
    with pytest.raises(ValueError, match=message) as error:
        read(HF_CONFIG | change)
    assert str(error.value).count("config.json") == 1


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"model_type": "qwen2_moe"}, "model_type is 'qwen2_moe'"),
        ({"model_type": "gemma2"}, "model_type is 'gemma2'"),
        ({"model_type": None}, "model_type is missing"),
        ({"model_type": ["llama"]}, r"model_type is \['llama'\]"),
        (
            {"architectures": ["LlamaForSequenceClassification"]},
            r"architectures is \['LlamaForSequenceClassification'\]",
        ),
        ({"model_type": "ministral3"}, "model_type is 'ministral3'"),
        ({"model_type": "mistral"}, r"architectures is \['LlamaForCausalLM'\]"),
    ],
)
def test_an_unknown_architecture_is_named_with_the_supported_ones(read, change, found):
    supported = (
        r"llama \(LlamaForCausalLM\), mistral \(MistralForCausalLM\), ministral \(MinistralForCausalLM\), "
        r"qwen2 \(Qwen2ForCausalLM\), qwen3 \(Qwen3ForCausalLM\)"
    )
    with pytest.raises(ValueError, match=f"config.json: {found}; it must be a supported architecture: {supported}"):
        read(HF_CONFIG | change)


@pytest.mark.parametrize(
    ("own", "generation", "eos"),
    [
        ({}, None, (2,)),
        ({"eos_token_id": [2, 5, 2]}, None, (2, 5)),
        ({}, {"eos_token_id": [7, 2, 7]}, (7, 2)),
        ({}, {"eos_token_id": 0}, (0,)),
        ({}, {"temperature": 0.6}, (2,)),
        ({"eos_token_id": None}, None, ()),
    ],
)
def test_end_tokens_of_the_generation_config_come_first(read, own, generation, eos):
    assert read(HF_CONFIG | own, generation).eos_token_ids == eos


@pytest.mark.parametrize("value", [48, -1, "two", [2, 48], [True]])
def test_a_bad_token_of_the_generation_config_is_named_with_its_file(read, value):
    with pytest.raises(ValueError, match=r"generation_config\.json: eos_token_id is " + re.escape(repr(value))):
        read(HF_CONFIG, {"eos_token_id": value})


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b"7"])
def test_a_file_that_is_no_json_object_is_named(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"config\.json"):
        read_description(tmp_path)
