"""What stays quantized, what becomes floats, and how exactly."""

import logging
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from checkpoints.packed.config import AWQ, GPTQ, CompressedTensors, Scheme
from checkpoints.packed.source import PackedSource
from checkpoints.safetensors_source import SafetensorsSource
from jaxinfer.config import Quantization
from tests.checkpoints.packed import writers
from tests.checkpoints.packed.writers import known_matrix

NAME = "model.layers.0.mlp.down_proj.weight"


@pytest.fixture
def opened(tmp_path):
    """The source of one packed module, with more tensors of its own."""

    def opened(tensors, packing, biased=()):
        module = NAME.removesuffix(".weight")
        path = tmp_path / "model.safetensors"
        save_file({f"{module}.{part}": np.ascontiguousarray(array) for part, array in tensors.items()}, path)
        return PackedSource(SafetensorsSource(tmp_path, {path: None}), packing, biased)

    return opened


def gptq(group_size, bits=4):
    return GPTQ(bits=bits, group_size=group_size, zeros_less_one=True)


def compressed(group_size, bits=4, symmetric=False):
    scheme = Scheme(bits=bits, group_size=group_size, symmetric=symmetric)
    return CompressedTensors(schemes=(scheme,), has_activations=False, has_kv_cache=False)


def check(source, known, kept):
    """The matrix is in the format ``kept``, and both ways of reading it give what is meant."""
    assert source.infos[NAME].quantization == kept
    assert source.infos[NAME].shape == known.numbers.shape
    floats = known.floats().astype(np.float32)
    np.testing.assert_allclose(source.read(NAME), floats, rtol=1e-6)
    np.testing.assert_array_equal(np.concatenate(list(source.blocks(NAME))), source.read(NAME))
    if kept is not None:
        rows = source.read_quantized(NAME)
        assert rows.quantization == kept
        np.testing.assert_allclose(rows.dequantized(), floats, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("size", "num_inputs", "kept"),
    [
        (256, 600, 128),  # a group twice the products', the last one short
        (192, 400, 64),
        (96, 200, 32),
        (48, 96, "floats"),
        (16, 64, "floats"),
        (200, 200, None),  # the whole row, whatever its length
        (1024, 200, None),
    ],
)
def test_groups_of_other_sizes(opened, size, num_inputs, kept):
    known = known_matrix((24, num_inputs), size)
    wanted = None if kept == "floats" else Quantization(bits=4, group_size=kept)
    source = opened(writers.gptq(known), gptq(size))
    check(source, known, wanted)
    assert (f"groups of {size}" in source.infos[NAME].dtype) == (size < num_inputs)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("group_size", [None, 32])
@pytest.mark.parametrize("write", ["gptq", "packed", "bytes"])
def test_eight_bits_are_kept_by_whole_rows_without_zero_points(opened, write, group_size, symmetric):
    known = known_matrix((16, 64), group_size, bits=8, symmetric=symmetric, dtype=np.float32)
    tensors, packing = {
        "gptq": (writers.gptq(known), gptq(group_size, 8)),
        "packed": (writers.compressed(known, symmetric=symmetric), compressed(group_size, 8, symmetric)),
        "bytes": (writers.compressed_bytes(known, symmetric=symmetric), compressed(group_size, 8, symmetric)),
    }[write]
    is_kept = group_size is None and symmetric
    check(opened(tensors, packing), known, Quantization(bits=8) if is_kept else None)


def test_one_scale_for_a_whole_matrix_is_one_for_each_row(opened):
    known = known_matrix((16, 64), None, bits=8, symmetric=True, dtype=np.float32)
    known = replace(known, scales=np.full((16, 1), 0.01, np.float32))
    tensors = writers.compressed_bytes(known, symmetric=True)
    for shape in ((), (1,)):
        tensors["weight_scale"] = np.full(shape, 0.01, np.float32)
        check(opened(tensors, compressed(None, 8, True)), known, Quantization(bits=8))


def test_inputs_out_of_order_become_floats(opened):
    known = known_matrix((16, 128), 32)
    known = replace(known, group_of_input=np.random.default_rng(0).permutation(known.group_of_input))
    for tensors, packing in (
        (writers.gptq(known), gptq(32)),
        (writers.compressed(known, g_idx=True), compressed(32)),
    ):
        source = opened(tensors, packing)
        check(source, known, None)
        assert "out of order" in source.infos[NAME].dtype


@pytest.mark.parametrize("places", [slice(None), 7])
def test_a_group_index_that_compressed_tensors_left_unset_is_none(opened, places):
    """The library fills the index with -1, and asks for one such number to take inputs in their order."""
    known = known_matrix((16, 128), 32)
    tensors = writers.compressed(known, g_idx=True)
    tensors["weight_g_idx"] = np.random.default_rng(0).permutation(tensors["weight_g_idx"])
    tensors["weight_g_idx"][places] = -1
    check(opened(tensors, compressed(32)), known, Quantization(bits=4, group_size=32))


