"""The worked example of ``docs/memory.md``: one short request over small pages with a short window."""

from itertools import groupby

from jaxinfer.config import EngineConfig
from jaxinfer.request import Request
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.scheduler import Scheduler
from scripts.markdown import markdown_table

WINDOW, PAGE_SIZE, CHUNK, NUM_PAGES = 8, 4, 4, 4
NUM_PROMPT_TOKENS, NUM_OUTPUT_TOKENS = 10, 12


def example_table() -> str:
    """The request's table after each change of it; rows in which nothing changed are taken together."""
    rows = []
    for (first_page, pages), steps in groupby(_steps(), key=lambda step: step[2:]):
        spans = [(start, end) for start, end, *_ in steps]
        start, end = spans[0][0], spans[-1][1]
        places = (_span(i * PAGE_SIZE, (i + 1) * PAGE_SIZE) for i in range(first_page, first_page + len(pages)))
        entries = (f"page {page} ({place})" for page, place in zip(pages, places, strict=True))
        rows.append([_span(start, end), str(max(0, start - WINDOW + 1)), str(first_page), ", ".join(entries)])
    return markdown_table("positions written | the first sees from | first_page | table (positions)", rows)


def _span(start: int, end: int) -> str:
    return f"{start} to {end - 1}" if end - start > 1 else f"{start}"


def _steps() -> list[tuple[int, int, int, tuple[int, ...]]]:
    """Of each step the positions that it writes, from and up to, and the request's first page and pages."""
    config = EngineConfig(
        max_model_len=32,
        max_num_seqs=1,
        max_chunk_tokens=CHUNK,
        block_q=CHUNK,
        page_size=PAGE_SIZE,
        num_kv_pages=NUM_PAGES,
        windows=(WINDOW,),
    )
    scheduler, steps = Scheduler(config), []
    request = Request("0", [1] * NUM_PROMPT_TOKENS, SamplingParams(), frozenset(), NUM_OUTPUT_TOKENS, seed=0)
    scheduler.add(request)
    while scheduler.has_unfinished:
        batch = scheduler.schedule()
        assert batch is not None, "it is committed at once, so there is always something to do"
        [row], [table] = batch.rows, request.page_tables
        steps.append((row.start, row.start + row.num_tokens, table.first_page, tuple(table.pages)))
        scheduler.commit(batch, [1])
    return steps
