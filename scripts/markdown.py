"""Tables in Markdown, and their place in a page that a person writes."""

from collections.abc import Iterable, Sequence


def markdown_table(header: str, rows: Iterable[Sequence[str]]) -> str:
    """A table; columns of the header are separated by "|", and a cell may hold several of them likewise."""
    columns = header.count("|") + 1
    lines = [f"| {header} |", "|---" * columns + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def with_table(page: str, name: str, table: str, command: str) -> str:
    """The page with its table ``name``, which ``command`` writes, replaced.

    Raises:
        ValueError: the page has no such table.
    """
    begin, end = f"<!-- {name}: written by `{command}` -->\n", f"<!-- {name}: end -->\n"
    before, found_begin, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError(f"the page has no table between {begin.strip()} and {end.strip()}")
    return f"{before}{begin}\n{table}\n\n{end}{after}"
