"""``jaxinfer perplexity``: how well a model foretells a text, in the one number that others print too."""

import json as json_format
import math
import sys
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from jaxinfer.cli import options
from jaxinfer.cli.engine_options import EngineOptions
from jaxinfer.cli.exits import shown_warnings, usage_errors
from jaxinfer.cli.json_values import as_json_number
from jaxinfer.cli.load import open_model
from jaxinfer.cli.option_groups import option_of, with_option_groups
from jaxinfer.cli.progress import ProgressBar
from jaxinfer.cli.scored_text import ScoredText
from jaxinfer.cli.text_files import read_file_or_stdin
from jaxinfer.scoring import resolve_windows, seqs_for_windows

if TYPE_CHECKING:
    from jaxinfer.llm import LLM

_option = option_of("Text")


@dataclass(frozen=True, kw_only=True)
class Report:
    """What ``--json`` prints. A number that is not finite becomes null, for JSON has none.

    Attributes:
        perplexity: exp of minus the mean log-probability of the scored tokens.
        bits_per_byte: what the tokens of the text take at the mean number of bits of the scored ones, by its bytes in
            UTF-8; it compares models whose tokens differ.
        log_likelihood: the sum of the log-probabilities of the scored tokens.
        num_scored: tokens that are scored: all but the first of the text and, with a stride as long as the window, of
            each window.
        num_tokens: tokens of the text, a BOS included.
        num_windows: windows that were read.
        window: tokens of a window.
        stride: tokens from the beginning of a window to the next.
        seconds: from the first window to the last, without the start of the engine.
        tokens_per_second: tokens scored in one.
    """

    perplexity: float
    bits_per_byte: float
    log_likelihood: float
    num_scored: int
    num_tokens: int
    num_windows: int
    window: int
    stride: int
    seconds: float
    tokens_per_second: float

    def as_json(self) -> str:
        """One line."""
        return json_format.dumps({name: as_json_number(value) for name, value in asdict(self).items()})

    def as_line(self) -> str:
        """All but the perplexity, for a reader."""
        return (
            f"{self.num_scored:,} of {self.num_tokens:,} tokens scored, {self.bits_per_byte:.4f} bits per byte; "
            f"{self.num_windows:,} windows of {self.window:,} tokens, one every {self.stride:,}; "
            f"{self.seconds:.1f} s, {self.tokens_per_second:,.0f} tokens per second"
        )


@with_option_groups
def perplexity(
    *,
    text: Annotated[str, _option("A UTF-8 file, read as one text; - reads stdin.")],
    window: Annotated[
        int | None, _option("Tokens that are read together. Without it: --max-model-len, or the model's length.")
    ] = None,
    stride: Annotated[
        int | None, _option("Tokens from one window to the next, up to --window. Without it: --window.")
    ] = None,
    tokens: Annotated[int | None, _option("Take so many tokens of the text. Without it: all.")] = None,
    engine: EngineOptions,
    max_num_seqs: options.MaxNumSeqs = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel="Output")] = False,
) -> None:
    """Print the perplexity of a text.

    A text that is longer than a window is read in windows, each a text of its own, whose tokens count where no window
    before held them; the first token of a text or window that nothing foretells does not count. Exit code 2: the
    options or the text are wrong; 3: stdout cannot be written; 4: a GPU kernel fails its test.
    """
    with shown_warnings():
        with usage_errors():
            content = read_file_or_stdin("--text", "the text", text)
            opened = open_model(engine.model)
            to_score = ScoredText.of(content, tokens, opened.tokenizer, opened.config.vocab_size)
            longest = opened.config.max_position_embeddings if engine.max_model_len is None else engine.max_model_len
            length, _ = resolve_windows(window, stride, longest)  # before the wait for the weights
            if engine.max_model_len is None:  # a shorter page table is faster
                engine = replace(engine, max_model_len=window)
            llm = engine.load(opened, max_num_seqs=seqs_for_windows(length) if max_num_seqs is None else max_num_seqs)
            length, every = resolve_windows(window, stride, llm.max_model_len)
        report = _measure(llm, to_score, length, every)
        print(report.as_json() if json else f"{report.perplexity:.4f}", flush=True)
        print(report.as_line(), file=sys.stderr)


def _measure(llm: "LLM", text: ScoredText, window: int, stride: int) -> Report:
    start = time.perf_counter()
    with ProgressBar("Scoring") as bar:
        [score] = llm.score({"prompt_token_ids": text.token_ids}, window=window, stride=stride, on_window=bar.update)
    seconds = time.perf_counter() - start
    bits_per_token = -score.log_likelihood / score.num_scored / math.log(2)
    return Report(
        perplexity=score.perplexity,
        bits_per_byte=bits_per_token * text.num_of_text / text.num_bytes if text.num_bytes else math.nan,
        log_likelihood=score.log_likelihood,
        num_scored=score.num_scored,
        num_tokens=len(text.token_ids),
        num_windows=score.num_windows,
        window=window,
        stride=stride,
        seconds=seconds,
        tokens_per_second=score.num_scored / seconds,
    )
