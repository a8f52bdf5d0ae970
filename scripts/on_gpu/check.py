"""The command line of ``scripts/gpu_check.py``: which parts run, how long, and what came of them.

Nothing here imports jax: the device belongs to the parts.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from scripts.on_gpu import arguments, signals
from scripts.on_gpu.part import DEFAULT_SECONDS, PARTS, Part, named
from scripts.on_gpu.report import write_report
from scripts.on_gpu.result import PartResult, read_earlier
from scripts.on_gpu.settings import Settings
from scripts.on_gpu.supervise import ROOT, supervise

_LENGTHS = ROOT.parent / "shared" / "data" / "sharegpt_lengths.csv"
_LEAST_SHARE = 0.5
"""With less of its time a part does not begin: it would measure nothing, and take the time of one that can."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts one after another; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        parts = list(PARTS) if options.parts is None else named(options.parts)
    except ValueError as error:
        parser.error(str(error))
    if options.lengths is not None and not options.lengths.is_file():
        parser.error(f"--lengths: there is no file {options.lengths}")
    try:
        arguments.make_writable(options.out)
    except ValueError as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    stop = signals.Stop()
    stop.listen()
    lengths = options.lengths or _LENGTHS
    return check(parts, options.out, seconds=options.seconds, tiny=options.tiny, lengths=lengths, stop=stop)


def check(
    parts: Sequence[Part], out: Path, *, seconds: float, tiny: bool, lengths: Path | None, stop: signals.Stop
) -> int:
    """Run the parts and write the report anew after each. What earlier runs left of other parts stays in it.

    Args:
        parts: in this order.
        out: an existing folder.
        seconds: for all parts together, of which each has its share; what does not fit is reported as not run.
        tiny, lengths: as in ``Settings``.
        stop: ends the part under way, and no other one begins.

    Returns:
        0 if every part ran all that it should and found nothing wrong, that of a process that a signal ended if one
        did, else 1.
    """
    earlier = _earlier(parts, out)
    end, results = time.monotonic() + seconds, list[PartResult]()
    for i, part in enumerate(parts):
        left = end - time.monotonic()
        share = _share(left, parts[i:])
        if stop.number is not None:
            result = PartResult(name=part.name, status="not run", reason="the check was interrupted")
        elif share > left:
            result = PartResult(name=part.name, status="not run", reason="no time was left")
        else:
            result = supervise(part, Settings(seconds=share, tiny=tiny, lengths=lengths), out, stop)
        results.append(result)
        print(f"{part.name}: {result.status}, {result.seconds:.0f} s", flush=True)
        write_report(out, [*results, *earlier], tiny=tiny)
    if stop.number is not None:
        print(f"{signals.name(stop.number)}: interrupted; see {out / 'gpu-check.md'}", file=sys.stderr, flush=True)
        return signals.exit_status(stop.number)
    not_ok = [f"{result.name} ({result.status})" for result in results if result.status != "ok"]
    verdict = f"NOT OK: {', '.join(not_ok)}" if not_ok else "all parts are ok"
    print(f"{verdict}; see {out / 'gpu-check.md'}", flush=True)
    return 1 if not_ok else 0


def _earlier(parts: Sequence[Part], out: Path) -> list[PartResult]:
    """What earlier runs left of the parts that this one does not run."""
    paths = {part.name: out / f"{part.name}.json" for part in PARTS if part not in parts}
    return [read_earlier(path, name) for name, path in paths.items() if path.is_file()]


def _share(left: float, parts: Sequence[Part]) -> float:
    """Seconds for the first of the parts that are still to run: what one before it did not need is for all of them."""
    return parts[0].seconds * max(_LEAST_SHARE, left / sum(part.seconds for part in parts))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Check and time the GPU kernels and the engine on this machine's GPU.",
        epilog="The exit status is 0 if every part is ok; 1 if one is wrong, incomplete (no time was left for some of "
        "its cases), failed, timed out or not run; 2 if the arguments make no sense; 128 and its number more if a "
        "signal ended it.",
    )
    parser.add_argument("--out", type=arguments.folder, default=Path("gpu-check"), help="folder for the results")
    parser.add_argument("--parts", metavar="NAMES", help=f"of: {', '.join(part.name for part in PARTS)}")
    parser.add_argument("--seconds", type=arguments.seconds, default=DEFAULT_SECONDS, help="for all parts together")
    parser.add_argument("--lengths", type=Path, help="CSV of prompt_tokens,output_tokens")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes, on a CPU")
    return parser
