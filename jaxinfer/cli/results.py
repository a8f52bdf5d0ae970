"""What ``jaxinfer generate`` prints: results in the order of the prompts, as text or as JSON, and how fast it went."""

import sys
from dataclasses import dataclass, field

from jaxinfer.cli.exits import print_error, print_text
from jaxinfer.cli.progress import ProgressBar
from jaxinfer.cli.prompts import UserPrompt
from jaxinfer.cli.result_json import result_json
from jaxinfer.outputs import CompletionOutput, RequestOutput
from jaxinfer.sampling_params import SamplingParams

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
        """Generated tokens, also of sequences that are not shown."""
        return self.output.usage.completion_tokens if self.output and self.output.usage else 0


@dataclass(frozen=True)
class ResultWriter:
    """Writes results on stdout and their errors on stderr.

    Attributes:
        as_json: one JSON object for each; else each text under a line that says whose it is.
        as_ids: show token ids for text, since the model has no tokenizer.
        params: what was asked for.
    """

    as_json: bool
    as_ids: bool
    params: SamplingParams = field(default_factory=SamplingParams)

    def write(self, result: Result) -> None:
        """One result."""
        if self.as_json:
            print(result_json(result.prompt.text, result.output, result.error, self.params), flush=True)
        elif result.output is not None and result.error is None:
            self._write_texts(result.prompt, result.output.outputs)
        if result.error is not None:
            print_error(f"{result.prompt.place}: {result.error}")

    def _write_texts(self, prompt: UserPrompt, completions: list[CompletionOutput]) -> None:
        for number, completion in enumerate(completions, start=1):
            which = f", {number} of {len(completions)}" if len(completions) > 1 else ""
            title = f"==> {prompt.place}{which}: {_shortened(prompt.text)}"
            print_text(f"{title}\n{shown_text(completion, as_ids=self.as_ids)}\n\n")


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


def shown_text(completion: CompletionOutput, *, as_ids: bool) -> str:
    """A sequence for a reader: its text, or its token ids."""
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


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else line[: _SHOWN_CHARACTERS - 3] + "..."
