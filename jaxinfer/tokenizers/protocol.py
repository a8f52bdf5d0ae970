"""What the engine needs of a tokenizer, whatever file its vocabulary came from.

The vocabularies of model and tokenizer need not be the same size, and neither bounds the other:

- A model's embedding is often padded beyond the tokens (Qwen2: 151,936 rows for some 151,650 of them), and a vocabulary
  may have gaps. So a prompt or a sample may hold an id that the model knows and the tokenizer does not. Such an id has
  no text: decoding goes on as if it were not there. A negative id, or one that is no whole number, is a ValueError that
  names it, wherever ids are taken.
- A tokenizer may have tokens, added later, that the model has no row for. ``encode`` gives their ids, since it does not
  know the model; the engine checks every id of a prompt against the model's vocabulary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class TextStream(Protocol):
    """Text of a growing sequence of tokens: what ``decode`` of the whole would give, piece by piece.

    The cost of a token does not depend on how many came before it.
    """

    def push(self, token_id: int) -> str:
        """The text that is settled by this token: no later token can change it. Often "", when bytes are missing.

        An id that the vocabulary does not have settles nothing and changes nothing. Raises ValueError for what is no
        id, and has not taken it then.
        """

    def pending(self) -> str:
        """The text of what is held back, as it reads if no further token comes."""

    def settle(self) -> str:
        """``pending``, given for good: tokens that follow do not change it, nor it them."""

    def fork(self) -> "TextStream":
        """Another stream that goes on from here, for as little as a token costs: no token is read again."""


@dataclass(frozen=True)
class EncodedChat:
    """A conversation as the model was trained to read it.

    Attributes:
        text: special tokens spelled out, for people.
        token_ids: what the model is given; one BOS at most, where the format has it.
    """

    text: str
    token_ids: list[int]


class Tokenizer(Protocol):
    """Encodes and decodes; knows its special tokens and, where the model has one, its form of a conversation.

    Attributes:
        vocab_size: one more than the highest id that has a token; the model's own may be larger or smaller.
        bos_token_id: the token that begins a text, None where the vocabulary names none.
        eos_token_id: the one that its own files call EOS, None where they name none. What ends a text is the
            checkpoint's to say: it may list several (see ``jaxinfer.loading``).
        can_chat: whether the model has a form for conversations.
    """

    vocab_size: int
    bos_token_id: int | None
    eos_token_id: int | None

    @property
    def can_chat(self) -> bool: ...

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of ``text``.

        With ``add_special_tokens`` the vocabulary's own BOS comes first where the model wants one, and is not added to
        a text that spells it there. Without it (for text that a chat template wrote, which brings its own) none is
        added. In both cases the spelling of a special token, such as ``<|im_start|>``, becomes that token where the
        vocabulary's format says so.

        Raises ValueError for a text with a lone surrogate, which it names with its position, and for one that the
        vocabulary cannot encode (it may lack a character, and a token for what it lacks).
        """

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of ``token_ids``; special tokens and ids without a token give none. Bytes not UTF-8 become U+FFFD.

        Raises ValueError for what is no id.
        """

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> EncodedChat:
        """A conversation, in the form that the model was trained on.

        Args:
            messages: dicts with ``role`` and ``content``, as OpenAI's API has them.
            tools: JSON schemas of functions, as OpenAI's API has them.
            add_generation_prompt: end with what opens the assistant's turn.
            options: more variables for the model's template, such as ``enable_thinking``.

        Raises ValueError where the model has no form for conversations, and for messages, tools or options that are
        not what it takes.
        """

    def token_id(self, spelling: str) -> int | None:
        """The token that the vocabulary spells so, special ones included; None where there is none."""

    def token_text(self, token_id: int) -> str:
        """How the vocabulary spells one token, special ones included (a chat template needs BOS and EOS so).

        "" for an id without a token. Raises ValueError for what is no id.
        """

    def token_bytes(self, token_id: int) -> bytes:
        """What the token adds in the middle of a text, where a SentencePiece keeps its space; UTF-8, perhaps a part.

        b"" for a special token, which adds none, and for an id without a token. Raises ValueError for what is no id.
        """

    def text_stream(self, context: Sequence[int] = ()) -> TextStream:
        """A stream that goes on after ``context``, whose settled text it has given already.

        Raises ValueError for what is no id.
        """
