"""The shares into which the GPU kernel cuts the keys of a tile: in whatever order they come, and however many do.

Interpreted, programs run one after another, so no test here can see two of them at once; but the order can be another,
and the share that puts all together is the one that comes last. Whatever no share wrote is NaN.
"""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from pallas_kernels.paged_attention import Config, decode_attention, paged_attention
from pallas_kernels.paged_attention.pallas_gpu import tile
from tests.pallas_kernels.paged_attention import numpy_attention
from tests.pallas_kernels.paged_attention.attention_cases import Row, make_case
from tests.pallas_kernels.paged_attention.calls import arguments_of, decode, outcome_of
from tests.pallas_kernels.paged_attention.comparison import relative_error
from tests.pallas_kernels.paged_attention.decode_cases import PADDING, assert_right, make_decode_case

LENGTHS = [1, 15, 16, 17, 33, 47, 49, 64, 65, 81, 96, 200]
"""Of 16 keys a tile: no share, one, two, up to all four; shares of one tile and of several, the last one short."""

ORDERS = {"backwards": lambda split: 3 - split, "the first in the middle": lambda split: (split + 2) % 4}
CONFIG = Config(block_rows=16, block_keys=16, num_splits=4)


@pytest.fixture(params=ORDERS)
def order(request, monkeypatch):
    """Programs of one tile come in this order."""

    def program_id(axis):
        index = jax.experimental.pallas.program_id(axis)
        return ORDERS[request.param](index) if axis == 2 else index

    monkeypatch.setattr(tile, "pl", SimpleNamespace(program_id=program_id, cdiv=tile.pl.cdiv))


def num_shares(num_keys: int) -> int:
    """Even shares of whole tiles of 16 keys, at most four; always one, which has the newest token."""
    num_tiles = -(-num_keys // 16)
    size = max(1, -(-num_tiles // 4))
    return max(1, -(-num_tiles // size))


def test_only_the_share_that_completes_the_count_merges():
    """With the count one too low nobody does: all shares have come, and no result is written."""
    case = make_decode_case([PADDING, *LENGTHS, 0], num_spare_arrivals=1)
    case = case.with_arrays(arrivals=case.arrays["arrivals"] - 1)
    outcome = decode(case, "pallas", CONFIG)
    assert np.isnan(outcome.attended).all()
    counted = [num_shares(num_keys) - 1 for num_keys in (0, *LENGTHS, 0)]
    assert outcome.arrivals.T.tolist() == [[*counted, -1]] * 2


@pytest.mark.usefixtures("order")
def test_attention_in_another_order():
    case = make_case([Row(length=length) for length in LENGTHS])
    chosen = {"window": None, "scale": case.scale, "implementation": "pallas", "config": CONFIG}
    out = np.asarray(jax.jit(lambda a: paged_attention(**a, **chosen))(arguments_of(case.arrays)))
    expected = numpy_attention.paged_attention(**case.arrays, window=None, scale=case.scale)
    assert relative_error(out.reshape(expected.shape), expected) < 2e-5


@pytest.mark.usefixtures("order")
def test_decode_in_another_order():
    case = make_decode_case([PADDING, *LENGTHS, 0], num_spare_arrivals=1)
    chosen = {"window": None, "scale": case.scale, "implementation": "pallas", "config": CONFIG}
    step = jax.jit(lambda a: decode_attention(**a, **chosen, norm_eps=case.norm_eps))
    assert_right(case, outcome_of(case, *step(arguments_of(case.arrays))))
