"""Small cases of attention whose answers are computed on the host, and how far a GPU kernel is from them.

The answers come from the definition, in NumPy and float64, over keys and values that lie in a row: nothing of the
device and nothing of the paged cache can be wrong in them. The inputs are made on the host as well. One thing is taken
from the device: the newest token of a decode row is attended to as the kernel left it in the cache, which is compared
with the definition by itself, for near the half of a step of int8 either of two numbers is right.

The tests of the kernels have an oracle of their own, of which this is no part: it is what an installed engine brings.
"""

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxinfer.config import ModelConfig
from jaxinfer.kernel_case_pages import HostCache, Table, as_held, number_error, quantized
from pallas_kernels.paged_attention import decode_attention, paged_attention

_LENGTHS = (333, 257, 1)
"""Tokens of the sequences: one whose keys are enough for several shares, one whose newest token is the first of a page
(of 1 to 256 slots), and one that has no other token."""

_LONGEST_WINDOW = 100
"""A longer window is cut to this one, so that it is shorter than the sequences."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a kernel is compiled for.

    Attributes:
        num_heads, num_kv_heads, head_dim, page_size: H, K, D, S.
        window: keys that a token attends to, or None for all.
        dtype: of the queries, float32 or bfloat16.
        kv_dtype: of the cache, the same or int8.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    page_size: int
    window: int | None
    dtype: np.dtype
    kv_dtype: np.dtype

    @classmethod
    def of(
        cls, model: ModelConfig, *, page_size: int, window: int | None, dtype: np.dtype, kv_dtype: np.dtype
    ) -> "Shape":
        """The model's, but for a long window."""
        return cls(
            num_heads=model.num_heads,
            num_kv_heads=model.num_kv_heads,
            head_dim=model.head_dim,
            page_size=page_size,
            window=None if window is None else min(window, _LONGEST_WINDOW),
            dtype=dtype,
            kv_dtype=kv_dtype,
        )

    @property
    def scale(self) -> float:
        """Factor of the scores."""
        return 1 / math.sqrt(self.head_dim)

    def oldest(self, position: int) -> int:
        """The first position that the token at ``position`` attends to."""
        return 0 if self.window is None else max(0, position + 1 - self.window)


