"""Tools are shown, the model calls one, the call is read, its result goes back: in the form of each family.

What the model would write is taken from the form itself: the template, or mistral-common, writes a conversation with a
call; what it puts after the prompt is the answer.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from jaxinfer.outputs import ToolCall
from jaxinfer.tokenizers import load_tokenizer
from jaxinfer.tokenizers.protocol import Tokenizer
from jaxinfer.tool_calls import ToolCallDetokenizer, find_format
from tests.jaxinfer.tool_calls.vocabulary import byte_tokenizer
from tests.mistral_files import mistral_folder, small_tekken, write_tekken
from tests.published_templates import read_template

LLAMA = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>", "<|eot_id|>"]
QWEN = ["<|im_start|>", "<|im_end|>"]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "d",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
    for name in ("weather", "now")
]
ASKED = [{"role": "user", "content": "Wie warm ist es in Köln?"}]
WEATHER = ("weather", {"city": 'Köln "[TOOL_CALLS]" </tool_call>', "days": [1, 2.5, None, True]})
NOW = ("now", {})


def message(calls: Sequence[ToolCall], content: str | None = None) -> dict[str, Any]:
    """The assistant's, as a caller appends it to the conversation."""
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [call.as_message_item() for call in calls],
    }


def result(call: ToolCall) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": "21"}


def written(*calls: tuple[str, Mapping[str, Any]]) -> list[ToolCall]:
    return [ToolCall(f"abcDEF00{i}", name, json.dumps(values)) for i, (name, values) in enumerate(calls)]


def read(tokenizer: Tokenizer, prompt: list[int], answer: list[int]) -> ToolCallDetokenizer:
    """What the engine makes of ``answer``, token by token."""
    tool_format = find_format(tokenizer)
    assert tool_format is not None
    detokenizer = ToolCallDetokenizer(tokenizer, prompt, tool_format)
    deltas = [detokenizer.push([token_id]) for token_id in answer]
    assert "".join(deltas) + detokenizer.finish(is_whole=True) == detokenizer.text
    return detokenizer


def assert_same_calls(found: Sequence[ToolCall], wanted: Sequence[ToolCall]) -> None:
    assert [(call.name, json.loads(call.arguments)) for call in found] == (
        [(call.name, json.loads(call.arguments)) for call in wanted]
    )


@pytest.mark.parametrize(
    ("name", "content", "calls"),
    [
        ("llama3_1", None, [WEATHER]),  # Llama's templates take one call, and drop words beside it
        ("llama3_2", None, [WEATHER]),
        ("llama3_2", None, [NOW]),
        ("qwen2_5", None, [WEATHER]),
        ("qwen2_5", "Let me see.", [WEATHER, NOW]),
        ("qwen3_instruct_2507", None, [WEATHER, NOW]),
        ("qwen3_instruct_2507", "Let me see.", [NOW]),
    ],
)
def test_a_templates_own_calls_are_read_and_written_again(name: str, content: str | None, calls: list[Any]) -> None:
    special = LLAMA if name.startswith("llama") else QWEN
    tokenizer = byte_tokenizer(read_template(name), special)
    wanted = written(*calls)
    prompt = tokenizer.encode_chat(ASKED, tools=TOOLS)
    called = tokenizer.encode_chat([*ASKED, message(wanted, content)], tools=TOOLS, add_generation_prompt=False)
    assert called.text.startswith(prompt.text)
    answer, end, _ = called.text[len(prompt.text) :].partition(special[-1])
    assert end

    found = read(tokenizer, prompt.token_ids, tokenizer.encode(answer, add_special_tokens=False))
    assert found.text == (content or "")
    assert_same_calls(found.tool_calls, wanted)
    history = [*ASKED, message(found.tool_calls, found.text), *map(result, found.tool_calls)]
    again = tokenizer.encode_chat(history, tools=TOOLS)
    assert again.text.startswith(prompt.text + answer + end), "what the model reads is what it wrote"
    assert again.text.count("21") == prompt.text.count("21") + len(calls)


def test_qwen3_thinks_before_it_calls() -> None:
    tokenizer = byte_tokenizer(read_template("qwen3"), QWEN)
    prompt = tokenizer.encode_chat(ASKED, tools=TOOLS)
    thought = "<think>\nThe weather, then.\n</think>\n\n"
    call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    found = read(tokenizer, prompt.token_ids, tokenizer.encode(thought + call))
    assert_same_calls(found.tool_calls, written(NOW))
    history = [*ASKED, message(found.tool_calls, found.text), *map(result, found.tool_calls)]
    again = tokenizer.encode_chat(history, tools=TOOLS).text
    assert again.startswith(prompt.text + thought + call)


def late_tekken(version: str) -> dict[str, Any]:
    """A small vocabulary of the later versions, whose files list their special tokens."""
    spellings = pytest.importorskip("mistral_common.tokens.tokenizers.base").SpecialTokens
    content = small_tekken()
    special = [{"rank": i, "token_str": token.value, "is_control": True} for i, token in enumerate(spellings)]
    num_special = len(special)
    content["config"] |= {
        "version": version,
        "default_num_special_tokens": num_special,
        "default_vocab_size": content["config"]["num_vocab_tokens"] + num_special,
    }
    return content | {"special_tokens": special}


@pytest.mark.parametrize(
    ("version", "calls"),
    [
        ("v2", [WEATHER]),  # which takes one result only
        ("v3", [WEATHER, NOW]),
        ("v7", [WEATHER, NOW]),
        ("tekken", [WEATHER, NOW]),
        ("late v11", [WEATHER, NOW]),
        ("late v13", [WEATHER, NOW]),
    ],
)
def test_mistrals_own_calls_are_read_and_written_again(version: str, calls: list[Any], tmp_path) -> None:
    if version.startswith("late "):
        tokenizer = load_tokenizer(write_tekken(tmp_path, late_tekken(version.removeprefix("late "))))
    else:
        tokenizer = load_tokenizer(mistral_folder(tmp_path, version))
    wanted = written(*calls)
    prompt = tokenizer.encode_chat(ASKED, tools=TOOLS).token_ids
    called = tokenizer.encode_chat([*ASKED, message(wanted), *map(result, wanted)], tools=TOOLS).token_ids
    assert called[: len(prompt)] == prompt
    answer = called[len(prompt) : called.index(tokenizer.eos_token_id, len(prompt))]
    assert answer[0] == tokenizer.token_id("[TOOL_CALLS]")

    found = read(tokenizer, prompt, answer)
    assert found.text == ""
    assert_same_calls(found.tool_calls, wanted)
    history = [*ASKED, message(found.tool_calls), *map(result, found.tool_calls)]
    again = tokenizer.encode_chat(history, tools=TOOLS).token_ids
    assert again[: len(prompt) + len(answer)] == prompt + answer, "what the model reads is what it wrote"
