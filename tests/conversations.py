"""Conversations of ``jaxinfer chat`` for tests: a model that says what it is told to, and lines that are entered."""

import os
import signal

from jaxinfer.outputs import CompletionOutput, RequestMetrics, RequestOutput, Usage
from jaxinfer.prompts import as_mapping
from jaxinfer.tokenizers.protocol import EncodedChat


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
UNFIT = "unfit"
"""In a system message or a question: the template has no place for it."""


class FakeTokenizer:
    """Of a model that can chat; each letter of a conversation is a token."""

    can_chat = True

    def encode_chat(self, messages, *, tools=None, options=None):
        """As ``Tokenizer.encode_chat``."""
        text = "".join(message["content"] for message in messages)
        if UNFIT in text:
            raise ValueError("the chat template failed: unfit")
        return EncodedChat(text, [ord(letter) for letter in text])


class FakeLLM:
    """Says the words it is given, one in each step, and remembers what it was asked.

    A call among the words is called when it is their turn. ``REFUSE`` in place of the words refuses the conversation.
    It holds on to its streams, so that one that nobody closes stays open.
    """

    def __init__(self, *answers):
        self.tokenizer, self.max_model_len = FakeTokenizer(), 100
        self.prompts, self.params, self.open_streams = [], None, 0
        self._answers, self._streams = iter(answers), []

    @property
    def asked(self):
        """The messages of each prompt, as pairs."""
        return [[(message["role"], message["content"]) for message in prompt["messages"]] for prompt in self.prompts]

    def stream(self, prompts, params):
        """As ``LLM.stream``, for one conversation."""
        [prompt] = prompts
        self.prompts.append(as_mapping(prompt))
        self.params = params
        self._streams.append(self._say(next(self._answers)))
        return self._streams[-1]

    def generate(self, prompts, params, *, on_finish):
        """As ``LLM.generate``; says one word to each."""
        self.prompts += [as_mapping(prompt) for prompt in prompts]
        self.params = params
        for index in range(len(prompts)):
            on_finish(index, output_of(["Yes."], "stop"))

    def _say(self, words):
        self.open_streams += 1
        try:
            if words is REFUSE:
                yield output_of([], "error", "it cannot be served")
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
    return RequestOutput("0", None, [0] * 20, [completion], reason is not None, metrics, usage, error=error)
