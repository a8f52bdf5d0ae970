"""Each implementation of paged attention against the definition.

Whatever may not be read is NaN in every case: unused pages, unused slots of last pages, pages named by table entries
past the end, queries that are padding. So one key too many shows as NaN, one too few or a wrong one as an error far
above the tolerance. ``test_paged_attention_controls`` proves that it does.
"""

import time
from typing import get_args

import jax
import numpy as np
import pytest

from pallas_kernels.paged_attention import Config, Implementation, paged_attention
from pallas_kernels.shapes import SHAPES as MODELS
from tests.pallas_kernels.paged_attention import numpy_attention
from tests.pallas_kernels.paged_attention.attention_cases import Case, Row, make_case
from tests.pallas_kernels.paged_attention.calls import arguments_of, attend
from tests.pallas_kernels.paged_attention.combinations import (
    CALLS,
    CONFIGS,
    SHAPES,
    config_of,
    covering,
    name_of,
    window_of,
)
from tests.pallas_kernels.paged_attention.comparison import BFLOAT16, TOLERANCES, relative_error

IMPLEMENTATIONS = get_args(Implementation)
SMALL_SHARES = Config(block_rows=16, block_keys=16, num_splits=4)
"""Makes the kernel cut even short rows into shares."""


def assert_right(
    case: Case, implementation: Implementation, config: Config | None = None, *, num_before: int | None = None
) -> None:
    """``num_before``: tokens of an array that the result is to be put behind; None for no such array."""
    q = case.arrays["q"]
    if num_before is None:
        out = attend(case, implementation, config)
    else:
        into = np.full((num_before + q.shape[0] * q.shape[1], *q.shape[2:]), np.nan, q.dtype)
        into[:num_before] = np.arange(num_before)[:, None, None]
        put = attend(case, implementation, config, into=into)
        assert put[:num_before].tobytes() == into[:num_before].tobytes()
        out = put[num_before:].reshape(q.shape)
    assert out.dtype == q.dtype
    expected = numpy_attention.paged_attention(**case.arrays, window=case.window, scale=case.scale)
    assert relative_error(out, expected) < TOLERANCES[out.dtype.type]


def config_for(implementation: Implementation, config: Config) -> Config | None:
    return config if implementation == "pallas" else None


# Everything together

COMBINATIONS = [
    *(("xla", combination) for combination in covering({**SHAPES, **CALLS}, 8)),
    *(("pallas", combination) for combination in covering({**SHAPES, **CALLS, **CONFIGS}, 12)),
]


def test_the_combinations_have_every_value():
    for name, values in {**SHAPES, **CALLS, **CONFIGS}.items():
        assert {combination[name] for _, combination in COMBINATIONS if name in combination} == set(values)


