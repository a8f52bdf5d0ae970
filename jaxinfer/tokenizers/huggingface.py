"""A tokenizer that the ``tokenizers`` library runs, whether read from ``tokenizer.json`` or built from a GGUF."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers

from jaxinfer.tokenizers.library_errors import library_errors
from jaxinfer.tokenizers.protocol import TextStream
from jaxinfer.tokenizers.streams import ByteStream, WindowStream
from jaxinfer.tokenizers.template_chat import ChatByTemplate
from jaxinfer.tokenizers.texts import checked_text
from jaxinfer.tokenizers.token_ids import checked_token_ids

_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_SPACE_SYMBOL = "\u2581"


def _byte_level_alphabet() -> dict[str, int]:
    """GPT-2's spelling of bytes: a printable Latin-1 character is itself, the others are U+0100 and on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


_ALPHABET = _byte_level_alphabet()


class HuggingFaceTokenizer(ChatByTemplate):
    """A ``tokenizers.Tokenizer`` with what the engine asks of one; see ``jaxinfer.tokenizers.protocol``."""

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        *,
        bos_token_id: int | None,
        add_bos: bool,
        eos_token_id: int | None,
        chat_template: str | None,
        chat_template_file: Path | None = None,
        chat_adds_bos: bool = False,
    ) -> None:
        """``add_bos``: put BOS first even where the library's own post-processor does not.

        ``chat_adds_bos``: before a conversation as well, where its template writes none.

        Raises:
            ValueError: the decoder is of a kind whose text cannot be streamed exactly; the message names it.
        """
        self._inner = inner
        self._add_bos = add_bos
        added = inner.get_added_tokens_decoder()
        self._special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self._is_byte_level = _is_byte_level(inner.decoder)
        self._known_ids = frozenset(inner.get_vocab(with_added_tokens=True).values())
        self.vocab_size = max(self._known_ids, default=-1) + 1
        self.bos_token_id = bos_token_id
        self.eos_token_id = eos_token_id
        self.chat_template, self.chat_template_file = chat_template, chat_template_file
        self.chat_adds_bos = chat_adds_bos

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        ids = self._encode(checked_text(text), add_special_tokens)
        bos = self.bos_token_id
        if not add_special_tokens or bos is None:
            return ids
        if self._add_bos and ids[:1] != [bos]:
            return [bos, *ids]
        if ids[:2] == [bos, bos]:
            spelled = self._encode(text, add_special_tokens=False)
            if ids[1 : 1 + len(spelled)] == spelled:  # the first was added, to a text that begins with one
                return ids[1:]
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        known = self._known(token_ids)
        with library_errors("the tokenizer cannot decode these tokens"):
            return self._inner.decode(known, skip_special_tokens=True)

    def token_id(self, spelling: str) -> int | None:
        return self._inner.token_to_id(spelling)

    def token_text(self, token_id: int) -> str:
        return "".join(self._inner.id_to_token(known) or "" for known in self._known([token_id]))

    def token_bytes(self, token_id: int) -> bytes:
        if not self._known([token_id]) or token_id in self._special_ids:
            return b""
        return self._spelled_bytes(token_id) if self._is_byte_level else self._decoded_bytes(token_id)

    def text_stream(self, context: Sequence[int] = ()) -> TextStream:
        if self._is_byte_level:
            return ByteStream(self._known, self.token_bytes, context)
        return WindowStream(self._known, self.decode, self._num_unsettled, self._is_special, self._is_byte, context)

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        with library_errors("the tokenizer cannot encode this text"):
            return self._inner.encode(text, add_special_tokens=add_special_tokens).ids

    def _known(self, token_ids: Sequence[int]) -> list[int]:
        """The ids that have a token: of those below ``vocab_size`` not all, since a vocabulary may have gaps."""
        return [token_id for token_id in checked_token_ids(token_ids) if token_id in self._known_ids]

    def _spelled_bytes(self, token_id: int) -> bytes:
        spelling = self._inner.id_to_token(token_id) or ""
        if all(character in _ALPHABET for character in spelling):
            return bytes(_ALPHABET[character] for character in spelling)
        return spelling.encode()  # an added token is spelled as plain text

    def _decoded_bytes(self, token_id: int) -> bytes:
        spelling, alone = self.token_text(token_id), self.decode([token_id])
        if self._is_byte(token_id) and alone != spelling:  # else the decoder takes none for bytes
            return bytes([int(spelling[1:-1], 16)])
        return self.decode([token_id, token_id])[len(alone) :].encode()

    def _is_special(self, token_id: int) -> bool:
        return token_id in self._special_ids

    def _is_byte(self, token_id: int) -> bool:
        return _BYTE_TOKEN.fullmatch(self.token_text(token_id)) is not None

    def _num_unsettled(self, held: Sequence[int]) -> int:
        """The library reads a run of byte tokens as a whole, across special tokens: one bad byte spoils all of it."""
        goes_on = self._is_byte(held[-1]) or self._is_special(held[-1])
        return len(held) if goes_on and self._is_byte(held[0]) else 0


def _is_byte_level(decoder: Any) -> bool:
    """Whether tokens spell bytes (else: text); ValueError for a decoder of another kind."""
    steps = _decoder_steps(decoder)
    kinds = [step.get("type") for step in steps]
    if kinds == ["ByteLevel"]:
        return True
    if not kinds or not all(_is_text_step(step) for step in steps):
        raise ValueError(
            f"the tokenizer's decoder is {steps!r}; known are ByteLevel alone, and sequences of Replace of U+2581 by a "
            "space, ByteFallback, Fuse, Strip of one space at the start, and Metaspace"
        )
    return False


def _decoder_steps(decoder: Any) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    spec = json.loads(decoder.__getstate__())
    return spec["decoders"] if spec.get("type") == "Sequence" else [spec]


def _is_text_step(step: dict[str, Any]) -> bool:
    match step:
        case {"type": "Replace", "pattern": {"String": pattern}, "content": content}:
            return (pattern, content) == (_SPACE_SYMBOL, " ")
        case {"type": "Strip", "content": content, "start": start, "stop": stop}:
            return content == " " and start <= 1 and stop == 0
        case {"type": kind}:
            return kind in ("ByteFallback", "Fuse", "Metaspace")
    return False
