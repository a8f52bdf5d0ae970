"""The command line of ``scripts/tune_kernels.py``: which problems are tuned, how long, and where the tables go."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pallas_kernels import paged_attention, quantized_matmul
from pallas_kernels.device import current_device
from pallas_kernels.paged_attention.configs import Problem as AttentionProblem
from pallas_kernels.quantized_matmul.configs import Problem as ProductProblem
from pallas_kernels.shapes import SHAPES
from pallas_kernels.tuned import read_table, round_up, table_name, write_table
from scripts.on_gpu import arguments
from scripts.on_gpu.attention_tuning import attention_cases
from scripts.on_gpu.compiling import OutOfTimeError
from scripts.on_gpu.engine_rows import rows_of_engine
from scripts.on_gpu.matrices import ALL_FORMATS, FORMATS
from scripts.on_gpu.peaks import peaks_of_this_device
from scripts.on_gpu.product_tuning import product_cases
from scripts.on_gpu.settings import Settings
from scripts.on_gpu.supervise import ROOT
from scripts.on_gpu.tuning import DeviceLostError, Outcome, Tunable, tune

_MODELS = ("mistral-7b-v0.1",)

_TYPES: dict[str, tuple[Any, Any]] = {
    "paged_attention": (AttentionProblem, paged_attention.Config),
    "quantized_matmul": (ProductProblem, quantized_matmul.Config),
}
"""Of a problem and its config, by operation: the folder of ``pallas_kernels``."""


def main(argv: Sequence[str] | None = None) -> int:
    """Tune; returns the exit status: 1 if a problem has no right candidate or the device was lost, 2 if nothing ran."""
    options = _parsed(argv)
    settings = Settings(seconds=options.seconds, tiny=options.tiny)
    try:
        _check_before(options.operations, options.out, settings)
    except (RuntimeError, ValueError, OSError) as error:
        print(f"tune_kernels: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    cases: dict[str, Iterable[Tunable[Any, Any]]] = {
        "paged_attention": attention_cases(options.models, settings),
        "quantized_matmul": product_cases(options.models, options.formats, options.rows),
    }
    try:
        failed = [
            case
            for operation in options.operations
            for case in _tune_all(operation, cases[operation], options.out, options.again, settings)
        ]
    except DeviceLostError as error:
        print(error, flush=True)
        return 1
    return 1 if failed else 0


def _check_before(operations: Iterable[str], out: Path, settings: Settings) -> None:
    """What would end the tuning later, after much time.

    Raises:
        RuntimeError: there is no GPU.
        ValueError: a table cannot be written, or the one that is there is none.
        OSError: it cannot be read.
    """
    peaks_of_this_device(settings)
    for operation in operations:
        path = _table_path(operation, out)
        arguments.make_writable(path.parent)
        read_table(path, *_TYPES[operation])


def _table_path(operation: str, out: Path) -> Path:
    return out / operation / "tuned" / table_name(current_device())


def _tune_all(
    operation: str, cases: Iterable[Tunable[Any, Any]], out: Path, again: bool, settings: Settings
) -> list[Tunable[Any, Any]]:
    """Tune each problem and write the table after it; returns the problems without a right candidate."""
    device = current_device()
    path, failed = _table_path(operation, out), list[Tunable[Any, Any]]()
    for case in cases:
        if case.problem in _table_now(operation, path) and not again:
            continue
        try:
            outcome = tune(case, device, settings)
        except OutOfTimeError:
            print(f"no time was left for {case}, and what comes after it", flush=True)
            break
        print(_line(case, outcome), flush=True)
        if outcome.best is None:
            failed.append(case)
            continue
        write_table(path, _table_now(operation, path) | {case.problem: outcome.best})
    return failed


def _table_now(operation: str, path: Path) -> dict[Any, Any]:
    """The table as another run, on another operation or model, may have left it a moment ago."""
    read_table.cache_clear()
    return read_table(path, *_TYPES[operation])


def _line(case: object, outcome: Outcome[Any]) -> str:
    """The gain, the best candidate, and why others were dropped, the commonest reason first."""
    reasons = list(outcome.dropped.values())
    commonest = sorted(set(reasons), key=reasons.count, reverse=True)
    dropped = f"; {len(reasons)} dropped: {'; '.join(commonest[:2])}" if reasons else ""
    if outcome.best is None:
        return f"{case}: no candidate is right{dropped}"
    gain = "the rule of thumb is not right" if outcome.gain is None else f"{outcome.gain:.2f} x the rule of thumb"
    return f"{case}: {1e6 * outcome.seconds[outcome.best]:.1f} us, {gain}, {outcome.best}{dropped}"


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Find the fastest tile sizes on this machine's GPU, and write them.")
    parser.add_argument("--operations", nargs="+", choices=list(_TYPES), default=list(_TYPES))
    parser.add_argument("--models", nargs="+", choices=sorted(SHAPES), metavar="NAME", default=_MODELS)
    parser.add_argument("--formats", nargs="+", choices=ALL_FORMATS[:-1], default=FORMATS, help="of weights")
    parser.add_argument("--rows", nargs="+", type=int, help="of activations, powers of two; an engine's if left out")
    parser.add_argument("--seconds", type=arguments.seconds, default=500, help="for all; what is found by then is kept")
    parser.add_argument("--again", action="store_true", help="tune what the table has already, too")
    parser.add_argument("--out", type=arguments.folder, help="of OPERATION/tuned; the package itself if left out")
    parser.add_argument("--tiny", action="store_true", help="few candidates, on a CPU; needs --out")
    options = parser.parse_args(argv)
    options.rows = options.rows or rows_of_engine()
    if any(rows < 1 or rows != round_up(rows) for rows in options.rows):
        parser.error(f"--rows are {options.rows}; the tables have powers of two")
    if options.tiny and options.out is None:
        parser.error("--tiny needs --out: what it finds is of no use to the package")
    options.out = options.out or ROOT / "pallas_kernels"
    return options