@pytest.mark.parametrize(("implementation", "combination"), COMBINATIONS, ids=name_of)
def test_combinations(implementation, combination):
    page, block_q = combination["page_size"], combination["block_q"]
    lengths = [1, page - 1, page, page + 1, 0, 3 * page + 2, 150]
    dtype, kv_dtype = combination["types"]
    case = make_case(
        [Row(length=length, num_queries=min(length, block_q + block_q // 4)) for length in lengths],
        page_size=page,
        window=window_of(combination["window"], page),
        group=combination["group"],
        head_dim=combination["head_dim"],
        block_q=block_q,
        dtype=dtype,
        kv_dtype=kv_dtype,
        drop_pages=combination["drop_pages"],
    )
    config = config_of(combination) if implementation == "pallas" else None
    assert_right(case, implementation, config, num_before=combination["num_before"])


# Lengths, pages and windows

PAGES_AND_WINDOWS = [
    *(("xla", 4, window) for window in (None, 1, 3, 4, 9)),
    ("xla", 192, 193),  # a page larger than a tile of keys
    *((implementation, 1, 3) for implementation in IMPLEMENTATIONS),
    *((implementation, 4, 2**31 - 1) for implementation in IMPLEMENTATIONS),  # larger than any length
]


@pytest.mark.parametrize(("implementation", "page_size", "window"), PAGES_AND_WINDOWS)
def test_rows_of_all_lengths_in_one_call(implementation, page_size, window):
    lengths = [1, page_size - 1, page_size, page_size + 1, 5 * page_size + 2, 300, 0]
    rows = [Row(length=length, num_queries=min(length, 1)) for length in lengths]
    for drop_pages in (False, True):  # a table may still hold the pages that left the window, or not
        assert_right(make_case(rows, page_size=page_size, window=window, drop_pages=drop_pages), implementation)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("window", [None, 6])
def test_a_row_of_any_length_alone(implementation, window):
    config = config_for(implementation, SMALL_SHARES)
    for length in [*range(1, 9), *range(15, 20), 31, 32, 33, 64, 65, 127, 128, 129, 131, 132, 133, 256, 257, 300]:
        case = make_case([Row(length=length)], window=window, table_width=80, drop_pages=True, seed=length)
        assert_right(case, implementation, config)


@pytest.mark.parametrize(
    ("implementation", "block_q", "window"),
    [("xla", 1, 3), ("xla", 5, None), ("xla", 5, 3), ("xla", 32, 40), ("pallas", 5, 40), ("pallas", 32, 3)],
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


RANDOM = {"group": 4, "block_q": 5, "num_blocks": 13, "table_width": 52, "page_size": 4, "window": 9}


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_random_calls_of_one_shape(implementation):
    for seed in range(25):
        rng = np.random.default_rng(seed)
        rows = []
        for length in rng.integers(0, 200, 4):
            rows.append(Row(length=int(length), num_queries=int(rng.integers(0, min(length, 14) + 1))))
        case = make_case(rows, drop_pages=bool(seed % 2), seed=seed, **RANDOM)
        assert_right(case, implementation, config_for(implementation, SMALL_SHARES))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_rows_may_share_pages(implementation):
    case = make_case([Row(length=21, num_queries=2), *[Row(length=21)] * 3], **RANDOM)
    case.arrays["page_table"][1:, :5] = case.arrays["page_table"][0, :5]
    assert_right(case, implementation, config_for(implementation, SMALL_SHARES))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("factor", [300.0, 0.0])
def test_scores_of_any_size(implementation, factor):
    """Their exponentials are beyond float32, and one key takes all; or all scores are equal."""
    case = make_case([Row(length=150)], num_kv_heads=1)
    case = case.with_arrays(q=case.arrays["q"] * np.float32(factor))
    assert_right(case, implementation, config_for(implementation, SMALL_SHARES))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_key_of_the_lowest_scores_counts_all_the_same(implementation):
    """A masked key must lie below it: the one key of a row has all of the weight, whatever its score."""
    case = make_case([Row(length=1)], num_padding_blocks=0)
    arrays = case.arrays | {"q": np.full_like(case.arrays["q"], -1e15)}
    pages = arrays["pages"].copy()
    page = arrays["page_table"][0, 0]
    pages[page, 0, 0] = 1e15
    out = attend(
        case.with_arrays(**arrays | {"pages": pages}), implementation, config_for(implementation, Config(block_rows=16))
    )
    np.testing.assert_allclose(out[0, 0], np.repeat(pages[page, 0, 1], 2, axis=0), rtol=1e-6)


# Heads of real models

ATTENTION_SHAPES = {(shape.group, shape.head_dim): name for name, shape in MODELS.items()}
QUICK = ("stories260k", "smollm2-135m", "qwen2.5-7b", "mistral-7b-v0.1")


def test_the_named_shapes_have_the_groups_and_head_sizes_that_models_have():
    assert {group for group, _ in ATTENTION_SHAPES} >= {1, 3, 4, 6, 7, 8, 12}
    assert {head_dim for _, head_dim in ATTENTION_SHAPES} >= {8, 64, 80, 96, 128, 256}


@pytest.mark.parametrize(
    ("implementation", "name", "dtype"),
    [
        *(
            pytest.param("xla", name, np.float32, marks=[] if name in QUICK else [pytest.mark.slow])
            for name in sorted({*ATTENTION_SHAPES.values(), *QUICK})
        ),
        *((implementation, "mistral-7b-v0.1", BFLOAT16) for implementation in IMPLEMENTATIONS),
    ],
    ids=name_of,
)
def test_heads_of_real_models(implementation, name, dtype):
    shape = MODELS[name]
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


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_padding_gives_zeros(implementation):
    config = config_for(implementation, Config(block_rows=16, num_splits=2))
    case = make_case([Row(length=9, num_queries=7), Row(length=0, num_queries=0)], block_q=5, num_padding_blocks=2)
    out, block_len = attend(case, implementation, config), case.arrays["block_len"]
    assert sorted(block_len) == [0, 0, 2, 5]
    padding = np.arange(5) >= block_len[:, None]
    assert (out[padding] == 0).all()
    assert (out[~padding] != 0).all()
    alone = case.with_arrays(block_len=np.zeros_like(block_len))
    assert (attend(alone, implementation, config) == 0).all()


# What it costs


def test_the_cost_follows_the_longest_row_not_the_width_of_the_table():
    """A pass over the whole table would take 500 times as long for the wide one; 20 leaves room for a busy machine."""

    def seconds(table_width: int) -> float:
        case = make_case([Row(length=100)] * 4, page_size=16, table_width=table_width, poison=0)
        call = jax.jit(lambda a: paged_attention(**a, window=None, scale=1.0, implementation="xla"))
        arguments = arguments_of(case.arrays)
        compiled = call.lower(arguments).compile()
        times = []
        for _ in range(7):
            begin = time.perf_counter()
            compiled(arguments).block_until_ready()
            times.append(time.perf_counter() - begin)
        return min(times)

    assert seconds(4096) < 20 * seconds(8)
