"""Negative controls of ``decode_attention``: the tests' comparison at the tests' tolerance, with one thing wrong."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, get_args

import numpy as np
import pytest

from pallas_kernels.paged_attention import Implementation
from tests.pallas_kernels.paged_attention.calls import decode
from tests.pallas_kernels.paged_attention.combinations import TYPES, name_of
from tests.pallas_kernels.paged_attention.comparison import TOLERANCES
from tests.pallas_kernels.paged_attention.decode_cases import (
    DecodeCase,
    Outcome,
    assert_right,
    attended_by_definition,
    attended_error,
    make_decode_case,
    written_error,
    written_tolerance,
)

implementations = pytest.mark.parametrize("implementation", get_args(Implementation))
types = pytest.mark.parametrize("types", TYPES, ids=name_of)
ALL, BACKWARDS = slice(None), slice(None, None, -1)


def control(types: tuple[Any, Any]) -> DecodeCase:
    """No NaN in it: each fault must show by its numbers, not by what it happens to touch."""
    shape = {"window": 40, "page_size": 16, "num_other_tokens": 0}
    return make_decode_case([43, 46], **shape, dtype=types[0], kv_dtype=types[1], poison=0.5)


def is_noticed(case: DecodeCase, outcome: Outcome) -> bool:
    attended_is_off = attended_error(case, outcome) > TOLERANCES[case.arrays["qkv"].dtype.type]
    return attended_is_off or written_error(case, outcome) > written_tolerance(case)


@implementations
@types
def test_the_control_without_a_fault_passes(implementation, types):
    case = control(types)
    outcome = decode(case, implementation)
    assert_right(case, outcome)
    assert not is_noticed(case, outcome)


# Faults of what goes in


Fault = Callable[[dict[str, Any]], dict[str, Any]]
"""The arrays that it changes, from all of them."""


def swap(first: str, second: str) -> Fault:
    return lambda a: {first: a[second], second: a[first]}


def add(name: str, number: int) -> Fault:
    return lambda a: {name: a[name] + number}


def reorder(name: str, *index: Any) -> Fault:
    return lambda a: {name: a[name][index]}


def swap_two_pages(a: dict[str, Any]) -> dict[str, Any]:
    table = a["page_table"].copy()
    table[0, [0, 1]] = table[0, [1, 0]]
    return {"page_table": table}


FAULTS: Mapping[str, Fault] = {
    "cosine and sine swapped": swap("cos", "sin"),
    "turned the other way": lambda a: {"sin": -a["sin"]},
    "not turned": lambda a: {"cos": np.ones_like(a["cos"]), "sin": np.zeros_like(a["sin"])},
    "angles of another row": reorder("cos", BACKWARDS),
    "weights of the queries' norm dropped": lambda a: {"q_norm": np.ones_like(a["q_norm"])},
    "weights of the keys' norm dropped": lambda a: {"k_norm": np.ones_like(a["k_norm"])},
    "weights of the norms swapped": swap("q_norm", "k_norm"),
    "V for K of the newest token": reorder("qkv", ALL, [0, 1, 2, 3, 6, 7, 4, 5]),
    "kv heads of the newest token in the wrong order": reorder("qkv", ALL, [0, 1, 2, 3, 5, 4, 7, 6]),
    "query heads in the wrong order": reorder("qkv", ALL, [3, 2, 1, 0, 4, 5, 6, 7]),
    "pages in the wrong order": swap_two_pages,
    "page table of another row": reorder("page_table", BACKWARDS),
    "pages one too far": add("first_page", 1),
    "one position later": add("position", 1),
    "one position earlier": add("position", -1),
}


@implementations
@types
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(implementation, types, fault):
    case = control(types)
    outcome = decode(case.with_arrays(**FAULTS[fault](case.arrays)), implementation)
    assert is_noticed(case, outcome)


@implementations
@pytest.mark.parametrize("types", [types for types in TYPES if np.int8 not in types], ids=name_of)
@pytest.mark.parametrize("change", [1, -1])
def test_another_window_is_noticed(implementation, types, change):
    case = control(types)
    outcome = decode(dataclasses.replace(case, window=case.window + change), implementation)
    assert attended_error(case, outcome) > TOLERANCES[types[0]]


INT8 = [types for types in TYPES if np.int8 in types]
CACHE_FAULTS: Mapping[str, Fault] = {
    "V for K": reorder("pages", ALL, ALL, BACKWARDS),
    "V read as K": reorder("pages", ALL, ALL, [1, 1]),
    "kv heads in the wrong order": reorder("pages", ALL, ALL, ALL, BACKWARDS),
    "scales dropped": lambda a: {"scales": np.full_like(a["scales"], 1 / 73)},
    "scale of K for V": reorder("scales", ALL, ALL, [0, 0]),
    "scale of V for K": reorder("scales", ALL, ALL, [1, 1]),
    "scale of the neighbouring head": reorder("scales", ALL, ALL, ALL, BACKWARDS),
    "scale of the neighbouring slot": lambda a: {"scales": np.roll(a["scales"], 1, axis=1)},
}


@implementations
@pytest.mark.parametrize(
    ("fault", "types"),
    [(fault, types) for fault in CACHE_FAULTS for types in (INT8 if "scale" in fault else TYPES)],
    ids=name_of,
)
def test_a_fault_of_reading_the_cache_is_noticed(implementation, fault, types):
    """What is attended to in a wrong cache, against the right one."""
    case = control(types)
    wrong = decode(case.with_arrays(**CACHE_FAULTS[fault](case.arrays)), implementation)
    outcome = dataclasses.replace(decode(case, implementation), attended=wrong.attended)
    assert attended_error(case, outcome) > TOLERANCES[types[0]]


# Faults of what comes out


def with_slot(outcome: Outcome, name: str, place: Any, values: Any) -> Outcome:
    """The outcome with something else in one place of one of its arrays."""
    array = getattr(outcome, name).copy()
    array[place] = values
    return dataclasses.replace(outcome, **{name: array})


@types
@pytest.mark.parametrize("which", [[0], [1], [0, 1]], ids=["K", "V", "both"])
def test_what_is_not_written_is_noticed(types, which):
    case = control(types)
    _, page, offset = case.targets
    place = (page[0], offset[0], which)
    outcome = with_slot(decode(case, "xla"), "pages", place, case.arrays["pages"][place])
    assert written_error(case, outcome) > written_tolerance(case)


@pytest.mark.parametrize("types", INT8, ids=name_of)
def test_scales_that_are_written_wrong_are_noticed(types):
    case = control(types)
    outcome = decode(case, "xla")
    _, page, offset = case.targets
    place = (page[0], offset[0])
    for values in (case.arrays["scales"][place], outcome.scales[place][..., BACKWARDS], outcome.scales[place][[1, 0]]):
        assert written_error(case, with_slot(outcome, "scales", place, values)) > written_tolerance(case)


@types
def test_a_newest_token_that_is_not_attended_to_is_noticed(types):
    """The token before it sees the same others, through a window that is one shorter."""
    case = control(types)
    outcome = decode(case, "xla")
    before = dataclasses.replace(case.with_arrays(position=case.arrays["position"] - 1), window=case.window - 1)
    attended = attended_by_definition(before, outcome)
    assert attended_error(case, dataclasses.replace(outcome, attended=attended)) > TOLERANCES[types[0]]


@types
@pytest.mark.parametrize("output", [0.0, np.nan, np.inf])
def test_a_constant_output_is_noticed(types, output):
    case = control(types)
    outcome = decode(case, "xla")
    constant = dataclasses.replace(outcome, attended=np.full_like(outcome.attended, output))
    assert attended_error(case, constant) > TOLERANCES[types[0]]


@types
def test_what_should_have_been_left_alone_is_noticed(types):
    case = control(types)
    outcome = decode(case, "xla")
    _, page, offset = case.targets
    neighbour = (page[0], offset[0] - 1)
    faults = [("pages", (*neighbour, 1, 0, 3), 5), ("pages", (page[0] - 1 or 2, 0, 0, 0, 0), 5), ("arrivals", 0, 1)]
    if outcome.scales is not None:
        faults.append(("scales", (*neighbour, 1, 0), np.nan))
    for fault in faults:
        with pytest.raises(AssertionError):
            assert_right(case, with_slot(outcome, *fault))
