"""Tensors of a GGUF file, whole and by rows."""

import gguf
import numpy as np

from checkpoints.gguf_source import GGUFSource, _can_dequantize
from tests.checkpoints import writers
from tests.checkpoints.writers import known_weights


def test_every_type_of_the_library_is_known_to_be_readable_or_not():
    readable = {kind.name for kind in gguf.GGMLQuantizationType if _can_dequantize(kind)}
    assert {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K"} <= readable
    assert not readable & {"I8", "I16", "I32", "I64", "F64"}


def test_rows_can_be_read_some_after_another(tmp_path, monkeypatch):
    monkeypatch.setattr("checkpoints.tensor_source._BLOCK", 20)  # of 48
    weights = known_weights()
    path = writers.write_gguf(
        tmp_path / "m.gguf", writers.gguf_tensors(weights), matrices=gguf.GGMLQuantizationType.Q8_0
    )
    blocks = list(GGUFSource(path).blocks("token_embd.weight"))
    assert [len(block) for block in blocks] == [20, 20, 8]
    np.testing.assert_array_equal(np.concatenate(blocks), weights["embedding"])


def test_rows_that_are_dequantized_some_at_a_time_are_all_there(tmp_path, monkeypatch):
    weights = known_weights()
    path = writers.write_gguf(
        tmp_path / "m.gguf", writers.gguf_tensors(weights), matrices=gguf.GGMLQuantizationType.Q8_0
    )
    for rows_at_once in (1, 5, 47, 48):  # of 48
        monkeypatch.setattr("checkpoints.gguf_source._VALUES_AT_ONCE", rows_at_once * 32)
        np.testing.assert_array_equal(GGUFSource(path).read("token_embd.weight"), weights["embedding"])
