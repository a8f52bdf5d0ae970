"""The same weights come out of every layout under the model's names."""

import tracemalloc
from dataclasses import replace

import gguf
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from checkpoints.checkpoint import open_checkpoint
from checkpoints.safetensors_source import SafetensorsSource
from checkpoints.tables import interleaved_pairs
from jaxinfer.weights import weight_shapes
from tests.checkpoints import writers
from tests.checkpoints.writers import CONFIG, known_weights
from tests.reference import FIXTURES, TINY_TWO_GROUPS, TINY_WINDOWS, read_hf_weights


def write_mistral_shards(folder, tensors):
    folder.mkdir()
    writers.write_json(folder / "params.json", writers.MISTRAL_PARAMS)
    names = list(tensors)
    for number, some in enumerate((names[:5], names[5:]), start=1):
        save_file({name: tensors[name] for name in some}, folder / f"consolidated-0000{number}-of-00002.safetensors")
    return folder


def gguf_writer(kind):
    return lambda path, weights: writers.write_gguf(
        path.with_suffix(".gguf"), writers.gguf_tensors(weights), matrices=kind
    )


def as_dtype(tensors, dtype):
    return {name: array.astype(dtype) for name, array in tensors.items()}


WRITERS = {
    "hf": lambda path, w: writers.write_hf(path, writers.hf_tensors(w)),
    "hf-shards": lambda path, w: writers.write_hf_shards(path, writers.hf_tensors(w)),
    "hf-bf16": lambda path, w: writers.write_hf(path, as_dtype(writers.hf_tensors(w), ml_dtypes.bfloat16)),
    "hf-f16": lambda path, w: writers.write_hf(path, as_dtype(writers.hf_tensors(w), np.float16)),
    "mistral": lambda path, w: writers.write_mistral(path, writers.mistral_tensors(w)),
    "mistral-shards": lambda path, w: write_mistral_shards(path, writers.mistral_tensors(w)),
    "gguf-f32": gguf_writer(gguf.GGMLQuantizationType.F32),
    "gguf-f16": gguf_writer(gguf.GGMLQuantizationType.F16),
    "gguf-bf16": gguf_writer(gguf.GGMLQuantizationType.BF16),
    "gguf-q8_0": gguf_writer(gguf.GGMLQuantizationType.Q8_0),
}


def assert_same(found, expected):
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].shape == array.shape, name
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_every_layout_gives_the_weights_that_were_written(tmp_path, write, dtype):
    weights = known_weights()
    checkpoint = open_checkpoint(write(tmp_path / "model", weights))
    assert checkpoint.config == CONFIG
    found = dict(checkpoint.weights(dtype))
    assert_same(found, weights)
    assert all(array.dtype == dtype and array.flags.c_contiguous for array in found.values())
    assert list(found) == list(weight_shapes(CONFIG))


@pytest.mark.parametrize(
    ("write", "layout", "eos"),
    [("hf", "huggingface", (2,)), ("mistral", "mistral", ()), ("gguf-f32", "gguf", (2,))],
)
def test_the_checkpoint_says_what_it_is(tmp_path, write, layout, eos):
    path = WRITERS[write](tmp_path / "model", known_weights())
    checkpoint = open_checkpoint(path)
    assert (checkpoint.layout, checkpoint.eos_token_ids) == (layout, eos)
    assert checkpoint.path in (path, path.with_suffix(".gguf"))


def test_rotary_pairs_by_the_docstrings_example():
    model = np.zeros((4, 1), np.float32)
    interleaved_pairs(model, 4)[...] = np.array([0, 1, 2, 3], np.float32).reshape(1, 2, 2, 1)
    assert model[:, 0].tolist() == [0, 2, 1, 3]  # row r of the model now holds the number of the file's row


def test_both_files_of_stories260k_hold_the_same_model(shared_data):
    hf, mistral = (open_checkpoint(shared_data / f"stories260K-{layout}") for layout in ("hf", "mistral"))
    assert hf.config == replace(mistral.config, tie_embeddings=True, max_position_embeddings=512)
    found = dict(mistral.weights(np.float32))
    np.testing.assert_array_equal(found.pop("lm_head"), found["embedding"])
    assert_same(found, dict(hf.weights(np.float32)))


def test_both_layouts_of_the_tiny_mistral_that_transformers_wrote_hold_the_same_model():
    hf, mistral = (open_checkpoint(FIXTURES / name) for name in ("tiny_mistral", "tiny_mistral_layout"))
    assert hf.config.windows == (8, 8, 8)
    assert hf.config == replace(mistral.config, max_position_embeddings=256)
    assert_same(dict(mistral.weights(np.float32)), dict(hf.weights(np.float32)))


@pytest.mark.parametrize(("name", "config"), [("tiny_windows", TINY_WINDOWS), ("tiny_two_groups", TINY_TWO_GROUPS)])
def test_what_transformers_wrote_of_windowed_models(name, config):
    """``tiny_two_groups`` is a Ministral, with ``layer_types``; its tensors have the names of a Mistral's."""
    checkpoint = open_checkpoint(FIXTURES / name)
    assert checkpoint.config == config
    weights = read_hf_weights(FIXTURES / name, config)
    assert_same(dict(checkpoint.weights(np.float32)), {key: weights[key] for key in weight_shapes(config)})


