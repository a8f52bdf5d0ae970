"""One line in the log for each call: what became of it, how long it was and how long it took; never its text unasked.

It stands around the whole application, so it sees the end of a stream, a client that has left and a fault that nobody
caught, and each answer goes out with the name that its line begins with.
"""

import logging
import secrets
import time
from collections import Counter
from dataclasses import dataclass, field

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jaxinfer.openai_api.errors import ApiError, failed
from jaxinfer.outputs import RequestOutput
from jaxinfer.value_checks import shown

logger = logging.getLogger(__name__)

_LONGEST_PATH = 100
_QUIET_METHODS = ("GET", "HEAD")
"""Health and metrics are asked for each second; what they answer is told where it is an error."""
CLIENT_LEFT = 499
"""nginx' own status; nobody is there to read it."""


@dataclass
class CallRecord:
    """What is known of one call.

    Attributes:
        name: of the call, in the log and in the answer's header ``X-Request-Id``.
        outputs: the newest of each prompt.
        error: what it ended with.
    """

    name: str = field(default_factory=lambda: f"req-{secrets.token_hex(8)}")
    outputs: dict[int, RequestOutput] = field(default_factory=dict)
    error: ApiError | None = None

    @property
    def tokens(self) -> str:
        """How many, why there are no more, and when the first came; nothing where none is known."""
        usages = [output.usage for output in self.outputs.values() if output.usage is not None]
        if not usages:
            return ""
        sequences = [sequence for output in self.outputs.values() for sequence in output.outputs]
        reasons = Counter(sequence.finish_reason or "unfinished" for sequence in sequences)
        told = [
            f"{sum(usage.prompt_tokens for usage in usages)} prompt tokens",
            f"{sum(usage.completion_tokens for usage in usages)} output tokens",
            ", ".join(f"{count} {reason}" for reason, count in reasons.items()),
        ]
        times = [output.metrics.ttft for output in self.outputs.values() if output.metrics is not None]
        if firsts := [seconds for seconds in times if seconds is not None]:
            told.append(f"first after {min(firsts):.3f} s")
        return "; ".join(told) + "; "


def record_of(request: Request) -> CallRecord:
    """The record of the call that a request is."""
    record: CallRecord = request.state.call_record
    return record


class CallLog:
    """Around an application.

    Args:
        app: the application.
        log_prompts: whether lines tell what was asked and answered, too.
    """

    def __init__(self, app: ASGIApp, *, log_prompts: bool) -> None:
        self._app, self._log_prompts = app, log_prompts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record, began = CallRecord(), time.perf_counter()
        scope.setdefault("state", {})["call_record"] = record
        sent = _Sent(send, record.name)
        try:
            await self._app(scope, receive, sent)
        except Exception as fault:
            logger.error("%s failed", record.name, exc_info=fault)
            record.error = failed("the server failed to answer; its log says why")
            if sent.status is None:
                await JSONResponse(record.error.body, record.error.status)(scope, receive, sent)
        finally:
            self._tell(scope, record, sent, time.perf_counter() - began)

    def _tell(self, scope: Scope, record: CallRecord, sent: "_Sent", seconds: float) -> None:
        status = sent.status if sent.is_whole and sent.status is not None else CLIENT_LEFT
        if scope["method"] in _QUIET_METHODS and status < 400:
            return
        path = scope.get("raw_path", b"")[:_LONGEST_PATH].decode(
            "latin-1"
        )  # as it was sent: one line, whatever it says
        became = "client left" if status == CLIENT_LEFT else str(status)
        if record.error is not None:
            became += f" {record.error.detail.code or record.error.detail.type}"
        logger.info("%s %s %s %s: %s%.3f s", record.name, scope["method"], path, became, record.tokens, seconds)
        if self._log_prompts:
            self._tell_text(record)

    def _tell_text(self, record: CallRecord) -> None:
        if record.error is not None:
            logger.info("%s error: %s", record.name, record.error)
        for output in record.outputs.values():
            asked = shown(output.prompt_token_ids) if output.prompt is None else repr(output.prompt)
            logger.info("%s prompt: %s", record.name, asked)
            for sequence in output.outputs:
                logger.info("%s answer: %r", record.name, sequence.text)


class _Sent:
    """Sends on, and notes what was sent."""

    def __init__(self, send: Send, name: str) -> None:
        self._send, self._name = send, name
        self.status: int | None = None
        self.is_whole = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), (b"x-request-id", self._name.encode())]
            message = {**message, "headers": headers}
        await self._send(message)
        self.is_whole = message["type"] == "http.response.body" and not message.get("more_body", False)