@pytest.mark.parametrize(
    ("tensors", "packing"),
    [
        (writers.gptq(known_matrix((704, 64), 32)), gptq(32)),
        (writers.awq(known_matrix((704, 64), 32)), AWQ(group_size=32)),
        (writers.compressed(known_matrix((704, 64), 32)), compressed(32)),
    ],
)
def test_a_matrix_by_its_rows_is_read_once(opened, monkeypatch, tensors, packing):
    """Not once for each of its blocks: that would take a time that grows with the square of the rows."""
    source, read = opened(tensors, packing), []
    original = SafetensorsSource.read
    monkeypatch.setattr(SafetensorsSource, "read", lambda source, name: read.append(name) or original(source, name))
    blocks = list(source.blocks(NAME))
    assert len(blocks) > 2
    assert len(read) == len(set(read)) >= 3
    np.testing.assert_array_equal(np.concatenate(blocks), source.read(NAME))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float32])
def test_scales_that_a_float16_holds_are_kept_whatever_their_type(opened, dtype):
    known = known_matrix((16, 128), 64, dtype=dtype)
    check(opened(writers.awq(known), AWQ(group_size=64)), known, Quantization(bits=4, group_size=64))
    for wrong in (1e-9, 1 / 3 if dtype == np.float32 else 1e5):  # too small; of too many digits or too large
        scales = known.scales.copy()
        scales[3, 1] = wrong
        other = replace(known, scales=scales)
        check(opened(writers.awq(other), AWQ(group_size=64)), other, None)


def test_a_float16_offset_is_off_by_less_than_a_hundredth_of_a_step(opened):
    """Scales with all their digits, all zero points; those that are powers of two are exact."""
    known = known_matrix((256, 512), 64, digits=1024)
    rows = opened(writers.awq(known), AWQ(group_size=64)).read_quantized(NAME)
    steps = np.abs(rows.offsets.astype(np.float64) / known.scales.astype(np.float64) + known.zeros)
    assert 0.003 < steps.max() < 15 / 2**11
    assert not steps[np.isin(known.zeros, [0, 1, 2, 4, 8])].any()


@pytest.mark.parametrize("version", ["gptq", "gptq_v2"])
def test_a_zero_point_of_0_borrows_from_its_neighbour(opened, version):
    """The first version takes one from the word of eight, as one number: 0 and 9 are stored as 15 and 7."""
    known = known_matrix((16, 64), None)
    zeros = np.tile([0, 9, 0, 0, 15, 1, 8, 0], 2)[:, None]
    known = replace(known, zeros=zeros)
    tensors = writers.gptq(known, version=version)
    assert tensors["qzeros"].view(np.uint32)[0, 0] & 0xFF == (0x7F if version == "gptq" else 0x90)
    packing = replace(gptq(None), zeros_less_one=version == "gptq")
    check(opened(tensors, packing), known, Quantization(bits=4))


def test_zero_points_of_the_first_versions_of_compressed_tensors_are_bytes(opened):
    known = known_matrix((16, 64), 32)
    tensors = writers.compressed(known) | {"weight_zero_point": (known.zeros - 8).astype(np.int8)}
    check(opened(tensors, compressed(32)), known, Quantization(bits=4, group_size=32))


def test_rows_that_fill_no_word_are_cut(opened):
    known = known_matrix((13, 45), 32)
    check(opened(writers.compressed(known), compressed(32)), known, Quantization(bits=4, group_size=32))


def test_only_a_bias_of_zeros_that_the_model_has_not_is_passed_over(opened):
    tensors = writers.gptq(known_matrix((16, 64), 32))
    bias = NAME.replace("weight", "bias")
    zeros, ones = np.zeros(16, np.float16), np.ones(16, np.float16)
    assert set(opened(tensors | {"bias": zeros}, gptq(32)).infos) == {NAME}
    assert set(opened(tensors | {"bias": ones}, gptq(32)).infos) == {NAME, bias}
    assert set(opened(tensors | {"bias": zeros}, gptq(32), ["down_proj"]).infos) == {NAME, bias}


def test_scales_of_activations_and_cache_are_passed_over_with_a_warning(opened, caplog):
    known = known_matrix((16, 64), None, bits=8, symmetric=True)
    one = np.ones(1, np.float16)
    tensors = writers.compressed_bytes(known, symmetric=True) | {"input_scale": one, "k_scale": one}
    tensors["output_zero_point"] = one.astype(np.int8)
    packing = compressed(None, 8, True)
    with caplog.at_level(logging.WARNING):
        assert len(opened(tensors, packing).infos) == 4
        assert not caplog.messages
        assert len(opened(tensors, replace(packing, has_kv_cache=True)).infos) == 2
        caplog.clear()
        source = opened(tensors, replace(packing, has_activations=True, has_kv_cache=True))
    check(source, known, Quantization(bits=8))
    assert set(source.infos) == {NAME}
    activations, cache = caplog.messages
    assert "quantized input of its products; here only its weights are" in activations
    assert "quantized KV cache" in cache
