"""Packed tensors that contradict each other, their configuration or the model: an error that names the module."""

from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file

from checkpoints import open_checkpoint
from tests.checkpoints.packed import writers
from tests.checkpoints.packed.models import CASES, write_model
from tests.checkpoints.writers import write_hf

MODULE = "model.layers.0.mlp.down_proj"
"""[160, 224]; in groups of 64 there are four, the last one short."""

GROUP_SIZE = 64


def down(name, **others):
    """The parts of the module in the format ``name``."""
    case = CASES[name]
    return case.write(writers.known_matrix((160, 224), GROUP_SIZE, **{**case.matrix, **others}))


@pytest.fixture
def opened(tmp_path):
    """Opens the model of this format whose module has these parts in place of its own."""

    def opened(name, parts):
        write_model(tmp_path, CASES[name], GROUP_SIZE)
        tensors = load_file(tmp_path / "model.safetensors")
        for part in down(name):
            del tensors[f"{MODULE}.{part}"]
        tensors |= {f"{MODULE}.{part}": np.ascontiguousarray(array) for part, array in parts.items()}
        config = writers.WRITTEN_CONFIG | {"quantization_config": CASES[name].config(GROUP_SIZE)}
        return open_checkpoint(write_hf(tmp_path, tensors, config))

    return opened


def with_value(array, index, value):
    changed = np.array(array)
    changed[index] = value
    return changed


@pytest.mark.parametrize(
    ("name", "part", "change", "message"),
    [
        ("gptq", "qweight", None, "qweight is missing"),
        ("gptq", "qzeros", None, "qzeros is missing"),
        ("awq", "scales", None, "scales is missing"),
        ("gptq", "qweight", lambda a: a.astype(np.int64), "qweight is I64; it must be I32"),
        ("gptq", "qweight", lambda a: a[0], r"qweight has the shape \(160,\); it must have two axes"),
        ("gptq", "qweight", lambda a: a[:0], r"scales has the shape \(4, 160\); it must be \(.*\), as \[160, 0\] has"),
        ("gptq", "qweight", lambda a: a[:-9], r"scales has .* it must be \(3, 160\), as \[160, 152\] .* groups of 64"),
        ("gptq", "qzeros", lambda a: a[:, 1:], r"qzeros has the shape \(4, 19\); it must be \(4, 20\)"),
        ("gptq", "scales", lambda a: a.astype(np.int16), "scales is I16; it must be F16 or BF16 or F32"),
        ("gptq", "scales", lambda a: a.astype(np.float64), "scales is F64"),
        ("gptq", "g_idx", lambda a: a[1:], r"g_idx has the shape \(223,\); it must be \(224,\)"),
        ("gptq", "g_idx", lambda a: with_value(a, 7, 4), "g_idx has 4; groups are 0 to 3"),
        ("gptq", "g_idx", lambda a: with_value(a, 7, -1), "g_idx has -1; groups are 0 to 3"),
        ("gptq", "weight", lambda _: np.zeros((160, 224), np.float16), "weight is there both packed and by itself"),
        ("compressed", "weight", lambda _: np.zeros((160, 224), np.int8), "weight is there both packed and by itself"),
        ("awq", "qweight", lambda a: a[:, 1:], r"scales has the shape \(4, 160\); it must be \(4, 152\)"),
        ("awq", "qzeros", lambda a: a[1:], r"qzeros has the shape \(3, 20\); it must be \(4, 20\)"),
        ("compressed", "weight_packed", None, "weight_packed is missing"),
        ("compressed", "weight_scale", None, "weight_scale is missing"),
        ("compressed", "weight_shape", None, "weight_shape is missing"),
        ("compressed", "weight_zero_point", None, "no zero points .* fit none of .*4 bits by groups of 64"),
        ("compressed", "weight_shape", lambda a: a[::-1], r"weight_shape is \[224, 160\]; weight_packed has 160 rows"),
        ("compressed", "weight_shape", lambda a: with_value(a, 1, 2**60), r"\[160, 1152921504606846976\] fit none"),
        ("compressed", "weight_shape", lambda a: with_value(a, 1, -224), r"weight_shape is \[160, -224\]"),
        ("compressed", "weight_shape", lambda a: np.append(a, 1), r"weight_shape has the shape \(3,\)"),
        ("compressed", "weight_packed", lambda a: a[:, 1:], r"weight_packed \(160, 27\).* \[160, 224\] fit none"),
        ("compressed", "weight_scale", lambda a: a[:, 1:], r"weight_scale \(160, 3\).* fit none"),
        ("compressed", "weight_scale", lambda a: a.astype(np.int8), "weight_scale is I8; it must be F16"),
        (
            "compressed",
            "weight_zero_point",
            lambda a: a[1:],
            r"weight_zero_point has the shape \(19, 4\); .* \(20, 4\)",
        ),
        ("compressed", "weight_zero_point", lambda a: a.astype(np.int8), r"\(20, 4\); it must be \(160, 4\)"),
        ("compressed", "weight_g_idx", lambda _: np.full(224, 9, np.int32), "weight_g_idx has 9; groups are 0 to 3"),
    ],
)
def test_parts_that_do_not_fit(opened, tmp_path, name, part, change, message):
    parts = dict(down(name))
    if change is None:
        del parts[part]
    else:
        parts[part] = change(parts.get(part))
    with pytest.raises(ValueError, match=message) as error:
        opened(name, parts)
    assert str(error.value).startswith(f"{tmp_path}: {MODULE}: ")
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(("name", "scales"), [("gptq", "scales"), ("awq", "scales"), ("compressed", "weight_scale")])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scales_that_are_no_numbers_are_refused_when_they_are_read(opened, name, scales, value):
    parts = down(name)
    checkpoint = opened(name, parts | {scales: with_value(parts[scales], (1, 1), value)})
    for formats in (checkpoint.stored, {}):
        with pytest.raises(ValueError, match=f"{MODULE}: some of its scales are not finite"):
            dict(checkpoint.weights(np.float32, formats))


