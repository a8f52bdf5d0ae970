"""The GPU kernel in every group, head size and type, with blocks of every size and any number of shares.

The number of shares, which would make this eight times as long, changes from one combination to the next, so that each
meets every group, head size and type; so do the tiles, pages and windows.
"""

from itertools import product
from typing import Any

import jax
import pytest

from tests.pallas_kernels.paged_attention import numpy_attention
from tests.pallas_kernels.paged_attention.attention_cases import Row, make_case
from tests.pallas_kernels.paged_attention.calls import attend, decode
from tests.pallas_kernels.paged_attention.combinations import (
    CALLS,
    CONFIGS,
    GROUPS,
    HEAD_DIMS,
    SHAPES,
    TYPES,
    config_of,
    covering,
    name_of,
    window_of,
)
from tests.pallas_kernels.paged_attention.comparison import TOLERANCES, relative_error
from tests.pallas_kernels.paged_attention.decode_cases import PADDING, assert_right, make_decode_case

pytestmark = pytest.mark.slow

HEADS = list(product(GROUPS, HEAD_DIMS))
VARIED = {name: SHAPES[name] for name in ("page_size", "window", "drop_pages")} | CONFIGS
NORMS = (True, False)


@pytest.fixture(autouse=True)
def programs_dropped():
    """The sweep compiles a thousand programs; kept all, they take more mappings of memory than a process may have."""
    yield
    jax.clear_caches()


def sweep(*axes: Any) -> dict[tuple[Any, ...], list[tuple[Any, ...]]]:
    """For each of ``HEADS`` the product of ``axes``, each with a variation."""
    chosen = list(product(HEADS, *axes))
    varied = iter(covering(VARIED, len(chosen)))
    found: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {heads: [] for heads in HEADS}
    for heads, *rest in chosen:
        found[heads].append((*rest, next(varied)))
    return found


BLOCK_SWEEP, DECODE_SWEEP = sweep(TYPES, CALLS["block_q"]), sweep(TYPES, NORMS)


def test_each_number_of_shares_meets_every_value():
    for swept in (BLOCK_SWEEP, DECODE_SWEEP):
        met = {
            (num_splits["num_splits"], value)
            for heads, combinations in swept.items()
            for *rest, num_splits in combinations
            for value in (("group", heads[0]), ("head_dim", heads[1]), *enumerate(rest))
        }
        values = [*(("group", x) for x in GROUPS), *(("head_dim", x) for x in HEAD_DIMS), *((0, x) for x in TYPES)]
        assert met >= set(product(CONFIGS["num_splits"], values))


@pytest.mark.parametrize(("group", "head_dim"), HEADS)
def test_blocks(group, head_dim):
    for types, block_q, varied in BLOCK_SWEEP[group, head_dim]:
        page = varied["page_size"]
        case = make_case(
            [
                Row(length=length, num_queries=min(length, block_q + block_q // 4))
                for length in (1, page - 1, page, page + 1, 0, 3 * page + 2, 150)
            ],
            page_size=page,
            window=window_of(varied["window"], page),
            group=group,
            head_dim=head_dim,
            block_q=block_q,
            dtype=types[0],
            kv_dtype=types[1],
            drop_pages=varied["drop_pages"],
        )
        expected = numpy_attention.paged_attention(**case.arrays, window=case.window, scale=case.scale)
        error = relative_error(attend(case, "pallas", config_of(varied)), expected)
        assert error < TOLERANCES[types[0]], (name_of(types), block_q, varied)


@pytest.mark.parametrize(("group", "head_dim"), HEADS)
def test_decode_rows(group, head_dim):
    for types, norms, varied in DECODE_SWEEP[group, head_dim]:
        page = varied["page_size"]
        case = make_decode_case(
            [0, page - 1, PADDING, page, page + 1, 3 * page + 2, 150],
            page_size=page,
            window=window_of(varied["window"], page),
            group=group,
            head_dim=head_dim,
            dtype=types[0],
            kv_dtype=types[1],
            norms=norms,
            drop_pages=varied["drop_pages"],
        )
        assert_right(case, decode(case, "pallas", config_of(varied)))
