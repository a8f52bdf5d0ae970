"""Each implementation of paged attention against the definition, and proof that the comparison can fail.

Whatever may not be read is NaN in every case: unused pages, unused slots of last pages, pages named by table entries
past the end, queries that are padding. So one key too many shows as NaN, one too few or a wrong one as an error far
above the tolerance.
"""

import dataclasses
import inspect
import time
from typing import get_args

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from pallas_kernels.paged_attention import paged_attention
from pallas_kernels.paged_attention.api import Implementation
from pallas_kernels.shapes import SHAPES
from tests.pallas_kernels import numpy_attention
from tests.pallas_kernels.attention_cases import Case, Row, make_case, relative_error

BFLOAT16 = ml_dtypes.bfloat16
TOLERANCES = {np.float32: 2e-5, BFLOAT16: 2e-2}
"""Largest distance of an attended head from the definition's, relative to its norm."""

pytestmark = pytest.mark.parametrize("implementation", get_args(Implementation))

compiled = jax.jit(paged_attention, static_argnames=("window", "scale", "implementation"))


def attend(case: Case, implementation: str) -> np.ndarray:
    arrays = map(jnp.asarray, case.arrays.values())
    return np.asarray(compiled(*arrays, window=case.window, scale=case.scale, implementation=implementation))


def expect(case: Case) -> np.ndarray:
    return numpy_attention.paged_attention(**case.arrays, window=case.window, scale=case.scale)


def assert_right(case: Case, implementation: str) -> None:
    out = attend(case, implementation)
    assert out.dtype == case.arrays["q"].dtype
    assert relative_error(out, expect(case)) < TOLERANCES[out.dtype.type]


# Lengths, pages and windows

PAGES_AND_WINDOWS = [
    *((page, window) for page in (4, 16, 64) for window in (None, 1, page - 1, page, 2 * page + 1)),
    *((1, window) for window in (None, 1, 3)),
    *((192, window) for window in (None, 192, 193)),  # a page larger than a tile of keys
    (4, 2**31 - 1),  # larger than any length
]


@pytest.mark.parametrize(("page_size", "window"), PAGES_AND_WINDOWS)
def test_rows_of_all_lengths_in_one_call(implementation, page_size, window):
    lengths = [1, page_size - 1, page_size, page_size + 1, 5 * page_size + 2, 300, 0]
    rows = [Row(length=length, num_queries=min(length, 1)) for length in lengths]
    for drop_pages in (False, True):  # a table may still hold the pages that left the window, or not
        assert_right(make_case(rows, page_size=page_size, window=window, drop_pages=drop_pages), implementation)


@pytest.mark.parametrize("window", [None, 6])
def test_a_row_of_any_length_alone(implementation, window):
    for length in [1, 2, 3, 4, 5, 6, 7, 8, 127, 128, 129, 131, 132, 133, 256, 257, 300]:
        case = make_case([Row(length=length)], window=window, table_width=80, drop_pages=True, seed=length)
        assert_right(case, implementation)


@pytest.mark.parametrize(
    ("block_q", "window"), [(1, 3), (5, None), (5, 3), (5, 40), (16, None), (16, 40), (32, None), (32, 3)]
)
def test_pieces_of_prompts(implementation, block_q, window):
    rows = [
        Row(length=1, num_queries=1),
        Row(length=block_q, num_queries=block_q),  # a whole block from the start
        Row(length=3 * block_q - 2, num_queries=3 * block_q - 2) if block_q > 1 else Row(length=7, num_queries=3),
        Row(length=150 + block_q, num_queries=block_q + 1),  # far into the sequence, and over one block
        Row(length=0, num_queries=0),
        Row(length=97, num_queries=2),
    ]
    for drop_pages in (False, True):
        case = make_case(rows, block_q=block_q, window=window, drop_pages=drop_pages, num_padding_blocks=3)
        assert_right(case, implementation)


@pytest.mark.parametrize("window", [None, 9])
def test_random_calls_of_one_shape(implementation, window):
    for seed in range(25):
        rng = np.random.default_rng(seed)
        rows = []
        for length in rng.integers(0, 200, 4):
            rows.append(Row(length=int(length), num_queries=int(rng.integers(0, min(length, 14) + 1))))
        shape = {"block_q": 5, "num_blocks": 13, "table_width": 52, "page_size": 4}
        assert_right(make_case(rows, window=window, drop_pages=bool(seed % 2), seed=seed, **shape), implementation)


def test_rows_may_share_pages(implementation):
    case = make_case([Row(length=21, num_queries=2), Row(length=21)], page_size=4)
    case.arrays["page_table"][1, :5] = case.arrays["page_table"][0, :5]
    assert_right(case, implementation)


# Heads and types

ATTENTION_SHAPES = {(shape.group, shape.head_dim): name for name, shape in SHAPES.items()}


def test_the_named_shapes_have_the_groups_and_head_sizes_that_models_have(implementation):
    assert {group for group, _ in ATTENTION_SHAPES} >= {1, 3, 4, 6, 7, 8, 12}
    assert {head_dim for _, head_dim in ATTENTION_SHAPES} >= {8, 64, 80, 96, 128}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, np.float32) for name in ATTENTION_SHAPES.values()),
        *((name, BFLOAT16) for name in ("smollm2-135m", "h2o-danube-1.8b", "mistral-7b-v0.1")),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_heads_of_real_models(implementation, name, dtype):
    shape = SHAPES[name]
    case = make_case(
        [Row(length=18, num_queries=7), Row(length=137)],
        num_kv_heads=shape.num_kv_heads,
        group=shape.group,
        head_dim=shape.head_dim,
        block_q=5,
        page_size=16,
        window=20,
        dtype=dtype,
    )
    assert_right(case, implementation)


