"""From logits to the next token: masks, then temperature, top-k, top-p, min-p and one draw.

Everything is per row, so any mix of requests shares one program, and a row's token depends on its own logits,
parameters, seed and position only. The vocabulary is never sorted: a threshold is found by bisection over the bit
patterns of float32, whose order as integers is the order of the numbers, so a fixed number of rounds finds it exactly
(64 rows of 49,152 on a CPU: 298 ms to sort, 14 for a bisection).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, UInt32

from jaxinfer.step_inputs import SamplingInputs

_FLOAT_BITS = 32
_MASK_BITS = 32


def greedy(logits: Float[Array, "B V"]) -> Int32[Array, "B"]:
    """The most likely token of each row; the lowest id among equals."""
    return jnp.argmax(logits, axis=-1).astype(jnp.int32)


def sample(logits: Float[Array, "B V"], params: SamplingInputs, *, truncate: bool) -> Int32[Array, "B"]:
    """One token for each row, drawn as its parameters say; greedy where its temperature is 0.

    Args:
        logits: float32; -inf forbids a token.
        params: one entry per row. top-k keeps ties of the k-th token, top-p those of the last that it needs.
        truncate: whether top_k and top_p are applied. They cost most of the time, so a step in which no row asks for
            them runs a program without.
    """
    temperature = params.temperature[:, None]
    scaled = logits / jnp.where(temperature > 0, temperature, 1)
    # p >= min_p * p_max, in logits; log(0) = -inf keeps all.
    kept = scaled >= scaled.max(axis=-1, keepdims=True) + jnp.log(params.min_p)[:, None]
    if truncate:
        likely = _top_k(scaled, params.top_k)
        kept &= likely & _top_p(scaled, likely, params.top_p)
    # Gumbel-max: argmax(logits + Gumbel noise) is a draw from softmax(logits), and needs no normalisation.
    noisy = jnp.where(kept, scaled + _gumbel(params, logits.shape[-1]), -jnp.inf)
    return jnp.where(params.temperature > 0, greedy(noisy), greedy(logits))


def forbid(logits: Float[Array, "B V"], forbidden: UInt32[Array, "B words"]) -> Float[Array, "B V"]:
    """The logits with -inf for every token whose bit is set (``pack_token_mask`` packs them)."""
    bits = (forbidden[:, :, None] >> jnp.arange(_MASK_BITS, dtype=jnp.uint32)) & 1
    mask = bits.reshape(logits.shape[0], -1)[:, : logits.shape[1]]
    return jnp.where(mask > 0, -jnp.inf, logits)


def mask_words(vocab_size: int) -> int:
    """32-bit words that one row of a token mask takes."""
    return -(-vocab_size // _MASK_BITS)


def pack_token_mask(token_ids: frozenset[int], vocab_size: int) -> UInt32[np.ndarray, "words"]:
    """One row of a mask on the host: bit ``t % 32`` of word ``t // 32`` is set for each token t."""
    words = np.zeros(mask_words(vocab_size), np.uint32)
    for token_id in token_ids:
        words[token_id // _MASK_BITS] |= np.uint32(1 << (token_id % _MASK_BITS))
    return words


def _top_k(scaled: Float[Array, "B V"], top_k: Int32[Array, "B"]) -> Bool[Array, "B V"]:
    """Tokens at or above the k-th largest logit; all where k is 0 or not below V."""
    order = _ordered_bits(scaled)
    wanted = jnp.where((top_k <= 0) | (top_k > scaled.shape[1]), scaled.shape[1], top_k)
    threshold = _largest(lambda t: (order >= t[:, None]).sum(axis=-1) >= wanted, scaled.shape[0])
    return order >= threshold[:, None]


def _top_p(scaled: Float[Array, "B V"], kept: Bool[Array, "B V"], top_p: Float[Array, "B"]) -> Bool[Array, "B V"]:
    """The most likely of the kept tokens whose probabilities, among the kept ones, first reach top_p."""
    weights = jnp.where(kept, jnp.exp(scaled - scaled.max(axis=-1, keepdims=True)), 0.0)
    wanted = top_p * weights.sum(axis=-1)
    order = _ordered_bits(weights)
    enough = _largest(lambda t: jnp.where(order >= t[:, None], weights, 0.0).sum(axis=-1) >= wanted, scaled.shape[0])
    # With top_p = 1 rounding of the sums must not cost the rarest tokens.
    return (order >= enough[:, None]) | (top_p >= 1)[:, None]


def _ordered_bits(x: Float[Array, "B V"]) -> UInt32[Array, "B V"]:
    """float32 as unsigned integers of the same order: a negative number's bits all flipped, else the sign alone."""
    bits = jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32)
    return bits ^ jnp.where(bits >> 31 > 0, jnp.uint32(0xFFFFFFFF), jnp.uint32(0x80000000))


def _largest(holds: Callable[[UInt32[Array, "B"]], Bool[Array, "B"]], num_rows: int) -> UInt32[Array, "B"]:
    """For each row the largest 32-bit t for which ``holds``, given that it holds for 0 and for all below that t.

    The bits are tried from the highest down. Unrolled: a ``while`` would leave the GPU's command buffer.
    """
    found = jnp.zeros(num_rows, jnp.uint32)
    for bit in reversed(range(_FLOAT_BITS)):
        trial = found | jnp.uint32(1 << bit)
        found = jnp.where(holds(trial), trial, found)
    return found


def _gumbel(params: SamplingInputs, vocab_size: int) -> Float[Array, "B V"]:
    """Noise from a counter-based key: a function of the row's seed and position and of nothing else."""

    def row(seed: Array, position: Array) -> Array:
        key = jax.random.fold_in(jax.random.wrap_key_data(seed, impl="threefry2x32"), position)
        return jax.random.gumbel(key, (vocab_size,), jnp.float32)

    return jax.vmap(row)(params.seed, params.position)
