"""The results of all parts in two files: JSON for machines, Markdown for people."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from scripts.on_gpu.result import PartResult, save

_TINY = "Tiny shapes, run to test the script: no time of this run means anything."


def write_report(out: Path, results: Sequence[PartResult], *, tiny: bool) -> None:
    """Write ``gpu-check.json`` and ``gpu-check.md`` into the folder ``out``."""
    save(out / "gpu-check.json", [result.as_json() for result in results])
    (out / "gpu-check.md").write_text(as_markdown(results, tiny=tiny), encoding="utf-8")


def as_markdown(results: Sequence[PartResult], *, tiny: bool) -> str:
    """The parts, each table of their rows, and at the end why parts failed."""
    rows = [(row.table, row.values | _of_run(result)) for result in results for row in result.rows]
    sections = ["# GPU check", *([_TINY] if tiny else []), _table(_overview(result) for result in results)]
    for title in dict.fromkeys(table for table, _ in rows):
        sections += [f"## {title}", _table(values for table, values in rows if table == title)]
    for result in results:
        if result.reason is not None and result.status != "not run":
            sections += [f"## Why {result.name} {result.status}", f"```text\n{result.reason}\n```"]
    return "\n\n".join(sections) + "\n"


def _overview(result: PartResult) -> dict[str, Any]:
    return {
        "part": result.name,
        "status": result.status,
        "rows": len(result.rows),
        "not run": result.num_not_run,
        "s": round(result.seconds),
    } | _of_run(result)


def _of_run(result: PartResult) -> dict[str, Any]:
    """A column for what was not measured by this run, so that nobody takes it for the same code or device."""
    return {"run": "earlier, tiny" if result.tiny else "earlier"} if result.is_earlier else {}


def _table(rows: Iterable[dict[str, Any]]) -> str:
    """A column for every name that one of the rows has, in the order of their appearance."""
    lines = list(rows)
    columns = list(dict.fromkeys(name for line in lines for name in line))
    cells = [[_cell(line.get(name)) for name in columns] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in [columns, ["---"] * len(columns), *cells])


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "NO"
        case float():
            return _number(value)
    return str(value).replace("|", "/").replace("\n", " ")


def _number(value: float) -> str:
    """Three digits that count, and never an exponent where a person would write none."""
    if 1e-3 <= abs(value) < 1e15:
        return f"{value:,.{max(0, 2 - _exponent(value))}f}"
    return f"{value:.3g}"


def _exponent(value: float) -> int:
    return int(f"{value:.2e}".partition("e")[2])
