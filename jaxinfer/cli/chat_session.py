"""A conversation under way: what the user enters is answered or obeyed, until they leave.

Answers go to stdout and everything that is said about them to stderr, so that a file gets nothing but answers. A
message that cannot be answered leaves the conversation as it was.
"""

import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from jaxinfer.cli.chat_entries import FENCE, Entry, ReadLine, UnreadableEntry, read_entry
from jaxinfer.cli.conversation import Conversation, Exchange
from jaxinfer.cli.ctrl_c import CtrlC
from jaxinfer.cli.exits import print_error, print_text
from jaxinfer.cli.results import print_speed
from jaxinfer.outputs import RequestOutput
from jaxinfer.sampling_params import SamplingParams

if TYPE_CHECKING:
    from jaxinfer.llm import LLM
    from jaxinfer.tokenizers.protocol import Tokenizer

HOW_TO_LEAVE = "Ctrl-D or /exit leaves"

_MAKES_ROOM = "/forget drops its oldest exchange, /reset all"


class ChatSession:
    """Answers and obeys.

    Args:
        llm: a model that can chat.
        params: of every answer.
        conversation: how it begins.
        ctrl_c: stops an answer.

    Attributes:
        num_failed: entries that could not be answered or obeyed.
    """

    def __init__(self, llm: "LLM", params: SamplingParams, conversation: Conversation, ctrl_c: CtrlC) -> None:
        self._llm, self._params, self._conversation, self._ctrl_c = llm, params, conversation, ctrl_c
        self._tokenizer = cast("Tokenizer", llm.tokenizer)  # a model that can chat has one
        self.num_failed = 0
        self._left = False

    def run(self, read_line: ReadLine) -> None:
        """Until the last entry, or ``/exit``."""
        while not self._left:
            try:
                self._take(self._ctrl_c.interruptible(lambda: read_entry(read_line)))
            except EOFError:
                self._left = True
            except KeyboardInterrupt:
                _tell(f"\n{HOW_TO_LEAVE}")
            except UnreadableEntry as error:
                self._fail(str(error))

    def _take(self, entry: Entry) -> None:
        if entry.command is not None:
            self._obey(entry.command, entry.text)
        elif entry.text.strip():
            self._answer(entry.text)

    def _fail(self, message: str) -> None:
        self.num_failed += 1
        print_error(message)

    # ---- answers ----

    def _answer(self, question: str) -> None:
        """Stream the answer, say how it went, and keep it."""
        output, stopped = None, True
        for output in self._outputs(question):
            print_text(output.outputs[0].delta)
            stopped = not output.finished
        if output is None:
            _tell("\nstopped before the first word; the message is not kept")
        elif output.error is not None:
            self._fail(output.error)
            room = f"; {_MAKES_ROOM}" if self._conversation.exchanges and self._is_too_long(question) else ""
            _tell(f"the conversation is as it was before this message{room}")
        else:
            print(flush=True)
            self._keep(question, _ended_now(output) if stopped else output)

    def _outputs(self, question: str) -> Iterator[RequestOutput]:
        """The answer as it grows, up to its end or Ctrl-C."""
        prompts = [self._conversation.prompt(question)]  # a list, so that a refusal is an output like any other
        stream = cast(Generator[RequestOutput, None, None], self._llm.stream(prompts, self._params))
        with closing(stream):
            while True:
                try:
                    output = self._ctrl_c.interruptible(lambda: next(stream, None))
                except KeyboardInterrupt:
                    return
                if output is None:
                    return
                yield output

    def _is_too_long(self, question: str) -> bool:
        """Whether the conversation with this question has more tokens than the model takes."""
        try:
            return self._conversation.count_tokens(self._tokenizer, question) > self._llm.max_model_len
        except ValueError:
            return False

    def _keep(self, question: str, output: RequestOutput) -> None:
        answer, reason = output.outputs[0], output.outputs[0].finish_reason
        if not answer.text.strip():  # some templates refuse a conversation with a message of nothing
            _tell("the answer is empty; the message is not kept")
        else:
            self._conversation.exchanges.append(Exchange(question, answer.text))
        if reason is None:
            _tell("stopped")
        elif reason == "length":
            limit = self._params.max_tokens
            cut = f"cut at {limit} tokens, as --max-tokens says" if len(answer.token_ids) == limit else None
            _tell(cut or f"cut, for the conversation fills max_model_len; {_MAKES_ROOM}")
        print_speed(output)

    # ---- commands ----

    def _obey(self, name: str, argument: str) -> None:
        command = _COMMANDS.get(name)
        if command is None:
            self._fail(f"there is no command /{name}; /help lists them, and {FENCE} around a line makes it a message")
        elif argument and not command.argument:
            self._fail(f"/{name} takes nothing after it, not {argument!r}")
        else:
            command.run(self, argument)

    def _help(self, argument: str) -> None:
        for name, command in _COMMANDS.items():
            _tell(f"  {f'/{name} {command.argument}':<14} {command.does}")
        _tell(f"  {FENCE}            begins a message of several lines, and ends it")
        _tell("  Ctrl-C         stops an answer; what was said of it is kept")

    def _leave(self, argument: str) -> None:
        self._left = True

    def _set_system(self, text: str) -> None:
        changed = replace(self._conversation, system=text or None)
        try:
            changed.check(self._tokenizer)
        except ValueError as error:
            self._fail(f"{error}; the system message is as it was")
            return
        self._conversation.system = changed.system
        _tell("the system message is set" if text else "there is no system message")

    def _reset(self, argument: str) -> None:
        self._conversation.exchanges.clear()
        _tell("the conversation is empty; the system message is as it was")

    def _undo(self, argument: str) -> None:
        self._drop(-1)

    def _forget(self, argument: str) -> None:
        self._drop(0)

    def _drop(self, position: int) -> None:
        exchanges = self._conversation.exchanges
        if not exchanges:
            self._fail("the conversation is empty")
            return
        del exchanges[position]
        _tell(f"exchanges left: {len(exchanges)}")


@dataclass(frozen=True)
class _Command:
    """A command of a conversation: what may follow its name ("" for nothing), what it does, and how."""

    argument: str
    does: str
    run: Callable[[ChatSession, str], None]


_COMMANDS = {
    "help": _Command("", "lists this", ChatSession._help),
    "exit": _Command("", "leaves, as Ctrl-D does", ChatSession._leave),
    "system": _Command("TEXT", "sets the system message; without TEXT there is none", ChatSession._set_system),
    "reset": _Command("", "drops the whole conversation but the system message", ChatSession._reset),
    "undo": _Command("", "drops the newest message and its answer", ChatSession._undo),
    "forget": _Command("", "drops the oldest message and its answer, which makes room", ChatSession._forget),
}


def _tell(message: str) -> None:
    """For the person at the terminal."""
    print(message, file=sys.stderr)


def _ended_now(output: RequestOutput) -> RequestOutput:
    """What was last seen of a request that was stopped, with its end, so that it has a speed."""
    if output.metrics is None:
        return output
    return replace(output, metrics=replace(output.metrics, finished_time=time.perf_counter()))
