"""``tools`` and ``tool_choice`` of a chat: which tools the model is shown, and which call it has to make.

An answer that has to be a call is held to the form of one, so that any model makes it. The JSON that it writes then
becomes the call, and is no text of the answer.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from jaxinfer.openai_api.errors import invalid
from jaxinfer.outputs import CompletionOutput, ToolCall
from jaxinfer.structured_outputs.params import StructuredOutputsParams
from jaxinfer.value_checks import shown

ToolMode = Literal["none", "auto", "required"]


class FunctionName(BaseModel):
    """Which function."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str


class NamedFunction(BaseModel):
    """The call of one function, and nothing else."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["function"]
    function: FunctionName


@dataclass(frozen=True)
class ToolChoice:
    """What a caller wants of his tools.

    Attributes:
        tools: those that the model is shown.
        is_single: whether one call is enough, and further ones are left out.
    """

    tools: Sequence[Mapping[str, Any]] | None
    is_single: bool
    form: StructuredOutputsParams | None = None

    def applied(self, sequence: CompletionOutput) -> CompletionOutput:
        """A sequence, whole or in the middle of a stream, as the caller is to see it."""
        calls = sequence.tool_calls[:1] if self.is_single else sequence.tool_calls
        return replace(sequence, tool_calls=calls)


def tool_choice(
    tools: Sequence[Mapping[str, Any]] | None, asked: ToolMode | NamedFunction | None, *, is_single: bool
) -> ToolChoice:
    """Raises ApiError 400 for a call that has to be made where there is no such tool."""
    if not tools and asked not in (None, "none"):
        raise invalid(f"tool_choice is {shown(asked)}, and there are no tools", "tool_choice")
    return ToolChoice(None if asked == "none" else tools, is_single)
