"""Negative controls of ``paged_attention``: the tests' comparison at the tests' tolerance, with one thing wrong."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import get_args

import numpy as np
import pytest

from pallas_kernels.paged_attention import Implementation
from tests.pallas_kernels.paged_attention import numpy_attention
from tests.pallas_kernels.paged_attention.attention_cases import Case, Row, make_case
from tests.pallas_kernels.paged_attention.calls import attend
from tests.pallas_kernels.paged_attention.combinations import TYPES, name_of
from tests.pallas_kernels.paged_attention.comparison import TOLERANCES, relative_error

Fault = Callable[[Case], Case]


def swap_two_pages(case: Case) -> Case:
    table = case.arrays["page_table"].copy()
    table[0, [0, 1]] = table[0, [1, 0]]
    return case.with_arrays(page_table=table)


def reorder(name: str, *index: object) -> Fault:
    """The array, and with the pages their scales, in another order along some axes."""

    def fault(case: Case) -> Case:
        changed = {name: case.arrays[name][index]}
        if name == "pages" and case.arrays["scales"] is not None:
            changed["scales"] = case.arrays["scales"][index]
        return case.with_arrays(**changed)

    return fault


def add(name: str, number: int) -> Fault:
    return lambda case: case.with_arrays(**{name: case.arrays[name] + number})


def undo_scale(case: Case) -> Case:
    """What the fault computes, by the numbers: to change the argument would be one more program to compile."""
    q = case.arrays["q"]
    return case.with_arrays(q=(q / case.scale).astype(q.dtype))


ALL, BACKWARDS = slice(None), slice(None, None, -1)
FAULTS: Mapping[str, Fault] = {
    "V for K": reorder("pages", ALL, ALL, BACKWARDS),
    "V read as K": reorder("pages", ALL, ALL, [1, 1]),
    "window + 1": lambda case: dataclasses.replace(case, window=case.window + 1),
    "window - 1": lambda case: dataclasses.replace(case, window=case.window - 1),
    "pages in the wrong order": swap_two_pages,
    "page table of another row": lambda case: case.with_arrays(block_row=1 - case.arrays["block_row"]),
    "pages one too far": add("first_page", 1),
    "query one position later": add("block_start", 1),
    "query one position earlier": add("block_start", -1),
    "one query too few": add("block_len", -1),
    "kv heads in the wrong order": reorder("pages", ALL, ALL, ALL, BACKWARDS),
    "query heads in the wrong order": reorder("q", ALL, ALL, BACKWARDS),
    "scale of the scores dropped": undo_scale,
}
SCALE_FAULTS: Mapping[str, Fault] = {
    "scales dropped": lambda case: case.with_arrays(scales=np.full_like(case.arrays["scales"], 1 / 73)),
    "scale of K for V": lambda case: case.with_arrays(scales=case.arrays["scales"][:, :, [0, 0]]),
    "scale of V for K": lambda case: case.with_arrays(scales=case.arrays["scales"][:, :, [1, 1]]),
    "scale of the neighbouring head": lambda case: case.with_arrays(scales=case.arrays["scales"][..., ::-1]),
    "scale of the neighbouring slot": lambda case: case.with_arrays(scales=np.roll(case.arrays["scales"], 1, axis=1)),
}


def control(types: tuple[type, type]) -> Case:
    """No NaN in it: each fault must show by its numbers, not by what it happens to touch."""
    rows = [Row(length=44, num_queries=3), Row(length=44, num_queries=3)]
    shape = {"block_q": 3, "window": 40, "page_size": 16, "num_padding_blocks": 0}
    return make_case(rows, **shape, dtype=types[0], kv_dtype=types[1], poison=0.5)


def error_with(fault: Fault, case: Case, implementation: Implementation) -> float:
    expected = numpy_attention.paged_attention(**case.arrays, window=case.window, scale=case.scale)
    return relative_error(attend(fault(case), implementation), expected)


implementations = pytest.mark.parametrize("implementation", get_args(Implementation))


@implementations
@pytest.mark.parametrize("types", TYPES, ids=name_of)
def test_the_control_without_a_fault_passes(implementation, types):
    assert error_with(lambda case: case, control(types), implementation) < TOLERANCES[types[0]]


@implementations
@pytest.mark.parametrize("types", TYPES, ids=name_of)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(implementation, types, fault):
    assert error_with(FAULTS[fault], control(types), implementation) > TOLERANCES[types[0]]


@implementations
@pytest.mark.parametrize("types", [types for types in TYPES if np.int8 in types], ids=name_of)
@pytest.mark.parametrize("fault", SCALE_FAULTS)
def test_a_fault_of_the_scales_is_noticed(implementation, types, fault):
    assert error_with(SCALE_FAULTS[fault], control(types), implementation) > TOLERANCES[types[0]]


@pytest.mark.parametrize("output", [0.0, np.nan, np.inf])
@pytest.mark.parametrize("types", TYPES, ids=name_of)
def test_a_constant_output_is_noticed(types, output):
    case = control(types)
    expected = numpy_attention.paged_attention(**case.arrays, window=case.window, scale=case.scale)
    assert relative_error(np.full_like(expected, output), expected) > TOLERANCES[types[0]]
