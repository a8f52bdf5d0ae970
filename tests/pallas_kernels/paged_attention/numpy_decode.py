"""The newest tokens of decode rows from their projections, by the definition, in NumPy and float64.

What is attended to afterwards is the business of ``numpy_attention``; what a cache makes of K and V that of
``decode_cases.Outcome``.
"""

import numpy as np


def newest_tokens(
    qkv: np.ndarray,
    position: np.ndarray,
    cos: np.ndarray,
    sin: np.ndarray,
    q_norm: np.ndarray | None,
    k_norm: np.ndarray | None,
    *,
    norm_eps: float,
    num_kv_heads: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Queries [B, H, D], and K and V [B, 2, K, D] before they are rounded to the cache; zeros for padding.

    Arguments as of ``pallas_kernels.decode_attention``.
    """
    num_heads = qkv.shape[1] - 2 * num_kv_heads
    q = np.zeros((len(position), num_heads, qkv.shape[2]))
    kv = np.zeros((len(position), 2, num_kv_heads, qkv.shape[2]))
    for row in np.flatnonzero(position >= 0):
        turn = cos[row].astype(np.float64) + 1j * sin[row].astype(np.float64)
        for i, head in enumerate(qkv[row].astype(np.float64)):
            if i < num_heads:
                q[row, i] = _turn(_norm(head, q_norm, norm_eps), turn)
            elif i < num_heads + num_kv_heads:
                kv[row, 0, i - num_heads] = _turn(_norm(head, k_norm, norm_eps), turn)
            else:
                kv[row, 1, i - num_heads - num_kv_heads] = head
    return q, kv


def _norm(head: np.ndarray, weight: np.ndarray | None, eps: float) -> np.ndarray:
    return head if weight is None else head / np.sqrt(np.mean(head**2) + eps) * weight.astype(np.float64)


def _turn(head: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """Each pair (i, i + D / 2) as a complex number, times the number of modulus 1 that turns it."""
    half = len(head) // 2
    turned = (head[:half] + 1j * head[half:]) * turn
    return np.concatenate([turned.real, turned.imag])
