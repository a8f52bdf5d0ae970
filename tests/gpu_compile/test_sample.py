"""What runs after the forward pass as it was compiled: few kernels, no sort of the vocabulary, no copy of the state."""

import operator
import re

import jax
import jax.numpy as jnp
import pytest

from jaxinfer.gpu_compile import TARGETS, compile_for
from jaxinfer.programs import Draw
from scripts.gpu_static.sample import samples
from scripts.gpu_static.tables import TARGET_NAMES, sample_table
from tests.gpu_compile.reports import assert_on_the_page, everywhere, report

MOST_KERNELS = {
    "greedy": 5,
    "plain": 10,
    "truncated": 120,
    "forbid": 1,
    "adjust": 2,
    "set slot": 3,
    "rank": 13,
    "score": 14,
}
"""Thresholds of top-k and top-p are found by halving, in a fixed number of unrolled rounds."""

MOST_TEMPORARY_BYTES = {
    "greedy": 2**18,
    "plain": 9 * 2**20,
    "truncated": 32 * 2**20,
    "forbid": 2**10,
    "adjust": 2**10,
    "set slot": 2**10,
    "rank": 2 * 2**20,
    "score": 10 * 2**20,
}
"""Of 64 rows of logits in float32 there are 8 MB."""

LEAST_IN_COMMAND_BUFFER = 5
"""Kernels: XLA launches fewer one by one."""

STATE_BYTES = 65 * 32000 * 8
"""Of bias and counts of 64 slots and that of padding."""

LONGEST_SORT = 20 * 64
"""Numbers of a row: the logits of the blocks in which the most likely tokens are."""

SAMPLES = tuple(samples())

on_every_target = pytest.mark.parametrize("target", TARGET_NAMES)
label = operator.attrgetter("label")
of_every_program = pytest.mark.parametrize("sample", SAMPLES, ids=label)


def sorted_lengths(found):
    """Numbers of a row in each of XLA's sorts; a call of CUB's counts as endless."""
    lengths = [int(length) for length in re.findall(r"= \(?\w+\[(?:\d+,)*(\d+)\]\S*(?:, [^)]*\))? sort\(", found.hlo)]
    return lengths + [10**9] * len(re.findall(r"cub.*sort", found.hlo, re.IGNORECASE))


def test_a_sort_would_be_seen():
    logits = jax.ShapeDtypeStruct((64, 32000), jnp.float32)
    for operation in (jnp.sort, lambda x: jax.lax.top_k(x, 20)):
        assert sorted_lengths(compile_for(TARGETS["A10"], jax.jit(operation), logits).report) == [32000]


def test_every_way_to_draw_is_there():
    assert {draw.value for draw in Draw} < {sample.name for sample in SAMPLES} == set(MOST_KERNELS)


@on_every_target
@of_every_program
def test_a_program_is_few_kernels_in_one_command_buffer_without_a_sort(sample, target):
    found = report(sample, target)
    assert len(found.kernels) <= MOST_KERNELS[sample.name]
    if len(found.kernels) >= LEAST_IN_COMMAND_BUFFER:
        assert (found.num_command_buffers, found.num_outside_command_buffers) == (1, 0)
    assert found.temporary_bytes <= MOST_TEMPORARY_BYTES[sample.name]
    assert max(sorted_lengths(found), default=0) <= (LONGEST_SORT if sample.name in ("rank", "score") else 0)
    assert [kernel.name for kernel in found.kernels if kernel.spill_bytes] == []


@on_every_target
@pytest.mark.parametrize("sample", [each for each in SAMPLES if each.name in ("adjust", "set slot")], ids=label)
def test_the_state_of_the_slots_stays_where_it_is(sample, target):
    found = report(sample, target)
    assert found.copies == ()
    assert found.alias_bytes == STATE_BYTES


def test_the_page_is_up_to_date():
    assert_on_the_page("sample", sample_table((each, everywhere(each)) for each in SAMPLES))
