"""What ``jaxinfer generate`` prints: results in the order of the prompts, as text or as JSON, and how fast it went."""

import json
import sys
from dataclasses import asdict, dataclass

from jaxinfer.cli.exits import print_error, print_text
from jaxinfer.cli.progress import ProgressBar
from jaxinfer.cli.prompts import UserPrompt
from jaxinfer.outputs import RequestMetrics, RequestOutput

_SHOWN_CHARACTERS = 60


@dataclass(frozen=True)
class Result:
    """How one prompt ended: with an output, or with an error before the engine saw it."""

    prompt: UserPrompt
    output: RequestOutput | None
    refusal: str | None = None

    @property
    def error(self) -> str | None:
        """Why there is no answer, or None."""
        return self.refusal if self.output is None else self.output.error

    @property
    def num_tokens(self) -> int:
        """Generated tokens."""
        return 0 if self.output is None else len(self.output.outputs[0].token_ids)

    def as_json(self) -> str:
        """One line. It is plain ASCII, so that it can be written to any stdout, whatever the text holds."""
        completion = None if self.output is None else self.output.outputs[0]
        return json.dumps(
            {
                "prompt": self.prompt.text,
                "text": completion.text if completion else "",
                "token_ids": completion.token_ids if completion else [],
                "finish_reason": completion.finish_reason if completion else "error",
                "metrics": _metrics(self.output.metrics) if self.output and self.output.metrics else None,
                "usage": asdict(self.output.usage) if self.output and self.output.usage else None,
                "error": self.error,
            }
        )


@dataclass(frozen=True)
class ResultWriter:
    """Writes results on stdout and their errors on stderr.

    Attributes:
        as_json: one JSON object for each; else the text under a line that says whose it is.
        as_ids: show token ids for text, since the model has no tokenizer.
    """

    as_json: bool
    as_ids: bool

    def write(self, result: Result) -> None:
        """One result."""
        if self.as_json:
            print(result.as_json(), flush=True)
        elif result.output is not None and result.error is None:
            title = f"==> {result.prompt.place}: {_shortened(result.prompt.text)}"
            print_text(f"{title}\n{shown_text(result.output, as_ids=self.as_ids)}\n\n")
        if result.error is not None:
            print_error(f"{result.prompt.place}: {result.error}")


@dataclass
class Totals:
    """Counts over the prompts of a run."""

    num_prompts: int = 0
    num_failed: int = 0
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    num_preemptions: int = 0


class OrderedResults:
    """Takes results as they come and writes each once all before it are written.

    Args:
        num_prompts: how many there will be.
        writer: writes a result.
        bar: shows how many have come; it is hidden while one is written.

    Attributes:
        totals: of the results so far.
    """

    def __init__(self, num_prompts: int, writer: ResultWriter, bar: ProgressBar) -> None:
        self._num_prompts, self._writer, self._bar = num_prompts, writer, bar
        self._waiting: dict[int, Result] = {}
        self._num_written = 0
        self.totals = Totals()

    def add(self, position: int, result: Result) -> None:
        """The result of the prompt at ``position``, counted from 0."""
        self.totals.num_prompts += 1
        self.totals.num_failed += result.error is not None
        self.totals.num_output_tokens += result.num_tokens
        if result.output and result.output.usage and result.output.metrics:
            self.totals.num_cached_tokens += result.output.usage.cached_tokens
            self.totals.num_preemptions += result.output.metrics.num_preemptions
        self._bar.update(self.totals.num_prompts, self._num_prompts)
        self._waiting[position] = result
        if self._num_written in self._waiting:
            with self._bar.hidden():
                self._write_settled()

    def _write_settled(self) -> None:
        while self._num_written in self._waiting:
            self._writer.write(self._waiting.pop(self._num_written))
            self._num_written += 1


def shown_text(output: RequestOutput, *, as_ids: bool) -> str:
    """The output for a reader: its text, or its token ids."""
    completion = output.outputs[0]
    return " ".join(map(str, completion.token_ids)) if as_ids else completion.text


def print_speed(output: RequestOutput) -> None:
    """How fast one prompt was answered, on stderr."""
    cached = f" ({output.usage.cached_tokens} cached)" if output.usage and output.usage.cached_tokens else ""
    counts = f"{len(output.prompt_token_ids)} prompt tokens{cached}, {len(output.outputs[0].token_ids)} output tokens"
    metrics = output.metrics
    first = f", first after {metrics.ttft:.3f} s" if metrics and metrics.ttft is not None else ""
    rate = f", then {1 / metrics.tpot:.1f} tokens per second" if metrics and metrics.tpot else ""
    print(counts + first + rate, file=sys.stderr)


def print_totals(totals: Totals, seconds: float) -> None:
    """How fast all prompts were answered, on stderr."""
    tokens = totals.num_output_tokens
    cached = f"; {totals.num_cached_tokens} prompt tokens were cached" if totals.num_cached_tokens else ""
    preempted = f"; {totals.num_preemptions} preemptions, for the KV cache was full" if totals.num_preemptions else ""
    print(
        f"{totals.num_prompts} prompts, {totals.num_failed} failed; "
        f"{tokens} output tokens in {seconds:.2f} s, {tokens / seconds:.1f} per second{cached}{preempted}",
        file=sys.stderr,
    )


def _metrics(metrics: RequestMetrics) -> dict[str, float | None]:
    """Seconds: to the first token, for each token after it, and from arrival to end."""
    whole = None if metrics.finished_time is None else metrics.finished_time - metrics.arrival_time
    return {"ttft": metrics.ttft, "tpot": metrics.tpot, "seconds": whole}


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else line[: _SHOWN_CHARACTERS - 3] + "..."
