"""Which files belong to a checkpoint, and what is wrong with them."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from checkpoints.checkpoint import open_checkpoint
from checkpoints.safetensors_source import SafetensorsSource, find_files
from tests.checkpoints import writers
from tests.checkpoints.writers import known_weights

INDEX = "model.safetensors.index.json"


@pytest.fixture
def sharded(tmp_path):
    return writers.write_hf_shards(tmp_path / "model", writers.hf_tensors(known_weights()))


def edit_index(folder, edit):
    index = json.loads((folder / INDEX).read_text())
    edit(index["weight_map"])
    (folder / INDEX).write_text(json.dumps(index))


@pytest.mark.parametrize(
    "content",
    [b"PK\x03\x04" + bytes(500), b"\xff" * 100, b"hello", b'{"a": 1}' * 20, bytes(64), (2**40).to_bytes(8, "little")],
)
def test_a_foreign_file_is_named(tmp_path, content):
    folder = writers.write_hf(tmp_path, writers.hf_tensors(known_weights()))
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        open_checkpoint(folder)


@pytest.mark.parametrize(("header_bytes", "is_explained"), [(3_900_000, True), (4_100_000, False)])
def test_the_fault_of_a_header_of_many_megabytes_is_not_looked_for(tmp_path, header_bytes, is_explained):
    """Parsed, it takes some thirty times its size: the file is named, and what the library says of it."""
    folder = writers.write_hf(tmp_path, writers.hf_tensors(known_weights()))
    header = json.dumps({"odd one": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}).encode()
    content = header_bytes.to_bytes(8, "little") + header.ljust(header_bytes) + bytes(8)
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors: not a whole safetensors file") as error:
        open_checkpoint(folder)
    assert ("odd one has 8 bytes" in str(error.value)) == is_explained


def test_one_truncated_shard_of_several_is_named(sharded):
    file = sharded / "model-00002-of-00003.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="model-00002-of-00003"):
        open_checkpoint(sharded)


def test_an_absent_shard_is_named(sharded):
    (sharded / "model-00003-of-00003.safetensors").unlink()
    with pytest.raises(ValueError, match=r"index\.json: .*not there: model-00003-of-00003\.safetensors"):
        open_checkpoint(sharded)


def test_a_file_that_the_index_does_not_name_is_not_opened(sharded):
    (sharded / "model.safetensors").write_bytes(b"not read")
    (sharded / "model-00004-of-00004.safetensors").write_bytes(b"not read either")
    assert len(dict(open_checkpoint(sharded).weights(np.float32))) == 15


def test_a_tensor_that_the_index_does_not_name_is_not_of_the_checkpoint(sharded):
    file = sharded / "model-00001-of-00003.safetensors"
    names = {n for n, f in json.loads((sharded / INDEX).read_text())["weight_map"].items() if f == file.name}
    tensors = {n: a for n, a in writers.hf_tensors(known_weights()).items() if n in names}
    save_file(tensors | {"left.over": np.zeros(3, np.float32)}, file)
    open_checkpoint(sharded)
    (sharded / INDEX).unlink()  # without the index it counts
    with pytest.raises(ValueError, match=r"unexpected: left\.over"):
        open_checkpoint(sharded)


def test_a_tensor_that_its_file_lacks_is_named(sharded):
    edit_index(sharded, lambda names: names.update(phantom="model-00002-of-00003.safetensors"))
    with pytest.raises(ValueError, match=r"model-00002-of-00003\.safetensors: .*phantom"):
        open_checkpoint(sharded)


@pytest.mark.parametrize("file", ["../model.safetensors", "/etc/passwd", "a/b", "", "..", None, 3])
def test_an_index_cannot_name_files_elsewhere(sharded, file):
    edit_index(sharded, lambda names: names.update({"model.norm.weight": file}))
    with pytest.raises(ValueError, match=r"index\.json"):
        open_checkpoint(sharded)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "3", "null", "{}", '{"weight_map": {}}', '{"weight_map": []}', "[" * 100_000]
)
def test_a_malformed_index_is_named(sharded, content):
    (sharded / INDEX).write_text(content)
    with pytest.raises(ValueError, match=r"model\.safetensors\.index\.json"):
        open_checkpoint(sharded)


def test_shards_without_an_index_are_taken_if_complete(sharded):
    (sharded / INDEX).unlink()
    found = dict(open_checkpoint(sharded).weights(np.float32))
    expected = known_weights()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    (sharded / "model-00001-of-00003.safetensors").unlink()
    with pytest.raises(ValueError, match="not one complete set of shards"):
        open_checkpoint(sharded)


def test_a_tensor_in_two_shards_without_an_index_is_named(sharded):
    (sharded / INDEX).unlink()
    second = sharded / "model-00002-of-00003.safetensors"
    second.write_bytes((sharded / "model-00001-of-00003.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"00002-of-00003\.safetensors: model\.embed_tokens\.weight is also in"):
        open_checkpoint(sharded)


def test_rows_can_be_read_some_after_another(tmp_path):
    values = np.arange(1800, dtype=np.float32).reshape(600, 3)
    save_file({"a": values}, tmp_path / "model.safetensors")
    source = SafetensorsSource(tmp_path, find_files(tmp_path, "model"))
    blocks = list(source.blocks("a"))
    assert len(blocks) > 2
    np.testing.assert_array_equal(np.concatenate(blocks), values)
    np.testing.assert_array_equal(source.read("a"), values)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            np.ones((3, 2), np.float32),
            r"a is F32 of shape \(3, 2\); when the file was opened it was F32 of shape \(2",
        ),
        (np.ones((2, 3), np.float16), "a is F16 of shape .* the file has been replaced"),
        (None, "a cannot be read: .*does not contain tensor a"),
    ],
)
def test_a_file_that_is_replaced_before_it_is_read(tmp_path, other, message):
    """Shape and type were compared with the model's when it was opened."""
    path = tmp_path / "model.safetensors"
    save_file({"a": np.ones((2, 3), np.float32)}, path)
    source = SafetensorsSource(tmp_path, find_files(tmp_path, "model"))
    save_file({"b": np.ones(1)} if other is None else {"a": other}, tmp_path / "new")
    (tmp_path / "new").rename(path)
    for read in (source.read, lambda name: list(source.blocks(name))):
        with pytest.raises(ValueError, match=rf"model\.safetensors: {message}"):
            read("a")


def test_a_folder_without_weights_names_what_was_looked_for(tmp_path):
    with pytest.raises(ValueError, match=r"model\.safetensors\.index\.json, model\.safetensors or model-"):
        find_files(tmp_path, "model")


def test_bfloat16_is_read_where_nothing_else_has_taught_numpy_the_type(tmp_path):
    """safetensors asks NumPy for 'bfloat16' by name; only the tests' own import of ml_dtypes made that work."""
    import subprocess
    import sys

    import ml_dtypes

    save_file({"a": np.ones(4, ml_dtypes.bfloat16)}, tmp_path / "model.safetensors")
    code = (
        "import sys, pathlib; from checkpoints.safetensors_source import *\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "print(SafetensorsSource(folder, find_files(folder, 'model')).read('a').sum())"
    )
    run = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == "4", run.stderr
