"""Matrices that stay quantized on their way from a GGUF file into a model: their numbers, rows and parts."""

from dataclasses import replace

import gguf
import jax.numpy as jnp
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType

from checkpoints.checkpoint import open_checkpoint
from checkpoints.gguf_source import GGUFSource
from checkpoints.quantization import on_device
from checkpoints.stored_rows import Int4Rows
from jaxinfer.config import Quantization
from jaxinfer.weights import weight_shapes
from pallas_kernels.quantized_matmul import dequantize
from tests.checkpoints import writers
from tests.checkpoints.writers import CONFIG

Q4_0, Q4_1, Q8_0 = (GGMLQuantizationType[name] for name in ("Q4_0", "Q4_1", "Q8_0"))
INT4 = Quantization(bits=4, group_size=32)
LARGEST_SCALE = 8188.0
"""Of Q4_0: eight times the next float16 is infinite."""


def blocks(kind, values, scales, offsets):
    """Rows of a file, by ``ggml-common.h``: scale, offset (of Q4_1), and in byte i the numbers i and 16 + i."""
    rows = []
    for row, row_scales, row_offsets in zip(values, scales, offsets, strict=True):
        data = b""
        for group in range(len(row_scales)):
            numbers = row[32 * group : 32 * (group + 1)]
            data += row_scales[group].tobytes() + (row_offsets[group].tobytes() if kind is Q4_1 else b"")
            data += bytes(int(numbers[i]) + 16 * int(numbers[16 + i]) for i in range(16))
        rows.append(np.frombuffer(data, np.uint8))
    return np.stack(rows)


def drawn(rng, num_outputs, num_inputs):
    """Numbers, and scales and offsets of every size and sign that float16 has, those beyond Q4_0 left out."""
    values = rng.integers(0, 16, (num_outputs, num_inputs)).astype(np.uint8)
    scales, offsets = rng.integers(0, 2**16, (2, num_outputs, num_inputs // 32)).astype(np.uint16).view(np.float16)
    scales = np.where(np.abs(scales) <= LARGEST_SCALE, scales, np.float16(LARGEST_SCALE))
    scales[0, 0], scales[0, -1] = 2.0**-24, -LARGEST_SCALE  # the smallest there is, and the largest that is allowed
    return values, scales, np.where(np.isfinite(offsets), offsets, np.float16(-65504))


def write(path, kinds, config=CONFIG, seed=0):
    """A model of random blocks: the file, and of each matrix numbers, scales and offsets, in the model's order.

    Args:
        kinds: the type of a matrix, Q4_0 or Q4_1, by its name in the model without the layer.
    """
    rng, known, tensors = np.random.default_rng(seed), {}, {}
    for name, shape in weight_shapes(config).items():
        if len(shape) == 1:
            tensors[name] = np.ones(shape, np.float32)
            continue
        kind = kinds[name.split(".")[-1]]
        values, scales, offsets = drawn(rng, *shape)
        known[name] = (values, scales, scales * np.float16(-8) if kind is Q4_0 else offsets)
        tensors[name] = blocks(kind, values, scales, offsets)
    types = {"token_embd.weight": kinds["embedding"], "output.weight": kinds["lm_head"]}
    for i in range(config.num_layers):
        types |= {f"blk.{i}.attn_{part}.weight": kinds["qkv"] for part in "qkv"}
        types |= {f"blk.{i}.ffn_{part}.weight": kinds["gate_up"] for part in ("gate", "up")}
        types |= {f"blk.{i}.attn_output.weight": kinds["attention_out"], f"blk.{i}.ffn_down.weight": kinds["down"]}
    written = writers.gguf_tensors(tensors, config)
    return writers.write_gguf(path, written, writers.gguf_metadata(config, "llama"), others=types), known


ALL_Q4_1 = dict.fromkeys(("embedding", "qkv", "attention_out", "gate_up", "down", "lm_head"), Q4_1)
BOTH = ALL_Q4_1 | {"qkv": Q4_0, "down": Q4_0, "embedding": Q4_0}


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, vocab_size=41, intermediate_size=160)], ids=["even", "odd"])
def test_numbers_scales_and_offsets_are_those_of_the_file(tmp_path, config):
    """Each row in the model's order: q and k of a llama's file have their rotary pairs side by side."""
    path, known = write(tmp_path / "m.gguf", BOTH, config)
    checkpoint = open_checkpoint(path)
    assert checkpoint.stored == dict.fromkeys(known, INT4)
    found = dict(checkpoint.weights(np.float32, checkpoint.stored))
    assert list(found) == list(weight_shapes(config))
    for name, expected in known.items():
        assert isinstance(found[name], Int4Rows), name
        for array, known_array in zip(found[name].columns(), expected, strict=True):
            np.testing.assert_array_equal(array, known_array, err_msg=name)
    np.testing.assert_array_equal(found["final_norm"], np.ones(config.hidden_size, np.float32))


