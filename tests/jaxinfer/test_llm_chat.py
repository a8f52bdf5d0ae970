"""Conversations through the Python API: what is rendered, which calls of tools are read, and what is refused."""

from collections.abc import Sequence
from typing import Any

import pytest

from jaxinfer.detokenizer import IncrementalDetokenizer
from jaxinfer.llm import LLM
from jaxinfer.outputs import ToolCall
from jaxinfer.prompts import Prompt
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.structured_outputs.params import StructuredOutputsParams
from jaxinfer.tokenizers.protocol import Tokenizer
from jaxinfer.tool_calls import ToolCallFormat
from jaxinfer.tool_calls.llama3 import LLAMA3
from jaxinfer.tool_calls.qwen import QWEN
from tests.engines import finish, greedy

HI = [{"role": "user", "content": "Once upon a time"}]
TOOLS = [{"type": "function", "function": {"name": "f"}}]


def test_chat_needs_a_template(llm: LLM) -> None:
    with pytest.raises(ValueError, match="template"):
        llm.chat([{"role": "user", "content": "Hello"}])


def test_a_conversation_is_rendered_and_encoded_without_a_second_bos(llm: LLM) -> None:
    """With a template that spells BOS: the ids are those of its text, and the answer reads on from it."""
    tool, mood = "{{ ' a ' ~ tools[0].function.name if tools }}", "{{ mood }}"
    template = "{{ bos_token }}{% for m in messages %} {{ m.content }}{% endfor %}" + tool + mood
    conversations = [
        [{"role": "user", "content": "Once upon"}],
        [{"role": "user"}],
        [{"role": "user", "content": "Tom"}],
    ]
    llm.tokenizer.chat_template = template
    try:
        outputs = llm.chat(conversations, greedy(5))
        [alone] = llm.chat(conversations[0], greedy(5))
        with pytest.raises(ValueError, match=r"\['content'\] is None"):
            llm.chat(conversations[1], greedy(5))
        streamed = "".join(output.outputs[0].delta for output in llm.stream({"messages": conversations[0]}, greedy(5)))
        tools = [{"type": "function", "function": {"name": "tool"}}]
        with_tools = llm.chat(conversations[:1], greedy(1), tools=tools, chat_template_kwargs={"mood": "!"})
        without_tools = llm.chat(conversations[0], greedy(1), tools=[])
        with pytest.raises(ValueError, match=r"cache_salt is \['a'\]; it must be text"):
            llm.generate({"messages": conversations[0], "cache_salt": ["a"]})
    finally:
        llm.tokenizer.chat_template = None
    assert with_tools[0].prompt == "<s> Once upon a tool!"
    assert without_tools[0].prompt == "<s> Once upon"
    assert outputs[0].prompt == "<s> Once upon"
    assert outputs[0].prompt_token_ids == llm.tokenizer.encode("Once upon")
    assert outputs[0].outputs[0].text == alone.outputs[0].text == streamed
    assert "['content'] is None" in outputs[1].error
    assert outputs[2].error is None


