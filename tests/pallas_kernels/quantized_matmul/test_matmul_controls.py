"""Negative controls of ``matmul``: the tests' comparison at the tests' tolerance, with one thing wrong."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.pallas_kernels.paged_attention.combinations import name_of
from tests.pallas_kernels.quantized_matmul.cases import (
    BFLOAT16,
    FORMATS,
    FUSIONS,
    IMPLEMENTATIONS,
    TOLERANCES,
    Case,
    error_of,
    make_case,
    run,
)

Fault = Callable[[Case], Case]
FLOATS = (np.float32, BFLOAT16)
QUANTIZED = tuple(name for name in FORMATS if name != "float")
INT4 = tuple(name for name in FORMATS if name.startswith("int4"))
IN_GROUPS = tuple(name for name in INT4 if name != "int4, whole row")


def around(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Fault:
    return lambda case: replace(case, fusions={**case.fusions, name: change(case.fusions[name])})


def of_weight(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Fault:
    return lambda case: case.with_weight(**{name: change(case.weight[name])})


def roll(axis: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: np.roll(array, 1, axis=axis)


def of_rows(change: Callable[[np.ndarray], np.ndarray]) -> Fault:
    """The rows of the matrix in another order, with what belongs to them."""

    def fault(case: Case) -> Case:
        if isinstance(case.weight, np.ndarray):
            return case.with_matrix(change(case.weight))
        return case.with_weight(**{name: change(array) for name, array in case.weight.items()})

    return fault


def leave_out_a_piece(case: Case) -> Case:
    """What a loop that is one round short computes."""
    x = case.x.copy()
    x[:, 256:] = 0
    return replace(case, x=x)


def halves_swapped(array: np.ndarray) -> np.ndarray:
    return np.roll(array, len(array) // 2, axis=0)


FAULTS: Mapping[str, Fault] = {
    "residual dropped": around("residual", np.zeros_like),
    "residual of another row": around("residual", roll(0)),
    "bias dropped": around("bias", np.zeros_like),
    "bias of the neighbour": around("bias", roll(0)),
    "norm's weight dropped": around("norm", np.ones_like),
    "norm's weight of the neighbour": around("norm", roll(0)),
    "norm's epsilon dropped": around("norm_eps", lambda eps: 0.0 * eps),
    "gates and others swapped": of_rows(halves_swapped),
    "rows of the matrix one too far": of_rows(roll(0)),
    "the last piece of K left out": leave_out_a_piece,
}
OF_SCALES: Mapping[str, Fault] = {
    "scale of the neighbour": of_weight("scales", roll(0)),
    "scales dropped": of_weight("scales", lambda scales: np.full_like(scales, scales.mean())),
}
OF_INT4: Mapping[str, Fault] = {
    "nibbles swapped": of_weight("values", lambda values: values >> 4 | values << 4),
    "offsets dropped": of_weight("offsets", np.zeros_like),
    "offset of the neighbour": of_weight("offsets", roll(0)),
    "bytes of the neighbour": of_weight("values", roll(1)),
}
OF_GROUPS: Mapping[str, Fault] = {
    "scale of the group before": of_weight("scales", roll(1)),
    "offset of the group before": of_weight("offsets", roll(1)),
}


def control(weight_format: str, dtype: Any) -> Case:
    """All inputs count and no group is garbage: a fault must show by its numbers, not by what it touches."""
    return make_case(16, 128, 384, weight_format=weight_format, dtype=dtype, fusions=FUSIONS)


def error_with(fault: Fault, weight_format: str, dtype: Any, implementation: Any) -> float:
    case = control(weight_format, dtype)
    return error_of(run(fault(case), implementation), case.expected())


implementations = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
types = pytest.mark.parametrize("dtype", FLOATS, ids=name_of)


@implementations
@types
@pytest.mark.parametrize("weight_format", FORMATS)
def test_the_control_without_a_fault_passes(implementation, weight_format, dtype):
    assert control(weight_format, dtype).error(implementation) < TOLERANCES[dtype]


@implementations
@types
@pytest.mark.parametrize("weight_format", FORMATS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(implementation, weight_format, dtype, fault):
    assert error_with(FAULTS[fault], weight_format, dtype, implementation) > TOLERANCES[dtype]


@implementations
@types
@pytest.mark.parametrize("weight_format", QUANTIZED)
@pytest.mark.parametrize("fault", OF_SCALES)
def test_a_fault_of_the_scales_is_noticed(implementation, weight_format, dtype, fault):
    assert error_with(OF_SCALES[fault], weight_format, dtype, implementation) > TOLERANCES[dtype]


@implementations
@types
@pytest.mark.parametrize("weight_format", INT4)
@pytest.mark.parametrize("fault", OF_INT4)
def test_a_fault_of_int4_is_noticed(implementation, weight_format, dtype, fault):
    assert error_with(OF_INT4[fault], weight_format, dtype, implementation) > TOLERANCES[dtype]


@implementations
@types
@pytest.mark.parametrize("weight_format", IN_GROUPS)
@pytest.mark.parametrize("fault", OF_GROUPS)
def test_a_fault_of_the_groups_is_noticed(implementation, weight_format, dtype, fault):
    assert error_with(OF_GROUPS[fault], weight_format, dtype, implementation) > TOLERANCES[dtype]


@pytest.mark.parametrize("output", [0.0, np.nan, np.inf])
def test_a_constant_output_is_noticed(output):
    expected = control("float", np.float32).expected()
    with np.errstate(invalid="ignore"):
        assert error_of(np.full_like(expected, output), expected) > TOLERANCES[BFLOAT16]
