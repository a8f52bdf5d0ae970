"""Files that are there and cannot be read: no permission, or a pipe in place of a file, which would wait for ever."""

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

from checkpoints import locate, open_checkpoint
from tests.checkpoints import writers
from tests.checkpoints.writers import known_weights

NOBODY = 65534


@pytest.fixture
def folder():
    """A model in Hugging Face's layout, where another user may look too."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield writers.write_hf(path / "model", writers.hf_tensors(known_weights()))
    for folder in (path, path / "model"):
        folder.chmod(0o755)
    shutil.rmtree(path)


@pytest.fixture
def stranger():
    """From the call on, this process has no right to other users' files, which root always has."""
    user = os.geteuid()

    def become():
        if user == 0:
            os.seteuid(NOBODY)

    yield become
    os.seteuid(user)


def fault_of(read, path):
    with pytest.raises(ValueError, match=str(path)) as error:
        read(path)
    return str(error.value)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "generation_config.json"])
def test_a_file_that_may_not_be_read_is_not_called_absent(folder, stranger, file):
    (folder / file).touch()
    (folder / file).chmod(0)
    stranger()
    fault = fault_of(open_checkpoint, folder)
    assert str(folder / file) in fault
    assert "Permission denied" in fault
    assert "No such file" not in fault


def test_a_gguf_file_that_may_not_be_read_is_not_called_absent(folder, stranger):
    path = writers.write_gguf(folder / "m.gguf", writers.gguf_tensors(known_weights()))
    path.chmod(0)
    stranger()
    assert "Permission denied" in fault_of(open_checkpoint, path)


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o100])  # nothing; its list; its files, but not its list
def test_a_folder_that_may_not_be_read_is_not_called_empty(folder, stranger, mode):
    folder.chmod(mode if os.geteuid() else mode >> 6)  # for its owner, and for all others where the owner is root
    stranger()
    assert "Permission denied" in fault_of(open_checkpoint, folder)


def test_what_lies_in_a_folder_that_may_not_be_entered_is_not_called_absent(folder, stranger):
    folder.parent.chmod(0)
    stranger()
    assert "Permission denied" in fault_of(locate, folder)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "model-00001-of-00001.safetensors", "model.safetensors.index.json"]
)
def test_a_pipe_in_place_of_a_file_that_is_needed_is_not_waited_for(folder, name):
    (folder / ("config.json" if name == "config.json" else "model.safetensors")).unlink()
    os.mkfifo(folder / name)
    assert "no model here" in fault_of(open_checkpoint, folder)


def test_a_shard_beside_a_pipe_of_such_a_name_is_the_whole_set(folder):
    """What is no file is none of the shards."""
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    os.mkfifo(folder / "model-00002-of-00002.safetensors")
    assert "embedding" in dict(open_checkpoint(folder).weights(np.float32))
