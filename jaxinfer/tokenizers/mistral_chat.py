"""Conversations in Mistral's own form, which no template writes exactly: mistral-common encodes piece by piece.

So text that spells a control token, such as ``[INST]``, stays text: no message can end another.
"""

import json
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

from jaxinfer.tokenizers.library_errors import library_errors
from jaxinfer.tokenizers.mistral_messages import prepared_messages
from jaxinfer.tokenizers.texts import checked_text

_OPTIONS = ("reasoning_effort",)


class MistralChat:
    """The form of one version of Mistral's tokenizers, read from its file.

    Attributes:
        vocabulary: the library's reading of the file.
        version: such as "v3".
    """

    def __init__(self, path: Path) -> None:
        """Raises ValueError, which names the file, where mistral-common cannot read it or does not know its version."""
        with library_errors(f"{path} cannot be read as a tokenizer of Mistral's"):
            self._inner = MistralTokenizer.from_file(path)
        self.vocabulary = self._inner.instruct_tokenizer.tokenizer
        self.version: str = self._inner.version.value

    def encode(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        options: Mapping[str, Any] | None,
    ) -> list[int]:
        """Token ids of a conversation, BOS first; see ``Tokenizer.encode_chat``.

        The form has nothing that opens the assistant's turn: it begins where the user's ends. So
        ``add_generation_prompt`` only says what a last message of the assistant's is: with it, a mistake; without it,
        the beginning of the answer, which the model goes on with. ``reasoning_effort`` is the one option, for the
        models that know it.

        Raises:
            ValueError: the messages, tools or options are not what the version takes; the library's words are in the
                message.
        """
        for name in options or {}:
            if name not in _OPTIONS:
                known = ", ".join(_OPTIONS)
                raise ValueError(
                    f"{reprlib.repr(name)} is no option of Mistral's form of a conversation; known: {known}"
                )
        if tools and self.version == "v1":
            raise ValueError("this model's form of a conversation, Mistral's v1, has no tools; leave them out")
        prepared = prepared_messages(messages)
        with library_errors(f"the conversation does not fit Mistral's form {self.version}"):
            checked_text(json.dumps([prepared, tools], ensure_ascii=False))
            request = ChatCompletionRequest.from_openai(
                prepared,
                tools=None if tools is None else [dict(tool) for tool in tools],
                continue_final_message=not add_generation_prompt and prepared[-1]["role"] == "assistant",
                **(options or {}),
            )
            return self._inner.encode_chat_completion(request).tokens
