"""config.json, as versions 4 and 5 of transformers write it."""

import pytest

from checkpoints.huggingface_config import read_description
from tests.checkpoints.published import MISTRAL_7B, QWEN2, QWEN3, without
from tests.checkpoints.writers import CONFIG, HF_CONFIG, write_json


@pytest.fixture
def read(tmp_path):
    def read(config):
        write_json(tmp_path / "config.json", config)
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


def test_defaults_of_qwens_own_classes(read):
    """32 kv heads, and for Qwen3 a head_dim of 128, where the keys are missing; null says otherwise for both."""
    odd = {"hidden_size": 2048, "num_attention_heads": 32}
    for family, head_dim in ((QWEN2, 64), (QWEN3, 128)):
        config = read(without(family, "num_key_value_heads", "head_dim") | odd).config
        assert (config.num_kv_heads, config.head_dim) == (32, head_dim)
        nulls = read(family | odd | {"num_attention_heads": 16, "num_key_value_heads": None, "head_dim": None}).config
        assert (nulls.num_kv_heads, nulls.head_dim) == (16, 128)


@pytest.mark.parametrize("layer_types", [None, ["full_attention"] * 2])
def test_a_llama_may_say_that_its_layers_have_no_window(read, layer_types):
    assert read(HF_CONFIG | {"layer_types": layer_types, "sliding_window": 16}).config == CONFIG


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
        ({"quantization_config": {"quant_method": "fp8"}}, "quant_method is 'fp8'; it must be .* gptq, awq, "),
        (
            {"layer_types": ["full_attention", "sliding_attention"]},
            r"layer_types\[1\] is 'sliding_attention'; .* in a Llama",
        ),
        ({"layer_types": ["full_attention"]}, "layer_types is .* a list of 2 entries"),
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


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b"7"])
def test_a_file_that_is_no_json_object_is_named(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"config\.json"):
        read_description(tmp_path)
