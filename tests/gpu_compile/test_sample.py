"""The sample programs as they were compiled: one command buffer, and no sort of the vocabulary."""

import re

import jax
import jax.numpy as jnp
import pytest

from jaxinfer.gpu_compile import TARGETS, compile_for
from jaxinfer.programs import Draw
from scripts.gpu_static.sample import samples
from scripts.gpu_static.tables import TARGET_NAMES, sample_table
from tests.gpu_compile.reports import assert_on_the_page, everywhere, report

MOST_KERNELS = {Draw.GREEDY: 5, Draw.PLAIN: 10, Draw.TRUNCATED: 120}
"""Thresholds of top-k and top-p are found by halving, in a fixed number of unrolled rounds."""

MOST_TEMPORARY_BYTES = {Draw.GREEDY: 2**18, Draw.PLAIN: 9 * 2**20, Draw.TRUNCATED: 32 * 2**20}
"""Of 64 rows of logits in float32 there are 8 MB."""

SAMPLES = tuple(samples())

on_every_target = pytest.mark.parametrize("target", TARGET_NAMES)
of_every_draw = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.label)


def sorts(found):
    """Whether the program has XLA's sort, or a call of CUB's."""
    return bool(re.search(r" sort\(|cub.*sort", found.hlo, re.IGNORECASE))


def test_a_sort_would_be_seen():
    assert sorts(compile_for(TARGETS["A10"], jnp.sort, jax.ShapeDtypeStruct((64, 32000), jnp.float32)).report)


def test_every_way_to_draw_is_there():
    assert {sample.draw for sample in SAMPLES} == set(Draw)


@on_every_target
@of_every_draw
def test_a_sample_program_is_one_command_buffer_without_a_sort(sample, target):
    found = report(sample, target)
    assert (found.num_command_buffers, found.num_outside_command_buffers) == (1, 0)
    assert not sorts(found)
    assert len(found.kernels) <= MOST_KERNELS[sample.draw]
    assert found.temporary_bytes <= MOST_TEMPORARY_BYTES[sample.draw]
    assert [kernel.name for kernel in found.kernels if kernel.spill_bytes] == []


def test_the_page_is_up_to_date():
    assert_on_the_page("sample", sample_table((each, everywhere(each)) for each in SAMPLES))
