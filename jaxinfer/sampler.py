"""From logits to the next token: masks, then temperature, top-k, top-p, min-p and one draw.

Everything is per row, so any mix of requests shares one program, and a row's token depends on its own logits,
parameters, seed and position only. The vocabulary is never sorted: where a row is cut is found bit by bit, over the
bits of float32 logits as integers in the same order, so a fixed number of rounds finds the exact place. A round counts
tokens, or their mass in whole numbers: whole numbers add up to the same in any order, whatever program does it (and on
a CPU their sums are vectorized, where sums of floats are not). 64 rows of 49,152 tokens on a CPU: 298 ms to sort them,
60 to find both cuts.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, UInt32

from jaxinfer.step_inputs import SamplingInputs

_ORDER_BITS = 32
_BITS_PER_ROUND = 2
"""Two bits are three trials that share one pass over the logits; more trials cost more than the passes they save."""

_ZERO = np.uint32(2**31)
"""Where 0 lies among the ordered bits: in the middle."""

_MASK_BITS = 32


def greedy(logits: Float[Array, "B V"]) -> Int32[Array, "B"]:
    """The most likely token of each row; the lowest id among equals.

    Two simple reductions, each of which XLA vectorizes; the one of ``jnp.argmax`` it does not on a CPU, nor what it
    fuses into it (with the noise of a draw the difference is threefold).
    """
    token_ids = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 1)
    is_largest = logits == logits.max(axis=-1, keepdims=True)
    return jnp.where(is_largest, token_ids, logits.shape[1] - 1).min(axis=-1)


def sample(logits: Float[Array, "B V"], params: SamplingInputs, *, truncate: bool) -> Int32[Array, "B"]:
    """One token for each row, drawn as its parameters say; greedy where its temperature is 0.

    Args:
        logits: float32; -inf forbids a token.
        params: one entry per row. top-k keeps ties of the k-th token, top-p those of the last that it needs.
        truncate: whether top_k and top_p are applied. They cost about half of the time, so a step in which no row
            asks for them runs a program without.
    """
    # Gumbel-max: argmax(logits + Gumbel noise) is a draw from softmax(logits), and needs no normalisation.
    noisy = _scaled(logits, params) + _gumbel(params, logits.shape[-1])
    drawable = jnp.where(candidates(logits, params, truncate=truncate), noisy, -jnp.inf)
    return greedy(jnp.where(params.temperature[:, None] > 0, drawable, logits))


def candidates(logits: Float[Array, "B V"], params: SamplingInputs, *, truncate: bool) -> Bool[Array, "B V"]:
    """The tokens that top-k, top-p and min-p leave to each row; the arguments are those of ``sample``."""
    scaled = _scaled(logits, params)
    kept = scaled >= jnp.log(params.min_p)[:, None]  # p >= min_p * p_max, in logits; log(0) = -inf keeps all
    if truncate:
        order = _ordered_bits(logits)
        kept &= order >= _top_p(order, scaled, _top_k(order, params.top_k), params.top_p)[:, None]
    return kept


def forbid(logits: Float[Array, "B V"], forbidden: UInt32[Array, "B words"]) -> Float[Array, "B V"]:
    """The logits with -inf for every token whose bit is set (as in ``TokenBits``)."""
    bits = (forbidden[:, :, None] >> jnp.arange(_MASK_BITS, dtype=jnp.uint32)) & 1
    mask = bits.reshape(logits.shape[0], -1)[:, : logits.shape[1]]
    return jnp.where(mask > 0, -jnp.inf, logits)


def _scaled(logits: Float[Array, "B V"], params: SamplingInputs) -> Float[Array, "B V"]:
    """(logits - largest) / temperature. Logits of 1e30 divided by 1e-5 would overflow, and would drown the noise."""
    temperature = params.temperature[:, None]
    return (logits - logits.max(axis=-1, keepdims=True)) / jnp.where(temperature > 0, temperature, 1)


def _top_k(order: UInt32[Array, "B V"], top_k: Int32[Array, "B"]) -> UInt32[Array, "B"]:
    """The k-th largest of each row; 0, which is below all, where k is 0 or above V."""
    count = jnp.ones_like(order)
    threshold = _largest(order, [count], lambda num_tokens: num_tokens >= top_k.astype(jnp.uint32))
    return jnp.where((top_k <= 0) | (top_k > order.shape[1]), 0, threshold)


def _top_p(
    order: UInt32[Array, "B V"], scaled: Float[Array, "B V"], at_least: UInt32[Array, "B"], top_p: Float[Array, "B"]
) -> UInt32[Array, "B"]:
    """The least likely token that top-p keeps in each row, as its place in the order; ``at_least`` where top_p is 1.

    Of four tokens with the probabilities 0.5, 0.3, 0.15 and 0.05, top_p = 0.7 keeps two: the first alone has 0.5, both
    have 0.8. So the answer is the order of the second. Had top-k left the first two only (``at_least`` is the order of
    the second), they would have 0.625 and 0.375: two are kept for top_p = 0.7 and one for 0.6.

    The mass of a token is a whole number in proportion to its probability, 2^(2 * half_bits) for the most likely one.
    Sums of it over V tokens do not fit in 32 bits; those of its halves do, where ``mass = high * 2^half_bits + low``.
    What is lost of a token is less than what float32 loses in adding it to a sum.
    """
    half_bits = min(15, 32 - order.shape[1].bit_length())
    weights = jnp.where(order >= at_least[:, None], jnp.exp(scaled), 0.0)
    mass = (weights * 2.0 ** (2 * half_bits)).astype(jnp.uint32)
    high, low = mass >> half_bits, mass & (2**half_bits - 1)

    def total(high_sum: UInt32[Array, "B"], low_sum: UInt32[Array, "B"]) -> Float[Array, "B"]:
        return high_sum.astype(jnp.float32) * 2.0**half_bits + low_sum.astype(jnp.float32)

    # At least 1, so that the most likely token stays even where top_p is too small for float32.
    wanted = jnp.maximum(top_p * total(*_sums([high, low])), 1)
    threshold = _largest(order, [high, low], lambda high_sum, low_sum: total(high_sum, low_sum) >= wanted)
    return jnp.where(top_p < 1, threshold, at_least)  # with top_p = 1 tokens of no mass stay


def _ordered_bits(x: Float[Array, "B V"]) -> UInt32[Array, "B V"]:
    """float32 as unsigned integers in the same order, both zeros as one: the magnitude's bits up or down from 2^31."""
    magnitude = jax.lax.bitcast_convert_type(jnp.abs(x), jnp.uint32)
    return jnp.where(x < 0, _ZERO - magnitude, _ZERO + magnitude)


