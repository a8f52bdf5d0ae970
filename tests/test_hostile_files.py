"""Whatever a model's files hold, opening it and reading its weights ends soon: with the model or with a ValueError.

All layouts, through the function that every user's model goes through. What one reader makes of one fault is tested
beside that reader.
"""

import json
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from jaxinfer.cli.exits import print_error
from jaxinfer.loading import open_model
from tests.checkpoints import writers
from tests.checkpoints.writers import known_weights
from tests.vocabularies import write_byte_level_json

pytestmark = pytest.mark.timeout(20)

FILES = {
    "huggingface": ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"],
    "shards": ["config.json", "model.safetensors.index.json", "model-00002-of-00003.safetensors"],
    "mistral": ["params.json", "consolidated.safetensors"],
    "gguf": ["m.gguf"],
}
FILE_OF_LAYOUT = [(layout, file) for layout, files in FILES.items() for file in files]

GGUF_METADATA = writers.GGUF_METADATA | {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": ["<s>", "</s>", "ab", *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRS"],
    "tokenizer.ggml.token_type": [3, 3, *[1] * 46],
    "tokenizer.ggml.merges": ["a b"],
}
NORM = "model.norm.weight"
MAX_GROWTH = 300 * 2**20  # a model takes less than one MiB; the rest is for libraries that are loaded on the way


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder for each layout."""
    root, weights = tmp_path_factory.mktemp("models"), known_weights()
    writers.write_hf(root / "huggingface", writers.hf_tensors(weights))
    writers.write_json(root / "huggingface" / "generation_config.json", {"eos_token_id": 2})
    writers.write_hf_shards(root / "shards", writers.hf_tensors(weights))
    writers.write_mistral(root / "mistral", writers.mistral_tensors(weights))
    for layout in ("huggingface", "shards", "mistral"):
        write_byte_level_json(root / layout)
    (root / "gguf").mkdir()
    writers.write_gguf(root / "gguf" / "m.gguf", writers.gguf_tensors(weights), GGUF_METADATA)
    return root


@pytest.fixture
def copy(models, tmp_path):
    """A copy of the model of a layout: its folder, also for a GGUF file."""

    def copy(layout):
        return Path(shutil.copytree(models / layout, tmp_path / layout))

    return copy


@pytest.fixture(autouse=True)
def _memory_is_bounded():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MAX_GROWTH


def read(folder: Path) -> None:
    file = folder / "m.gguf"
    model = open_model(file if os.path.lexists(file) else folder)
    assert len(list(model.weights(np.dtype(np.float32), None))) == 15


def fault_of(folder: Path) -> str:
    with pytest.raises(ValueError) as caught:
        read(folder)
    return str(caught.value)


def replace(file: Path, content: bytes) -> None:
    """With a new file: the old one may still be mapped."""
    file.unlink()
    file.write_bytes(content)


@pytest.mark.parametrize("layout", FILES)
def test_the_models_are_whole(copy, layout):
    read(copy(layout))


def test_a_folder_may_have_any_name(copy, tmp_path):
    odd = tmp_path / "a\nb \x1b[2J é🦙"
    copy("huggingface").rename(odd)
    read(odd)


# ---- files that are not what they should be --------------------------------------------------------------------------


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


# ---- headers that lie ------------------------------------------------------------------------------------------------


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


# ---- numbers that are none -------------------------------------------------------------------------------------------

JSON_VALUES = [
    *("x", "1" * 9999, [], [[]], {"a": {"b": 1}}, True),
    *(-1, 0, 1.5, 2**31, 2**64, 10**400, 1e308, float("nan"), float("-inf")),
]
MORE_KEYS = {
    "huggingface": [
        *("sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "rope_scaling"),
        *("rope_parameters", "quantization_config", "transformers_version"),
    ],
    "mistral": ["sliding_window", "_sliding_window", "quantization", "moe", "lora", "yarn", "vision_encoder"],
}


def ends_well(folder: Path) -> None:
    """With the model, or with an error that says where."""
    try:
        read(folder)
    except ValueError as error:
        told = str(error)
    else:
        return
    assert str(folder) in told
    assert len(told) < 2000


@pytest.mark.parametrize(
    ("layout", "key"),
    [("huggingface", key) for key in [*writers.HF_CONFIG, *MORE_KEYS["huggingface"]]]
    + [("mistral", key) for key in [*writers.MISTRAL_PARAMS, *MORE_KEYS["mistral"]]],
)
def test_any_value_of_a_config_gives_a_model_or_an_error(copy, layout, key):
    file = copy(layout) / FILES[layout][0]
    values = json.loads(file.read_bytes())
    for value in JSON_VALUES:
        file.write_text(json.dumps(values | {key: value}))
        ends_well(file.parent)


@pytest.mark.parametrize("key", [key for key in GGUF_METADATA if key.startswith("llama.")])
def test_any_value_of_a_ggufs_metadata_gives_a_model_or_an_error(tmp_path, key):
    tensors = writers.gguf_tensors(known_weights())
    for number, value in enumerate(["x", [7], 0, 2**32 - 1, 1.5, float("nan")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        writers.write_gguf(folder / "m.gguf", tensors, GGUF_METADATA | {key: value})
        ends_well(folder)