def decode_error(shape: Shape, num_rows: int) -> float:
    """How far decode rows, and what they put into the cache, are from the definition.

    Args:
        shape: of the kernel.
        num_rows: B; rows beyond the sequences are padding.

    Returns:
        As ``relative_error``, and of int8 numbers as ``number_error``; infinite also where anything else in the cache
        changed, or the kernel's counters are left in disorder.
    """
    rng, num_kv_heads = np.random.default_rng(0), shape.num_kv_heads
    qkv = _normal(rng, (num_rows, shape.num_heads + 2 * num_kv_heads, shape.head_dim), shape.dtype)
    angles = rng.uniform(0, 2 * np.pi, (num_rows, shape.head_dim // 2)).astype(np.float32)
    q, k, v = np.split(qkv, [shape.num_heads, shape.num_heads + num_kv_heads], axis=1)
    q, k = _rotated(q, angles), as_held(_rotated(k, angles), shape.dtype)
    sequences = _sequences(rng, shape, num_rows)
    for sequence in sequences:
        sequence[-1] = np.nan  # the newest token, which is not in the cache
    last = np.array([len(sequence) - 1 for sequence in sequences], np.int32)
    table = Table.of(sequences, [shape.oldest(p) for p in last], num_rows, shape.page_size)
    before = table.cache(sequences, shape.kv_dtype)

    decode = partial(decode_attention, window=shape.window, scale=shape.scale, implementation="pallas")
    attended, cache, arrivals = jax.jit(decode, donate_argnames=("cache", "arrivals"))(
        qkv.astype(shape.dtype),
        cache=before.on_device(),
        arrivals=jnp.zeros((num_rows, shape.num_kv_heads), jnp.int32),  # as the engine makes them
        page_table=table.pages,
        first_page=table.first_page,
        position=np.pad(last, (0, num_rows - len(last)), constant_values=-1),
        cos=np.cos(angles),
        sin=np.sin(angles),
    )
    after, newest = HostCache.of(cache), table.slots(np.arange(len(last)), last)
    if np.asarray(arrivals).any() or not after.is_equal_but_at(newest, before):
        return math.inf
    expected = np.zeros((num_rows, shape.num_heads, shape.head_dim))
    for i, (sequence, held) in enumerate(zip(sequences, after.at(newest).values, strict=True)):
        seen = [*as_held(sequence[shape.oldest(last[i]) : -1], shape.kv_dtype), held]
        expected[i] = _attended(q[i], np.array(seen), shape.scale)
    written = _written_error(after.at(newest), np.stack([k, v], axis=1)[: len(last)])
    return max(relative_error(attended, expected), written)


def chunk_error(shape: Shape, num_tokens: int, block_q: int) -> float:
    """How far the tokens of a chunk, put behind a decode row as a step does, are from the definition.

    Args:
        shape: of the kernel.
        num_tokens: C, a multiple of ``block_q``; blocks beyond the sequences are padding.
        block_q: tokens of a block of queries.

    Returns:
        As ``relative_error``; the decode row counts too.
    """
    rng, num_blocks, heads = np.random.default_rng(1), num_tokens // block_q, (shape.num_heads, shape.head_dim)
    sequences = _sequences(rng, shape, num_blocks)
    row, start, length = np.zeros((3, num_blocks), np.int32)
    for i, sequence in enumerate(sequences):  # each sequence's last tokens
        row[i], start[i], length[i] = i, max(0, len(sequence) - block_q), min(block_q, len(sequence))
    q, decoded = (_normal(rng, (*tokens, *heads), shape.dtype) for tokens in ((num_blocks, block_q), (1,)))
    table = Table.of(sequences, [shape.oldest(p) for p in start], len(sequences), shape.page_size)

    attend = partial(paged_attention, window=shape.window, scale=shape.scale, implementation="pallas")
    attended = jax.jit(attend, donate_argnames="into")(
        q.astype(shape.dtype),
        cache=table.cache(sequences, shape.kv_dtype).on_device(),
        page_table=table.pages,
        first_page=table.first_page,
        block_row=row,
        block_start=start,
        block_len=length,
        into=np.concatenate([decoded, np.full((num_tokens, *heads), np.nan)]).astype(shape.dtype),
    )
    expected = np.zeros(q.shape)
    for i, sequence in enumerate(sequences):
        held = as_held(sequence, shape.kv_dtype)
        for j in range(length[i]):
            seen = slice(shape.oldest(start[i] + j), start[i] + j + 1)
            expected[i, j] = _attended(q[i, j], held[seen], shape.scale)
    return relative_error(attended, np.concatenate([decoded, expected.reshape(num_tokens, *heads)]))


def relative_error(result: jax.Array | np.ndarray, expected: Float[np.ndarray, "*heads D"]) -> float:
    """The largest distance of a head from what it should be, over its norm; infinite for NaN and beside zeros.

    A head whose norm is below a quarter of the mean is compared with that: of a few numbers it may come near zero.
    Where NaN is expected, nothing but NaN is right.
    """
    values = np.asarray(result).astype(np.float64)
    difference = np.where(np.isnan(values) & np.isnan(expected), 0, values - expected)
    distance, norm = (np.linalg.norm(x, axis=-1) for x in (difference, np.nan_to_num(expected)))
    least = norm[norm > 0].mean() / 4 if norm.any() else 0
    norm = np.where(norm > 0, np.maximum(norm, least), 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(distance == 0, 0, distance / norm)
    return float(np.nan_to_num(error, nan=np.inf, posinf=np.inf).max(initial=0))


def _written_error(tokens: HostCache, kv: Float[np.ndarray, "R 2 K D"]) -> float:
    """How far what was written of some tokens is from their keys and values."""
    if tokens.scales is None:
        return relative_error(tokens.pages, kv)
    scales = quantized(kv)[1]
    return max(number_error(tokens.pages, kv), relative_error(tokens.scales[..., None], scales[..., None]))


def _sequences(rng: np.random.Generator, shape: Shape, most: int) -> list[Float[np.ndarray, "n 2 K D"]]:
    """K and V of each token of the first ``most`` sequences."""
    heads = (2, shape.num_kv_heads, shape.head_dim)
    return [_normal(rng, (length, *heads), shape.dtype) for length in _LENGTHS[:most]]


def _normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Normal numbers that ``dtype`` has, in float64."""
    return rng.standard_normal(shape).astype(dtype).astype(np.float64)


def _rotated(x: Float[np.ndarray, "T heads D"], angles: Float[np.ndarray, "T half_D"]) -> np.ndarray:
    """Each pair (i, i + D / 2) turned by its token's angle."""
    first, second = np.split(x, 2, axis=-1)
    turned = (first + 1j * second) * np.exp(1j * angles.astype(np.float64))[:, None]
    return np.concatenate([turned.real, turned.imag], axis=-1)


def _attended(q: Float[np.ndarray, "H D"], kv: Float[np.ndarray, "n 2 K D"], scale: float) -> Float[np.ndarray, "H D"]:
    """One query's attention to all of the given keys."""
    k, v = kv.transpose(1, 2, 0, 3)  # [K, n, D]
    scores = q.reshape(len(k), -1, q.shape[-1]) @ k.swapaxes(1, 2) * scale
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True) @ v).reshape(q.shape)
