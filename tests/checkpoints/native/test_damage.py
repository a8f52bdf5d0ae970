"""Manifests that lie and files that are damaged: an error that names the file, and nothing is read before."""

import copy
import json
import os
import shutil
import zlib
from pathlib import Path

import jax.numpy as jnp
import pytest

from checkpoints import open_checkpoint
from checkpoints.native.orbax_parts import save_part
from tests.checkpoints.native.models import BFLOAT16, INT4, INT8, SOURCE, write_native


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_native(tmp_path_factory.mktemp("native") / "it")


@pytest.fixture
def folder(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "it"))


@pytest.fixture
def stays_whole(whole):
    """The folder itself, for tests that change nothing but its manifest, which is put back."""
    path = whole / "jaxinfer.json"
    content = path.read_bytes()
    yield whole
    path.write_bytes(content)


def manifest_of(folder: Path) -> dict:
    return json.loads((folder / "jaxinfer.json").read_text())


def read_all(folder: Path):
    checkpoint = open_checkpoint(folder)
    return list(checkpoint.weights(BFLOAT16, checkpoint.stored))


def put(*path_and_value):
    """What sets a value deep in a manifest; ``del`` takes the key away."""
    *path, last, value = path_and_value

    def change(values):
        for key in path:
            values = values[key]
        if value == "del":
            del values[last]
        else:
            values[last] = value

    return change


