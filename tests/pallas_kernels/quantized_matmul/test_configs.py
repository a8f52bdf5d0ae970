"""Tile sizes of the product: what problems and configs may be, and where a config comes from.

Whether the rule of thumb's tiles compile and fit is shown by compiling them; here, that they keep a GPU busy.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from pallas_kernels.quantized_matmul import Config
from pallas_kernels.quantized_matmul.configs import Problem, find_config
from tests.pallas_kernels.gpus import A10, A100, H100

PROBLEM = Problem(
    num_rows=16, num_outputs=4096, num_inputs=4096, weight="int4", group_size=64, swiglu=False, dtype="bfloat16"
)
TUNED = Config(block_rows=32, block_outputs=128, num_warps=8, num_stages=7)
GPUS = (A10, A100, H100)
WEIGHTS = {"float32": 0, "bfloat16": 0, "int8": 0, "int4": 64}
"""Formats with the inputs of their groups."""

every_gpu = pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.kind)
every_weight = pytest.mark.parametrize("weight", WEIGHTS)


def problem(weight, **changes):
    return replace(PROBLEM, weight=weight, group_size=WEIGHTS[weight], **changes)


# What is valid


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block_rows": 8}, "block_rows is 8; it must be one of 16, 32, 64, 128, 256"),
        ({"block_rows": 512}, "block_rows is 512;"),
        ({"block_outputs": 48}, "block_outputs is 48;"),
        ({"block_outputs": -64}, "block_outputs is -64;"),
        ({"block_inputs": 0}, "block_inputs is 0;"),
        ({"block_inputs": 64.0}, "block_inputs is 64.0;"),
        ({"num_warps": 3}, "num_warps is 3; it must be one of 1, 2, 4, 8, 16"),
        ({"num_warps": True}, "num_warps is True;"),
        ({"num_stages": 0}, "num_stages is 0; it must be one of 1, 2, 3, 4, 5, 6, 7, 8"),
        ({"num_stages": 9}, "num_stages is 9;"),
        ({"method": "cublas"}, "method is 'cublas'; it must be one of 'fused', 'library'"),
    ],
)
def test_configs_that_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Config(**{"block_rows": 16} | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_rows": 0}, "num_rows is 0; it must be a whole number, at least 1"),
        ({"num_outputs": 1.5}, "num_outputs is 1.5;"),
        ({"num_inputs": -1}, "num_inputs is -1;"),
        ({"group_size": -64}, "group_size is -64; it must be a whole number, at least 0"),
        ({"weight": "float16"}, "weight is 'float16'; it must be one of 'float32', 'bfloat16', 'int8', 'int4'"),
        ({"dtype": "int8"}, "dtype is 'int8'; it must be one of 'float32', 'bfloat16'"),
        ({"swiglu": 1}, "swiglu is 1; it must be one of False, True"),
    ],
)
def test_problems_that_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(PROBLEM, **change)


# Where a config comes from


def write_table(folder, gpu, entries):
    (folder / f"{gpu.kind.replace(' ', '_')}.json").write_text(json.dumps(entries), encoding="utf-8")


def entry(problem=PROBLEM, config=TUNED):
    return {"problem": asdict(problem), "config": asdict(config)}


def test_the_table_of_the_device_comes_before_the_rule_of_thumb(tmp_path):
    write_table(tmp_path, H100, [entry()])
    assert find_config(PROBLEM, H100, tmp_path) == TUNED
    assert find_config(PROBLEM, A10, tmp_path) == find_config(PROBLEM, A10, tmp_path / "none") != TUNED


@pytest.mark.parametrize(("num_rows", "is_tuned"), [(8, False), (9, True), (15, True), (16, True), (17, False)])
def test_a_number_of_rows_stands_for_those_down_to_half_of_it(tmp_path, num_rows, is_tuned):
    write_table(tmp_path, H100, [entry()])
    assert (find_config(replace(PROBLEM, num_rows=num_rows), H100, tmp_path) == TUNED) == is_tuned


@pytest.mark.parametrize(
    "change",
    [
        {"num_outputs": 6144},
        {"num_inputs": 14336},
        {"weight": "int8", "group_size": 0},
        {"group_size": 32},
        {"swiglu": True},
        {"dtype": "float32"},
    ],
    ids=str,
)
def test_the_table_is_for_its_very_problems(tmp_path, change):
    write_table(tmp_path, A100, [entry()])
    other = replace(PROBLEM, **change)
    assert find_config(other, A100, tmp_path) == find_config(other, A100, tmp_path / "none") != TUNED


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([entry(), entry()], "is there twice"),
        ([entry() | {"time": 1}], "each entry has a problem and a config"),
        ([{"problem": asdict(PROBLEM) | {"weight": "q4"}, "config": asdict(TUNED)}], "weight is 'q4'"),
        ([{"problem": asdict(PROBLEM), "config": asdict(TUNED) | {"tiles": 1}}], "tiles"),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path, entries, message):
    write_table(tmp_path, A10, entries)
    with pytest.raises(ValueError, match=message):
        find_config(PROBLEM, A10, tmp_path)


# The rule of thumb


def by_rule(problem, gpu):
    """Whatever tables there are in the package."""
    return find_config(problem, gpu, Path("no such folder"))


@every_gpu
@every_weight
def test_decode_rows_are_fused_and_many_rows_of_a_prompt_are_not(gpu, weight):
    for num_rows in (1, 3, 16, 33, 64):
        assert by_rule(problem(weight, num_rows=num_rows), gpu).method == "fused"
    for num_rows in (257, 512, 4096):
        assert by_rule(problem(weight, num_rows=num_rows), gpu).method == "library"


@every_gpu
def test_only_int4_is_fused_for_a_short_chunk(gpu):
    methods = {weight: by_rule(problem(weight, num_rows=128), gpu).method for weight in WEIGHTS}
    assert methods == {"float32": "library", "bfloat16": "library", "int8": "library", "int4": "fused"}


@every_gpu
@every_weight
@pytest.mark.parametrize("num_rows", [1, 16, 17, 64])
def test_a_tile_has_no_more_rows_than_are_needed(gpu, weight, num_rows):
    rows = by_rule(problem(weight, num_rows=num_rows), gpu).block_rows
    assert rows == 16 or rows < 2 * num_rows


@every_gpu
@every_weight
def test_a_small_matrix_is_cut_into_the_narrowest_tiles(gpu, weight):
    assert by_rule(problem(weight, num_outputs=576, num_inputs=576), gpu).block_outputs == 32


@every_gpu
@pytest.mark.parametrize("weight", ["bfloat16", "int8", "int4"])
@pytest.mark.parametrize("num_rows", [16, 32, 64])
@pytest.mark.parametrize("num_outputs", [960, 4096, 6144, 14336, 32000])
def test_no_other_width_gives_the_busiest_multiprocessor_half_as_many_rows(gpu, weight, num_rows, num_outputs):
    asked = problem(weight, num_rows=num_rows, num_outputs=num_outputs)
    chosen = by_rule(asked, gpu)

    def rows_of_the_busiest(width):
        programs = -(-num_rows // chosen.block_rows) * -(-num_outputs // width)
        return -(-programs // gpu.num_cores) * width

    least = min(rows_of_the_busiest(width) for width in (32, 64, 128))
    assert rows_of_the_busiest(chosen.block_outputs) <= 2 * least


@every_gpu
@every_weight
@pytest.mark.parametrize("num_rows", [1, 16, 64])
def test_with_swiglu_a_tile_has_as_many_rows_of_the_matrix(gpu, weight, num_rows):
    plain = by_rule(problem(weight, num_rows=num_rows, num_outputs=28672), gpu)
    gated = by_rule(problem(weight, num_rows=num_rows, num_outputs=28672, swiglu=True), gpu)
    assert gated == replace(plain, block_outputs=plain.block_outputs // 2)


@every_gpu
@pytest.mark.parametrize("weight", ["bfloat16", "int8", "int4"])
def test_few_programs_have_more_bytes_under_way_each(gpu, weight):
    few = by_rule(problem(weight, num_outputs=2048), gpu)
    many = by_rule(problem(weight, num_outputs=32000), gpu)
    assert few.num_stages > many.num_stages
    bytes_per_weight = {"bfloat16": 2, "int8": 1, "int4": 0.5}[weight]
    tile = few.block_outputs * few.block_inputs * bytes_per_weight
    assert tile * (few.num_stages - 1) >= 28 * 1024 or few.num_stages == 8
