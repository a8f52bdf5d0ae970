"""INT4 products for the Triton kernel: random numbers, and the definition in NumPy."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np

BFLOAT16 = ml_dtypes.bfloat16
EPS = 1e-5


@dataclass(frozen=True, kw_only=True)
class Product:
    """T rows, N outputs, K inputs, groups of ``group_size`` (0: the whole row), and what stands around the product."""

    num_rows: int
    num_outputs: int
    num_inputs: int
    group_size: int = 64
    norm: bool = False
    bias: bool = False
    residual: bool = False
    swiglu: bool = False

    @property
    def padded(self):
        """K up to a whole piece of 128."""
        return -(-self.num_inputs // 128) * 128

    @property
    def num_columns(self):
        """M."""
        return self.num_outputs // 2 if self.swiglu else self.num_outputs


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """What goes into a product; q [N, padded K] is not packed."""

    q: np.ndarray
    scales: np.ndarray
    offsets: np.ndarray
    x: np.ndarray
    norm: np.ndarray | None
    bias: np.ndarray | None
    residual: np.ndarray | None


def draw(product, seed=0):
    """Numbers of mean zero; the columns of q that do not count hold whatever came."""
    rng = np.random.default_rng(seed)
    n, k = product.num_outputs, product.num_inputs
    columns = product.num_columns
    groups = product.padded // (product.group_size or product.padded)
    return Numbers(
        q=rng.integers(0, 16, (n, product.padded), dtype=np.uint8),
        scales=rng.uniform(0.01, 0.03, (n, groups)).astype(np.float16),
        offsets=rng.uniform(-0.3, 0.1, (n, groups)).astype(np.float16),
        x=rng.normal(size=(product.num_rows, k)).astype(BFLOAT16),
        norm=rng.uniform(0.5, 1.5, k).astype(BFLOAT16) if product.norm else None,
        bias=rng.normal(size=n).astype(np.float32) if product.bias else None,
        residual=rng.normal(size=(product.num_rows, columns)).astype(BFLOAT16) if product.residual else None,
    )


def packed(q):
    """Byte j of a piece: number j in the low four bits, number 64 + j in the high ones."""
    pieces = q.reshape(len(q), -1, 2, 64)
    return np.ascontiguousarray(pieces[:, :, 0] | pieces[:, :, 1] << 4).reshape(len(q), -1)


def defined(product, numbers):
    """The result in float64, by the definition."""
    size = numbers.q.shape[1] // numbers.scales.shape[1]
    scales, offsets = (np.repeat(each.astype(np.float64), size, axis=1) for each in (numbers.scales, numbers.offsets))
    matrix = (numbers.q * scales + offsets)[:, : product.num_inputs]
    x = numbers.x.astype(np.float64)
    if numbers.norm is not None:
        x = x / np.sqrt(np.mean(x**2, axis=1, keepdims=True) + EPS) * numbers.norm.astype(np.float64)
    y = x @ matrix.T
    if numbers.bias is not None:
        y = y + numbers.bias
    if product.swiglu:
        gate, up = np.split(y, 2, axis=1)
        y = gate / (1 + np.exp(-gate)) * up
    return y if numbers.residual is None else y + numbers.residual.astype(np.float64)


def relative_error(out, expected):
    """The largest distance of a row from what it should be, relative to its norm; NaN counts as infinite."""
    distance = np.linalg.norm(np.asarray(out, np.float64) - expected, axis=1) / np.linalg.norm(expected, axis=1)
    return float(np.nan_to_num(distance, nan=np.inf).max())
