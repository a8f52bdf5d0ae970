"""What ``config.json`` may say of quantization, and what is refused with what would be allowed."""

import pytest

from checkpoints.huggingface_config import read_description
from checkpoints.packed.config import AWQ, GPTQ, CompressedTensors, Scheme
from tests.checkpoints.packed.writers import awq_config, compressed_config, compressed_weights, gptq_config
from tests.checkpoints.writers import HF_CONFIG, write_json


@pytest.fixture
def packing(tmp_path):
    """How a model is packed whose ``config.json`` says this under ``quantization_config`` or another key."""

    def packing(quantization, key="quantization_config"):
        write_json(tmp_path / "config.json", HF_CONFIG | {key: quantization})
        return read_description(tmp_path).packing

    return packing


@pytest.mark.parametrize("nothing", [None, {}])
def test_a_model_of_floats(packing, nothing):
    assert packing(nothing) is None


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (gptq_config(128), GPTQ(bits=4, group_size=128, zeros_less_one=True)),
        (gptq_config(None, 8, desc_act=True), GPTQ(bits=8, group_size=None, zeros_less_one=True)),
        (gptq_config(32, checkpoint_format="gptq"), GPTQ(bits=4, group_size=32, zeros_less_one=True)),
        (gptq_config(32, checkpoint_format="gptq_v2"), GPTQ(bits=4, group_size=32, zeros_less_one=False)),
        (gptq_config(32, format="gptq_v2"), GPTQ(bits=4, group_size=32, zeros_less_one=False)),
        (awq_config(128), AWQ(group_size=128)),
        (awq_config(None, version="GEMM"), AWQ(group_size=None)),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "version": "GEMM"}, AWQ(group_size=64)),
    ],
)
def test_gptq_and_awq(packing, written, expected):
    assert packing(written) == expected


def test_compressed_tensors(packing):
    weights = compressed_weights(128), compressed_weights(None, 8, symmetric=True), compressed_weights(128)
    expected = CompressedTensors(
        schemes=(
            Scheme(bits=4, group_size=128, symmetric=False),
            Scheme(bits=8, group_size=None, symmetric=True),
        ),
        has_activations=False,
        has_kv_cache=False,
    )
    written = compressed_config(*weights, sparsity_config={}, transform_config={"config_groups": {}})
    assert packing(written) == expected
    old = {key: value for key, value in written.items() if key != "quant_method"}
    assert packing(old, "compression_config") == expected


def test_a_strategy_that_is_not_written_follows_from_the_group_size(packing):
    def scheme(**others):
        return packing(compressed_config({"num_bits": 4, **others})).schemes[0]

    assert scheme(group_size=64) == Scheme(bits=4, group_size=64, symmetric=True)
    assert scheme(group_size=-1) == scheme() == Scheme(bits=4, group_size=None, symmetric=True)


def test_activations_and_cache_are_noted(packing):
    written = compressed_config(compressed_weights(None, 8), kv_cache_scheme={"num_bits": 8})
    written["config_groups"]["group_0"]["input_activations"] = {"num_bits": 8}
    assert packing(written) == CompressedTensors(
        schemes=(Scheme(bits=8, group_size=None, symmetric=False),), has_activations=True, has_kv_cache=True
    )


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("gptq", "quantization_config is 'gptq'; it must be a mapping"),
        ({"bits": 4}, "quant_method is missing; it must be a string"),
        ({"quant_method": "fp8"}, "quant_method is 'fp8'; .* gptq, awq, compressed-tensors"),
        ({"quant_method": "bitsandbytes"}, "quant_method is 'bitsandbytes'"),
        ({"quant_method": "g" * 9999}, "quant_method is 'ggg"),
        (gptq_config(128, 3), "bits is 3; it must be 4 or 8: others cannot be read"),
        (gptq_config(128, 2), "bits is 2"),
        (gptq_config(128) | {"bits": "4"}, "bits is '4'; it must be a whole number"),
        (gptq_config(128) | {"bits": True}, "bits is True"),
        (gptq_config(128) | {"bits": 4.0}, r"bits is 4\.0"),
        (
            gptq_config(128) | {"group_size": 0},
            "group_size is 0; it must be a positive number, or -1 for the whole row",
        ),
        (gptq_config(-2), "group_size is -2"),
        (gptq_config(128) | {"group_size": None}, "group_size is missing"),
        (gptq_config(128, checkpoint_format="marlin"), "checkpoint_format is 'marlin'; it must be gptq or gptq_v2"),
        (gptq_config(128, is_marlin_format=True), "is_marlin_format is True"),
        (awq_config(128, version="gemv"), "version is 'gemv'; it must be gemm: others cannot be read"),
        (awq_config(128, version="marlin"), "version is 'marlin'"),
        (awq_config(128, bits=8), "bits is 8; it must be 4"),
        (compressed_config(compressed_weights(32), format="nvfp4-pack-quantized"), "format is 'nvfp4-pack-quantized'"),
        (compressed_config(compressed_weights(32), format="float-quantized"), "format is 'float-quantized'; .* pack-"),
        (compressed_config(compressed_weights(32), format="marlin-24"), "format is 'marlin-24'"),
        (compressed_config(compressed_weights(32), format=None), "format is missing"),
        (
            compressed_config(compressed_weights(32), sparsity_config={"format": "sparse-24-bitmask"}),
            "format is 'sparse-24-bitmask'; it must be dense",
        ),
        (
            compressed_config(compressed_weights(32), transform_config={"config_groups": {"u": {}}}),
            "config_groups is .* rotated as it runs is not supported",
        ),
        (compressed_config(), "config_groups is {}; it must be a mapping with at least one group"),
        (compressed_config(compressed_weights(32), config_groups={"W4A16": ["Linear"]}), "W4A16 is .* a mapping"),
        (compressed_config(compressed_weights(32) | {"type": "float"}), "type is 'float'; it must be int"),
        (compressed_config(compressed_weights(32) | {"num_bits": 2}), "num_bits is 2; it must be 4 or 8"),
        (compressed_config(compressed_weights(32) | {"strategy": "block"}), "strategy is 'block'; .* group or channel"),
        (compressed_config(compressed_weights(32) | {"group_size": 0}), "group_size is 0"),
        (compressed_config(compressed_weights(32) | {"symmetric": "no"}), "symmetric is 'no'; it must be true or"),
    ],
)
def test_what_is_refused(packing, written, message):
    with pytest.raises(ValueError, match=message) as error:
        packing(written)
    assert "config.json: " in str(error.value)
    assert len(str(error.value)) < 600


def test_a_group_of_another_format_than_the_model_is_refused(packing):
    written = compressed_config(compressed_weights(32), format="mixed-precision")
    written["config_groups"]["group_0"]["format"] = "mxfp4-pack-quantized"
    with pytest.raises(ValueError, match="format is 'mxfp4-pack-quantized'"):
        packing(written)
