"""Seeds of several sequences: the first is the request's own, and no two meet."""

import hashlib
import random

from jaxinfer.seeds import sequence_seed


def test_the_first_sequence_has_the_seed_itself():
    for seed in (0, 1, 2**63, 2**64 - 1):
        assert sequence_seed(seed, 0) == seed


def test_the_others_by_the_definition():
    """The first 8 bytes of BLAKE2b-64 of both numbers, little-endian: what is written down once must never change."""
    expected = hashlib.blake2b(bytes([5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]), digest_size=8).digest()
    assert sequence_seed(5, 1) == int.from_bytes(expected, "little")


def test_seeds_of_neighbouring_requests_and_sequences_all_differ():
    rng = random.Random(0)
    seeds = [*range(50), *range(2**64 - 50, 2**64), *(rng.randrange(2**64) for _ in range(100))]
    made = [sequence_seed(seed, index) for seed in seeds for index in range(50)]
    assert len(set(made)) == len(made)
    assert all(0 <= seed < 2**64 for seed in made)
    ones = [sum(seed >> bit & 1 for seed in made) / len(made) for bit in range(64)]
    assert all(0.45 < share < 0.55 for share in ones), "each bit is set in half of them"
