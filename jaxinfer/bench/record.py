"""What the client saw of one request: when, and how it ended."""

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class RequestRecord:
    """Times are seconds since the beginning of the run, by the client's clock.

    The definitions are as in vLLM's ``bench serve``, but that a chunk without text, such as one with a role, is no
    first token here.

    Attributes:
        due: when it should have been sent.
        sent: when it was: later where the client is too slow, or where it waited for others under a limit of
            concurrency.
        status: of the HTTP answer; None where none came.
        error: what kind of end it had, in a word or two, if it was no good one; else None.
        message: what the server or the connection said of that.
        text_times: when each event with a piece of the answer came.
        ended: when its last event with text or a finish_reason came, or its error; None while it is under way.
        prompt_tokens: as the server counts them; None where it does not say.
        completion_tokens: likewise.
    """

    due: float
    sent: float
    status: int | None = None
    error: str | None = None
    message: str = ""
    text_times: list[float] = field(default_factory=list)
    ended: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    @property
    def num_output_tokens(self) -> int:
        """The server's count, or where it has none the number of events with text, each of which has one or more."""
        return len(self.text_times) if self.completion_tokens is None else self.completion_tokens

    @property
    def ttft(self) -> float:
        """Time to first token: seconds from sending to the first text, or to the end of an answer without any."""
        return self.text_times[0] - self.sent if self.text_times else self.e2e

    @property
    def e2e(self) -> float:
        """End-to-end latency: seconds from sending to the end of the answer, which must have come."""
        assert self.ended is not None
        return self.ended - self.sent

    @property
    def tpot(self) -> float | None:
        """Time per output token after the first: (e2e - ttft) / (tokens - 1) seconds; None for one token or none."""
        return (self.e2e - self.ttft) / (self.num_output_tokens - 1) if self.num_output_tokens > 1 else None

    @property
    def itls(self) -> list[float]:
        """Inter-token latencies: seconds from each event with text to the next, whatever number of tokens they have."""
        return [later - earlier for earlier, later in zip(self.text_times, self.text_times[1:], strict=False)]

    def fail(self, error: str, message: str, now: float) -> None:
        """It has ended badly."""
        self.error, self.message, self.ended = error, message, now