# Padding


def test_padding_gives_zeros(implementation):
    case = make_case([Row(length=9, num_queries=7), Row(length=0, num_queries=0)], block_q=5, num_padding_blocks=2)
    out, block_len = attend(case, implementation), case.arrays["block_len"]
    assert sorted(block_len) == [0, 0, 2, 5]
    padding = np.arange(5) >= block_len[:, None]
    assert (out[padding] == 0).all()
    assert (out[~padding] != 0).all()


def test_a_call_of_padding_alone_gives_zeros(implementation):
    case = make_case([Row(length=0, num_queries=0)], block_q=5, num_padding_blocks=3)
    assert (attend(case, implementation) == 0).all()


# Negative controls: the same comparison at the same tolerance, with one thing wrong


def with_arrays(case: Case, **arrays: np.ndarray) -> Case:
    return dataclasses.replace(case, arrays=case.arrays | arrays)


def swap_two_pages(case: Case) -> Case:
    table = case.arrays["page_table"].copy()
    table[0, [0, 1]] = table[0, [1, 0]]
    return with_arrays(case, page_table=table)


FAULTS = {
    "V for K": lambda case: with_arrays(case, kv_pages=case.arrays["kv_pages"][:, :, ::-1]),
    "V read as K": lambda case: with_arrays(case, kv_pages=case.arrays["kv_pages"][:, :, [1, 1]]),
    "window + 1": lambda case: dataclasses.replace(case, window=case.window + 1),
    "window - 1": lambda case: dataclasses.replace(case, window=case.window - 1),
    "no window": lambda case: dataclasses.replace(case, window=None),
    "pages in the wrong order": swap_two_pages,
    "page table of another row": lambda case: with_arrays(case, block_row=1 - case.arrays["block_row"]),
    "pages one too far": lambda case: with_arrays(case, first_page=case.arrays["first_page"] + 1),
    "query one position later": lambda case: with_arrays(case, block_start=case.arrays["block_start"] + 1),
    "query one position earlier": lambda case: with_arrays(case, block_start=case.arrays["block_start"] - 1),
    "one query too few": lambda case: with_arrays(case, block_len=case.arrays["block_len"] - 1),
    "kv heads in the wrong order": lambda case: with_arrays(case, kv_pages=case.arrays["kv_pages"][..., ::-1, :]),
    "query heads in the wrong order": lambda case: with_arrays(case, q=case.arrays["q"][:, :, ::-1]),
    "scale dropped": lambda case: dataclasses.replace(case, scale=1.0),
}


@pytest.fixture(params=TOLERANCES, ids=lambda dtype: dtype.__name__)
def control(request):
    """No NaN in it: each fault must show by its numbers, not by what it happens to touch."""
    rows = [Row(length=44, num_queries=3), Row(length=44, num_queries=3)]
    case = make_case(rows, block_q=3, window=40, page_size=16, num_padding_blocks=0, dtype=request.param, poison=0.5)
    return case, TOLERANCES[request.param]


def test_the_control_without_a_fault_passes(implementation, control):
    assert_right(control[0], implementation)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(implementation, control, fault):
    case, tolerance = control
    assert relative_error(attend(FAULTS[fault](case), implementation), expect(case)) > tolerance


@pytest.mark.parametrize("output", [0.0, np.nan, np.inf])
def test_a_constant_output_is_noticed(implementation, control, output):
    case, tolerance = control
    expected = expect(case)
    assert relative_error(np.full_like(expected, output), expected) > tolerance


# What it refuses


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 5}, "5 heads and the cache 2"),
        ({"num_heads": 1}, "1 heads and the cache 2"),
        ({"head_dim": 8}, "head_dim 8 and the cache 16"),
        ({"window": 0}, "window is 0"),
        ({"window": -1}, "window is -1"),
        ({"implementation": "cuda"}, "'cuda'; known are xla"),
    ],
)
def test_what_it_refuses(implementation, change, message):
    case = make_case([Row(length=5)])
    asked = {"num_heads": 4, "head_dim": 16, "window": None, "implementation": implementation} | change
    arrays = case.arrays | {"q": np.zeros((2, 1, asked.pop("num_heads"), asked.pop("head_dim")), np.float32)}
    # Without the check of shapes that tests add, which would be first to say that two head_dims contradict each other.
    unchecked = inspect.unwrap(paged_attention)
    with pytest.raises(ValueError, match=message):
        unchecked(*map(jnp.asarray, arrays.values()), scale=case.scale, **asked)


# What it costs


def test_the_cost_follows_the_longest_row_not_the_width_of_the_table(implementation):
    """A pass over the whole table would take 500 times as long for the wide one; 20 leaves room for a busy machine."""

    def seconds(table_width: int) -> float:
        case = make_case([Row(length=100)] * 4, page_size=16, table_width=table_width, poison=0)
        arrays = [jnp.asarray(array) for array in case.arrays.values()]
        call = compiled.lower(*arrays, window=None, scale=1.0, implementation=implementation).compile()
        times = []
        for _ in range(7):
            begin = time.perf_counter()
            call(*arrays).block_until_ready()
            times.append(time.perf_counter() - begin)
        return min(times)

    assert seconds(4096) < 20 * seconds(8)
