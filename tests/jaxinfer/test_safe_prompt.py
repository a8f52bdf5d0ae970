"""``safe_prompt``: the guardrail of Mistral's documentation comes before a conversation, or the request is refused."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from jaxinfer.cli.chat_session import ChatSession
from jaxinfer.cli.conversation import Conversation
from jaxinfer.cli.ctrl_c import CtrlC
from jaxinfer.safe_prompt import encode_conversation
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.tokenizers import load_tokenizer
from jaxinfer.tokenizers.template_chat import ChatByTemplate
from tests.conversations import FakeLLM, lines
from tests.mistral_files import FILES, mistral_folder

# As https://docs.mistral.ai/deprecated/safe_prompt has it.
GUARDRAIL = (
    "Always assist with care, respect, and truth. Respond with utmost utility yet securely. Avoid harmful, unethical, "
    "prejudiced, or negative content. Ensure replies promote fairness and positivity."
)
HI = {"role": "user", "content": "Hi"}
CHATML = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
WITHOUT_SYSTEM = "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
REFUSES_SYSTEM = "{{ raise_exception('no system role') if messages[0].role == 'system' }}" + CHATML


class Letters(ChatByTemplate):
    """A tokenizer whose tokens are letters."""

    bos_token_id = eos_token_id = chat_template_file = None
    chat_adds_bos = False

    def __init__(self, template: str | None) -> None:
        self.chat_template = template

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return list(map(ord, text))

    def token_text(self, token_id: int) -> str:
        return chr(token_id)


def render(messages: Any, *, safe_prompt: Any = True, template: str | None = CHATML) -> str:
    tokenizer: Any = Letters(template)
    chat = encode_conversation(tokenizer, messages, safe_prompt=safe_prompt)
    assert chat.token_ids == tokenizer.encode(chat.text)
    return chat.text


@pytest.mark.parametrize(
    ("before", "system"),
    [
        ([], GUARDRAIL),
        ([{"role": "system", "content": "Be brief."}], f"{GUARDRAIL}\n\nBe brief."),
        ([{"role": "system", "content": ""}], GUARDRAIL),
        ([{"role": "system", "content": []}], GUARDRAIL),
        ([{"role": "system", "content": [{"type": "text", "text": "Be brief."}]}], f"{GUARDRAIL}\n\nBe brief."),
        (
            [{"role": "system", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]}],
            f"{GUARDRAIL}\n\nBe\nbrief.",
        ),
    ],
)
def test_it_comes_before_the_conversation_and_its_system_message(
    before: Sequence[Mapping[str, Any]], system: str
) -> None:
    given = [*before, HI]
    copies = [dict(message) for message in given]
    assert render(given) == f"<system>{system}\n<user>Hi\n"
    assert given == copies, "the caller's messages are as they were"
    assert GUARDRAIL not in render(given, safe_prompt=False)


@pytest.mark.parametrize(
    ("messages", "more", "words"),
    [
        ([HI], {"safe_prompt": "yes"}, "safe_prompt is 'yes'; it must be True or False"),
        ([HI], {"safe_prompt": None}, "safe_prompt is None; it must be True or False"),
        ([HI], {"template": WITHOUT_SYSTEM}, "safe_prompt is a system message, and this model's form of a"),
        ([HI], {"template": REFUSES_SYSTEM}, "no system role (messages[0] is the system message of safe_prompt)"),
        ([HI], {"template": None}, "has no chat template"),
        ("Hi", {}, "messages is 'Hi'"),
        ([], {}, "messages is []"),
        ([None], {}, "messages[0] is None"),
        ([{"role": "system", "content": 5}, HI], {}, "messages[0]['content'] is 5"),
        ([{"role": "system", "content": [{"type": "image_url"}]}, HI], {}, "messages[0]['content'] is [{"),
    ],
)
def test_what_cannot_be_guarded_is_refused(messages: Any, more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        render(messages, **more)
    assert words in str(caught.value)
    blames_it = "of safe_prompt" in str(caught.value)
    assert blames_it == (more.get("template") is REFUSES_SYSTEM), "the others fail without it, too"


@pytest.mark.parametrize("version", FILES)
def test_mistrals_own_form_has_a_place_for_it(version: str, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(mistral_folder(tmp_path, version))
    chat = encode_conversation(tokenizer, [{"role": "system", "content": "Be brief."}, HI], safe_prompt=True)
    assert chat.text.count(f"{GUARDRAIL}\n\nBe brief.") == 1
    assert chat.text.index(GUARDRAIL) < chat.text.index("Hi")


def test_a_conversation_at_the_command_line_keeps_it() -> None:
    llm, conversation = FakeLLM(["a"], ["b"]), Conversation(safe_prompt=True)
    session = ChatSession(llm, SamplingParams(), conversation, CtrlC())  # type: ignore[arg-type]
    session.run(lines("1", "/system Be brief.", "/reset", "2"))
    assert [prompt.get("safe_prompt") for prompt in llm.prompts] == [True, True]
    assert conversation.count_tokens(llm.tokenizer, "2") == len(f"{GUARDRAIL}\n\nBe brief.2b2")
