"""The key of a page stands for everything that its keys and values depend on, and for nothing else."""

import hashlib
import itertools
import struct

import pytest

from jaxinfer.page_hashes import next_hash, root_hash


def by_definition(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def chain(identity: tuple[str, ...], *pages: list[int]) -> bytes:
    key = root_hash(identity)
    for token_ids in pages:
        key = next_hash(key, token_ids)
    return key


def test_the_root_is_the_hash_of_the_number_the_lengths_and_the_texts():
    assert root_hash(()) == by_definition(struct.pack("<q", 0))
    assert root_hash(("modèle", "salt")) == by_definition(struct.pack("<qqq", 2, 7, 4) + "modèlesalt".encode())


def test_a_key_is_the_hash_of_the_key_before_it_and_its_tokens():
    first = by_definition(root_hash(("m",)) + struct.pack("<3i", 5, 0, 2**31 - 1))
    assert chain(("m",), [5, 0, 2**31 - 1]) == first
    assert chain(("m",), [5, 0, 2**31 - 1], [7, 7, 7]) == by_definition(first + struct.pack("<3i", 7, 7, 7))


def test_tokens_of_any_sequence_give_one_key():
    root = root_hash(())
    assert next_hash(root, [3, 4]) == next_hash(root, (3, 4)) == next_hash(root, range(3, 5))


def test_identities_that_differ_give_different_roots_even_where_they_run_together_to_one_text():
    identities = [
        (),
        ("",),
        ("", ""),
        ("a",),
        ("a", ""),
        ("", "a"),
        ("ab", "c"),
        ("a", "bc"),
        ("abc",),
        ("c", "ab"),
        ("a", "b", "c"),
        ("a\0b",),
        ("a", "b"),
        ("b", "a"),
        ("\x01" + "\0" * 7 + "a",),  # the bytes of a length and a text
        ("é",),
        ("e\u0301",),  # the same letter in two code points
        ("\ud800",),  # no valid text, and still a salt that a caller may send
    ]
    assert len({root_hash(identity) for identity in identities}) == len(identities)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (([1, 2], [3, 4]), ([3, 4], [1, 2])),  # order of the pages
        (([1, 2],), ([2, 1],)),  # order in a page
        (([1, 2], [3, 4]), ([9, 2], [3, 4])),  # what came before
        (([1, 2], [3, 4]), ([3, 4],)),  # how much came before
        (([0],), ([0], [0])),
        (([1],), ([256],)),
        (([1],), ([2**16 + 1],)),
    ],
)
def test_other_tokens_or_another_order_give_another_key(one, other):
    assert chain((), *one) != chain((), *other)


def test_the_identity_goes_through_the_whole_chain():
    pages = [[1, 2], [3, 4], [5, 6]]
    keys = [chain(identity, *pages[:n]) for identity in ((), ("a",), ("b",)) for n in range(1, 4)]
    assert all(one != other for one, other in itertools.combinations(keys, 2))
