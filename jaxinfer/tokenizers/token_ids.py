"""The one check that every tokenizer makes of the ids it is given: libraries skip a bad id or wrap a negative one."""

from collections.abc import Sequence
from numbers import Integral


def checked_token_ids(token_ids: Sequence[int]) -> list[int]:
    """``token_ids`` as plain ints (NumPy's are taken); ValueError names the first that is no whole number, or negative.

    There is no upper end: an id that a vocabulary does not have is no error (see ``jaxinfer.tokenizers.protocol``).
    """
    for token_id in token_ids:
        # Integral, since ids often come from NumPy; but True is no token. First what is nearly always so.
        is_whole = type(token_id) is int or (isinstance(token_id, Integral) and not isinstance(token_id, bool))
        if not is_whole or token_id < 0:
            raise ValueError(f"{token_id!r} is no token id, which is a whole number of at least 0")
    return [int(token_id) for token_id in token_ids]
