"""Every type that a tensor of a GGUF file can have: its values, through the loader, or an error that names it."""

import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from checkpoints.checkpoint import open_checkpoint
from jaxinfer.config import ModelConfig
from tests.checkpoints.writers import Tensors, gguf_metadata, gguf_tensors, known_weights

# Rows of 256 values, the longest block there is.
CONFIG = ModelConfig(
    vocab_size=9,
    hidden_size=256,
    intermediate_size=256,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    head_dim=128,
    max_position_embeddings=128,
    rope_theta=10000.0,
    norm_eps=1e-5,
    tie_embeddings=False,
    windows=(None,),
    qk_norm=True,
)

TYPES = list(GGMLQuantizationType)
NO_FLOATS = {"I8", "I16", "I32", "I64", "F64"}
NEVER_IN_FILES = {"Q8_1", "Q8_K"}
"""llama.cpp's forms of activations."""
NOT_YET = {"Q1_0"}
"""The library knows their size, and no more."""
READABLE = [kind for kind in TYPES if kind.name not in NO_FLOATS | NEVER_IN_FILES | NOT_YET]

# Of quantized values: the largest error, in parts of the block's largest absolute value.
STEPS = {
    "F32": 0.0,
    "F16": 2**-11,
    "BF16": 2**-8,
    "Q8_0": 0.6 / 127,
    "Q5_0": 1.1 / 16,
    "Q5_1": 1.1 / 31,
    "Q4_0": 1.1 / 8,
    "Q4_1": 1.1 / 15,
    "TQ1_0": 0.51,  # -1, 0 and 1
    "TQ2_0": 0.51,
    "MXFP4": 0.35,  # up to 6 in steps of 0.5 to 2, by a power of two
}

SMALLEST = 2.0**-24  # of the positive float16


def write(path, raw: Tensors, kind: GGMLQuantizationType):
    """A model whose matrices are ``raw`` bytes of this type; its norms are 1."""
    writer = gguf.GGUFWriter(path, "qwen3")
    for key, value in gguf_metadata(CONFIG, "qwen3").items():
        (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(key, value)
    for name, array in gguf_tensors(known_weights(CONFIG), CONFIG, architecture="qwen3").items():
        if array.ndim == 1:
            writer.add_tensor(name, np.ones_like(array))
        else:
            writer.add_tensor(name, raw[name], raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def matrices() -> Tensors:
    """Random values of each matrix of the file."""
    rng = np.random.default_rng(3)
    tensors = gguf_tensors(known_weights(CONFIG), CONFIG, architecture="qwen3")
    return {
        name: rng.normal(0, 1, array.shape).astype(np.float32) for name, array in tensors.items() if array.ndim == 2
    }


def loaded(path) -> Tensors:
    """The matrices of a file, under its own names, as the model gets them."""
    weights = dict(open_checkpoint(path).weights(np.float32))
    return gguf_tensors(weights, CONFIG, architecture="qwen3")


@pytest.mark.parametrize("kind", READABLE, ids=lambda kind: kind.name)
def test_values_are_those_that_the_library_reads(tmp_path, kind):
    """Of random blocks: half of the types can be read and not written. Small bytes keep the scales finite."""
    _, block_bytes = GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(5)
    raw = {}
    for name, values in matrices().items():
        num_blocks = values.shape[1] // GGML_QUANT_SIZES[kind][0]
        raw[name] = rng.integers(0, 0x3C, (values.shape[0], num_blocks * block_bytes), np.uint8)
    found = loaded(write(tmp_path / "m.gguf", raw, kind))
    for name, data in raw.items():
        np.testing.assert_array_equal(found[name], gguf.dequantize(data, kind), err_msg=name)
        assert len(np.unique(found[name])) > 2


@pytest.mark.parametrize("name", STEPS)
def test_values_are_near_those_that_were_quantized(tmp_path, name):
    kind = GGMLQuantizationType[name]
    values = matrices()
    raw = {key: gguf.quantize(array, kind).view(np.uint8) for key, array in values.items()}
    found = loaded(write(tmp_path / "m.gguf", raw, kind))
    block = max(GGML_QUANT_SIZES[kind][0], 1)
    for key, array in values.items():
        blocks = array.reshape(len(array), -1, block)
        largest = (blocks.max(-1) - blocks.min(-1)) if name.endswith("_1") else np.abs(blocks).max(-1)
        error = np.abs(found[key] - array).reshape(blocks.shape).max(-1)
        assert (error <= STEPS[name] * largest + SMALLEST).all(), key
        if STEPS[name]:
            assert (error > STEPS[name] * largest / 40).any(), "the bound is far above what happens"


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind not in READABLE], ids=lambda kind: kind.name)
def test_another_type_is_named_with_the_tensor(tmp_path, kind):
    block, block_bytes = GGML_QUANT_SIZES[kind]
    raw = {
        name: np.zeros((len(values), values.shape[1] // block * block_bytes), np.uint8)
        for name, values in matrices().items()
    }
    with pytest.raises(ValueError, match=rf"m\.gguf.*\n.*unreadable: token_embd\.weight is {kind.name}, a type that"):
        open_checkpoint(write(tmp_path / "m.gguf", raw, kind))
