"""Log-probabilities on the device: of a token in each row, its rank, and the most likely tokens of the row.

Integers and floats come back in one int32 array, the floats as their bits: one transfer instead of four.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int32

from jaxinfer.logprobs import RankedLogprobs


def rank(logits: Float[Array, "B V"], token_ids: Int32[Array, "B"], *, num_top: int) -> Int32[Array, "B words"]:
    """What ``read_ranked`` reads, in 2 + 2 * ``num_top`` words a row.

    Args:
        logits: float32, as the model gave them.
        token_ids: of each row the token to tell about.
        num_top: most likely tokens to tell about too, the lower id first among equals; at most V.
    """
    own = jnp.take_along_axis(logits, token_ids[:, None], axis=1)
    largest = logits.max(axis=1, keepdims=True)
    total = largest + jnp.log(jnp.exp(logits - largest).sum(axis=1, keepdims=True))
    ranks = 1 + (logits > own).sum(axis=1, keepdims=True, dtype=jnp.int32)
    words = [_bits(own - total), ranks]
    if num_top:
        top, top_ids = jax.lax.top_k(logits, num_top)
        words += [top_ids, _bits(top - total)]
    return jnp.concatenate(words, axis=1)


def read_ranked(words: Int32[np.ndarray, "B words"]) -> RankedLogprobs:
    """The numbers that ``rank`` packed."""
    num_top = words.shape[1] // 2 - 1
    floats = words.view(np.float32)
    return RankedLogprobs(floats[:, 0], words[:, 1], words[:, 2 : 2 + num_top], floats[:, 2 + num_top :])


def _bits(x: Float[Array, "B K"]) -> Int32[Array, "B K"]:
    return jax.lax.bitcast_convert_type(x, jnp.int32)
