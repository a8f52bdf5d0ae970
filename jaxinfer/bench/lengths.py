"""Lengths of real conversations, from a CSV file with the columns ``prompt_tokens`` and ``output_tokens``."""

import csv
from itertools import islice
from pathlib import Path


def read_lengths(path: Path, number: int | None) -> list[tuple[int, int]]:
    """Tokens of prompt (1 or more) and output (0 or more) of the first conversations of a file, at most ``number``.

    None is for all of them.

    Raises:
        ValueError: the file has no lengths, or a line that has none; the message names both.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            lines = [(reader.line_num, line) for line in islice(reader, number)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is no CSV file: {error}") from error
    if not lines:
        raise ValueError(f"{path}, line 1: there is no line of lengths")
    return [_length(line, f"{path}, line {line_num}") for line_num, line in lines]


def _length(line: dict[str, str | None], where: str) -> tuple[int, int]:
    """Tokens of prompt and output; an output may be empty, a prompt may not."""
    return _count(line, "prompt_tokens", 1, where), _count(line, "output_tokens", 0, where)


def _count(line: dict[str, str | None], column: str, least: int, where: str) -> int:
    text = line.get(column)
    if text is None:
        raise ValueError(f"{where}: there is no {column}")
    if not text.strip().isdecimal() or int(text) < least:
        raise ValueError(f"{where}: {column} is {text!r}; it must be a whole number, {least} or more")
    return int(text)