def test_every_way_to_chat_can_be_guarded(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a template that has no place for it, so that it is missed; the rest is in test_safe_prompt.py."""
    monkeypatch.setattr(llm.tokenizer, "chat_template", "{{ messages[-1].content }}")
    for answer in (
        lambda: llm.chat(HI, greedy(1), safe_prompt=True),
        lambda: llm.generate({"messages": HI, "safe_prompt": True}, greedy(1)),
    ):
        with pytest.raises(ValueError, match="safe_prompt is a system message, and this model's form"):
            answer()
    assert llm.chat(HI, greedy(1))[0].error is None


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ({"prompt": "Lily", "tools": TOOLS}, "'tools' and no 'messages'"),
        ({"prompt_token_ids": [1], "chat_template_kwargs": {}}, "'chat_template_kwargs' and no 'messages'"),
        ({"messages": HI, "tools": {"name": "f"}}, "tools is {'name': 'f'}; it must be a list"),
        ({"messages": HI, "tools": [{"name": "f"}]}, "tools[0] is {'name': 'f'}; it must be a dict like"),
        ({"messages": HI, "tools": [*TOOLS, {"type": "function", "function": "f"}]}, "tools[1]['function'] is 'f'"),
        ({"messages": HI, "tools": [{"type": "function", "function": {}}]}, "tools[0]['function']['name'] is None"),
        ({"messages": HI, "tools": [*TOOLS, *TOOLS]}, "tools[0] and tools[1] are both named 'f'; names must differ"),
        ({"prompt": "Lily", "safe_prompt": True}, "'safe_prompt' and no 'messages'"),
        ({"messages": HI, "safe_prompt": 1}, "safe_prompt is 1; it must be True or False"),
        ({"messages": HI, "chat_template_kwargs": "x"}, "chat_template_kwargs is 'x'; it must be a dict"),
        (
            {"messages": HI, "chat_template_kwargs": {"messages": 1}},
            "this model's chat template has no option 'messages'",
        ),
    ],
)
def test_what_is_wrong_about_tools_and_options_is_named(
    llm: LLM, prompt: Prompt, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llm.tokenizer, "chat_template", "{{ messages[0].content }}{{ tools }}")
    with pytest.raises(ValueError) as caught:
        llm.generate(prompt, greedy(1))
    assert words in str(caught.value)


class _CallsAtTheEnd(IncrementalDetokenizer):
    """Makes a call of every answer that is whole, in place of a model that was trained to write one."""

    def __init__(
        self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], tool_format: ToolCallFormat, **guards: Any
    ) -> None:
        assert tool_format is QWEN
        super().__init__(tokenizer, prompt_token_ids, **guards)

    def finish(self, *, is_whole: bool = True) -> str:
        self.tool_calls = (ToolCall("1", "say", "{}"),) if is_whole else ()
        return super().finish(is_whole=is_whole)


def test_calls_are_read_where_tools_were_given(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """What calls look like is tested in tests/jaxinfer/tool_calls."""
    monkeypatch.setattr(llm.tokenizer, "chat_template", "{{ messages[0].content }}{% if tools %}{% endif %}")
    monkeypatch.setattr(llm.renderer, "_tool_format", QWEN)
    monkeypatch.setattr("jaxinfer.intake.ToolCallDetokenizer", _CallsAtTheEnd)
    [plain] = llm.chat(HI, greedy(20))
    stop = plain.outputs[0].token_ids[-1]
    assert stop not in plain.outputs[0].token_ids[:-1], "the example needs a last token that comes once"
    stopping = SamplingParams(temperature=0, max_tokens=20, stop_token_ids=[stop])
    [called] = llm.chat(HI, stopping, tools=TOOLS)
    assert (called.outputs[0].finish_reason, called.outputs[0].tool_calls) == (
        "tool_calls",
        (ToolCall("1", "say", "{}"),),
    )
    [cut] = llm.chat(HI, greedy(20), tools=TOOLS)
    assert cut.outputs[0] == plain.outputs[0]
    assert (cut.outputs[0].finish_reason, cut.outputs[0].tool_calls) == ("length", ())
    [stopped] = llm.chat(HI, stopping)
    assert (stopped.outputs[0].finish_reason, stopped.outputs[0].tool_calls) == ("stop", ())


def test_a_form_goes_before_tools(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON that was asked for is the answer, even where the model would write a call just so."""
    monkeypatch.setattr(llm.tokenizer, "chat_template", "{{ messages[0].content }}{% if tools %}{% endif %}")
    monkeypatch.setattr(llm.renderer, "_tool_format", LLAMA3)
    call = '{"name": "f", "parameters": {}}'
    held = greedy(60, structured_outputs=StructuredOutputsParams(choice=[call]))
    [answered] = llm.chat(HI, held, tools=TOOLS)
    assert (answered.outputs[0].text, answered.outputs[0].tool_calls) == (call, ())
    assert answered.outputs[0].finish_reason == "stop"
    llm.engine.add_request("read", answered.prompt_token_ids, held, tool_format=LLAMA3)
    assert finish(llm.engine)["read"].outputs[0].finish_reason == "tool_calls", "it would be one"


def test_a_model_without_a_form_of_calls_is_told_of_once(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(llm.tokenizer, "chat_template", "{{ messages[0].content }}{% if tools %}{% endif %}")
    vars(llm.renderer).pop("_tool_format", None)
    llm.chat(HI, greedy(1))
    assert "known forms" not in caplog.text
    for _ in range(2):
        llm.chat(HI, greedy(1), tools=TOOLS)
    assert caplog.text.count("none of the known forms") == 1
