"""Tile sizes of the GPU kernel: what a config may be, and where one comes from.

Whether the rule of thumb's tiles compile and fit is shown by compiling them; here, that the shares are as many as keep
a GPU busy and no more, and that decode rows get the one tile that they need.
"""

import json
from dataclasses import asdict
from itertools import product

import jax
import pytest

from pallas_kernels.device import Device
from pallas_kernels.paged_attention import Config, decode_attention, paged_attention
from pallas_kernels.paged_attention.configs import Problem, find_config
from pallas_kernels.paged_attention.pallas_gpu import launch
from pallas_kernels.shapes import SHAPES
from tests.pallas_kernels.gpus import A10, A100, H100
from tests.pallas_kernels.paged_attention.attention_cases import Row, make_case
from tests.pallas_kernels.paged_attention.calls import arguments_of
from tests.pallas_kernels.paged_attention.combinations import TYPES, name_of
from tests.pallas_kernels.paged_attention.decode_cases import make_decode_case

PROBLEM = Problem(
    num_blocks=16, block_q=1, num_kv_heads=8, group=4, head_dim=128, dtype="bfloat16", kv_dtype="bfloat16"
)
TUNED = Config(block_rows=32, block_keys=128, num_splits=7, combine="second_kernel", num_warps=2, num_stages=4)

# What is valid


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block_rows": 8}, "block_rows is 8; it must be one of 16, 32, 64, 128, 256, 512, 1024"),
        ({"block_rows": 24}, "block_rows is 24; it must be one of 16, 32, 64, 128, 256, 512, 1024"),
        ({"block_rows": 0}, "block_rows is 0;"),
        ({"block_rows": -16}, "block_rows is -16;"),
        ({"block_keys": 8}, "block_keys is 8; it must be one of 16, 32, 64, 128, 256, 512, 1024"),
        ({"block_keys": 96}, "block_keys is 96;"),
        ({"num_splits": 0}, "num_splits is 0; it must be a whole number in .1, 65535."),
        ({"num_stages": 0}, "num_stages is 0; it must be one of 1, 2, 3, 4, 5, 6, 7, 8"),
        ({"num_stages": -1}, "num_stages is -1;"),
        ({"num_warps": 0}, "num_warps is 0; it must be one of 1, 2, 4, 8, 16"),
        ({"num_warps": 3}, "num_warps is 3;"),
        ({"num_warps": 32}, "num_warps is 32;"),
        ({"block_rows": 16.0}, "block_rows is 16.0;"),
        ({"block_keys": 2**31}, "block_keys is 2147483648;"),
        ({"num_splits": 1.5}, "num_splits is 1.5;"),
        ({"num_splits": True}, "num_splits is True;"),
        ({"num_splits": 65536}, "num_splits is 65536;"),
        ({"num_stages": 2.0}, "num_stages is 2.0;"),
        ({"num_warps": "4"}, "num_warps is '4';"),
        ({"num_warps": True}, "num_warps is True;"),
        ({"combine": "first_split"}, "combine is 'first_split'; it must be one of 'last_split', 'second_kernel'"),
    ],
)
def test_values_that_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Config(**{"block_rows": 16} | change)


# Where a config comes from


def write_table(folder, kind, entries):
    (folder / f"{kind.replace(' ', '_')}.json").write_text(json.dumps(entries), encoding="utf-8")


def test_the_table_of_the_device_comes_before_the_rule_of_thumb(tmp_path):
    write_table(tmp_path, H100.kind, [{"problem": asdict(PROBLEM), "config": asdict(TUNED)}])
    assert find_config(PROBLEM, H100, tmp_path) == TUNED
    by_rule = find_config(PROBLEM, A10, tmp_path)
    assert by_rule != TUNED
    assert find_config(PROBLEM, A10, tmp_path / "no such folder") == by_rule


@pytest.mark.parametrize(
    "change",
    [
        {"num_blocks": 17},
        {"block_q": 16},
        {"num_kv_heads": 4},
        {"group": 8},
        {"head_dim": 64},
        {"dtype": "float32"},
        {"kv_dtype": "int8"},
    ],
)
def test_the_table_is_for_its_very_problems(tmp_path, change):
    write_table(tmp_path, A100.kind, [{"problem": asdict(PROBLEM), "config": asdict(TUNED)}])
    other = Problem(**asdict(PROBLEM) | change)
    assert find_config(other, A100, tmp_path) == find_config(other, A100, tmp_path / "none") != TUNED


