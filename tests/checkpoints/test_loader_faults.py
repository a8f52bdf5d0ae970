"""A file whose tensors do not fit the model is refused before anything is read, with every fault named."""

from dataclasses import replace

import gguf
import numpy as np
import pytest

from checkpoints.checkpoint import open_checkpoint
from checkpoints.gguf_source import GGUFSource
from checkpoints.loader import WeightLoader
from checkpoints.safetensors_source import SafetensorsSource
from checkpoints.tables import GGUF_LLAMA
from tests.checkpoints import writers
from tests.checkpoints.writers import HF_CONFIG, known_weights

TIED = HF_CONFIG | {"tie_word_embeddings": True}


@pytest.fixture
def hf():
    return writers.hf_tensors(known_weights())


def fault_of(path):
    with pytest.raises(ValueError) as error:
        open_checkpoint(path)
    assert str(path) in str(error.value)
    return str(error.value)


WRITE = {
    "hf": (writers.write_hf, writers.hf_tensors),
    "shards": (writers.write_hf_shards, writers.hf_tensors),
    "mistral": (writers.write_mistral, writers.mistral_tensors),
    "gguf": (lambda path, t: writers.write_gguf(path / "m.gguf", t), writers.gguf_tensors),
}


@pytest.mark.parametrize("layout", WRITE)
def test_each_absent_tensor_is_named(tmp_path, layout):
    write, tensors_of = WRITE[layout]
    whole = tensors_of(known_weights())
    for number, name in enumerate(whole):
        if name == "output.weight":
            continue  # without it the model is tied, in the two layouts that call it so
        folder = tmp_path / str(number)
        folder.mkdir()
        fault = fault_of(write(folder, {n: a for n, a in whole.items() if n != name}))
        assert f"missing: {name}, shape {whole[name].shape}" in fault
        assert fault.count("\n") == 1


def test_a_missing_output_head_is_no_tied_one(tmp_path, hf):
    del hf["lm_head.weight"]
    assert "missing: lm_head.weight, shape (48, 32)" in fault_of(writers.write_hf(tmp_path, hf))


@pytest.mark.parametrize("layout", WRITE)
@pytest.mark.parametrize(
    "name", ["foo", "model.layers.2.mlp.up_proj.weight", "blk.2.ffn_up.weight", "blk.0.attn_q.bias", "lm_head.bias"]
)
def test_an_extra_tensor_is_named(tmp_path, layout, name):
    write, tensors_of = WRITE[layout]
    path = write(tmp_path, tensors_of(known_weights()) | {name: np.ones((3, 32), np.float32)})
    assert f"unexpected: {name}, shape (3, 32)" in fault_of(path)


@pytest.mark.parametrize("layout", WRITE)
def test_each_misshapen_tensor_is_named(tmp_path, layout):
    write, tensors_of = WRITE[layout]
    whole = tensors_of(known_weights())
    for number, (name, array) in enumerate(whole.items()):
        if name == "token_embd.weight":
            continue  # there the vocabulary's size is the embedding's, so it is the output head that does not fit
        folder = tmp_path / str(number)
        folder.mkdir()
        longer = np.concatenate([array, array])
        fault = fault_of(write(folder, whole | {name: longer}))
        assert f"misshapen: {name}, shape {longer.shape}, expected {array.shape}" in fault


def test_a_transposed_matrix_is_misshapen(tmp_path, hf):
    name = "model.layers.1.mlp.down_proj.weight"
    hf[name] = np.ascontiguousarray(hf[name].T)
    assert f"misshapen: {name}, shape (96, 32), expected (32, 96)" in fault_of(writers.write_hf(tmp_path, hf))


def test_all_faults_are_named_at_once_and_before_anything_is_read(tmp_path, hf, monkeypatch):
    monkeypatch.delattr(SafetensorsSource, "read")
    hf["model.final_norm.weight"] = hf.pop("model.norm.weight")
    hf["model.layers.0.mlp.up_proj.weight"] = np.zeros((95, 32), np.float32)
    hf["model.layers.1.self_attn.k_proj.weight"] = np.zeros((32, 32), np.int8)
    assert fault_of(writers.write_hf(tmp_path, hf)).split("\n")[1:] == [
        "  missing: model.norm.weight, shape (32,)",
        "  unexpected: model.final_norm.weight, shape (32,)",
        "  misshapen: model.layers.0.mlp.up_proj.weight, shape (95, 32), expected (96, 32)",
        "  unreadable: model.layers.1.self_attn.k_proj.weight is I8, a type that is not supported",
    ]


def test_of_each_kind_of_fault_the_first_are_told(tmp_path, hf):
    extra = {f"extra.{i:04}": np.zeros(1, np.float32) for i in range(1000)}
    more_layers = HF_CONFIG | {"num_hidden_layers": 52}  # 9 tensors in each of the 50 that are not there
    lines = fault_of(writers.write_hf(tmp_path, hf | extra, more_layers)).split("\n")[1:]
    assert [line.strip() for line in lines if "more" in line] == ["and 430 more", "and 980 more"]
    assert [line.split(":")[0].strip() for line in lines if "more" not in line] == ["missing"] * 20 + [
        "unexpected"
    ] * 20


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.float64])
def test_only_float_dtypes_that_models_are_kept_in_are_read(tmp_path, hf, dtype):
    hf["model.norm.weight"] = hf["model.norm.weight"].astype(dtype)
    assert "unreadable: model.norm.weight is " in fault_of(writers.write_hf(tmp_path, hf))


