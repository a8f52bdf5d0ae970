"""Tables of tile sizes that were tuned on a device.

A table is a JSON file in the folder ``tuned/`` of an operation, named after the device (``NVIDIA_H100_80GB_HBM3.json``,
``table_name``): a list of objects, each the fields of the operation's ``Problem`` under ``problem`` and those of its
``Config`` under ``config``. ``scripts/tune_kernels.py`` writes them.
"""

import json
import os
import reprlib
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from pallas_kernels.device import Device


def table_name(device: Device) -> str:
    """The name of the file that holds a device's table."""
    return f"{device.kind.replace(' ', '_')}.json"


@cache
def read_table[P, C](
    path: Path, problem_type: type[P], config_type: type[C], check: Callable[[P, C], None] | None = None
) -> dict[P, C]:
    """The table at ``path``, empty where there is none. It is read once; a file that changes later is not seen.

    Args:
        path: of the file.
        problem_type, config_type: of the operation.
        check: raises a ``ValueError`` for an entry that no launch could look up or run; None: all will do.

    Raises:
        ValueError: the file is no such table.
    """
    if not path.is_file():
        return {}
    try:
        return _parse(json.loads(path.read_text(encoding="utf-8")), problem_type, config_type, check)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is no table of tuned configs: {error}") from error


def write_table(path: Path, table: dict[Any, Any]) -> None:
    """Write a table of problems and configs, one entry a line, in a form that ``read_table`` takes.

    Whoever reads meanwhile, or after this was interrupted, finds the old table or the new one, whole.
    """
    entries = [json.dumps({"problem": asdict(problem), "config": asdict(config)}) for problem, config in table.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text("[\n" + ",\n".join(entries) + "\n]\n", encoding="utf-8")
    unfinished.replace(path)


def check_rounded(name: str, count: int) -> None:
    """Refuse a number that no launch looks up.

    Raises:
        ValueError: it is no power of two.
    """
    if count != round_up(count):
        raise ValueError(f"{name} is {count}; in a table it is rounded up to a power of two")


def round_up(count: int) -> int:
    """``count`` up to a power of two: what is tuned for one number of rows serves those near it."""
    return 1 << (count - 1).bit_length()


def _parse[P, C](
    entries: object, problem_type: type[P], config_type: type[C], check: Callable[[P, C], None] | None
) -> dict[P, C]:
    if not isinstance(entries, list):
        raise ValueError("it must be a list")
    table: dict[P, C] = {}
    for entry in entries:
        if not isinstance(entry, dict) or set(entry) != {"problem", "config"}:
            raise ValueError(f"each entry has a problem and a config, and nothing else; got {reprlib.repr(entry)}")
        problem = problem_type(**entry["problem"])
        if problem in table:
            raise ValueError(f"{problem} is there twice")
        table[problem] = config_type(**entry["config"])
        if check is not None:
            check(problem, table[problem])
    return table
