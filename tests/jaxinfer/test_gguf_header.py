"""The walk over a GGUF header ends, and ends in a ValueError, whatever the file says; arrays are read when asked."""

import struct

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoints.checkpoint import open_checkpoint
from checkpoints.gguf_source import GGUFSource
from jaxinfer.gguf_header import GGUFArray, read_header
from jaxinfer.tokenizers import load_tokenizer
from tests.checkpoints import writers
from tests.checkpoints.writers import known_weights
from tests.vocabularies import smollm2_path

EPSILON = "llama.attention.layer_norm_rms_epsilon"
METADATA = writers.GGUF_METADATA | {
    "tokenizer.ggml.tokens": [f"t{i}" for i in range(48)],
    "tokenizer.ggml.scores": [0.5] * 48,
    "general.name": "Grüße",
}
VALUES = {
    "UINT8": 200,
    "INT8": -100,
    "UINT16": 60_000,
    "INT16": -30_000,
    "UINT32": 2**32 - 1,
    "INT32": -(2**31),
    "FLOAT32": 1e-5,  # not the float32's 9.99999974e-06
    "UINT64": 2**63,
    "INT64": -(2**63),
    "FLOAT64": 0.1,
    "BOOL": True,
    "STRING": "é🦙\0",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    return writers.write_gguf(path, writers.gguf_tensors(known_weights()), METADATA).read_bytes()


def write(tmp_path, content):
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    return path


def open_bytes(tmp_path, content):
    return open_checkpoint(write(tmp_path, content))


def error_of(read, path):
    with pytest.raises(ValueError) as caught:
        read(path)
    return str(caught.value)


@pytest.fixture(scope="module")
def every_type(tmp_path_factory):
    """A header by the library's writer with every type of value, alone and in an array."""
    path = tmp_path_factory.mktemp("types") / "all.gguf"
    writer = gguf.GGUFWriter(path, "test")
    for name, value in VALUES.items():
        kind = gguf.GGUFValueType[name]
        writer.add_key_value(name, value, kind)
        writer.add_key_value(f"{name}s", [value, value], gguf.GGUFValueType.ARRAY, sub_type=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def test_every_type_of_value_alone_and_in_an_array(every_type):
    metadata = read_header(every_type).metadata
    assert {name for name in metadata if name != "general.architecture"} == {*VALUES, *(f"{n}s" for n in VALUES)}
    for name, value in VALUES.items():
        array = metadata[f"{name}s"]
        assert (metadata[name], type(metadata[name])) == (value, type(value))
        assert (array.kind.name, array.length, array.items()) == (name, 2, [value, value])
        assert {type(item) for item in array.items()} == {type(value)}


@pytest.mark.slow
def test_smollm2_reads_as_the_library_reads_it():
    theirs = {name: field.contents() for name, field in gguf.GGUFReader(smollm2_path()).fields.items()}
    ours = {
        key: value.items() if isinstance(value, GGUFArray) else value
        for key, value in read_header(smollm2_path()).metadata.items()
    }
    assert ours.pop(EPSILON) == pytest.approx(theirs.pop(EPSILON), rel=1e-7)
    assert ours == {key: value for key, value in theirs.items() if not key.startswith("GGUF.")}


def test_header_agrees_with_the_librarys_reader(tmp_path, whole):
    (tmp_path / "m.gguf").write_bytes(whole)
    ours, theirs = GGUFSource(tmp_path / "m.gguf"), gguf.GGUFReader(tmp_path / "m.gguf")
    keys = {key for key in theirs.fields if not key.startswith("GGUF.")}
    assert set(ours.metadata) == keys
    for key in keys:
        value = theirs.fields[key].contents()
        if isinstance(value, list):
            assert (ours.metadata[key].length, ours.metadata[key].items()) == (len(value), value)
        elif isinstance(value, float):
            assert np.float32(ours.metadata[key]) == np.float32(value)
        else:
            assert ours.metadata[key] == value
    assert ours.metadata[EPSILON] == 1e-5  # not the float32's 9.99999974e-06
    assert {name: info.shape for name, info in ours.infos.items()} == {
        tensor.name: tuple(reversed(tensor.shape.tolist())) for tensor in theirs.tensors
    }
    for tensor in theirs.tensors:
        np.testing.assert_array_equal(ours.read(tensor.name), tensor.data)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"PK\x03\x04" + bytes(500), b"hello, world" * 9, bytes(64)])
def test_a_foreign_file_is_named(tmp_path, content):
    with pytest.raises(ValueError, match=r"m\.gguf: not a (whole )?GGUF file"):
        open_bytes(tmp_path, content)


@pytest.mark.parametrize("version", [0, 1, 4, 3 << 24])
def test_other_versions_are_named(tmp_path, whole, version):
    with pytest.raises(ValueError, match=rf"version is {version}"):
        open_bytes(tmp_path, whole[:4] + struct.pack("<I", version) + whole[8:])


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


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


