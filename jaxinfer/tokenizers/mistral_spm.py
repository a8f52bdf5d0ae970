"""``tokenizer.model.v3`` and its like: a SentencePiece vocabulary with Mistral's form of a conversation."""

import itertools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from jaxinfer.tokenizers.mistral_chat import MistralChat
from jaxinfer.tokenizers.protocol import EncodedChat
from jaxinfer.tokenizers.spm import SentencePieceTokenizer, load_sentencepiece, sentencepiece_errors

logger = logging.getLogger(__name__)

_SPACE_SYMBOL = "\u2581"


class MistralSentencePieceTokenizer(SentencePieceTokenizer):
    """Text as any SentencePiece vocabulary has it, BOS first; conversations as mistral-common encodes them."""

    def __init__(self, processor: sentencepiece.SentencePieceProcessor, chat: MistralChat) -> None:
        super().__init__(
            processor,
            bos_token_id=processor.bos_id(),
            eos_token_id=processor.eos_id(),
            add_bos=True,
            chat_template=None,
        )
        self._chat = chat

    @property
    def can_chat(self) -> bool:
        return True

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> EncodedChat:
        ids = self._chat.encode(messages, tools=tools, add_generation_prompt=add_generation_prompt, options=options)
        return EncodedChat(self._with_special_tokens(ids), ids)

    def _with_special_tokens(self, ids: list[int]) -> str:
        """Text of ``ids``, special tokens spelled out, and the space kept that a decoder takes from a first word."""
        parts: list[str] = []
        for is_special, group in itertools.groupby(ids, self._processor.is_control):
            run = list(group)
            if is_special:
                parts += map(self.token_text, run)
            else:
                parts += [" " if self.token_text(run[0]).startswith(_SPACE_SYMBOL) else "", self.decode(run)]
        return "".join(parts)


def load_mistral_sentencepiece(path: Path) -> SentencePieceTokenizer:
    """Reads the vocabulary at ``path``, whose name says its version; ``tokenizer.model`` is the first.

    The first has no control tokens for its instructions. Where such a name holds a vocabulary that has, nobody can say
    which later form the model learned: it is read as plain SentencePiece, and a warning says so.

    Raises:
        ValueError: the file cannot be read, is of an unknown version, or is not of the version that its name says.
    """
    with sentencepiece_errors(path):
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    has_control_tokens = processor.is_control(processor.piece_to_id("[INST]"))
    if has_control_tokens and path.name == "tokenizer.model":
        logger.warning(
            "%s has control tokens of a later version than its name says, so this model cannot chat; give the file the "
            "name of its version, such as tokenizer.model.v3",
            path,
        )
        return load_sentencepiece(path)
    chat = MistralChat(path)
    if has_control_tokens != (chat.version != "v1") or processor.bos_id() < 0 or processor.eos_id() < 0:
        raise ValueError(
            f"{path} is by its name of Mistral's version {chat.version}, but its vocabulary is not: it must have BOS, "
            "EOS and, from the second version on, the control token [INST]"
        )
    with sentencepiece_errors(path):
        return MistralSentencePieceTokenizer(processor, chat)
