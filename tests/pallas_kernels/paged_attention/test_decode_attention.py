"""Each implementation of ``decode_attention`` against the definition.

As for ``paged_attention``, whatever may not be read is NaN: also the slot that the newest token goes to, whatever
belongs to rows that are padding, and the tokens after the decode rows. ``test_decode_attention_controls`` proves that
the comparison can fail.
"""

from typing import get_args

import numpy as np
import pytest

from pallas_kernels.paged_attention import Config, Implementation
from tests.pallas_kernels.paged_attention.calls import decode
from tests.pallas_kernels.paged_attention.combinations import (
    CONFIGS,
    SHAPES,
    config_of,
    covering,
    name_of,
    window_of,
)
from tests.pallas_kernels.paged_attention.comparison import BFLOAT16
from tests.pallas_kernels.paged_attention.decode_cases import PADDING, assert_right, make_decode_case

implementations = pytest.mark.parametrize("implementation", get_args(Implementation))

# Everything together

ROWS = {"norms": (True, False), "num_other_tokens": (0, 3), "num_spare_arrivals": (0, 2)}
COMBINATIONS = [
    *(("xla", combination) for combination in covering({**SHAPES, **ROWS}, 8, seed=1)),
    *(("pallas", combination) for combination in covering({**SHAPES, **ROWS, **CONFIGS}, 12, seed=1)),
]


def test_the_combinations_have_every_value():
    for name, values in {**SHAPES, **ROWS, **CONFIGS}.items():
        assert {combination[name] for _, combination in COMBINATIONS if name in combination} == set(values)


@pytest.mark.parametrize(("implementation", "combination"), COMBINATIONS, ids=name_of)
def test_combinations(implementation, combination):
    page = combination["page_size"]
    dtype, kv_dtype = combination["types"]
    case = make_decode_case(
        [PADDING, 0, page - 1, page, PADDING, page + 1, 3 * page + 2, 150, 299, PADDING],
        page_size=page,
        window=window_of(combination["window"], page),
        group=combination["group"],
        head_dim=combination["head_dim"],
        dtype=dtype,
        kv_dtype=kv_dtype,
        drop_pages=combination["drop_pages"],
        **{name: combination[name] for name in ROWS},
    )
    assert_right(case, decode(case, implementation, config_of(combination) if implementation == "pallas" else None))


# Several steps

FOUR_ROWS = {"window": 9, "table_width": 12}
"""One shape for several tests, so that they share a compiled program."""


def config_for(implementation: Implementation) -> Config | None:
    """For the kernel one that cuts even short rows into shares."""
    return Config(block_rows=16, block_keys=16, num_splits=4) if implementation == "pallas" else None


@implementations
@pytest.mark.parametrize("kv_dtype", [np.float32, np.int8], ids=name_of)
def test_steps_in_a_row(implementation, kv_dtype):
    """Each step reads what the ones before it wrote, also across a page's end."""
    case = make_decode_case([6, 30, PADDING, 0], kv_dtype=kv_dtype, num_steps=4, **FOUR_ROWS)
    rng = np.random.default_rng(1)
    for _ in range(4):
        outcome = decode(case, implementation, config_for(implementation))
        assert_right(case, outcome)
        case = case.with_arrays(
            pages=outcome.pages,
            scales=outcome.scales,
            arrivals=outcome.arrivals,
            position=np.where(case.arrays["position"] < 0, PADDING, case.arrays["position"] + 1),
            qkv=rng.permuted(case.arrays["qkv"], axis=-1),
        )


# Types


@pytest.mark.parametrize("kv_dtype", [BFLOAT16, np.int8], ids=name_of)
@pytest.mark.parametrize("norms", [True, False])
def test_both_leave_the_same_numbers_in_the_cache(kv_dtype, norms):
    """A token leaves the same whether it decodes, in the kernel, or comes with a chunk, outside: it is rounded alike.

    The sum of a norm is taken in another order, which now and then moves a number that lies between two.
    """
    case = make_decode_case([6, 30, 45, 0], dtype=BFLOAT16, kv_dtype=kv_dtype, norms=norms, head_dim=80, **FOUR_ROWS)
    portable, kernel = decode(case, "xla"), decode(case, "pallas", config_for("pallas"))
    # Page 0 is the dummy page, and what holds no token is NaN in both.
    numbers = [outcome.pages[1:].astype(np.float32) for outcome in (portable, kernel)]
    written = ~np.isclose(case.arrays["pages"][1:].astype(np.float32), numbers[0], rtol=0, atol=0, equal_nan=True)
    assert written.sum() > 1000
    same = (numbers[0] == numbers[1])[written].mean()
    assert same > 0.99 if norms else same == 1


@implementations
def test_a_head_of_zeros_in_int8(implementation):
    """Its largest number is 0, which is no scale to divide by."""
    case = make_decode_case([6, 30, PADDING, 0], kv_dtype=np.int8, **FOUR_ROWS)
    qkv = case.arrays["qkv"].copy()
    qkv[:2, -3:] = 0  # the second key head, and all values
    case = case.with_arrays(qkv=qkv)
    outcome = decode(case, implementation, config_for(implementation))
    assert_right(case, outcome)
    _, page, offset = case.targets
    assert (outcome.pages[page[:2], offset[:2], 1] == 0).all()


@implementations
def test_padding_alone_changes_no_page_but_the_dummy(implementation):
    case = make_decode_case([6, 30, 8, 0], **FOUR_ROWS)
    case = case.with_arrays(position=np.full(4, PADDING, np.int32))
    assert_right(case, decode(case, implementation, config_for(implementation)))