def arrays(*bodies):
    entries = (text(f"a{i}") + struct.pack("<I", ARRAY) + body for i, body in enumerate(bodies))
    return header(0, len(bodies), b"".join(entries))


def test_an_array_is_not_decoded_before_it_is_asked_for(tmp_path):
    """A checkpoint has no use for its vocabulary, so no word of it may cost time, or stop it by being wrong."""
    bad = struct.pack("<IQ", STRING, 2) + text("fine") + struct.pack("<Q", 2) + b"\xff\xfe"
    metadata = read_header(write(tmp_path, arrays(bad, struct.pack("<IQ", STRING, 1) + text("next")))).metadata
    assert metadata["a1"].items() == ["next"]
    with pytest.raises(ValueError, match="item 1 is not UTF-8"):
        metadata["a0"].items()


def test_an_array_outlives_the_header_and_gives_its_items_twice(tmp_path):
    path = write(tmp_path, arrays(struct.pack("<IQ", STRING, 3) + text("a") + text("") + text("é")))
    array = read_header(path).metadata["a0"]
    path.unlink()
    assert array.items() == array.items() == ["a", "", "é"]


@pytest.mark.parametrize("kind", [UINT8, STRING])
def test_an_empty_array_has_no_items(tmp_path, kind):
    metadata = read_header(write(tmp_path, arrays(struct.pack("<IQ", kind, 0)))).metadata
    assert (metadata["a0"].length, metadata["a0"].items()) == (0, [])


@pytest.mark.parametrize("cut", range(1, 20))
def test_an_array_of_strings_is_held_against_the_end_of_the_file(tmp_path, cut):
    """Wherever it is torn: inside the text or the length of the last string, or of the one before."""
    content = arrays(struct.pack("<IQ", STRING, 2) + text("ab") + text("cd"))
    read_header(write(tmp_path, content))
    with pytest.raises(ValueError, match=r"m\.gguf: not a whole GGUF file.*byte"):
        read_header(write(tmp_path, content[:-cut]))


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_checkpoint_and_tokenizer_say_the_same_of_a_hostile_file(tmp_path, content):
    path = write(tmp_path, content)
    assert error_of(load_tokenizer, path) == error_of(open_checkpoint, path) == error_of(read_header, path)


@pytest.mark.parametrize("twentieth", range(20))
def test_checkpoint_and_tokenizer_say_the_same_of_a_torn_file(tmp_path, whole, twentieth):
    path = write(tmp_path, whole[: len(whole) * twentieth // 20])
    assert error_of(load_tokenizer, path) == error_of(open_checkpoint, path)


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


def two_tensors(first, second, num_keys=0, keys=b""):
    """A file of two vectors of 16 float32 that begin at these bytes of its data."""
    entries = (text(name) + struct.pack("<IQIQ", 1, 16, 0, offset) for name, offset in (("a", first), ("b", second)))
    return header(2, num_keys, keys + b"".join(entries)) + bytes(1000)


def test_tensors_may_lie_in_any_order_with_gaps(tmp_path):
    for first, second in ((0, 64), (64, 0), (320, 0)):
        tensors = read_header(write(tmp_path, two_tensors(first, second))).tensors
        assert tensors["b"].offset - tensors["a"].offset == second - first


@pytest.mark.parametrize(("first", "second"), [(0, 0), (0, 32), (32, 0), (64, 64)])
def test_tensors_that_overlap_are_named(tmp_path, first, second):
    with pytest.raises(ValueError, match=r"m\.gguf.*(a and b|b and a) overlap"):
        open_bytes(tmp_path, two_tensors(first, second))


@pytest.mark.parametrize("offset", [65, 80, 127])
def test_a_tensor_between_the_multiples_of_the_alignment_is_named(tmp_path, offset):
    with pytest.raises(ValueError, match=rf"b begins at byte {offset} of the data; it must be a multiple of 32"):
        open_bytes(tmp_path, two_tensors(0, offset))


@pytest.mark.parametrize(("alignment", "offset", "allowed"), [(16, 80, True), (64, 96, False), (64, 128, True)])
def test_the_alignment_is_the_one_that_the_file_says(tmp_path, alignment, offset, allowed):
    key = text("general.alignment") + struct.pack("<II", UINT32, alignment)
    path = write(tmp_path, two_tensors(0, offset, 1, key))
    if allowed:
        assert read_header(path).tensors["a"].offset % alignment == 0
    else:
        assert f"a multiple of {alignment}" in error_of(read_header, path)


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


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes_give_all_items_or_a_value_error(tmp_path, every_type, data):
    content = bytearray(every_type.read_bytes())
    place = st.integers(0, len(content) - 1)
    for at, value in data.draw(st.lists(st.tuples(place, st.integers(0, 255)), min_size=1, max_size=4)):
        content[at] = value
    try:
        metadata = read_header(write(tmp_path, bytes(content))).metadata
        for array in (value for value in metadata.values() if isinstance(value, GGUFArray)):
            assert len(array.items()) == array.length
    except ValueError:
        return