def test_a_config_of_the_table_may_leave_out_what_has_a_default(tmp_path):
    write_table(tmp_path, A10.kind, [{"problem": asdict(PROBLEM), "config": {"block_rows": 64}}])
    assert find_config(PROBLEM, A10, tmp_path) == Config(block_rows=64)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{}", "it must be a list"),
        (json.dumps([{"problem": asdict(PROBLEM), "config": {"block_rows": 64}}] * 2), "is there twice"),
        (json.dumps([{"problem": asdict(PROBLEM), "config": {"block_rows": 64}, "time": 1}]), "and nothing else"),
        (json.dumps([{"problem": asdict(PROBLEM) | {"group": "4"}, "config": {"block_rows": 64}}]), "group is '4'"),
        (
            json.dumps([{"problem": asdict(PROBLEM) | {"dtype": "bf16"}, "config": {"block_rows": 64}}]),
            "dtype is 'bf16'",
        ),
        ("[" * 100_000, ""),
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("3", ""),
        ('{"problem": {}}', ""),
        ("[{}]", "each entry has a problem and a config"),
        ('[{"problem": {"num_blocks": 1}, "config": {}}]', ""),
        (json.dumps([{"problem": asdict(PROBLEM)}]), "each entry has a problem and a config"),
        (json.dumps([{"problem": asdict(PROBLEM), "config": {"block_rows": 17}}]), "block_rows is 17"),
        (json.dumps([{"problem": asdict(PROBLEM), "config": {"block_rows": "64"}}]), ""),
        (json.dumps([{"problem": asdict(PROBLEM), "config": {"block_rows": 64, "rows": 64}}]), "rows"),
    ],
)
def test_a_broken_table_is_named_with_the_reason(tmp_path, text, reason):
    path = tmp_path / "NVIDIA_A10.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError) as caught:
        find_config(PROBLEM, A10, tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{path} is no table of tuned configs: ")
    assert reason in message


def grid(call, arguments, **chosen) -> tuple[int, ...]:
    """That of the kernel: tiles, kv heads, shares."""
    traced = jax.make_jaxpr(lambda a: call(**a, window=None, scale=1.0, implementation="pallas", **chosen))(arguments)
    kernels = [equation for equation in traced.eqns if equation.primitive.name == "pallas_call"]
    return kernels[0].params["grid_mapping"].grid


@pytest.mark.parametrize(
    ("call", "arguments", "problem"),
    [
        (
            paged_attention,
            arguments_of(make_case([Row(length=5, num_queries=5)], group=3, block_q=4).arrays),
            {"num_blocks": 3, "block_q": 4, "dtype": "float32", "kv_dtype": "float32"},
        ),
        (
            decode_attention,
            arguments_of(make_decode_case([5, 9], group=3, dtype=TYPES[3][0], kv_dtype=TYPES[3][1]).arrays),
            {"num_blocks": 2, "block_q": 1, "dtype": "bfloat16", "kv_dtype": "int8"},
        ),
    ],
    ids=["paged_attention", "decode_attention"],
)
def test_an_explicit_config_comes_before_the_device_s(monkeypatch, call, arguments, problem):
    asked = []
    monkeypatch.setattr(
        launch, "find_config", lambda *found: asked.append(found) or Config(block_rows=16, num_splits=3)
    )
    blocks = problem["num_blocks"]
    assert grid(call, arguments, config=Config(block_rows=16, num_splits=5)) == (blocks, 2, 5)
    assert asked == []
    assert grid(call, arguments, config=None) == (blocks, 2, 3)
    (found,) = asked
    assert found == (
        Problem(num_kv_heads=2, group=3, head_dim=16, **problem),
        Device(platform="cpu", kind="cpu", num_cores=1, compute_capability=None),
    )


# The rule of thumb

MAX_SPLITS = 16
DEVICES = {"A10": A10, "A100": A100, "H100": H100}


def problems(block_q: int, types: tuple[type, type]) -> list[Problem]:
    return [
        Problem(
            num_blocks=num_blocks,
            block_q=block_q,
            num_kv_heads=shape.num_kv_heads,
            group=shape.group,
            head_dim=shape.head_dim,
            dtype=types[0].__name__,
            kv_dtype=types[1].__name__,
        )
        for shape, num_blocks in product(SHAPES.values(), (1, 2, 3, 8, 16, 64, 256))
    ]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("types", TYPES, ids=name_of)
def test_decode_rows_are_in_one_tile_and_fill_the_device_twice(tmp_path, device, types):
    for problem in problems(1, types):
        config = find_config(problem, DEVICES[device], tmp_path)
        assert config.block_rows >= problem.group
        assert 1 <= config.num_splits <= MAX_SPLITS
        programs, enough = problem.num_blocks * problem.num_kv_heads, 2 * DEVICES[device].num_cores
        assert programs * config.num_splits >= enough or config.num_splits == MAX_SPLITS
        assert programs * (config.num_splits - 1) < enough  # one share fewer would not do


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("types", TYPES, ids=name_of)
@pytest.mark.parametrize("block_q", [16, 32])
def test_chunks_have_no_more_shares_than_there_is_room_for(tmp_path, device, types, block_q):
    for problem in problems(block_q, types):
        config = find_config(problem, DEVICES[device], tmp_path)
        rows = block_q * problem.group
        assert config.block_rows < 2 * max(16, rows)  # not more than half of a tile is filling up
        assert 1 <= config.num_splits <= MAX_SPLITS
        programs = problem.num_blocks * -(-rows // config.block_rows) * problem.num_kv_heads
        assert config.num_splits == 1 or programs * config.num_splits <= DEVICES[device].num_cores


def test_a_device_of_one_core_gets_no_more_shares_than_it_needs(tmp_path):
    """Such as a CPU, where the kernel is interpreted: as few programs as possible."""
    cpu = Device(platform="cpu", kind="cpu", num_cores=1, compute_capability=None)
    for problem in [*problems(1, TYPES[0]), *problems(16, TYPES[0])]:
        assert find_config(problem, cpu, tmp_path).num_splits <= 2
