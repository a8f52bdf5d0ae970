"""Headers of safetensors files, and indexes of their shards, that lie."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxinfer.cli.exits import print_error
from tests.hostile.models import NORM, fault_of, replace

pytestmark = pytest.mark.timeout(20)


def edit_header(file: Path, edit: Callable[[dict], object]) -> None:
    """Changes the header of a safetensors file, and nothing behind it."""
    content = file.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    edit(header)
    changed = json.dumps(header).encode()
    replace(file, len(changed).to_bytes(8, "little") + changed + content[end:])


@pytest.mark.parametrize(
    "change",
    [
        {"data_offsets": [0, 10**9]},
        {"data_offsets": [128, 0]},
        {"data_offsets": [-128, 0]},
        {"data_offsets": [0, 2**63]},
        {"data_offsets": [0, 1, 2]},
        {"data_offsets": None},
        {"shape": [33]},
        {"shape": [0]},
        {"shape": [-32]},
        {"shape": [2**62, 4]},
        {"shape": [2**64, 2**64]},
        {"shape": [32.0]},
        {"shape": "32"},
        {"shape": [4, 8]},
        {"shape": []},
        {"shape": [1] * 1000 + [32]},
        {"dtype": 7},
        {"dtype": "F16"},
        {"dtype": "F16", "shape": [64]},
        {"dtype": "F8_E4M3", "shape": [128]},
        {"dtype": "BOOL", "shape": [128]},
    ],
    ids=str,
)
def test_a_tensor_that_is_described_wrongly_is_named(copy, change):
    file = copy("huggingface") / "model.safetensors"
    edit_header(file, lambda header: header[NORM].update(change))
    assert NORM in fault_of(file.parent)


@pytest.mark.parametrize("entry", [[], None, "F32", {}])
def test_a_tensor_that_is_not_described_is_named(copy, entry):
    file = copy("huggingface") / "model.safetensors"
    edit_header(file, lambda header: header.update({NORM: entry}))
    assert NORM in fault_of(file.parent)


@pytest.mark.parametrize("length", [0, 1, 8, 2**20, 100_000_000, 100_000_001, 2**31, 2**63, 2**64 - 1])
def test_a_header_of_another_length_is_refused(copy, length):
    file = copy("huggingface") / "model.safetensors"
    replace(file, length.to_bytes(8, "little") + file.read_bytes()[8:])
    assert str(file) in fault_of(file.parent)


@pytest.mark.parametrize("header", [b"[" * 100_000, b'{"a":' * 100_000, b"[]", b"3", b'{"a":{}}', b"\xff"])
def test_a_header_of_another_form_is_refused(copy, header):
    file = copy("huggingface") / "model.safetensors"
    replace(file, len(header).to_bytes(8, "little") + header + bytes(100))
    assert str(file) in fault_of(file.parent)


@pytest.mark.parametrize("num_bytes", [1, 4, 4096])
def test_bytes_behind_the_last_tensor_are_refused(copy, num_bytes):
    file = copy("huggingface") / "model.safetensors"
    replace(file, file.read_bytes() + bytes(num_bytes))
    assert str(file) in fault_of(file.parent)


@pytest.mark.parametrize(
    "name", ["x" * 300, "x" * 100_000, "a\0b", "a\nb", "\ud800", ".", " ", "a\\b", "config.json", "../m.safetensors"]
)
def test_an_index_may_name_anything_but_only_what_is_beside_it_is_opened(copy, name):
    folder = copy("shards")
    index = folder / "model.safetensors.index.json"
    names = json.loads(index.read_bytes())
    names["weight_map"][NORM] = name
    replace(index, json.dumps(names).encode())
    assert str(folder / ("config.json" if name == "config.json" else index.name)) in fault_of(folder)


def test_a_name_that_steers_a_terminal_is_spelled_out_for_the_user(copy, capsys):
    file = copy("huggingface") / "model.safetensors"
    edit_header(file, lambda header: header.update({"a\x1b[2J\r\u202eb": header.pop(NORM)}))
    print_error(fault_of(file.parent))
    shown = capsys.readouterr().err
    assert r"unexpected: a\x1b[2J\r\u202eb, shape (32,)" in shown
    assert shown.endswith("\n") and shown.replace("\n", "").isprintable()
