"""Which layers of a model have a window, as a config.json of each family says it."""

import pytest

from tests.checkpoints.published import MISTRAL_7B, QWEN2, QWEN3, without

FULL, SLIDING = "full_attention", "sliding_attention"


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
    assert read(MISTRAL_7B | change).windows == (window,) * 32


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
    assert read(some | change).windows == windows


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
    assert read(bare | {"num_hidden_layers": 4} | change).windows == windows
    many = bare | {"num_hidden_layers": 30, "use_sliding_window": True}
    assert read(many).windows == (None,) * 28 + (4096,) * 2