def test_a_gguf_type_that_holds_no_floats_is_not_read(tmp_path):
    tensors = writers.gguf_tensors(known_weights())
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    for key, value in writers.GGUF_METADATA.items():
        (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(key, value)
    for name, array in tensors.items():
        writer.add_tensor(name, array.astype(np.int16) if name == "output_norm.weight" else array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert "unreadable: output_norm.weight is I16" in fault_of(tmp_path / "m.gguf")


def test_buffers_that_old_files_carry_are_ignored(tmp_path, hf):
    buffer = np.ones(8, np.float32)
    extras = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": buffer for i in range(2)}
    found = dict(open_checkpoint(writers.write_hf(tmp_path, hf | extras)).weights(np.float32))
    np.testing.assert_array_equal(found["final_norm"], hf["model.norm.weight"])


def test_but_only_those_of_layers_that_exist(tmp_path, hf):
    hf["model.layers.2.self_attn.rotary_emb.inv_freq"] = np.ones(8, np.float32)
    assert "unexpected: model.layers.2.self_attn.rotary_emb" in fault_of(writers.write_hf(tmp_path, hf))


def test_the_output_head_of_a_tied_model_may_repeat_the_embedding(tmp_path, hf):
    hf["lm_head.weight"] = hf["model.embed_tokens.weight"].copy()
    assert "lm_head" not in dict(open_checkpoint(writers.write_hf(tmp_path, hf, TIED)).weights(np.float32))


@pytest.mark.parametrize("row", [0, 47])
def test_but_one_that_differs_is_refused(tmp_path, hf, row):
    hf["lm_head.weight"] = hf["model.embed_tokens.weight"].copy()
    hf["lm_head.weight"][row, 31] += 0.5
    checkpoint = open_checkpoint(writers.write_hf(tmp_path, hf, TIED))
    with pytest.raises(ValueError, match=r"lm_head\.weight is not equal to model\.embed_tokens\.weight"):
        checkpoint.weights(np.float32)


def test_a_repeated_embedding_is_compared_beyond_the_first_rows(tmp_path, hf, monkeypatch):
    monkeypatch.setattr("checkpoints.tensor_source._BLOCK", 5)
    hf["lm_head.weight"] = hf["model.embed_tokens.weight"].copy()
    dict(open_checkpoint(writers.write_hf(tmp_path / "equal", hf, TIED)).weights(np.float32))
    hf["lm_head.weight"][46, 0] += 0.5
    with pytest.raises(ValueError, match="not equal"):
        open_checkpoint(writers.write_hf(tmp_path / "not", hf, TIED)).weights(np.float32)


def test_an_output_head_of_another_shape_in_a_tied_model_is_misshapen(tmp_path, hf):
    hf["lm_head.weight"] = np.ones((40, 32), np.float32)
    fault = fault_of(writers.write_hf(tmp_path, hf, TIED))
    assert "misshapen: lm_head.weight, shape (40, 32), expected (48, 32)" in fault


def mistral_with(tmp_path, **changed):
    tensors = writers.mistral_tensors(known_weights())
    return writers.write_mistral(tmp_path, tensors, writers.MISTRAL_PARAMS | changed)


@pytest.mark.parametrize("value", [2**31 - 1, 2**31, 2**63, 2**64 - 1, 10**30])
@pytest.mark.parametrize("key", ["vocab_size", "dim", "hidden_dim", "n_heads", "n_kv_heads", "head_dim"])
def test_a_number_of_any_size_is_refused(tmp_path, key, value):
    """Up to int32 as a model that the tensors do not fit, beyond it as a number; never by running out of something."""
    fault = fault_of(mistral_with(tmp_path, **{key: value}))
    assert str(value)[:8] in fault or str(2 * value) in fault or "do not fit" in fault


def test_a_window_may_be_longer_than_any_context_but_is_an_int32(tmp_path):
    longest = 2**31 - 1
    (tmp_path / "ok").mkdir()
    assert open_checkpoint(mistral_with(tmp_path / "ok", sliding_window=longest)).config.windows == (longest, longest)
    assert str(longest + 1) in fault_of(mistral_with(tmp_path, sliding_window=longest + 1))


def test_products_far_beyond_32_bits_are_compared_as_shapes(tmp_path):
    heads, head_dim = 2**31 - 2, 2**31 - 2
    fault = fault_of(mistral_with(tmp_path, n_heads=heads, n_kv_heads=heads, head_dim=head_dim))
    assert f"misshapen: layers.0.attention.wv.weight, shape (32, 32), expected ({heads * head_dim}, 32)" in fault


def test_huge_numbers_of_a_gguf_are_refused(tmp_path):
    huge = {"llama.attention.head_count": 2**32 - 1, "llama.attention.head_count_kv": 2**32 - 1}
    huge |= dict.fromkeys(("llama.attention.key_length", "llama.attention.value_length"), 2**32 - 2)
    metadata = writers.GGUF_METADATA | huge | {"llama.rope.dimension_count": 2**32 - 2}
    fault_of(writers.write_gguf(tmp_path / "m.gguf", writers.gguf_tensors(known_weights()), metadata))


@pytest.mark.parametrize(("field", "names"), [("qkv_bias", ["qkv_bias"]), ("qk_norm", ["q_norm", "k_norm"])])
def test_a_weight_that_no_table_fills_is_not_left_as_memory_had_it(tmp_path, field, names):
    config = replace(writers.CONFIG, **{field: True})
    source = GGUFSource(writers.write_gguf(tmp_path / "m.gguf", writers.gguf_tensors(known_weights())))
    with pytest.raises(ValueError) as caught:
        WeightLoader(GGUF_LLAMA, config, source)
    for name in names:
        assert f"not filled: layers.0.{name}, shape (" in str(caught.value)
