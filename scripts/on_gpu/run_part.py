"""One part in this process: every row is written as soon as it is known. The parent starts this as a module."""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from scripts.on_gpu.part import Part
from scripts.on_gpu.result import PartResult, save
from scripts.on_gpu.settings import Settings


def run_part(part: Part, settings: Settings, path: Path) -> PartResult:
    """Measure the part, and keep at ``path`` what is known so far.

    Raises:
        Exception: whatever the part raises; the rows before it are at ``path``.
    """
    begin, result = time.monotonic(), PartResult(name=part.name, status="running", tiny=settings.tiny)
    save(path, result.as_json())
    for row in part.rows(settings):
        result = result.with_row(row, time.monotonic() - begin)
        save(path, result.as_json())
    result = replace(result, seconds=time.monotonic() - begin).at_its_end()
    save(path, result.as_json())
    return result


def main() -> None:
    """Run the part that the parent describes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", help="the fields of a Part as JSON")
    parser.add_argument("path", type=Path, help="where the rows go")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--lengths", type=Path)
    arguments = parser.parse_args()
    fields = json.loads(arguments.part)
    part = Part(**fields | {"arguments": tuple(fields["arguments"])})
    settings = Settings(seconds=part.seconds, tiny=arguments.tiny, lengths=arguments.lengths)
    try:
        run_part(part, settings, arguments.path)
    except ModuleNotFoundError as error:
        sys.exit(f"{part.name} needs {error.name}, which is not installed; what the project needs is in pyproject.toml")


if __name__ == "__main__":
    main()
