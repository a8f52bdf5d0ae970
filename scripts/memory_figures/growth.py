"""The most pages that one request holds on its way to a length."""

from collections.abc import Sequence

from jaxinfer.config import EngineConfig
from jaxinfer.request import Request
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.scheduler import Scheduler


def most_pages(window: int | None, lengths: Sequence[int]) -> list[int]:
    """For each length the most pages held until then, by a request that draws the tenth part of the last one.

    Args:
        window: of all layers.
        lengths: ascending.
    """
    longest = lengths[-1]
    config = EngineConfig(
        max_model_len=longest, max_num_seqs=1, num_kv_pages=longest // EngineConfig.page_size + 1, windows=(window,)
    )
    num_drawn = longest // 10
    request = Request("0", [1] * (longest - num_drawn), SamplingParams(), frozenset(), num_drawn, seed=0)
    scheduler, held = Scheduler(config), {0: 0}
    scheduler.add(request)
    while scheduler.has_unfinished:
        batch = scheduler.schedule()
        if batch is not None:
            held[request.num_scheduled_tokens] = len(request.page_tables[0].pages)
            scheduler.commit(batch, [1] * len(batch.rows))
    return [max(pages for at, pages in held.items() if at <= length) for length in lengths]
