"""The one check that every tokenizer makes of the ids it is given: libraries skip a bad id or wrap a negative one."""

import operator
from collections.abc import Sequence


def checked_token_ids(token_ids: Sequence[int], vocab_size: int) -> list[int]:
    """``token_ids`` as plain ints (NumPy's are taken); ValueError names the first one outside ``[0, vocab_size)``."""
    ids = [operator.index(token_id) for token_id in token_ids]
    for token_id in ids:
        if not 0 <= token_id < vocab_size:
            raise ValueError(f"token id {token_id} is outside the vocabulary, which has ids 0 to {vocab_size - 1}")
    return ids