def _largest(
    order: UInt32[Array, "B V"],
    amounts: Sequence[UInt32[Array, "B V"]],
    enough: Callable[..., Bool[Array, "B"]],
) -> UInt32[Array, "B"]:
    """For each row the largest t such that the amounts of the tokens at or above t are enough.

    Four tokens stand in the order at 12, 9, 9 and 3. Each counts 1 and three are enough: at or above 10 there is one
    token, at or above 9 there are three, so t is 9. In bits, 1001: with 1xxx there are three tokens left (keep the 1),
    with 11xx one (too few, so 0), with 101x one (0), with 1001 three (1).

    ``enough`` takes one sum for each of ``amounts``, and what is enough stays enough when they grow. The bits of t are
    fixed from the highest down, two in a round. Unrolled: a ``while`` would leave the GPU's command buffer.
    """
    found = jnp.zeros(order.shape[0], jnp.uint32)
    for shift in reversed(range(0, _ORDER_BITS, _BITS_PER_ROUND)):
        trials = [found | jnp.uint32(digit << shift) for digit in range(1, 2**_BITS_PER_ROUND)]
        sums = _sums([jnp.where(order >= trial[:, None], amount, 0) for trial in trials for amount in amounts])
        digit = sum(enough(*sums[i : i + len(amounts)]).astype(jnp.uint32) for i in range(0, len(sums), len(amounts)))
        found |= digit << shift
    return found


def _sums(amounts: Sequence[UInt32[Array, "B V"]]) -> Sequence[UInt32[Array, "B"]]:
    """The sum of each over its row, all in one pass: XLA makes one reduction of this, and several of several sums."""
    zeros = (jnp.uint32(0),) * len(amounts)
    return jax.lax.reduce(tuple(amounts), zeros, lambda a, b: tuple(map(jnp.add, a, b)), (1,))


def _gumbel(params: SamplingInputs, vocab_size: int) -> Float[Array, "B V"]:
    """Noise from a counter-based key: a function of the row's seed and position and of nothing else."""

    def row(seed: Array, position: Array) -> Array:
        key = jax.random.fold_in(jax.random.wrap_key_data(seed, impl="threefry2x32"), position)
        return jax.random.gumbel(key, (vocab_size,), jnp.float32)

    return jax.vmap(row)(params.seed, params.position)
