"""``tekken.json``: Mistral's byte-level vocabulary, encoded by mistral-common."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from jaxinfer.tokenizers.library_errors import library_errors
from jaxinfer.tokenizers.mistral_chat import MistralChat
from jaxinfer.tokenizers.protocol import EncodedChat, TextStream
from jaxinfer.tokenizers.streams import ByteStream
from jaxinfer.tokenizers.texts import checked_text
from jaxinfer.tokenizers.token_ids import checked_token_ids

_MAX_SPECIAL_TOKENS = 2**16  # the library makes as many as the file says; known files say 1,000


class TekkenTokenizer:
    """A tekken vocabulary with what the engine asks of one; see ``jaxinfer.tokenizers.protocol``.

    Text is taken literally: the spelling of a special token in it never becomes that token.
    """

    can_chat = True

    def __init__(self, vocabulary: Tekkenizer, chat: MistralChat) -> None:
        """Raises ValueError where the vocabulary has no BOS or no EOS."""
        self._vocabulary = vocabulary
        self._chat = chat
        self.vocab_size: int = vocabulary.n_words
        self.bos_token_id: int | None = vocabulary.bos_id
        self.eos_token_id: int | None = vocabulary.eos_id

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        checked_text(text)
        with library_errors("the tokenizer cannot encode this text"):
            return self._vocabulary.encode(text, bos=add_special_tokens, eos=False)

    def decode(self, token_ids: Sequence[int]) -> str:
        return b"".join(map(self.token_bytes, token_ids)).decode("utf-8", "replace")

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> EncodedChat:
        ids = self._chat.encode(messages, tools=tools, add_generation_prompt=add_generation_prompt, options=options)
        return EncodedChat(self._vocabulary.decode(ids, SpecialTokenPolicy.KEEP), ids)

    def token_id(self, spelling: str) -> int | None:
        """See the protocol; a token that is no whole characters has no spelling that it could be found by."""
        if self._vocabulary.is_special(spelling):
            return self._vocabulary.get_special_token(spelling)
        ids = self.encode(spelling, add_special_tokens=False)
        return ids[0] if len(ids) == 1 and self.token_text(ids[0]) == spelling else None

    def token_text(self, token_id: int) -> str:
        """See the protocol; a token that is no whole characters is spelled byte by byte, as in ``<0xC3>``."""
        return "".join(map(self._spelling, self._known([token_id])))

    def token_bytes(self, token_id: int) -> bytes:
        policy = SpecialTokenPolicy.IGNORE
        return b"".join(self._vocabulary.id_to_byte_piece(known, policy) for known in self._known([token_id]))

    def text_stream(self, context: Sequence[int] = ()) -> TextStream:
        return ByteStream(self._known, self.token_bytes, context)

    def _known(self, token_ids: Sequence[int]) -> list[int]:
        """The ids that have a token."""
        return [token_id for token_id in checked_token_ids(token_ids) if token_id < self.vocab_size]

    def _spelling(self, token_id: int) -> str:
        data = self._vocabulary.id_to_byte_piece(token_id, SpecialTokenPolicy.KEEP)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return "".join(f"<0x{byte:02X}>" for byte in data)


def load_tekken(path: Path) -> TekkenTokenizer:
    """Reads the ``tekken.json`` at ``path``.

    Raises:
        ValueError: the file cannot be read; the message names it.
    """
    _check_sizes(path)
    chat = MistralChat(path)
    if not isinstance(chat.vocabulary, Tekkenizer):
        raise ValueError(f"{path} holds no tekken vocabulary")
    with library_errors(f"{path} cannot be used as a tokenizer"):
        return TekkenTokenizer(chat.vocabulary, chat)


def _check_sizes(path: Path) -> None:
    """What the library would believe: how many special tokens to make up, and that they stand in order.

    The file is read once more for that, which takes a quarter of the time that the library needs.
    """
    with library_errors(f"{path} cannot be read as a tokenizer of Mistral's"):
        data = json.loads(path.read_text(encoding="utf-8"))
    config = data.get("config") if isinstance(data, dict) else None
    if not isinstance(config, dict):
        raise ValueError(f"{path} holds no JSON object with an object 'config'; a tekken vocabulary has one")
    size, num_special = (config.get(key) for key in ("default_vocab_size", "default_num_special_tokens"))
    if type(size) is not int or type(num_special) is not int or not 0 < num_special <= min(size, _MAX_SPECIAL_TOKENS):
        raise ValueError(
            f"{path}: config has default_vocab_size {size!r} and default_num_special_tokens {num_special!r}; they must "
            f"be whole numbers, of special tokens between 1 and {_MAX_SPECIAL_TOKENS} and no more than of all tokens"
        )
    special = data.get("special_tokens") or []
    for i, token in enumerate(special if isinstance(special, list) else [special]):
        if not isinstance(token, dict) or token.get("rank") != i:
            raise ValueError(f"{path}: special_tokens[{i}] is {token!r}; it must be a JSON object with rank {i}")
