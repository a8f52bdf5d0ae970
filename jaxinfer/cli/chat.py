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
from jaxinfer.cli.exits import PROMPT_FAILED, shown_warnings, usage_errors
from jaxinfer.cli.load import load, open_model
from jaxinfer.cli.prompts import parse_template_kwargs
from jaxinfer.sampling_params import SamplingParams

if TYPE_CHECKING:
    from jaxinfer.tokenizers.protocol import Tokenizer


def chat(
    system: options.ChatSystem = None,
    chat_template_kwargs: options.ChatTemplateKwargs = None,
    max_tokens: options.AnswerTokens = None,
    min_tokens: options.MinTokens = 0,
    temperature: options.Temperature = 1.0,
    top_k: options.TopK = 0,
    top_p: options.TopP = 1.0,
    min_p: options.MinP = 0.0,
    seed: options.Seed = None,
    ignore_eos: options.IgnoreEos = False,
    stop_token_id: options.StopTokenId = None,
    model: options.Model = "smollm2-135m",
    dtype: options.Dtype = "auto",
    quantization: options.Quantization = None,
    group_size: options.GroupSize = None,
    kernels: options.Kernels = "auto",
    kv_dtype: options.KvDtype = "auto",
    max_model_len: options.MaxModelLen = None,
    num_kv_pages: options.NumKvPages = None,
    memory_fraction: options.MemoryFraction = None,
    page_size: options.PageSize = 16,
    no_prefix_cache: options.NoPrefixCache = False,
) -> None:
    """Talk with a model. At a terminal /help lists the commands, and Ctrl-C stops an answer.

    Without a terminal each line of stdin is a message or a command, and the answers go to stdout. Exit code 1: a line
    could not be answered; 2: the options are wrong or the model cannot chat; 3: stdout cannot be written; 4: a GPU
    kernel fails its test.
    """
    with shown_warnings():
        with usage_errors():
            lines = open_stdin()
            conversation = Conversation(system, parse_template_kwargs(chat_template_kwargs))
            params = SamplingParams(
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                min_p=min_p,
                seed=seed,
                max_tokens=max_tokens,
                min_tokens=min_tokens,
                ignore_eos=ignore_eos,
                stop_token_ids=stop_token_id or (),
            )
            opened = open_model(model)
            _check_tokenizer(model, opened.tokenizer, conversation)
            llm = load(
                opened,
                dtype=dtype,
                quantization=quantization,
                group_size=group_size,
                kernels=kernels,
                kv_dtype=kv_dtype,
                max_model_len=max_model_len,
                num_kv_pages=num_kv_pages,
                memory_fraction=memory_fraction,
                page_size=page_size,
                prefix_cache=not no_prefix_cache,
                max_num_seqs=1,
            )
        ctrl_c = CtrlC()
        session = ChatSession(llm, params, conversation, ctrl_c)
        if lines.typed:
            print(f"{model}: type a message; /help lists the commands, {HOW_TO_LEAVE}", file=sys.stderr)
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
