"""Logit bias and the presence, frequency and repetition penalties of the rows of a step.

They run in a program of their own, and only in a step in which a row that samples has any: the others send nothing and
compute nothing for it. So what it reads travels in a buffer of its own too.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int32

from jaxinfer.batch import Batch
from jaxinfer.slot_state import SlotState

_NUM_FIELDS = 5
"""Of a row: slot, tokens to count, and the three penalties as the bits of floats."""


def any_adjusts(batch: Batch) -> bool:
    """Whether a row of the batch draws from logits that a bias or a penalty changes."""
    return any(row.samples and row.request.params.adjusts_logits for row in batch.rows)


def pack_adjustments(batch: Batch, num_rows: int, padding_slot: int) -> Int32[np.ndarray, "5 B"]:
    """What ``adjust`` reads of the rows, fresh and read-only; rows that adjust nothing look at the slot of padding.

    A decode row counts the token that it is fed, which was drawn last. A row that samples from a piece counts none:
    the tokens that are known then are all there are, and are in the slot's rows already.
    """
    slots, num_new = np.full(num_rows, padding_slot, np.int32), np.zeros(num_rows, np.int32)
    penalties = np.zeros((3, num_rows), np.float32)
    penalties[2] = 1
    for i, row in enumerate(batch.rows):
        params = row.request.params
        if row.samples and params.adjusts_logits:
            assert row.request.slot is not None, "a running request has a slot"
            slots[i], num_new[i] = row.request.slot, row.token_ids is None
            penalties[:, i] = params.presence_penalty, params.frequency_penalty, params.repetition_penalty
    packed = np.concatenate([[slots], [num_new], penalties.view(np.int32)])
    assert packed.shape[0] == _NUM_FIELDS
    packed.flags.writeable = False  # the device may read it while the step runs
    return packed


def adjust(
    logits: Float[Array, "B V"], state: SlotState, last_tokens: Int32[Array, "slots"], packed: Int32[Array, "5 B"]
) -> tuple[Float[Array, "B V"], SlotState]:
    """The logits with each row's bias and penalties, and the state with the tokens drawn last counted.

    In this order: the bias is added; positive logits of tokens of prompt and output are divided by the repetition
    penalty and others multiplied (Keskar et al., CTRL, 2019, with the sign minded as in vLLM); the frequency penalty is
    taken once for each time that the token is in the output, the presence penalty once if it is (OpenAI's API).

    Args:
        logits: float32, -inf where a token is forbidden.
        state: of the slots.
        last_tokens: for each slot the token drawn last.
        packed: of ``pack_adjustments``.
    """
    slots, num_new = packed[0], packed[1]
    presence, frequency, repetition = jax.lax.bitcast_convert_type(packed[2:], jnp.float32)[:, :, None]
    state = SlotState(state.bias, state.tally.at[slots, last_tokens[slots]].add(2 * num_new))
    tally = state.tally[slots]
    times = (tally >> 1).astype(jnp.float32)
    logits += state.bias[slots]
    repeated = jnp.where(logits > 0, logits / repetition, logits * repetition)
    logits = jnp.where(tally > 0, repeated, logits)
    return logits - frequency * times - presence * (times > 0), state
