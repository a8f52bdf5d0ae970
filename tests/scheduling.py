"""A scheduler with small limits, and short ways to give it requests and take its steps; no jax.

A page holds 4 tokens, a query block is 4 tokens and a step takes 16 prompt tokens. Tokens drawn are 9, which stops
nothing; 7 is the stop token.
"""

import zlib
from collections.abc import Iterable
from typing import Any

from jaxinfer.batch import Batch
from jaxinfer.config import EngineConfig
from jaxinfer.request import Request
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.scheduler import Scheduler

TOKEN, STOP = 9, 7


def make_scheduler(**limits: Any) -> Scheduler:
    defaults = {"max_model_len": 64, "max_num_seqs": 4, "max_chunk_tokens": 16, "page_size": 4, "block_q": 4}
    return Scheduler(EngineConfig(**(defaults | {"num_kv_pages": 32} | limits)))


def make_request(name: str, prompt: list[int], max_new: int = 3, **options: Any) -> Request:
    return Request(name, prompt, SamplingParams(), frozenset({STOP}), max_new, seed=0, **options)


def prompt_of(name: str, num_prompt: int) -> list[int]:
    """A prompt that no other name has: its first token stands for the name."""
    return [1000 + zlib.crc32(name.encode()) % 2**30, *range(100, 99 + num_prompt)][:num_prompt]


def add(scheduler: Scheduler, name: str, num_prompt: int, max_new: int = 3) -> Request:
    request = make_request(name, prompt_of(name, num_prompt), max_new)
    scheduler.add(request)
    return request


def add_prompt(scheduler: Scheduler, name: str, prompt: Iterable[int], max_new: int = 3, **options: Any) -> Request:
    request = make_request(name, list(prompt), max_new, **options)
    scheduler.add(request)
    return request


def commit(scheduler: Scheduler, batch: Batch, token: int = TOKEN) -> list[Request]:
    return scheduler.commit(batch, [token] * len(batch.rows))


def step(scheduler: Scheduler, token: int = TOKEN) -> Batch:
    batch = scheduler.schedule()
    assert batch is not None
    commit(scheduler, batch, token)
    return batch


def summary(batch: Batch) -> list[tuple[str, int, int]]:
    """Name, start and number of tokens of each row."""
    return [(row.request.request_id, row.start, row.num_tokens) for row in batch.rows]
