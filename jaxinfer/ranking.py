"""Log-probabilities on the device: of a token in each row, its rank, and the most likely tokens of the row.

Integers and floats come back in one int32 array, the floats as their bits: one transfer instead of four.

The most likely tokens are looked for in the blocks of the vocabulary that have the largest logits. 32 rows of 49,152
tokens on a CPU: 2.5 ms for the 20 largest of the whole row, 0.6 by blocks; and on a GPU, where XLA sorts, it sorts a
few hundred numbers instead of the vocabulary.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int32

from jaxinfer.logprobs import RankedLogprobs

_BLOCK = 64
"""Neighbouring tokens; both sorts of a GPU are short with it: of V / 64 largest logits, and of 20 x 64 logits."""


def rank(logits: Float[Array, "B V"], token_ids: Int32[Array, "B"], *, num_top: int) -> Int32[Array, "B words"]:
    """What ``read_ranked`` reads, in 2 + 2 * ``num_top`` words a row.

    Args:
        logits: float32, as the model gave them.
        token_ids: of each row the token to tell about.
        num_top: most likely tokens to tell about too, the lower id first among equals; at most V.
    """
    own = jnp.take_along_axis(logits, token_ids[:, None], axis=1)
    largest = logits.max(axis=1, keepdims=True)
    log_total = jnp.log(jnp.exp(logits - largest).sum(axis=1, keepdims=True))

    def logprobs(logits: Float[Array, "B K"]) -> Float[Array, "B K"]:
        return (logits - largest) - log_total  # the sum of both would round off what is small beside the largest

    # Of log-probabilities and not of logits, which may differ where these round to the same: who sees only these would
    # count otherwise.
    ranks = 1 + (logprobs(logits) > logprobs(own)).sum(axis=1, keepdims=True, dtype=jnp.int32)
    top, top_ids = _largest(logits, num_top)
    return jnp.concatenate([_bits(logprobs(own)), ranks, top_ids, _bits(logprobs(top))], axis=1)


def read_ranked(words: Int32[np.ndarray, "B words"]) -> RankedLogprobs:
    """The numbers that ``rank`` packed."""
    num_top = words.shape[1] // 2 - 1
    floats = words.view(np.float32)
    return RankedLogprobs(floats[:, 0], words[:, 1], words[:, 2 : 2 + num_top], floats[:, 2 + num_top :])


def _largest(logits: Float[Array, "B V"], num_top: int) -> tuple[Float[Array, "B K"], Int32[Array, "B K"]]:
    """The K largest of each row and where they are, the lower id first among equals; K is at most V.

    A token of another block than the K with the largest maxima, the first among equals, is not one of them: in each of
    those is a token that comes before it.
    """
    num_blocks = -(-logits.shape[1] // _BLOCK)
    filled = ((0, 0), (0, num_blocks * _BLOCK - logits.shape[1]))
    blocks = jnp.pad(logits, filled, constant_values=-jnp.inf).reshape(-1, num_blocks, _BLOCK)
    _, chosen = jax.lax.top_k(blocks.max(axis=2), min(num_top, num_blocks))
    chosen = jnp.sort(chosen, axis=1)  # so that what comes first has the lower id
    found = jnp.take_along_axis(blocks, chosen[:, :, None], axis=1).reshape(logits.shape[0], -1)
    top, places = jax.lax.top_k(found, num_top)
    return top, jnp.take_along_axis(chosen, places // _BLOCK, axis=1) * _BLOCK + places % _BLOCK


def _bits(x: Float[Array, "B K"]) -> Int32[Array, "B K"]:
    return jax.lax.bitcast_convert_type(x, jnp.int32)
