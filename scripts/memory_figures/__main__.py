"""Write the tables of ``docs/memory.md`` anew.

    python -m scripts.memory_figures [--data DIR]

The perplexity over an INT8 cache is measured by ``jaxinfer perplexity``, for that takes a model and minutes.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from jaxinfer.bench.lengths import read_lengths
from scripts.markdown import with_table
from scripts.memory_figures.example import example_table
from scripts.memory_figures.tables import (
    NUM_REQUESTS,
    dtype_table,
    load_table,
    prefix_table,
    ratio_table,
    window_table,
)

ROOT = Path(__file__).resolve().parents[2]
_NUM_CONVERSATIONS = 2000
"""Of the file, for the longest load."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run every load and write what comes out into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=ROOT.parent / "shared" / "data", help="the folder with sharegpt_lengths.csv"
    )
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "memory.md", help="where the tables stand")
    arguments = parser.parse_args(argv)
    begin = time.perf_counter()
    try:
        lengths = read_lengths(arguments.data / "sharegpt_lengths.csv", _NUM_CONVERSATIONS)
    except (OSError, ValueError) as error:
        parser.error(f"--data: {error}")
    tables = {
        "example": example_table(),
        "load": load_table(lengths[:NUM_REQUESTS]),
        "ratios": ratio_table(lengths),
        "prefix": prefix_table(lengths[:NUM_REQUESTS]),
        "window": window_table(),
        "dtypes": dtype_table(),
    }
    page = arguments.page.read_text(encoding="utf-8")
    for name, table in tables.items():
        page = with_table(page, name, table, "make memory-figures")
    arguments.page.write_text(page, encoding="utf-8")
    print(f"wrote {arguments.page} in {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