FILE = {"num_bytes": 1, "crc32": 1}
CHANGES = {
    "foreign": (put("format", "other"), "format is 'other'; it must be 'jaxinfer native checkpoint'"),
    "newer": (put("version", 2), "version is 2; it must be 1, the only one"),
    "no version": (put("version", True), "version is True"),
    "unknown key": (put("more", 1), "'more' is not a known key"),
    "unknown config": (put("config", "more", 1), "config.'more' is not a known key"),
    "missing config": (put("config", "qk_norm", "del"), "config.qk_norm is missing"),
    "config no mapping": (put("config", []), "config is .*; it must be a mapping"),
    "config null": (put("config", None), "config is missing; it must be a mapping"),
    "layers": (put("config", "num_layers", 10**12), "num_layers is 1000000000000; it must be between 1 and 4096"),
    "one layer more": (put("config", "num_layers", 3), "windows has 2 entries for 3 layers"),
    "hidden": (put("config", "hidden_size", 10**30), "hidden_size is 1000"),
    "negative": (put("config", "vocab_size", -1), "vocab_size is -1"),
    "text": (put("config", "head_dim", "16"), "head_dim is '16'"),
    "not a flag": (put("config", "tie_embeddings", 1), "tie_embeddings is 1; it must be true or false"),
    "windows": (put("config", "windows", "ab"), "windows is 'ab'; it must be a list"),
    "a window": (put("config", "windows", 1, {}), r"windows\[1\] is {}"),
    "theta": (put("config", "rope_theta", 10**400), "rope_theta is 1000"),
    "divisors": (put("config", "rope_scaling", "divisors", [1]), "rope_scaling has 1 divisors"),
    "a divisor": (put("config", "rope_scaling", "divisors", 0, "1"), r"divisors\[0\] is '1'"),
    "scaling": (put("config", "rope_scaling", [1]), "rope_scaling is .*; it must be a mapping"),
    "eos beyond": (put("eos_token_ids", [48]), "eos_token_ids is .48.; it must be token ids below"),
    "eos no list": (put("eos_token_ids", 2), "eos_token_ids is 2; it must be a list"),
    "spelling": (put("eos_spellings", [1]), r"eos_spellings\[0\] is 1; it must be a string"),
    "dtype": (put("dtype", "float16"), "dtype is 'float16'; it must be float32 or bfloat16"),
    "format of none": (put("formats", "layers.7.qkv", {"bits": 8, "group_size": None}), "has 'layers.7.qkv'"),
    "format of a norm": (put("formats", "final_norm", {"bits": 8, "group_size": None}), "which is no matrix"),
    "bits": (put("formats", "embedding", "bits", 3), "bits is 3"),
    "group": (put("formats", "embedding", "group_size", 48), "group_size is 48"),
    "other group": (put("formats", "embedding", "group_size", 128), "embedding: embedding.offsets is float16.48, 4."),
    "other bits": (put("formats", "lm_head", {"bits": 8, "group_size": None}), "lm_head: lm_head.offsets is float16"),
    "other dtype": (put("dtype", "float32"), r"layers.0: attention_norm is bfloat16.*has float32\[32\]"),
    "other size": (put("config", "vocab_size", 49), r"embedding: embedding.offsets is float16\[48, 4\]; .*\[49, 4\]"),
    "method": (put("method", 1), "method is 1; it must be a string"),
    "source": (put("source", "name", None), "name is missing; it must be a string"),
    "layout": (put("source", "layout", None), "layout is missing; it must be a string"),
    "sum": (put("source", "files", {"a": {"num_bytes": 1, "sha256": "x"}}), "sha256 is 'x'; it must be 64 hexa"),
    "versions": (put("versions", "jax", 1), "jax is 1; it must be a string"),
    "files": (put("files", []), "files is .*; it must be a mapping"),
    "up": (put("files", "../other", FILE), "files has '../other'; it must be the path of a file of the checkpoint"),
    "absolute": (put("files", "/etc/passwd", FILE), "files has '/etc/passwd'"),
    "odd": (put("files", "weights/./x", FILE), "files has 'weights/./x'"),
    "empty": (put("files", "", FILE), "files has ''"),
    "NUL": (put("files", "a\0b", FILE), "files has"),
    "surrogate": (put("files", "a\ud800", FILE), "files has"),
    "itself": (put("files", "jaxinfer.json", FILE), "files has 'jaxinfer.json'"),
    "a folder": (put("files", "weights/embedding", FILE), "it must be a file inside of the checkpoint"),
    "absent": (put("files", "other", FILE), "other: listed in jaxinfer.json, and cannot be read: No such file"),
    "size": (put("files", "weights/embedding/_METADATA", "num_bytes", 1), "_METADATA: has .* bytes; .* says 1"),
    "huge": (put("files", "weights/embedding/_METADATA", "num_bytes", 2**63), "num_bytes is 9223372036854775808"),
    "crc": (put("files", "weights/embedding/_METADATA", "crc32", -1), "crc32 is -1; it must be between 0 and"),
    "another part": (put("files", "weights/layers.2/x", FILE), "files has weights/layers.2, which is no part"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_manifest_that_lies(stays_whole, change):
    values = copy.deepcopy(manifest_of(stays_whole))
    make, message = CHANGES[change]
    make(values)
    (stays_whole / "jaxinfer.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=message) as error:
        open_checkpoint(stays_whole).weights(BFLOAT16)  # not even the first weight is asked for
    assert str(stays_whole) in str(error.value)
    assert len(str(error.value)) < 600


def test_a_part_that_is_not_listed(stays_whole):
    values = manifest_of(stays_whole)
    values["files"] = {name: file for name, file in values["files"].items() if "/layers.1/" not in name}
    (stays_whole / "jaxinfer.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=r"files has none of weights/layers.1, which the model needs"):
        open_checkpoint(stays_whole)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"[]", b"null", b"\xff", b'{"format": 1, "format": 1}', b"[" * 100_000, b'{"a": NaN}',
        b'{"a": 1' + b"0" * 5000 + b"}", b'{"a": {"b": 1, "b": 2}}',
    ],
)  # fmt: skip
def test_what_is_no_manifest(stays_whole, text):
    (stays_whole / "jaxinfer.json").write_bytes(text)
    with pytest.raises(ValueError, match=r"jaxinfer\.json"):
        open_checkpoint(stays_whole)


def test_a_key_that_occurs_twice(stays_whole):
    path = stays_whole / "jaxinfer.json"
    text = path.read_text()
    for line in (' "dtype": "bfloat16",\n', '  "hidden_size": 32,\n'):
        path.write_text(text.replace(line, 2 * line))
        with pytest.raises(ValueError, match=f"the key '{line.split(chr(34))[1]}' occurs twice"):
            open_checkpoint(stays_whole)


def test_a_manifest_that_is_cut_short_anywhere(stays_whole):
    path = stays_whole / "jaxinfer.json"
    text = path.read_bytes().rstrip()
    for length in range(0, len(text), 97):
        path.write_bytes(text[:length])
        with pytest.raises(ValueError, match=r"jaxinfer\.json"):
            open_checkpoint(stays_whole)


@pytest.mark.parametrize("target", ["/dev/zero", "outside"])
def test_links_that_lead_out_of_the_folder(folder, tmp_path, target):
    path = folder / "weights" / "embedding" / "_METADATA"
    shutil.copy(path, tmp_path / "outside")
    path.unlink()
    path.symlink_to(tmp_path / target)
    with pytest.raises(ValueError, match=r"_METADATA: listed in jaxinfer\.json; it must be a file inside of"):
        open_checkpoint(folder)


def test_a_folder_of_parts_that_lies_elsewhere(folder, tmp_path):
    (folder / "weights").rename(tmp_path / "elsewhere")
    (folder / "weights").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="it must be a file inside of the checkpoint"):
        open_checkpoint(folder)


def test_a_checkpoint_that_is_itself_a_link_is_read(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    assert read_all(tmp_path / "link")


def weight_files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "weights").rglob("*") if path.is_file())


def test_a_file_that_is_absent_or_of_another_size(folder):
    for path in weight_files(folder)[::20]:
        content = path.read_bytes()
        path.write_bytes(content + b"x")
        with pytest.raises(ValueError, match=f"{path.name}: has {len(content) + 1} bytes"):
            open_checkpoint(folder)
        path.unlink()
        with pytest.raises(ValueError, match=f"{path.name}: listed in jaxinfer.json, and cannot be read"):
            open_checkpoint(folder)
        path.write_bytes(content)
    assert read_all(folder)


