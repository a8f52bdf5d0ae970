"""params.json, as Mistral has published it over time."""

import re
from dataclasses import replace

import pytest

from checkpoints.mistral_config import read_description
from tests.checkpoints.writers import CONFIG, MISTRAL_PARAMS, write_json

# As published with Mistral 7B v0.1: no rope_theta, and a window.
MISTRAL_7B_V01 = {
    "dim": 4096,
    "n_layers": 32,
    "head_dim": 128,
    "hidden_dim": 14336,
    "n_heads": 32,
    "n_kv_heads": 8,
    "norm_eps": 1e-05,
    "sliding_window": 4096,
    "vocab_size": 32000,
}


@pytest.fixture
def read(tmp_path):
    def read(params, has_output=True):
        write_json(tmp_path / "params.json", params)
        return read_description(tmp_path, has_output)

    return read


def test_every_value_has_its_place(read):
    description = read(MISTRAL_PARAMS)
    assert description.config == CONFIG
    assert description.eos_token_ids == ()


def test_mistral_7b_v01_means_10000(read):
    config = read(MISTRAL_7B_V01).config
    assert (config.rope_theta, config.windows) == (10_000.0, (4096,) * 32)


@pytest.mark.parametrize("window", [None, 0, -1])
def test_a_missing_rotary_base_without_a_window_is_an_error(read, window):
    with pytest.raises(ValueError, match=r"params\.json: rope_theta is missing"):
        read(MISTRAL_7B_V01 | {"sliding_window": window})


@pytest.mark.parametrize(("window", "expected"), [(7, 7), (None, None), (0, None), (-1, None)])
def test_forms_of_the_window(read, window, expected):
    assert read(MISTRAL_PARAMS | {"sliding_window": window}).config.windows == (expected,) * 2


@pytest.mark.parametrize("key", ["sliding_window", "_sliding_window"])
@pytest.mark.parametrize(
    ("listed", "windows"),
    [
        ([None, 7, 7, 7], (None, 7, 7, 7)),
        ([9, None], (9, None, 9, None)),
        ([7], (7, 7, 7, 7)),
        ([None], (None,) * 4),
        ([0, 7], (None, 7, None, 7)),
        ([-1, 7], (None, 7, None, 7)),
        (7, (7, 7, 7, 7)),
    ],
)
def test_the_layers_repeat_a_list_of_windows(read, key, listed, windows):
    """mistral-inference, ``get_cache_sizes``: null keeps the whole context, and the list is repeated for all layers."""
    assert read(MISTRAL_PARAMS | {"n_layers": 4, key: listed}).config.windows == windows
    both = {"sliding_window": None, "_sliding_window": None}
    assert read(MISTRAL_PARAMS | both | {"n_layers": 4, key: listed}).config.windows == windows


def test_a_missing_rotary_base_is_clear_only_with_one_window_for_all_layers(read):
    assert read(MISTRAL_7B_V01 | {"sliding_window": [4096]}).config.rope_theta == 10_000.0
    for listed in ([4096, None], [None, 4096], [4096, 8]):
        with pytest.raises(ValueError, match=r"params\.json: rope_theta is missing"):
            read(MISTRAL_7B_V01 | {"sliding_window": listed})


def test_the_context_is_that_of_mistral_7b_unless_it_is_written(read, caplog):
    params = {key: value for key, value in MISTRAL_PARAMS.items() if key != "max_seq_len"}
    assert read(params).config == replace(CONFIG, max_position_embeddings=32768)
    [told] = caplog.messages
    assert re.search(r"params\.json names no longest context \(max_seq_len\); 32768 is taken", told)
    caplog.clear()
    assert read(params | {"max_seq_len": 99}).config.max_position_embeddings == 99
    assert read(params | {"max_position_embeddings": 98}).config.max_position_embeddings == 98
    assert read(params | {"max_seq_len": 99, "max_position_embeddings": 98}).config.max_position_embeddings == 99
    assert not caplog.messages


def test_tied_without_an_output_head_or_where_it_says_so(read):
    assert read(MISTRAL_PARAMS, has_output=False).config.tie_embeddings
    assert read(MISTRAL_PARAMS | {"tied_embeddings": True}).config.tie_embeddings
    assert not read(MISTRAL_PARAMS | {"tied_embeddings": False}, has_output=False).config.tie_embeddings


@pytest.mark.parametrize("key", ["dim", "n_layers", "head_dim", "hidden_dim", "n_heads", "n_kv_heads", "norm_eps"])
def test_a_missing_value_is_named(read, key):
    with pytest.raises(ValueError, match=rf"params\.json: {key} is missing"):
        read({k: v for k, v in MISTRAL_PARAMS.items() if k != key})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"moe": {"num_experts": 8}}, "moe is .* a mixture of experts is not supported"),
        ({"vision_encoder": {"hidden_size": 1024}}, "a vision encoder is not supported"),
        ({"quantization": {"qformat_weight": "fp8_e4m3"}}, "a quantized checkpoint is not supported"),
        ({"yarn": {"factor": 16}}, "scaling of the rotary angles is not supported"),
        ({"model_type": "mamba"}, "model_type is 'mamba'; it must be transformer"),
        ({"sliding_window": [8, None, 8]}, r"sliding_window is \[8, None, 8\]; .* length divides the 2 layers"),
        ({"n_layers": 4, "sliding_window": [8] * 3}, r"sliding_window is \[8, 8, 8\]; .* length divides the 4 layers"),
        ({"sliding_window": []}, r"sliding_window is \[\]; .* length divides the 2 layers"),
        ({"_sliding_window": [8] * 4}, r"_sliding_window is \[8, 8, 8, 8\]; .* length divides the 2 layers"),
        ({"sliding_window": [8, "all"]}, r"sliding_window\[1\] is 'all'; it must be a whole number"),
        ({"_sliding_window": [True, 8]}, r"_sliding_window\[0\] is True"),
        ({"_sliding_window": "8"}, "_sliding_window is '8'; it must be a whole number"),
        ({"sliding_window": 8, "_sliding_window": [8]}, r"_sliding_window is \[8\]; .* beside sliding_window"),
        ({"n_kv_heads": 3}, "num_heads is 4 and num_kv_heads is 3"),
        ({"n_layers": 2**40}, "n_layers is 1099511627776"),
    ],
)
def test_what_is_refused(read, change, message):
    with pytest.raises(ValueError, match=r"params\.json: .*" + message):
        read(MISTRAL_PARAMS | change)
