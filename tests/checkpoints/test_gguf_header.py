"""The walk over a GGUF header ends, and ends in a ValueError, whatever the file says."""

import struct

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoints.checkpoint import open_checkpoint
from checkpoints.gguf_header import GGUFArray
from checkpoints.gguf_source import GGUFSource, _can_dequantize
from tests.checkpoints import writers
from tests.checkpoints.writers import known_weights

METADATA = writers.GGUF_METADATA | {
    "tokenizer.ggml.tokens": [f"t{i}" for i in range(48)],
    "tokenizer.ggml.scores": [0.5] * 48,
    "general.name": "Grüße",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    return writers.write_gguf(path, writers.gguf_tensors(known_weights()), METADATA).read_bytes()


def open_bytes(tmp_path, content):
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    return open_checkpoint(path)


def test_header_agrees_with_the_librarys_reader(tmp_path, whole):
    (tmp_path / "m.gguf").write_bytes(whole)
    ours, theirs = GGUFSource(tmp_path / "m.gguf"), gguf.GGUFReader(tmp_path / "m.gguf")
    keys = {key for key in theirs.fields if not key.startswith("GGUF.")}
    assert set(ours.metadata) == keys
    for key in keys:
        value = theirs.fields[key].contents()
        if isinstance(value, list):
            assert ours.metadata[key] == GGUFArray(len(value))
        elif isinstance(value, float):
            assert np.float32(ours.metadata[key]) == np.float32(value)
        else:
            assert ours.metadata[key] == value
    assert ours.metadata["llama.attention.layer_norm_rms_epsilon"] == 1e-5  # not the float32's 9.99999974e-06
    assert {name: info.shape for name, info in ours.infos.items()} == {
        tensor.name: tuple(reversed(tensor.shape.tolist())) for tensor in theirs.tensors
    }
    for tensor in theirs.tensors:
        np.testing.assert_array_equal(ours.read(tensor.name), tensor.data)


@pytest.mark.parametrize("twentieth", range(20))
def test_a_truncated_file_is_named(tmp_path, whole, twentieth):
    with pytest.raises(ValueError, match=r"m\.gguf: not a (whole )?GGUF file"):
        open_bytes(tmp_path, whole[: len(whole) * twentieth // 20])


def test_a_tensor_that_ends_beyond_the_file_is_named(tmp_path, whole):
    with pytest.raises(ValueError, match=r"m\.gguf.*blk\.1\.ffn_up\.weight ends at byte"):
        open_bytes(tmp_path, whole[:-64])


@pytest.mark.parametrize("content", [b"", b"GGUF", b"PK\x03\x04" + bytes(500), b"hello, world" * 9, bytes(64)])
def test_a_foreign_file_is_named(tmp_path, content):
    with pytest.raises(ValueError, match=r"m\.gguf: not a (whole )?GGUF file"):
        open_bytes(tmp_path, content)


@pytest.mark.parametrize("version", [0, 1, 4, 3 << 24])
def test_other_versions_are_named(tmp_path, whole, version):
    with pytest.raises(ValueError, match=rf"version is {version}"):
        open_bytes(tmp_path, whole[:4] + struct.pack("<I", version) + whole[8:])


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def header(num_tensors, num_keys, body):
    return b"GGUF" + struct.pack("<IQQ", 3, num_tensors, num_keys) + body


HUGE = 2**60
UINT8, UINT32, STRING, ARRAY = 0, 4, 8, 9
HOSTILE = {
    "keys": header(0, HUGE, bytes(5000)),
    "tensors": header(HUGE, 0, bytes(5000)),
    "length of a key": header(0, 1, struct.pack("<Q", HUGE) + bytes(5000)),
    "bytes of an array": header(0, 1, text("a") + struct.pack("<IIQ", ARRAY, UINT8, HUGE) + bytes(5000)),
    "strings of an array": header(0, 1, text("a") + struct.pack("<IIQ", ARRAY, STRING, HUGE) + bytes(5000)),
    "nested arrays": header(0, 1, text("a") + struct.pack("<II", ARRAY, ARRAY) * 500),
    "axes": header(1, 0, text("t") + struct.pack("<I", 2**32 - 1) + bytes(5000)),
    "shape": header(1, 0, text("t") + struct.pack("<IQQIQ", 2, HUGE, HUGE, 0, 0) + bytes(5000)),
    "offset": header(1, 0, text("t") + struct.pack("<IQIQ", 1, 4, 0, 2**64 - 1) + bytes(5000)),
    "type of a value": header(0, 1, text("a") + struct.pack("<I", 99) + bytes(5000)),
    "type of a tensor": header(1, 0, text("t") + struct.pack("<IQIQ", 1, 4, 9999, 0) + bytes(5000)),
    "alignment 0": header(0, 1, text("general.alignment") + struct.pack("<II", UINT32, 0)),
    "not UTF-8": header(0, 1, struct.pack("<Q", 2) + b"\xff\xfe" + bytes(50)),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_huge_counts_neither_hang_nor_eat_memory(tmp_path, content):
    with pytest.raises(ValueError, match=r"m\.gguf"):
        open_bytes(tmp_path, content)


def test_a_key_or_a_tensor_that_occurs_twice_is_named(tmp_path):
    entry = text("a") + struct.pack("<II", UINT32, 1)
    with pytest.raises(ValueError, match="key a occurs twice"):
        open_bytes(tmp_path, header(0, 2, entry * 2))
    tensor = text("t") + struct.pack("<IQIQ", 1, 4, 0, 0)
    with pytest.raises(ValueError, match="tensor t occurs twice"):
        open_bytes(tmp_path, header(2, 0, tensor * 2 + bytes(200)))


def test_rows_that_are_no_whole_blocks_are_named(tmp_path):
    tensor = text("t") + struct.pack("<IQQIQ", 2, 31, 4, int(gguf.GGMLQuantizationType.Q8_0), 0)
    with pytest.raises(ValueError, match=r"t has rows of 31 values; Q8_0 needs a multiple of 32"):
        open_bytes(tmp_path, header(1, 0, tensor + bytes(500)))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes_give_a_model_or_a_value_error(tmp_path, whole, data):
    content = bytearray(whole)
    flips = st.tuples(st.integers(0, 3000), st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    for place, value in data.draw(st.lists(flips, min_size=1, max_size=8)):
        content[place] = value
    try:
        checkpoint = open_bytes(tmp_path, bytes(content))
    except ValueError:
        return
    dict(checkpoint.weights(np.float32))


def test_every_type_of_the_library_is_known_to_be_readable_or_not():
    readable = {kind.name for kind in gguf.GGMLQuantizationType if _can_dequantize(kind)}
    assert {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K"} <= readable
    assert not readable & {"I8", "I16", "I32", "I64", "F64"}


def test_some_rows_can_be_read(tmp_path):
    weights = known_weights()
    path = writers.write_gguf(
        tmp_path / "m.gguf", writers.gguf_tensors(weights), matrices=gguf.GGMLQuantizationType.Q8_0
    )
    rows = GGUFSource(path).read("token_embd.weight", slice(5, 9))
    np.testing.assert_array_equal(rows, weights["embedding"][5:9])


def test_rows_that_are_dequantized_some_at_a_time_are_all_there(tmp_path, monkeypatch):
    weights = known_weights()
    path = writers.write_gguf(
        tmp_path / "m.gguf", writers.gguf_tensors(weights), matrices=gguf.GGMLQuantizationType.Q8_0
    )
    for rows_at_once in (1, 5, 47, 48):  # of 48
        monkeypatch.setattr("checkpoints.gguf_source._VALUES_AT_ONCE", rows_at_once * 32)
        np.testing.assert_array_equal(GGUFSource(path).read("token_embd.weight"), weights["embedding"])
