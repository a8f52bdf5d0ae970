"""``jaxinfer bench serve``: how fast a server answers users who come when they come."""

import asyncio
import logging
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxinfer.cli.bench_options import LoadOptions, PromptOptions, ServerOptions
from jaxinfer.cli.bench_serve_report import as_json, as_tables, remarks
from jaxinfer.cli.exits import (
    INTERRUPTED,
    OUTPUT_FAILED,
    PROMPT_FAILED,
    ended_by,
    shown_warnings,
    usage_errors,
)
from jaxinfer.cli.option_groups import option_of, with_option_groups
from jaxinfer.cli.progress import ProgressBar

if TYPE_CHECKING:
    from jaxinfer.bench.serve_benchmark import ServeBenchmark
    from jaxinfer.bench.summary import Summary

logger = logging.getLogger(__name__)

_output = option_of("Output")


@with_option_groups
def serve(
    *,
    server: ServerOptions,
    prompts: PromptOptions,
    load: LoadOptions,
    goodput: Annotated[
        list[str] | None,
        _output("Milliseconds, such as 'ttft:500 tpot:50 e2e:9000': counts the requests that keep to all of them."),
    ] = None,
    json: Annotated[Path | None, _output("Write all numbers into this file.")] = None,
    plot: Annotated[Path | None, _output("Draw TTFT and TPOT against the rate into this file.")] = None,
) -> None:
    """Send requests to a server that speaks OpenAI's API, and print how fast it answers.

    Requests are sent at times that are drawn beforehand, whether or not those before are answered. TTFT is the time
    from sending to the first text, E2E to the end; TPOT is (E2E - TTFT) / (tokens - 1); ITL is from one piece of text
    to the next. Ctrl-C ends the run and prints what is done. Exit code 1: a request was not answered; 2: the options
    are wrong, or the server cannot be reached; 3: a file or stdout cannot be written.
    """
    with shown_warnings():
        with usage_errors():
            _check_files({"--json": json, "--plot": plot})
            benchmark = _benchmark(server, prompts, load, goodput)
        from jaxinfer.bench.serve_benchmark import WarmUpError

        with ended_by(WarmUpError, PROMPT_FAILED):
            summaries, interrupted = asyncio.run(_until_ctrl_c(benchmark))
        if summaries:
            print(as_tables(summaries, benchmark.targets), flush=True)
            for summary in summaries:
                for line in remarks(summary, benchmark.max_concurrency):
                    logger.warning(line)
            found = {"model": benchmark.target.model, "targets": benchmark.targets}
            _write_json(json, summaries, _arguments(server, prompts, load) | found)
            _write_plot(plot, summaries)
        if interrupted:
            print("interrupted", file=sys.stderr)
            raise typer.Exit(INTERRUPTED)
        if any(summary.errors for summary in summaries):
            raise typer.Exit(PROMPT_FAILED)


def _check_files(files: Mapping[str, Path | None]) -> None:
    """Raises ValueError where a file cannot be written later, so that no measurement is lost."""
    for option, file in files.items():
        if file is not None and not file.absolute().parent.is_dir():
            raise ValueError(f"{option} is {str(file)!r}, and there is no folder {str(file.parent)!r}")
    if files["--plot"] is not None:
        from jaxinfer.bench.serve_plot import check_plot

        check_plot(files["--plot"])


def _benchmark(
    server: ServerOptions, prompts: PromptOptions, load: LoadOptions, goodput: list[str] | None
) -> "ServeBenchmark":
    from jaxinfer.bench.goodput import parse_targets
    from jaxinfer.bench.serve_benchmark import ServeBenchmark, check_settings

    check_settings(**load.settings)  # before the server is asked for its model
    targets, fields = parse_targets(goodput or []), prompts.fields()
    target, max_model_len = server.target(fields)
    return ServeBenchmark(target=target, workload=prompts.workload(max_model_len), targets=targets, **load.settings)


async def _until_ctrl_c(benchmark: "ServeBenchmark") -> tuple[list["Summary"], bool]:
    """The summaries, and whether Ctrl-C cut them short; where the program was started to ignore it, it does not."""
    stop, loop, before = asyncio.Event(), asyncio.get_running_loop(), signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGINT, stop.set)
    try:
        with ProgressBar("Requests") as bar:
            return await benchmark.run(stop, bar.update), stop.is_set()
    finally:
        if before is not signal.SIG_IGN:
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, before)


def _arguments(*groups: ServerOptions | PromptOptions | LoadOptions) -> dict[str, Any]:
    """What was asked for, without the key."""
    values = {name: value for group in groups for name, value in asdict(group).items() if name != "api_key"}
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


def _write_json(file: Path | None, summaries: list["Summary"], arguments: dict[str, Any]) -> None:
    if file is None:
        return
    from jaxinfer.bench.environment import environment

    with ended_by(OSError, OUTPUT_FAILED):
        file.write_text(as_json(summaries, arguments, environment(["httpx", "numpy"])), encoding="utf-8")


def _write_plot(file: Path | None, summaries: list["Summary"]) -> None:
    if file is None:
        return
    from jaxinfer.bench.serve_plot import serve_plot

    with ended_by(OSError, OUTPUT_FAILED):
        serve_plot(summaries).savefig(file, dpi=150)