def test_offsets_beyond_float16_are_refused_where_they_are_needed(opened):
    parts = down("awq")
    checkpoint = opened("awq", parts | {"scales": with_value(parts["scales"], ..., 6e4)})
    with pytest.raises(ValueError, match=f"{MODULE}: scales up to 60000 .* load the model with quantization 'none'"):
        dict(checkpoint.weights(np.float32, checkpoint.stored))
    assert np.isfinite(dict(checkpoint.weights(np.float32))["layers.0.down"]).all()


@pytest.mark.parametrize("name", ["gptq", "awq", "compressed"])
def test_matrices_of_another_model_are_named(opened, name):
    case = CASES[name]
    other = case.write(writers.known_matrix((160, 192), GROUP_SIZE, **case.matrix))
    with pytest.raises(ValueError, match=rf"misshapen: {MODULE}.weight, shape \(160, 192\), expected \(160, 224\)"):
        opened(name, other)


def test_packed_tensors_of_another_format_are_unexpected(tmp_path):
    write_model(tmp_path, replace(CASES["gptq"], config=CASES["compressed"].config), GROUP_SIZE)
    with pytest.raises(ValueError, match=r"unexpected: .*\.qweight") as error:
        open_checkpoint(tmp_path)
    assert f"missing: {MODULE}.weight" in str(error.value)


def test_schemes_that_a_matrix_could_be_of_both_are_refused(tmp_path):
    """Rows of 224 inputs have 3 groups of 80 and of 100, which hold other inputs."""
    weights = [writers.compressed_weights(size) for size in (80, 100)]
    case = replace(CASES["compressed"], config=lambda _: writers.compressed_config(*weights))
    write_model(tmp_path, case, 80)
    with pytest.raises(ValueError, match="fit 2 of the configuration's schemes"):
        open_checkpoint(tmp_path)