@pytest.mark.parametrize(
    ("write", "tensors"),
    [
        (lambda path, t: writers.write_hf(path, t, writers.HF_CONFIG | {"tie_word_embeddings": True}), "hf_tensors"),
        (writers.write_mistral, "mistral_tensors"),
        (lambda path, t: writers.write_gguf(path.with_suffix(".gguf"), t), "gguf_tensors"),
    ],
    ids=["hf", "mistral", "gguf"],
)
def test_a_model_without_an_output_head_is_tied(tmp_path, write, tensors):
    config = replace(CONFIG, tie_embeddings=True)
    weights = known_weights(config)
    checkpoint = open_checkpoint(write(tmp_path / "model", getattr(writers, tensors)(weights, config)))
    assert checkpoint.config == config
    assert_same(dict(checkpoint.weights(np.float32)), weights)


def test_huggingface_wins_where_both_layouts_lie_in_one_folder(tmp_path):
    weights = known_weights()
    writers.write_mistral(tmp_path, writers.mistral_tensors(weights))
    assert open_checkpoint(tmp_path).layout == "mistral"
    writers.write_hf(tmp_path, writers.hf_tensors(weights))
    assert open_checkpoint(tmp_path).layout == "huggingface"


def test_mistral_is_taken_where_the_config_has_no_weights_of_its_own(tmp_path):
    writers.write_mistral(tmp_path, writers.mistral_tensors(known_weights()))
    writers.write_json(tmp_path / "config.json", writers.HF_CONFIG)
    assert open_checkpoint(tmp_path).layout == "mistral"


@pytest.mark.parametrize("name", ["absent", "empty"])
def test_no_model_names_what_was_looked_for(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"config\.json.*model\.safetensors.*params\.json.*consolidated.*\.gguf") as e:
        open_checkpoint(tmp_path / name)
    assert str(tmp_path / name) in str(e.value)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8])
def test_only_float32_and_bfloat16_are_given(tmp_path, dtype):
    checkpoint = open_checkpoint(writers.write_hf(tmp_path, writers.hf_tensors(known_weights())))
    with pytest.raises(ValueError, match=rf"{np.dtype(dtype).name}.*float32 or bfloat16"):
        checkpoint.weights(dtype)


def test_nothing_is_read_before_it_is_asked_for(tmp_path, monkeypatch):
    read = []
    original = SafetensorsSource.read
    monkeypatch.setattr(SafetensorsSource, "read", lambda self, name: read.append(name) or original(self, name))
    checkpoint = open_checkpoint(writers.write_hf(tmp_path, writers.hf_tensors(known_weights())))
    weights = checkpoint.weights(np.float32)
    assert read == []
    assert next(weights)[0] == "embedding"
    assert read == ["model.embed_tokens.weight"]


DEEP = replace(
    CONFIG,
    hidden_size=64,
    intermediate_size=1024,
    num_layers=16,
    windows=(None,) * 16,
    head_dim=32,
    tie_embeddings=True,
)
DEEP_HF = writers.HF_CONFIG | {
    "hidden_size": 64,
    "intermediate_size": 1024,
    "num_hidden_layers": 16,
    "head_dim": 32,
    "tie_word_embeddings": True,
}
DEEP_GGUF = writers.GGUF_METADATA | {
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 1024,
    "llama.block_count": 16,
    "llama.attention.key_length": 32,
    "llama.attention.value_length": 32,
    "llama.rope.dimension_count": 32,
}


def open_deep(path, layout):
    weights = known_weights(DEEP)
    if layout == "gguf":
        tensors = writers.gguf_tensors(weights, DEEP)
        kind = gguf.GGMLQuantizationType.Q8_0
        return open_checkpoint(writers.write_gguf(path / "m.gguf", tensors, DEEP_GGUF, matrices=kind))
    return open_checkpoint(writers.write_hf(path, writers.hf_tensors(weights, DEEP), DEEP_HF))


def peak_of(consume):
    tracemalloc.start()
    consume()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("layout", ["hf", "gguf"])
def test_beside_the_weight_only_one_tensor_is_held(tmp_path, layout, monkeypatch):
    monkeypatch.setattr("checkpoints.gguf_source._VALUES_AT_ONCE", 2**12)  # as small beside these tensors as 2**20 is
    checkpoint = open_deep(tmp_path, layout)  # beside real ones
    largest = 2 * DEEP.intermediate_size * DEEP.hidden_size * 4
    allowed = 1.7 * largest  # gate_up, one of its halves, and small change

    def consume():
        for _, array in checkpoint.weights(np.float32):
            del array  # else it would live while the next one is made

    assert peak_of(consume) < allowed
    # The control: a caller who keeps all weights is seen to use far more.
    assert peak_of(lambda: dict(checkpoint.weights(np.float32))) > 5 * allowed


def test_loading_twice_gives_fresh_arrays(tmp_path):
    checkpoint = open_checkpoint(writers.write_hf(tmp_path, writers.hf_tensors(known_weights())))
    first = dict(checkpoint.weights(np.float32))
    first["embedding"][...] = 0
    assert dict(checkpoint.weights(np.float32))["embedding"].any()
