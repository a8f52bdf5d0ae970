"""What was said in a conversation, as pairs of a question and its answer: templates want the roles to take turns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jaxinfer.prompts import ChatPrompt, Message
from jaxinfer.safe_prompt import encode_conversation

if TYPE_CHECKING:
    from jaxinfer.tokenizers.protocol import Tokenizer

_ANY_QUESTION = "Hello"


@dataclass(frozen=True)
class Exchange:
    """A message of the user, and what the model said to it."""

    question: str
    answer: str


@dataclass
class Conversation:
    """The system message, and the exchanges from the oldest to the newest.

    Attributes:
        system: None: there is no such message, and the model's template may put its own.
        template_kwargs: more variables for the template, such as ``enable_thinking``.
        exchanges: those that the model is shown.
        safe_prompt: whether a guardrail comes before the system message, as in ``ChatPrompt``.
    """

    system: str | None = None
    template_kwargs: Mapping[str, Any] | None = None
    exchanges: list[Exchange] = field(default_factory=list)
    safe_prompt: bool = False

    def prompt(self, question: str) -> ChatPrompt:
        """The conversation with a new message of the user at its end, as ``LLM`` takes it."""
        messages: list[Message] = [] if self.system is None else [{"role": "system", "content": self.system}]
        for exchange in self.exchanges:
            messages.append({"role": "user", "content": exchange.question})
            messages.append({"role": "assistant", "content": exchange.answer})
        messages.append({"role": "user", "content": question})
        prompt: ChatPrompt = {"messages": messages}
        if self.template_kwargs is not None:
            prompt["chat_template_kwargs"] = self.template_kwargs
        if self.safe_prompt:
            prompt["safe_prompt"] = True
        return prompt

    def count_tokens(self, tokenizer: "Tokenizer", question: str) -> int:
        """Tokens of ``prompt(question)``.

        Raises:
            ValueError: the model's form of conversations has no place for something in it; the message says for what.
        """
        messages = self.prompt(question)["messages"]
        return len(
            encode_conversation(
                tokenizer, messages, options=self.template_kwargs, safe_prompt=self.safe_prompt
            ).token_ids
        )

    def check(self, tokenizer: "Tokenizer") -> None:
        """ValueError, as in ``count_tokens``, where no message can be added to the conversation as it stands."""
        self.count_tokens(tokenizer, _ANY_QUESTION)
