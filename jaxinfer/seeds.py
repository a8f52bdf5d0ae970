"""The seeds of the several sequences of one request."""

import hashlib

_SEED_BYTES = 8


def sequence_seed(seed: int, index: int) -> int:
    """64 bits for the sequence ``index`` of a request with this 64-bit seed; sequence 0 has the seed itself.

    A digest of both, so that the others neither repeat it nor one another, nor meet those of a neighbouring seed.
    """
    if index == 0:
        return seed
    given = seed.to_bytes(_SEED_BYTES, "little") + index.to_bytes(_SEED_BYTES, "little")
    return int.from_bytes(hashlib.blake2b(given, digest_size=_SEED_BYTES).digest(), "little")
