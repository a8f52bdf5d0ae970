"""``jaxinfer chat``: a conversation, at a terminal or line by line through a pipe."""

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

import typer

from jaxinfer.cli import options
from jaxinfer.cli.chat_entries import open_stdin
from jaxinfer.cli.chat_session import HOW_TO_LEAVE, ChatSession
from jaxinfer.cli.conversation import Conversation
from jaxinfer.cli.ctrl_c import CtrlC
from jaxinfer.cli.engine_options import EngineOptions
from jaxinfer.cli.exits import PROMPT_FAILED, shown_warnings, usage_errors
from jaxinfer.cli.json_values import parse_object
from jaxinfer.cli.load import check_form, open_model
from jaxinfer.cli.option_groups import with_option_groups
from jaxinfer.cli.sampling_options import SamplingOptions

if TYPE_CHECKING:
    from jaxinfer.tokenizers.protocol import Tokenizer


@with_option_groups
def chat(
    *,
    system: options.ChatSystem = None,
    chat_template_kwargs: options.ChatTemplateKwargs = None,
    safe_prompt: options.SafePrompt = False,
    max_tokens: options.AnswerTokens = None,
    sampling: SamplingOptions,
    engine: EngineOptions,
) -> None:
    """Talk with a model. At a terminal /help lists the commands, and Ctrl-C stops an answer.

    Without a terminal each line of stdin is a message or a command, and the answers go to stdout. Exit code 1: a line
    could not be answered; 2: the options are wrong or the model cannot chat; 3: stdout cannot be written; 4: a GPU
    kernel fails its test.
    """
    with shown_warnings():
        with usage_errors():
            lines = open_stdin()
            template_kwargs = parse_object("--chat-template-kwargs", chat_template_kwargs)
            conversation = Conversation(system, template_kwargs, safe_prompt=safe_prompt)
            params = sampling.params(max_tokens=max_tokens)
            opened = open_model(engine.model)
            check_form(params, opened)
            _check_tokenizer(engine.model, opened.tokenizer, conversation)
            llm = engine.load(opened, max_num_seqs=1)
        ctrl_c = CtrlC()
        session = ChatSession(llm, params, conversation, ctrl_c)
        if lines.typed:
            print(f"{engine.model}: type a message; /help lists the commands, {HOW_TO_LEAVE}", file=sys.stderr)
        with ctrl_c.installed() if lines.typed else nullcontext():
            session.run(lines.read)
    if session.num_failed and not lines.typed:
        raise typer.Exit(PROMPT_FAILED)


def _check_tokenizer(model: str, tokenizer: "Tokenizer | None", conversation: Conversation) -> None:
    """Refuse a model that cannot have this conversation.

    Raises:
        ValueError: it has no form for conversations, or that has no place for the system message or a variable.
    """
    if tokenizer is None or not tokenizer.can_chat:
        raise ValueError(f"model is {model!r}, which has no chat template; `jaxinfer generate` goes on from any text")
    conversation.check(tokenizer)
