"""What the published chat templates of Llama 3 and Qwen write, tools included, by transformers.

The templates are files inside the package trl, which is not imported; of them only their hashes go into the fixture.
The conversations are in the form of OpenAI's API, whose arguments of calls are JSON text; transformers gets them as
dicts.
"""

import hashlib
import importlib.util
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import tokenizers
from transformers import PreTrainedTokenizerFast

from reference.fixture import Sources, require, write_record

DATE = {"date_string": "30 Nov 2026"}  # else Llama 3.2's template writes the day on which it runs
LLAMA, QWEN = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}, {"eos_token": "<|im_end|>"}
SPECIAL_TOKENS = {
    "llama3": LLAMA,
    "llama3_1": LLAMA,
    "llama3_2": LLAMA,
    "qwen2_5": QWEN,
    "qwen3": QWEN,
    "qwen3_instruct_2507": QWEN,
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Das Wetter von 'heute' in <Ort> & Umgebung.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Größe egal, z. B. 東京"},
                    "units": {"type": "string", "enum": ["C", "F"]},
                },
                "required": ["city"],
            },
        },
    },
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
]


def _call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


_USER = {"role": "user", "content": '  Wie warm ist es in "Köln"? <b>&\'  '}
_CALL = _call("a1B2c3D4e", "get_weather", '{"city": "Köln", "units": "C", "days": [1, 2.5, null, true]}')
_RESULT = {"role": "tool", "tool_call_id": "a1B2c3D4e", "content": '{"temperature": 21.5}'}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "user": [_USER],
    "turns": [
        {"role": "system", "content": "Antworte kurz.\n"},
        {"role": "user", "content": "Hi 👩‍💻"},
        {"role": "assistant", "content": "<think>\nA greeting.\n</think>\n\nHello!\n\nHow can I help?"},
        _USER,
    ],
    "call": [_USER, {"role": "assistant", "content": None, "tool_calls": [_CALL]}],
    "result": [
        {"role": "system", "content": "Use the tools."},
        _USER,
        {"role": "assistant", "content": None, "tool_calls": [_CALL]},
        _RESULT,
    ],
    "two calls": [
        _USER,
        {"role": "assistant", "content": "Let me see.", "tool_calls": [_CALL, _call("f5G6h7I8j", "now", "{}")]},
        _RESULT,
        {"role": "tool", "tool_call_id": "f5G6h7I8j", "content": "12:00"},
        {"role": "assistant", "content": "21.5 °C, at noon."},
        {"role": "user", "content": "Thanks!"},
    ],
}


@dataclass(frozen=True)
class Case:
    """One rendering of a conversation by each template."""

    conversation: str
    tools: bool = False
    add_generation_prompt: bool = True
    options: dict[str, Any] = field(default_factory=dict)


CASES = [
    Case("user"),
    Case("turns"),
    Case("turns", add_generation_prompt=False),
    Case("user", tools=True, options={"tools_in_user_message": False, "enable_thinking": False}),
    Case("call", tools=True, add_generation_prompt=False),
    Case("result", tools=True),
    Case("two calls", tools=True),
]


def make(sources: Sources) -> None:
    """Write ``chat_templates/reference.json``: the conversations, and what each template writes or says against it."""
    sources_by_name = {name: _template(name) for name in SPECIAL_TOKENS}
    folder = sources.fixtures / "chat_templates"
    folder.mkdir(parents=True, exist_ok=True)
    write_record(
        folder,
        "Conversations as the chat templates inside trl 1.16.0 write them; templates by name with their SHA-256.",
        templates={name: hashlib.sha256(source.encode()).hexdigest() for name, source in sources_by_name.items()},
        special_tokens=SPECIAL_TOKENS,
        tools=TOOLS,
        conversations=CONVERSATIONS,
        cases=[
            _rendered(name, source, case)
            for name, source in sources_by_name.items()
            for case in CASES
            if "tools" in source or not case.tools  # Llama 3 knows none, and transformers drops them in silence
        ],
    )


def _template(name: str) -> str:
    spec = importlib.util.find_spec("trl")
    require(spec is not None and spec.origin is not None, "trl is installed (pip install --no-deps trl==1.16.0)")
    return (Path(spec.origin).parent / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")


def _rendered(name: str, source: str, case: Case) -> dict[str, Any]:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()), **SPECIAL_TOKENS[name]
    )
    record = {
        "template": name,
        "conversation": case.conversation,
        "tools": case.tools,
        "add_generation_prompt": case.add_generation_prompt,
        # transformers takes any name in silence.
        "options": {option: value for option, value in (DATE | case.options).items() if option in source},
    }
    try:
        text = tokenizer.apply_chat_template(
            _with_dicts(CONVERSATIONS[case.conversation]),
            tools=TOOLS if case.tools else None,
            chat_template=source,
            tokenize=False,
            add_generation_prompt=case.add_generation_prompt,
            **record["options"],
        )
    except jinja2.TemplateError as error:
        return record | {"error": str(error)}
    return record | {"text": text}


def _with_dicts(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """``messages`` with the arguments of calls as dicts."""
    copies = json.loads(json.dumps(messages))
    for message in copies:
        for call in message.get("tool_calls") or ():
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return copies
