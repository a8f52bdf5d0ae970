"""A server's model for tests of the server itself: the real engine over the fake runner, so it starts at once.

Its steps take as long as a test wants, and fail when it wants. It has no tokenizer: prompts are token ids.
"""

import json
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from jaxinfer.prompt_rendering import PromptRenderer
from tests.fake_runner import expected_tokens
from tests.fakes import fake_engine

JSON = {"content-type": "application/json"}


class FakeModel:
    """What the server needs of an ``LLM``.

    Attributes:
        seconds_per_step: how long each step takes.
        before_step: is called at the beginning of each.
    """

    def __init__(self, **limits: Any) -> None:
        self.engine = fake_engine(**({"max_model_len": 2048, "num_kv_pages": 2048} | limits))
        self.max_model_len, self.tokenizer, self.renderer = self.engine.max_model_len, None, PromptRenderer(None)
        self.seconds_per_step = 0.0
        self.before_step: Callable[[], None] = lambda: None
        runner: Any = self.engine._runner
        forward = runner.forward

        def paced(batch: Any) -> Any:
            self.before_step()
            time.sleep(self.seconds_per_step)
            runner.batches.clear()  # which it keeps for other tests: memory is to stay flat
            return forward(batch)

        runner.forward = paced

    def wait_until_idle(self, seconds: float = 1.0) -> None:
        """Fails where requests, or pages of theirs, are left after so many seconds."""
        scheduler, end = self.engine.scheduler, time.monotonic() + seconds
        while (scheduler.num_running, scheduler.num_waiting, scheduler.num_free_pages) != (0, 0, scheduler.num_pages):
            assert time.monotonic() < end, (scheduler.num_running, scheduler.num_waiting, scheduler.num_free_pages)
            time.sleep(0.01)


def asked(prompt: Sequence[int], max_tokens: int, **more: Any) -> dict[str, Any]:
    """The body of a call whose answer tells its token ids."""
    return {"prompt": list(prompt), "max_tokens": max_tokens, "temperature": 0, "return_token_ids": True, **more}


def expected(body: dict[str, Any]) -> list[int]:
    """The token ids of its answer."""
    return expected_tokens(body["prompt"], body["max_tokens"])


def events(content: bytes) -> list[Any]:
    """What the events of a stream say, wherever HTTP cut it into chunks."""
    told = re.findall(rb"^data: (.*?)\r?$", content, re.MULTILINE)
    return [event.decode() if event == b"[DONE]" else json.loads(event) for event in told]


def token_ids(content: bytes) -> list[int]:
    """Those of an answer of one sequence, whole or as a stream."""
    answers = events(content)[:-1] or [json.loads(content)]
    choices = [choice for answer in answers for choice in answer["choices"]]
    return [token for choice in choices for token in choice["token_ids"] or ()]


def post(body: dict[str, Any] | bytes, path: str = "/v1/completions") -> bytes:
    """All bytes of a call, after whose answer the connection is closed."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content
