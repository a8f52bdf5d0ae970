"""What bias and penalties need to know of each running request, kept on the device from step to step.

Penalties depend on tokens that the host has not read when it launches a draw, so their counts live where the tokens
are. Only requests that ask for a bias or a penalty have anything here; what a slot holds of an earlier one is
overwritten before the first draw.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int32

from jaxinfer.request import Request

_BYTES_PER_TOKEN = 8
"""Of the vocabulary, in each slot: a bias and a tally."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SlotState:
    """One row for each slot; the last is the padding's and stays zero.

    Attributes:
        bias: what is added to the logit of each token.
        tally: for each token twice the number of times that it is in the output, plus 1 if it is in the prompt.
    """

    bias: Float[Array, "slots V"]
    tally: Int32[Array, "slots V"]


def num_bytes(max_num_seqs: int, vocab_size: int) -> int:
    """Bytes of the state of an engine."""
    return (max_num_seqs + 1) * vocab_size * _BYTES_PER_TOKEN


def allocate(max_num_seqs: int, vocab_size: int) -> SlotState:
    """The state of an engine in which no request has any.

    Raises:
        ValueError: the device has no room for it.
    """
    shape = (max_num_seqs + 1, vocab_size)
    try:
        return SlotState(jnp.zeros(shape, jnp.float32), jnp.zeros(shape, jnp.int32))
    except jax.errors.JaxRuntimeError as error:
        raise ValueError(
            f"max_num_seqs is {max_num_seqs}: the device has no room for {num_bytes(max_num_seqs, vocab_size)} bytes "
            "of state for bias and penalties"
        ) from error


def slot_rows(request: Request, vocab_size: int) -> tuple[Float32[np.ndarray, "V"], Int32[np.ndarray, "V"]]:
    """A request's rows of bias and tally, from its known tokens; fresh and read-only."""
    bias = np.zeros(vocab_size, np.float32)
    asked = request.params.logit_bias or {}
    bias[np.fromiter(asked.keys(), np.int32, len(asked))] = np.fromiter(asked.values(), np.float32, len(asked))
    tally = 2 * np.bincount(_ids(request.output_token_ids), minlength=vocab_size).astype(np.int32)
    tally[_ids(request.prompt_token_ids)] += 1  # once for each token, however often it is there
    for row in (bias, tally):
        row.flags.writeable = False  # the device may read it while the step runs
    return bias, tally


def _ids(token_ids: Sequence[int]) -> Int32[np.ndarray, "N"]:
    return np.array(token_ids, np.int32)


def set_slot(state: SlotState, slot: Int32[Array, ""], bias: Float[Array, "V"], tally: Int32[Array, "V"]) -> SlotState:
    """The state with a request's rows in its slot."""
    return SlotState(state.bias.at[slot].set(bias), state.tally.at[slot].set(tally))
