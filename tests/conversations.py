"""Conversations of ``jaxinfer chat`` for tests: a model that says what it is told to, and lines that are entered."""

import os
import signal

from jaxinfer.outputs import CompletionOutput, RequestMetrics, RequestOutput, Usage


def lines(*given):
    """Reads these lines, then there are no more."""
    left = iter(given)

    def read_line(sign):
        line = next(left, None)
        if line is None:
            raise EOFError
        return line

    return read_line


def press():
    """Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)


REFUSE = object()


class FakeLLM:
    """Says the words it is given, one in each step, and remembers what it was asked.

    A call among the words is called when it is their turn. ``REFUSE`` in place of the words refuses the conversation.
    """

    def __init__(self, *answers):
        self.asked, self.params, self.options, self.open_streams = [], None, None, 0
        self._answers = iter(answers)

    def stream(self, prompts, params):
        """As ``LLM.stream``, for one conversation."""
        [prompt] = prompts
        self.options = prompt.get("chat_template_kwargs")
        self.params = params
        self.asked.append([(message["role"], message["content"]) for message in prompt["messages"]])
        return self._say(next(self._answers))

    def _say(self, words):
        self.open_streams += 1
        try:
            if words is REFUSE:
                yield output_of([], "error", "its prompt is too long")
                return
            said = []
            for word in words:
                if callable(word):
                    word()
                else:
                    said.append(word)
                    yield output_of(said, None)
            yield output_of([*said, ""], "length" if out_of_room in words else "stop", delta="")
        finally:
            self.open_streams -= 1


def out_of_room():
    """Among the words: the answer ends because there is no room for more."""


def output_of(words, reason, error=None, delta=None):
    """What the engine gives once these tokens are there; of 20 prompt tokens 16 were cached."""
    delta = delta if delta is not None else "".join(words[-1:])
    completion = CompletionOutput(0, "".join(words), [*range(len(words))], reason, delta)
    metrics = None if error else RequestMetrics(100.0, 100.0, 100.5, 102.5 if reason else None, len(words), 0)
    usage = None if error else Usage(20, len(words), 16)
    return RequestOutput("0", None, [0] * 20, [completion], reason is not None, metrics, usage, error)