def test_a_byte_that_is_flipped_in_any_file(folder):
    """In an array's numbers too, where neither orbax nor tensorstore would see it."""
    for path in weight_files(folder)[::11]:
        content = path.read_bytes()
        if not content:
            continue
        place = len(content) * 2 // 3
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(ValueError, match=r"weights/(embedding|layers|final_norm|lm_head)"):
            read_all(folder)
        path.write_bytes(content)


def test_a_byte_that_is_flipped_in_a_file_of_the_tokenizer(tmp_path):
    """It is found as the checkpoint is opened, before anybody reads a tokenizer from it."""
    source = shutil.copytree(SOURCE, tmp_path / "source")
    (source / "tokenizer.json").write_text("{}")
    folder = write_native(tmp_path / "it", source=source)
    assert open_checkpoint(folder)
    (folder / "tokenizer.json").write_text("[]")
    with pytest.raises(ValueError, match=r"tokenizer\.json: its bytes are not those that were written"):
        open_checkpoint(folder)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_part_without_orbaxs_list_of_arrays(folder, is_there):
    """Of which orbax says None, and why only in its log."""
    values = manifest_of(folder)
    path = folder / "weights" / "layers.1" / "_METADATA"
    if is_there:
        path.write_text("{}")
        values["files"]["weights/layers.1/_METADATA"] = {"num_bytes": 2, "crc32": zlib.crc32(b"{}")}
    else:
        path.unlink()
        del values["files"]["weights/layers.1/_METADATA"]
    (folder / "jaxinfer.json").write_text(json.dumps(values))
    message = "this part of the checkpoint cannot be read" + ("" if is_there else ": what orbax wrote of its arrays is")
    with pytest.raises(ValueError, match=rf"weights/layers\.1: {message}"):
        open_checkpoint(folder).weights(BFLOAT16)


def test_what_orbax_makes_of_damage_is_one_error_that_names_the_part(folder):
    """A manifest whose sums are right, over files that are not what they should be."""
    values = manifest_of(folder)
    for name in values["files"]:
        if name.startswith("weights/layers.1/d/"):
            (folder / name).write_bytes(bytes(values["files"][name]["num_bytes"]))
            values["files"][name]["crc32"] = zlib.crc32(bytes(values["files"][name]["num_bytes"]))
    (folder / "jaxinfer.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=r"weights/layers.1: this part of the checkpoint cannot be read: "):
        read_all(folder)


def test_a_part_with_an_array_more(folder):
    part = folder / "weights" / "final_norm"
    shutil.rmtree(part)
    save_part(part, {"final_norm": jnp.ones(32, BFLOAT16), "more": jnp.ones(1)})
    values = manifest_of(folder)
    values["files"] = {name: file for name, file in values["files"].items() if "final_norm" not in name}
    for path in part.rglob("*"):
        if path.is_file():
            values["files"][path.relative_to(folder).as_posix()] = {
                "num_bytes": path.stat().st_size,
                "crc32": zlib.crc32(path.read_bytes()),
            }
    (folder / "jaxinfer.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=r"final_norm: more is float32\[1\]; the model has none such"):
        open_checkpoint(folder).weights(BFLOAT16)


# What may be overwritten


def test_only_a_native_checkpoint_is_overwritten(folder, tmp_path):
    write_native(folder, INT8, overwrite=True)
    assert set(open_checkpoint(folder).stored.values()) == {INT8}
    for name, content in {"empty": None, "other": "notes.txt"}.items():
        (tmp_path / name).mkdir()
        if content:
            (tmp_path / name / content).touch()
        with pytest.raises(ValueError, match=f"{name} is no native checkpoint; nothing else is overwritten"):
            write_native(tmp_path / name, overwrite=True)
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(ValueError, match="link is a link; give the folder that it names"):
        write_native(tmp_path / "link", overwrite=True)
    (folder / "notes.txt").touch()
    with pytest.raises(ValueError, match=r"is not overwritten: it holds .*notes\.txt, which is not the checkpoint's"):
        write_native(folder, overwrite=True)
    os.truncate(folder / "jaxinfer.json", 100)
    with pytest.raises(ValueError, match="is a damaged checkpoint, which is not overwritten"):
        write_native(folder, overwrite=True)


def test_a_destination_that_exists_is_refused_before_a_weight_is_asked_for(folder):
    def weights():
        pytest.fail("nothing may be computed")
        yield

    with pytest.raises(ValueError, match="exists already"):
        write_native(folder, weights=weights())
    with pytest.raises(RuntimeError):
        write_native(folder, weights=_failing(), overwrite=True)
    assert set(open_checkpoint(folder).stored.values()) == {INT4}


def _failing():
    raise RuntimeError
    yield
