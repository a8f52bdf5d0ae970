"""Published templates write here what they write under transformers; SmolLM2's is in test_chat_template.py."""

import hashlib
import json
from dataclasses import dataclass

import pytest

from jaxinfer.chat_template import render_chat
from tests.published_templates import read_template
from tests.reference import FIXTURES

REFERENCE = json.loads((FIXTURES / "chat_templates" / "reference.json").read_text(encoding="utf-8"))
CASES = REFERENCE["cases"]


@dataclass
class Vocabulary:
    """A tokenizer that knows how to spell BOS (0) and EOS (1), where there are any."""

    chat_template: str
    spellings: list[str | None]
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    chat_template_file: None = None

    def __post_init__(self) -> None:
        self.bos_token_id, self.eos_token_id = (i if text else None for i, text in enumerate(self.spellings))

    def token_text(self, token_id: int) -> str:
        return self.spellings[token_id] or ""


def render(case: dict, messages: list[dict]) -> str:
    special = REFERENCE["special_tokens"][case["template"]]
    return render_chat(
        Vocabulary(read_template(case["template"]), [special.get("bos_token"), special.get("eos_token")]),
        messages,
        tools=REFERENCE["tools"] if case["tools"] else None,
        add_generation_prompt=case["add_generation_prompt"],
        options=case["options"],
    )


@pytest.mark.parametrize("name", REFERENCE["templates"])
def test_the_templates_are_those_of_the_fixture(name: str) -> None:
    assert hashlib.sha256(read_template(name).encode()).hexdigest() == REFERENCE["templates"][name]


@pytest.mark.parametrize("case", CASES, ids=[f"{case['template']}-{case['conversation']}" for case in CASES])
def test_a_template_writes_what_transformers_writes(case: dict) -> None:
    messages = REFERENCE["conversations"][case["conversation"]]
    if "error" in case:
        with pytest.raises(ValueError) as caught:
            render(case, messages)
        assert str(caught.value) == f"the chat template failed: {case['error']}"
    else:
        assert render(case, messages) == case["text"]


@pytest.mark.parametrize("name", REFERENCE["templates"])
def test_the_fixture_tells_conversations_apart(name: str) -> None:
    """The negative control: a template that loses what it is given would write equal texts."""
    texts = [case["text"] for case in CASES if case["template"] == name and "text" in case]
    assert len(set(texts)) == len(texts) >= 3


def test_llama_3_knows_no_tools() -> None:
    with pytest.raises(ValueError, match="no place for tools"):
        render(CASES[0] | {"tools": True}, REFERENCE["conversations"]["user"])
