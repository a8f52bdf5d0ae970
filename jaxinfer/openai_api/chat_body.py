"""The body of a call of ``/v1/chat/completions``."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, model_validator

from jaxinfer.openai_api.errors import invalid
from jaxinfer.openai_api.field_errors import ListOf, allowed
from jaxinfer.openai_api.response_format import ResponseFormat
from jaxinfer.openai_api.sampling_fields import SamplingFields
from jaxinfer.openai_api.tool_choice import NamedFunction, ToolChoice, ToolMode, tool_choice
from jaxinfer.prompts import Prompt
from jaxinfer.sampling_params import MAX_LOGPROBS, SamplingParams
from jaxinfer.structured_outputs.params import StructuredOutputsParams
from jaxinfer.value_checks import shown

ToolChoiceField = Annotated[
    ToolMode | NamedFunction,
    allowed("'none', 'auto', 'required', or {'type': 'function', 'function': {'name': ...}}"),
]

_MOST_TOOLS = 128
"""As many as OpenAI's API takes."""
_OLD_FIELDS = {"functions": "tools", "function_call": "tool_choice"}


class ChatBody(SamplingFields):
    """Answers a conversation.

    Messages and tools are looked at where they are rendered, since the model's own form has a say in what they may be.
    The last two fields are of ``ChatPrompt``.
    """

    messages: ListOf[dict[str, Any]]
    max_tokens: int | None = Field(default=None, ge=0, description="The older name of max_completion_tokens.")
    max_completion_tokens: int | None = Field(
        default=None, ge=0, description="As many as the model's length has room for where it is left out."
    )
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    response_format: ResponseFormat | None = Field(
        default=None, description="In an answer that is held to a form no calls are looked for."
    )
    tools: Annotated[ListOf[dict[str, Any]], Field(max_length=_MOST_TOOLS)] | None = None
    tool_choice: ToolChoiceField | None = None
    parallel_tool_calls: bool | None = Field(default=None, description="False: of several calls the first is given.")

    chat_template_kwargs: dict[str, Any] | None = None
    safe_prompt: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_old_fields(cls, given: Any) -> Any:
        """They mean something, which is said in another way now."""
        for name in _OLD_FIELDS.keys() & given.keys() if isinstance(given, Mapping) else ():
            raise invalid(f"{name} is the older form of {_OLD_FIELDS[name]}, which is to be given instead", name)
        return given

    def choice(self) -> ToolChoice:
        """What is to become of the tools. Raises ApiError 400 where that cannot be."""
        return tool_choice(self.tools, self.tool_choice, is_single=self.parallel_tool_calls is False)

    def prompt(self, choice: ToolChoice) -> Prompt:
        """The conversation, for the engine, with the tools that the model is shown."""
        return {
            "messages": self.messages,
            "tools": choice.tools,
            "chat_template_kwargs": self.chat_template_kwargs,
            "safe_prompt": bool(self.safe_prompt),
            "cache_salt": self.cache_salt,
        }

    def params(self, choice: ToolChoice) -> SamplingParams:
        """As ``checked_params``, with the form of a call that the model has to make."""
        if self.top_logprobs is not None and not self.logprobs:
            raise invalid("top_logprobs goes with logprobs: true", "top_logprobs")
        more: dict[str, Any] = {"max_tokens": self._max_tokens()}
        if self.logprobs:
            more["logprobs"] = self.top_logprobs or 0
        if (form := self._form(choice)) is not None:
            more["structured_outputs"] = form
        return self.checked_params(**more)

    def _max_tokens(self) -> int | None:
        given = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(given) > 1:
            names = (
                f"max_tokens is {shown(self.max_tokens)} and max_completion_tokens {shown(self.max_completion_tokens)}"
            )
            raise invalid(f"{names}; they are two names of one limit, so give one of them", "max_tokens")
        return given.pop() if given else None

    def _form(self, choice: ToolChoice) -> StructuredOutputsParams | None:
        """What the answer is held to besides ``structured_outputs``."""
        asked = None if self.response_format is None else self.response_format.form
        forms = {"response_format": asked, "structured_outputs": self.structured_outputs, "tool_choice": choice.form}
        given = [name for name, form in forms.items() if form is not None]
        if len(given) > 1:
            raise invalid(f"{given[0]} and {given[1]} each ask for a form of the answer; it can have one", given[0])
        return asked or choice.form
