"""Inputs for tests of ``decode_attention``, and what became of them against the definition."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.pallas_kernels.paged_attention import numpy_attention, numpy_decode
from tests.pallas_kernels.paged_attention.comparison import TOLERANCES, relative, relative_error
from tests.pallas_kernels.paged_attention.paged_rows import RowPages, dropped_pages, fill_pages

PADDING = -1


@dataclass(frozen=True, kw_only=True)
class DecodeCase:
    """The arrays of one call, and how they are to be attended.

    Attributes:
        arrays: the positional arguments of ``decode_attention`` and the fields of its cache by name, as NumPy;
            ``scales``, ``q_norm`` and ``k_norm`` may be None.
        norm_eps, window, scale: the other arguments.
    """

    arrays: dict[str, Any]
    norm_eps: float
    window: int | None
    scale: float

    def with_arrays(self, **arrays: Any) -> "DecodeCase":
        """The case with some arrays replaced."""
        return replace(self, arrays=self.arrays | arrays)

    @property
    def targets(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rows that are no padding, and for each the page and the offset of its newest token."""
        a = self.arrays
        row = np.flatnonzero(a["position"] >= 0)
        position = a["position"][row]
        page_size = a["pages"].shape[1]
        return row, a["page_table"][row, position // page_size - a["first_page"][row]], position % page_size


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a call returned, as NumPy."""

    attended: np.ndarray
    pages: np.ndarray
    scales: np.ndarray | None
    arrivals: np.ndarray


def make_decode_case(
    positions: Sequence[int],
    *,
    page_size: int = 4,
    window: int | None = None,
    num_kv_heads: int = 2,
    group: int = 2,
    head_dim: int = 16,
    dtype: Any = np.float32,
    kv_dtype: Any = None,
    norms: bool = True,
    drop_pages: bool = False,
    num_other_tokens: int = 2,
    num_spare_arrivals: int = 0,
    num_steps: int = 1,
    table_width: int = 0,
    poison: float = np.nan,
    seed: int = 0,
) -> DecodeCase:
    """A call over shuffled pages, for rows whose newest tokens stand at ``positions`` (``PADDING`` for none).

    Queries come out of the norm or, without one, of the projection with a deviation of 2, keys with 1, as in
    ``attention_cases``. Epsilon is far larger than a model's, so that it counts.

    Args:
        kv_dtype: of the pages; None means ``dtype``.
        norms: whether queries and keys have norms.
        drop_pages: whether pages that left the window of a row's newest token have left its table too.
        num_other_tokens: tokens after the decode rows.
        num_spare_arrivals: counters beyond those of the rows.
        num_steps: tokens from the newest one on for which each row has pages.
        table_width: at least; one more than any row needs, if that is more.
        poison: what lies in every slot that holds no token, that of the newest one included, and in all that belongs
            to padding or to other tokens.
    """
    rng = np.random.default_rng(seed)
    rows = [_row_pages(position, num_steps, page_size, window if drop_pages else None) for position in positions]
    cache = fill_pages(
        rng,
        rows,
        page_size=page_size,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        dtype=dtype if kv_dtype is None else kv_dtype,
        poison=poison,
        table_width=max(*(1 + row.num_pages for row in rows), table_width),
    )
    position = np.array(positions, np.int32)
    num_heads, num_tokens = num_kv_heads * group, len(positions) + num_other_tokens
    qkv = rng.standard_normal((num_tokens, num_heads + 2 * num_kv_heads, head_dim))
    qkv[:, :num_heads] *= 0.5 if norms else 2
    frequencies = 10000.0 ** (-2 * np.arange(head_dim // 2) / head_dim)
    angles = np.append(position, np.zeros(num_other_tokens))[:, None] * frequencies
    cos, sin = np.cos(angles), np.sin(angles)
    for array in (qkv, cos, sin):
        array[np.append(position < 0, np.ones(num_other_tokens, bool))] = poison
    q_norm, k_norm = ((gain + gain / 4 * rng.standard_normal(head_dim)).astype(dtype) for gain in (2, 1))
    arrays = {
        "qkv": qkv.astype(dtype),
        **cache,
        "arrivals": np.zeros((len(positions) + num_spare_arrivals, num_kv_heads), np.int32),
        "position": position,
        "cos": cos.astype(np.float32),
        "sin": sin.astype(np.float32),
        "q_norm": q_norm if norms else None,
        "k_norm": k_norm if norms else None,
    }
    return DecodeCase(arrays=arrays, norm_eps=0.05, window=window, scale=head_dim**-0.5)


def _row_pages(position: int, num_steps: int, page_size: int, window: int | None) -> RowPages:
    """The newest token has a page, and is not in it yet."""
    if position == PADDING:
        return RowPages(num_tokens=0, num_pages=0, first_page=0)
    first_page = dropped_pages(position, window, page_size)
    return RowPages(num_tokens=position, num_pages=-(-(position + num_steps) // page_size), first_page=first_page)


def assert_right(case: DecodeCase, outcome: Outcome) -> None:
    """What a right implementation does, and no more than that."""
    a = case.arrays
    assert outcome.attended.dtype == a["qkv"].dtype
    assert attended_error(case, outcome) < TOLERANCES[a["qkv"].dtype.type]
    assert written_error(case, outcome) < written_tolerance(case)
    assert_others_unchanged(case, outcome)
    assert (outcome.attended[a["position"] < 0] == 0).all()
    assert outcome.arrivals.shape == a["arrivals"].shape
    assert (outcome.arrivals == 0).all()


def attended_error(case: DecodeCase, outcome: Outcome) -> float:
    """Of the attended heads, relative to each."""
    return relative_error(outcome.attended, attended_by_definition(case, outcome))


def attended_by_definition(case: DecodeCase, outcome: Outcome) -> np.ndarray:
    """What the newest queries attend to in the cache as it is now.

    They see their own token as a later reader does, so what the cache's type costs is no error.
    """
    a, (q, _) = case.arrays, _newest_tokens(case)
    attended = numpy_attention.paged_attention(
        q[:, None],
        outcome.pages,
        outcome.scales,
        a["page_table"],
        a["first_page"],
        block_row=np.arange(len(q)),
        block_start=a["position"],
        block_len=(a["position"] >= 0).astype(int),
        window=case.window,
        scale=case.scale,
    )
    return attended[:, 0]


def written_error(case: DecodeCase, outcome: Outcome) -> float:
    """Of the newest K and V in the cache, relative to each head.

    By definition an int8 head has the scale max(abs(head)) / 127, and each of its numbers is nearest to the exact one:
    at most half a step away. The error is what the scale is off, and what a number is farther away than that.
    """
    row, page, offset = case.targets
    kv = _newest_tokens(case)[1][row]
    if outcome.scales is None:
        return relative_error(outcome.pages[page, offset], kv)
    steps, scale = outcome.pages[page, offset].astype(np.float64), outcome.scales[page, offset].astype(np.float64)
    exact = np.abs(kv).max(-1) / 127
    too_far = np.maximum(np.abs(steps * scale[..., None] - kv) - scale[..., None] / 2, 0)
    return max(relative(np.abs(scale - exact), exact), relative(too_far.max(-1), np.linalg.norm(kv, axis=-1)))


def written_tolerance(case: DecodeCase) -> float:
    """That of the coarser of the two types through which K and V go."""
    types = (case.arrays["qkv"].dtype.type, case.arrays["pages"].dtype.type)
    return max(TOLERANCES.get(dtype, 0) for dtype in types)


def assert_others_unchanged(case: DecodeCase, outcome: Outcome) -> None:
    """Every bit of the cache but the newest tokens' slots and the dummy page is as it was."""
    kept = np.ones(case.arrays["pages"].shape[:2], bool)
    kept[0] = False
    _, page, offset = case.targets
    kept[page, offset] = False
    assert outcome.pages[kept].tobytes() == case.arrays["pages"][kept].tobytes()
    if outcome.scales is not None:
        assert outcome.scales[kept].tobytes() == case.arrays["scales"][kept].tobytes()


def _newest_tokens(case: DecodeCase) -> tuple[np.ndarray, np.ndarray]:
    a = case.arrays
    names = ("qkv", "position", "cos", "sin", "q_norm", "k_norm")
    return numpy_decode.newest_tokens(
        *(a[name] for name in names), norm_eps=case.norm_eps, num_kv_heads=a["pages"].shape[3]
    )
