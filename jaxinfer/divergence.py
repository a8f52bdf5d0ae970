"""How far two next-token distributions are apart, on the device: only four numbers of each pair leave it.

The logits of two whole vocabularies would be a transfer of a megabyte for every few tokens.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int32


def diverge(
    reference: Float[Array, "N V"], logits: Float[Array, "N V"], token_ids: Int32[Array, "N"]
) -> Float[Array, "N 4"]:
    """What ``Divergences`` reads, in float32.

    The divergence is that of Kullback and Leibler, KL(p || q) = sum p (log p - log q), of the reference p and the model
    q, over the whole vocabulary and in nats. A token whose p is 0, or too small for a float32, adds nothing, whatever
    its q is. Rounding may leave a sum some 1e-6 off, and so below 0.

    Args:
        reference: float32, of the model that is the measure.
        logits: float32, of the model that is held against it.
        token_ids: of each row the token that came.
    """
    log_p, log_q = jax.nn.log_softmax(reference, axis=1), jax.nn.log_softmax(logits, axis=1)
    p = jnp.exp(log_p)
    kl = jnp.where(p > 0, p * (log_p - log_q), 0).sum(axis=1)
    agrees = reference.argmax(axis=1) == logits.argmax(axis=1)  # of equals the lowest id
    of_tokens = (jnp.take_along_axis(each, token_ids[:, None], axis=1)[:, 0] for each in (log_p, log_q))
    return jnp.stack([*of_tokens, kl, agrees.astype(jnp.float32)], axis=1)


class Divergences(NamedTuple):
    """Of N tokens, each after those before it in its window.

    Attributes:
        reference_logprobs: log-probability of the token by the reference.
        logprobs: the same by the model.
        kl: divergence of the model from the reference, in nats.
        agrees: 1 where both find the same token most likely, else 0.
    """

    reference_logprobs: Float32[np.ndarray, "N"]
    logprobs: Float32[np.ndarray, "N"]
    kl: Float32[np.ndarray, "N"]
    agrees: Float32[np.ndarray, "N"]

    @classmethod
    def read(cls, words: Float32[np.ndarray, "N 4"]) -> "Divergences":
        """The numbers that ``diverge`` packed."""
        return cls(*words.T)
