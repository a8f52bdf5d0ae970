"""Files that are torn, of another form, or no files at all."""

import os
from pathlib import Path

import pytest

from tests.hostile.models import FILE_OF_LAYOUT, FILES, NORM, fault_of, read, replace

pytestmark = pytest.mark.timeout(20)


@pytest.mark.parametrize("layout", FILES)
def test_the_models_are_whole(copy, layout):
    read(copy(layout))


def test_a_folder_may_have_any_name(copy, tmp_path):
    odd = tmp_path / "a\nb \x1b[2J é🦙"
    copy("huggingface").rename(odd)
    read(odd)


@pytest.mark.parametrize(("layout", "file"), FILE_OF_LAYOUT)
def test_a_file_that_is_torn_is_named(copy, layout, file):
    path = copy(layout) / file
    whole = path.read_bytes()
    for twentieth in range(20):
        replace(path, whole[: len(whole) * twentieth // 20])
        assert str(path) in fault_of(path.parent)


@pytest.mark.parametrize(
    ("layout", "file", "last"),
    [
        ("huggingface", "model.safetensors", NORM),
        ("mistral", "consolidated.safetensors", "tok_embeddings.weight"),
        ("gguf", "m.gguf", "blk.1.ffn_up.weight"),
    ],
)
def test_so_is_the_tensor_whose_end_is_lost(copy, layout, file, last):
    """The one that its file has last."""
    path = copy(layout) / file
    replace(path, path.read_bytes()[:-64])
    assert last in fault_of(path.parent)


@pytest.mark.parametrize(("layout", "file"), [pair for pair in FILE_OF_LAYOUT if pair[1].endswith(".json")])
@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b'{"a":' * 100_000, b"", b"\xff\xfe{}", b"null", b"[{}]", b"9" * 9999]
)
def test_json_of_another_form_is_named(copy, layout, file, content):
    path = copy(layout) / file
    replace(path, content)
    assert str(path) in fault_of(path.parent)


def make_loop(path):
    path.symlink_to(path)


def make_dangling(path):
    path.symlink_to(path.with_name("nowhere"))


@pytest.mark.parametrize(("layout", "file"), [*FILE_OF_LAYOUT, ("huggingface", "tokenizer_config.json")])
@pytest.mark.parametrize("make", [Path.mkdir, make_loop, make_dangling, os.mkfifo])
def test_what_is_no_file_is_named_and_not_waited_for(copy, layout, file, make):
    path = copy(layout) / file
    path.unlink()
    make(path)
    assert file in fault_of(path.parent)


def test_a_folder_that_is_a_link_to_itself_does_not_exist(tmp_path):
    make_loop(tmp_path / "loop")
    assert "does not exist" in fault_of(tmp_path / "loop")