@pytest.mark.parametrize("kinds", [ALL_Q4_1, BOTH], ids=["Q4_1", "Q4_0"])
def test_on_the_device_they_mean_what_the_library_reads(tmp_path, kinds):
    """Bit for bit, whatever the scale: read as floats, kept on the host, and packed."""
    path, known = write(tmp_path / "m.gguf", kinds)
    checkpoint = open_checkpoint(path)
    floats = dict(checkpoint.weights(np.float32))
    for name, rows in checkpoint.weights(np.float32, checkpoint.stored):
        if name in known:
            np.testing.assert_array_equal(rows.dequantized(), floats[name], err_msg=name)
            placed = dequantize(on_device(name, rows, INT4), jnp.dtype(jnp.float32))
            np.testing.assert_array_equal(placed, floats[name], err_msg=name)
    embedding = blocks(kinds["embedding"], *known["embedding"])
    np.testing.assert_array_equal(floats["embedding"], gguf.dequantize(embedding, kinds["embedding"]))


def test_only_what_is_wanted_as_it_is_stored_stays(tmp_path):
    checkpoint = open_checkpoint(write(tmp_path / "m.gguf", ALL_Q4_1)[0])
    wanted = {"embedding": INT4, "layers.0.qkv": Quantization(bits=4, group_size=64), "lm_head": Quantization(bits=8)}
    kept = {name for name, weight in checkpoint.weights(np.float32, wanted) if isinstance(weight, Int4Rows)}
    assert kept == {"embedding"}


@pytest.mark.parametrize("part", ["q", "k", "v"])
@pytest.mark.parametrize(("other", "is_kept"), [(Q8_0, False), (GGMLQuantizationType.F16, False), (Q4_0, True)])
def test_a_weight_is_kept_where_all_its_parts_are_alike(tmp_path, part, other, is_kept):
    """Q4_0 and Q4_1 are one format to a product. Whether kept or not, the values are those of the library."""
    rng = np.random.default_rng(3)
    weights = {name: rng.normal(0, 1, shape).astype(np.float32) for name, shape in weight_shapes(CONFIG).items()}
    tensors = writers.gguf_tensors(weights)
    file_name = f"blk.1.attn_{part}.weight"
    path = writers.write_gguf(tmp_path / "m.gguf", tensors, matrices=Q4_1, others={file_name: other})
    checkpoint = open_checkpoint(path)
    matrices = {name for name, shape in weight_shapes(CONFIG).items() if len(shape) == 2}
    assert set(checkpoint.stored) == (matrices if is_kept else matrices - {"layers.1.qkv"})
    assert checkpoint.dtypes["layers.0.qkv"] == ("Q4_1",)
    assert set(checkpoint.dtypes["layers.1.qkv"]) == {"Q4_1", other.name}
    found = dict(checkpoint.weights(np.float32, dict.fromkeys(matrices, INT4)))["layers.1.qkv"]
    assert isinstance(found, Int4Rows) == is_kept
    read = {
        name: gguf.dequantize(gguf.quantize(tensors[name], kind), kind)
        for name in (f"blk.1.attn_{each}.weight" for each in "qkv")
        for kind in [other if name == file_name else Q4_1]
    }
    values = found.dequantized() if is_kept else found
    q, k, v = np.split(values, [64, 96])
    assert (v == read["blk.1.attn_v.weight"]).all()
    assert (writers.interleave(q, CONFIG.head_dim) == read["blk.1.attn_q.weight"]).all()
    assert (writers.interleave(k, CONFIG.head_dim) == read["blk.1.attn_k.weight"]).all()


@pytest.mark.parametrize(
    ("kind", "scale", "offset"),
    [
        (Q4_0, 8192, 0),
        (Q4_0, -9000, 0),
        (Q4_0, np.inf, 0),
        (Q4_0, np.nan, 0),
        (Q4_1, np.nan, 0),
        (Q4_1, -np.inf, 0),
        (Q4_1, 1, np.inf),
        (Q4_1, 1, np.nan),
    ],
)
def test_scales_that_float16_has_not_are_refused_with_the_tensors_name(tmp_path, kind, scale, offset):
    """As floats the matrix can be read."""
    values, scales, offsets = drawn(np.random.default_rng(0), 3, 64)
    scales[2, 1], offsets[2, 1] = scale, offset
    tensors = {"some.weight": blocks(kind, values, scales, offsets)}
    source = GGUFSource(writers.write_gguf(tmp_path / "m.gguf", tensors, matrices=kind))
    with pytest.raises(
        ValueError, match=rf"m\.gguf: some\.weight cannot stay {kind.name}: a scale or an offset is too"
    ):
        source.read_quantized("some.weight")
    with np.errstate(invalid="ignore"):
        expected = gguf.dequantize(tensors["some.weight"], kind)
        np.testing.assert_array_equal(source.read("some.weight"), expected)


def test_only_matrices_of_two_types_are_kept(tmp_path):
    """A vector of blocks is none, nor is a stack of matrices."""
    tensors = {"vector": np.zeros(64, np.float32), "stack": np.zeros((2, 3, 64), np.float32)}
    kinds = {kind.name: kind for kind in (Q4_0, Q4_1, Q8_0, GGMLQuantizationType.Q5_0, GGMLQuantizationType.F16)}
    tensors |= {name: np.zeros((3, 64), np.float32) for name in kinds}
    path = writers.write_gguf(tmp_path / "m.gguf", tensors, matrices=Q4_0, others=kinds)
    infos = GGUFSource(path).infos
    assert {name for name, info in infos.items() if info.quantization} == {"Q4_0", "Q4_1"}
    assert {infos[name].quantization for name in ("Q4_0", "Q4_1")} == {INT4}
