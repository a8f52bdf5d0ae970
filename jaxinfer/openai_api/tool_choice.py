"""``tools`` and ``tool_choice`` of a chat: which tools the model is shown, and which call it has to make.

A call that has to be made is a form that the answer is held to: any model whose template shows it tools makes it, and
makes it right. The JSON that it writes then becomes the call, and is no text of the answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from jaxinfer.openai_api.errors import invalid
from jaxinfer.outputs import CompletionOutput, ToolCall
from jaxinfer.structured_outputs.params import StructuredOutputsParams
from jaxinfer.tool_calls import check_tools
from jaxinfer.tool_calls.json_calls import make_call, read_call
from jaxinfer.value_checks import shown

ToolMode = Literal["none", "auto", "required"]


class FunctionName(BaseModel):
    """Which function."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str


class NamedFunction(BaseModel):
    """A call of one function, and nothing else."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["function"]
    function: FunctionName


@dataclass(frozen=True)
class ToolChoice:
    """What a caller wants of his tools.

    Attributes:
        tools: those that the model is shown; None: it is to hear nothing of any.
        is_single: whether of several calls only the first is given.
        form: of the call that has to be made, one and no more; None where none has to.
        function: the only one that it may be of, and the form is that of its arguments; None: any, and the form has
            the name too.
    """

    tools: Sequence[Mapping[str, Any]] | None
    is_single: bool = False
    form: StructuredOutputsParams | None = None
    function: str | None = None

    def applied(self, sequence: CompletionOutput) -> CompletionOutput:
        """A sequence, whole or in the middle of a stream, as its caller is to see it.

        A call that has to be made is known at the end, and nothing is text until then. Where it was cut off, by its
        length or by a stop string, what there is of it is the text, as it is for calls that the model makes by itself.

        The finish reason is OpenAI's: ``stop`` for a call of the function that was named, since that is all there could
        be, and else ``tool_calls`` (as measured in https://github.com/vllm-project/vllm/pull/25054).
        """
        if self.form is None:
            return replace(sequence, tool_calls=sequence.tool_calls[:1]) if self.is_single else sequence
        if sequence.finish_reason is None:
            return replace(sequence, text="", delta="")
        call = self._read(sequence.text) if sequence.finish_reason == "stop" else None
        if call is None:
            return replace(sequence, delta=sequence.text)
        reason: Literal["stop", "tool_calls"] = "tool_calls" if self.function is None else "stop"
        return replace(sequence, text="", delta="", tool_calls=(call,), finish_reason=reason)

    def _read(self, text: str) -> ToolCall | None:
        if self.function is None:
            return read_call(text, set())
        return make_call(self.function, text, None, set()) if text else None


def tool_choice(
    tools: Sequence[Mapping[str, Any]] | None, asked: ToolMode | NamedFunction | None, *, is_single: bool
) -> ToolChoice:
    """What the fields of a body come to.

    Args:
        tools: as ``check_tools`` has them. A ``strict`` of theirs changes nothing: arguments validate where the call
            has to be made, and nowhere else.
        asked: ``none`` hides the tools from the model; None is ``auto``, where the model calls or not.
        is_single: as in ``ToolChoice``.

    Raises:
        ApiError: 400, the tools are none, or the call that has to be made is of no tool.
    """
    try:
        check_tools(tools or [])
    except ValueError as error:
        raise invalid(str(error), "tools") from error
    if not tools and asked not in (None, "none"):
        raise invalid(f"tool_choice is {_shown(asked)}, and there are no tools", "tool_choice")
    if not tools or asked == "none":
        return ToolChoice(None)
    parameters = {tool["function"]["name"]: _parameters(tool["function"]) for tool in tools}
    if asked == "required":
        return ToolChoice(tools, form=StructuredOutputsParams(json=_any_call(parameters)))
    if not isinstance(asked, NamedFunction):
        return ToolChoice(tools, is_single)
    if (name := asked.function.name) not in parameters:
        raise invalid(f"tool_choice names the function {shown(name)}; there is no such tool", "tool_choice")
    return ToolChoice(tools, form=StructuredOutputsParams(json=parameters[name]), function=name)


def _shown(asked: ToolMode | NamedFunction | None) -> str:
    return shown(asked.model_dump() if isinstance(asked, NamedFunction) else asked)


def _parameters(function: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of its arguments, which are an object whether it says so or not; a function without one takes none."""
    schema = function.get("parameters")
    return {"type": "object", "additionalProperties": False} if schema is None else {**schema, "type": "object"}


def _any_call(parameters: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Of a call of any function, with its name first: what is written of the arguments depends on it."""
    calls = []
    for i, (name, schema) in enumerate(parameters.items()):
        # A resource of its own, for the references in it are to places in it. Older drafts read no "$id" beside a
        # "$ref"; what they have of their own is read without their name as well.
        arguments = {key: value for key, value in schema.items() if key != "$schema"} | {"$id": f"tool:{i}"}
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": name}, "arguments": arguments},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    return {"anyOf": calls}
