"""The header by our own reader is what the gguf library's writer put there, and what its reader reads."""

import gguf
import pytest

from jaxinfer.tokenizers.gguf_metadata import read_gguf_metadata
from tests.vocabularies import smollm2_path


def test_every_type_of_value(tmp_path):
    path = tmp_path / "all.gguf"
    writer = gguf.GGUFWriter(path, "test")
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -100)
    writer.add_uint16("u16", 60_000)
    writer.add_int16("i16", -30_000)
    writer.add_uint32("u32", 2**32 - 1)
    writer.add_int32("i32", -(2**31))
    writer.add_float32("f32", 0.5)
    writer.add_uint64("u64", 2**63)
    writer.add_int64("i64", -(2**63))
    writer.add_float64("f64", 0.1)
    writer.add_bool("bool", True)
    writer.add_string("text", "é🦙")
    writer.add_array("numbers", [1, 2, 3])
    writer.add_array("texts", ["a", "ü"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert read_gguf_metadata(path) == {
        "general.architecture": "test",
        "u8": 200,
        "i8": -100,
        "u16": 60_000,
        "i16": -30_000,
        "u32": 2**32 - 1,
        "i32": -(2**31),
        "f32": 0.5,
        "u64": 2**63,
        "i64": -(2**63),
        "f64": 0.1,
        "bool": True,
        "text": "é🦙",
        "numbers": [1, 2, 3],
        "texts": ["a", "ü"],
    }


@pytest.mark.slow
def test_smollm2_reads_as_the_library_reads_it():
    theirs = {name: field.contents() for name, field in gguf.GGUFReader(smollm2_path()).fields.items()}
    assert read_gguf_metadata(smollm2_path()) == {k: v for k, v in theirs.items() if not k.startswith("GGUF.")}


@pytest.mark.parametrize("content", [b"", b"GG", b"GGML" + bytes(20), b"GGUF" + (1).to_bytes(4, "little") + bytes(16)])
def test_what_is_no_gguf_is_an_error(tmp_path, content):
    path = tmp_path / "foreign.gguf"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"foreign\.gguf"):
        read_gguf_metadata(path)
