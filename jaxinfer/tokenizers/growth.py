"""How much longer the steps of a ``tokenizer.json`` may make a text.

Steps that put text in multiply: three that write a thousand letters for one ask for a gigabyte for every letter, in a
file of a few kilobytes. Where the ``tokenizers`` library gets no more memory it ends the process, which no caller can
prevent; so a file is judged by what its steps could do, before the library reads it (to which it may put its own added
tokens through them).
"""

import base64
import math
from typing import Any

MAX_GROWTH = 128
"""Known files stay below 80: most of it is NFKC, which has 18 characters for U+FDFA."""


def check_growth(spec: Any) -> None:
    """``spec``: the content of a ``tokenizer.json``. Its decoder is not judged here: of those, only few are taken.

    Raises:
        ValueError: all steps together could make a text more than ``MAX_GROWTH`` times as long; the message names
            the part of the file.
    """
    if not isinstance(spec, dict):
        return
    for keys in (("normalizer", "pre_tokenizer"), ("post_processor",)):
        if math.prod(_growth(spec.get(key)) for key in keys) > MAX_GROWTH:
            raise ValueError(
                f"{' and '.join(keys)} could make a text more than {MAX_GROWTH} times as long, which is not allowed"
            )


def _growth(spec: Any) -> int:
    """An upper bound, in characters, for a text of one. The library knows some steps by their keys alone."""
    if isinstance(spec, list):
        return math.prod(map(_growth, spec))
    if not isinstance(spec, dict):
        return 1
    return _own_growth(spec) * math.prod(map(_growth, spec.values()))


def _own_growth(step: dict[str, Any]) -> int:
    match step:
        case {"pattern": {"String": str(replaced)}, "content": str(content)} if replaced:
            return max(1, math.ceil(len(content) / len(replaced)))
        case {"pattern": _, "content": str(content)}:  # it may match where there is nothing, and take nothing away
            return len(content) + 1
        case {"prepend": str(prepended)}:
            return len(prepended) + 1
        case {"precompiled_charsmap": str(charsmap)}:
            return _longest_replacement(charsmap)
        case {"type": "ByteLevel" | "Metaspace"}:  # two characters for the bytes of one, or a space before it
            return 2
        case {"single": list(pieces), "special_tokens": dict(special)}:
            return sum(_num_ids(piece, special) for piece in pieces)
    return 1


def _longest_replacement(charsmap: str) -> int:
    """Of SentencePiece's normalization: the size of a table that finds them, it, then texts that end in a zero byte.

    https://github.com/google/sentencepiece/blob/master/src/normalizer.cc (``DecodePrecompiledCharsMap``)
    """
    data = base64.b64decode(charsmap)
    texts = data[4 + int.from_bytes(data[:4], "little") :].split(b"\0")
    return max(1, *(len(text.decode("utf-8", "replace")) for text in texts))


def _num_ids(piece: Any, special: dict[str, Any]) -> int:
    """Of one piece of a template: the text, taken as one, or a special token, which may be several."""
    match piece:
        case {"SpecialToken": {"id": str(name)}}:
            match special.get(name):
                case {"ids": list(ids)}:
                    return len(ids)
    return 1
