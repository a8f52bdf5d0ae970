"""Tables of tuned tiles: what is written is read again, whole, and an entry that nothing could use is refused."""

import json
from dataclasses import asdict

import pytest

from pallas_kernels.paged_attention import configs as attention
from pallas_kernels.quantized_matmul import Config
from pallas_kernels.quantized_matmul.configs import Problem, find_config
from pallas_kernels.tuned import read_table, round_up, table_name, write_table
from tests.pallas_kernels.gpus import A10

PROBLEM = Problem(
    num_rows=16, num_outputs=64, num_inputs=256, weight="int4", group_size=64, swiglu=False, dtype="bfloat16"
)


def test_what_is_written_is_read(tmp_path):
    table = {PROBLEM: Config(block_rows=32, num_stages=2)}
    write_table(tmp_path / "new" / "a.json", table)
    assert read_table(tmp_path / "new" / "a.json", Problem, Config) == table


def test_a_write_that_fails_leaves_the_old_table(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_table(path, {PROBLEM: Config(block_rows=32)})
    before = path.read_text()

    def fails(self, target):
        raise OSError("no space left")

    monkeypatch.setattr(type(path), "replace", fails)
    with pytest.raises(OSError, match="no space left"):
        write_table(path, {})
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("problem", "config", "reason"),
    [
        ({"num_rows": 12}, {}, "num_rows is 12; in a table it is rounded up to a power of two"),
        ({}, {"block_inputs": 64}, "block_inputs is 64; INT4 is cut into pieces of 128"),
    ],
)
def test_an_entry_that_no_launch_could_use_is_refused(tmp_path, problem, config, reason):
    entry = {"problem": asdict(PROBLEM) | problem, "config": asdict(Config(block_rows=16)) | config}
    (tmp_path / table_name(A10)).write_text(json.dumps([entry]))
    with pytest.raises(ValueError, match=reason):
        find_config(PROBLEM, A10, tmp_path)


def test_blocks_of_attention_stand_rounded_up_too(tmp_path):
    fields = {"num_blocks": 12, "block_q": 1, "num_kv_heads": 8, "group": 4, "head_dim": 128}
    problem = attention.Problem(**fields, dtype="bfloat16", kv_dtype="bfloat16")
    entry = {"problem": asdict(problem), "config": {"block_rows": 16}}
    (tmp_path / table_name(A10)).write_text(json.dumps([entry]))
    with pytest.raises(ValueError, match="num_blocks is 12; in a table"):
        attention.find_config(problem, A10, tmp_path)


@pytest.mark.parametrize(("count", "rounded"), [(1, 1), (2, 2), (3, 4), (16, 16), (17, 32), (288, 512)])
def test_rounding_up(count, rounded):
    assert round_up(count) == rounded
