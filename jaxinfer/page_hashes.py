"""What a full page contains, as one key: its tokens and everything before them.

Keys and values of a token depend on all tokens before it, so equal pages are those whose whole prefix is equal. Each
key is a hash over the key before it and the page's own tokens (vLLM and SGLang find shared prefixes in this way); the
first one stands on what else the numbers depend on. The hash is a cryptographic one: a prompt that was made to collide
with another user's would else be answered with that user's pages.
"""

import hashlib
from array import array
from collections.abc import Sequence

_DIGEST_BYTES = 16


def root_hash(identity: Sequence[str]) -> bytes:
    """Where the chain of a request begins.

    Args:
        identity: what besides the tokens its keys and values depend on, or by which it is kept apart from others: the
            model, an adapter, a caller's salt. Their number and order matter.
    """
    texts = [text.encode("utf-8", "surrogatepass") for text in identity]
    lengths = array("q", map(len, texts)).tobytes()  # so that no two identities run together to the same bytes
    return _digest(array("q", [len(texts)]).tobytes() + lengths + b"".join(texts))


def next_hash(previous: bytes, token_ids: Sequence[int]) -> bytes:
    """The key of the page with these tokens, behind the page with the key ``previous`` or the root."""
    return _digest(previous + array("i", token_ids).tobytes())


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
