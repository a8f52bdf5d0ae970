"""What became of a part, as JSON on the disk: the child writes it row by row, the parent reads what it left."""

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from scripts.on_gpu.part import Row

Status = Literal["running", "ok", "wrong", "incomplete", "failed", "timed out", "interrupted", "not run"]
"""``wrong``: it ran, and a row says that something is wrong. ``incomplete``: nothing is wrong, but not all was run.
``failed``: it broke off. ``interrupted``: the whole check was ended from outside."""


@dataclass(frozen=True, kw_only=True)
class PartResult:
    """What became of a part.

    Attributes:
        name: of the part.
        status: how it ended.
        seconds: that it took.
        rows: what it measured until then.
        reason: why it did not end well; None where it did.
        tiny: whether its shapes were tiny.
        is_earlier: whether it is of an earlier run of the check, into the same folder.
    """

    name: str
    status: Status
    seconds: float = 0.0
    rows: tuple[Row, ...] = ()
    reason: str | None = None
    tiny: bool = False
    is_earlier: bool = False

    @property
    def num_not_run(self) -> int:
        """Cases that no time was left for."""
        return sum(row.num_not_run for row in self.rows)

    def with_row(self, row: Row, seconds: float) -> "PartResult":
        """The result with one row more."""
        return replace(self, rows=(*self.rows, row), seconds=seconds)

    def at_its_end(self) -> "PartResult":
        """The result once no row is to come any more: only a part that ran all that it should is ``ok``."""
        if any(row.is_fault for row in self.rows):
            return replace(self, status="wrong")
        if self.rows and self.num_not_run == 0:
            return replace(self, status="ok")
        reason = f"no time was left for {self.num_not_run} cases" if self.rows else "it yielded no row"
        return replace(self, status="incomplete", reason=reason)

    def as_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return asdict(self)


def save(path: Path, content: Any) -> None:
    """Write JSON so that a reader, or a sudden end, finds the old file or the new one, and never a half."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(_as_text(content), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    temporary.replace(path)


def _as_text(content: Any) -> Any:
    """With ``"inf"`` and ``"nan"`` in place of the numbers that JSON does not have."""
    match content:
        case float():
            return content if math.isfinite(content) else str(content)
        case dict():
            return {key: _as_text(value) for key, value in content.items()}
        case list() | tuple():
            return [_as_text(value) for value in content]
    return content


def read(path: Path, name: str) -> PartResult:
    """What the part ``name`` left at ``path``: one without rows where it left nothing."""
    if not path.is_file():
        return PartResult(name=name, status="running")
    content = json.loads(path.read_text(encoding="utf-8"))
    return PartResult(**content | {"rows": tuple(Row(**row) for row in content["rows"])})


def read_earlier(path: Path, name: str) -> PartResult:
    """What an earlier run left of the part ``name``, at ``path``; a file that is no such thing is said to be none."""
    try:
        result = read(path, name)
    except (ValueError, TypeError, KeyError) as error:
        result = PartResult(name=name, status="failed", reason=f"{path} holds no result of a part: {error!r}")
    status: Status = "interrupted" if result.status == "running" else result.status  # its end was too sudden to be told
    return replace(result, status=status, is_earlier=True)
