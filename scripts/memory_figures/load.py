"""A load through the real scheduler, step by step, with a simulated model that draws nothing but the end.

Steps follow one another as in the engine: the next one is scheduled before the one in flight is committed.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from jaxinfer.batch import Batch, ScheduledRow
from jaxinfer.config import EngineConfig
from jaxinfer.request import Request
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.scheduler import Counters, Scheduler

_STOP, _OTHER, _VOCAB_SIZE = 0, 1, 32000
"""The token that ends a request, the one that every other draw gives, and how many ids prompts are made of."""


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """One request as its user knows it afterwards.

    Attributes:
        prompt_token_ids: never the stop token.
        num_output_tokens: how many it draws, 1 or more, the stop token included where that ends it.
        max_tokens: what it asks for; above ``num_output_tokens`` the stop token ends it, which the scheduler learns
            one step late.
    """

    prompt_token_ids: list[int]
    num_output_tokens: int
    max_tokens: int


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a load did. The means are over all steps, those at the end with few requests left included.

    Attributes:
        num_steps: steps until the last request ended.
        num_output_tokens: tokens drawn for the requests.
        mean_in_flight, peak_in_flight: requests that hold a slot.
        mean_filled: the part of the pool's room in which a running request keeps a token, over the steps in which
            requests waited for memory or slots; 0 if there were none. Pages shared by several count for each.
        counters: the scheduler's own.
    """

    num_steps: int
    num_output_tokens: int
    mean_in_flight: float
    peak_in_flight: int
    mean_filled: float
    counters: Counters

    @property
    def tokens_per_step(self) -> float:
        """Drawn tokens of a step."""
        return self.num_output_tokens / self.num_steps


def conversations(lengths: Sequence[tuple[int, int]], *, max_tokens: int | None) -> list[Conversation]:
    """Requests of the given lengths with prompts of random ids, so that no two share a page.

    Args:
        lengths: tokens of prompt and output; an output of none counts as one.
        max_tokens: what each asks for; None: exactly its output.
    """
    draw = random.Random(0)
    return [
        Conversation(
            prompt_token_ids=draw.choices(range(2, _VOCAB_SIZE), k=num_prompt),
            num_output_tokens=max(1, num_output),
            max_tokens=max(1, num_output) if max_tokens is None else max_tokens,
        )
        for num_prompt, num_output in lengths
    ]


def run(config: EngineConfig, load: Sequence[Conversation]) -> Figures:
    """Serve a load that is there from the start.

    Args:
        config: the limits, of a model with one cache group.
        load: what is asked for; ``max_tokens`` is cut to the room that ``max_model_len`` leaves.

    Raises:
        ValueError: a request can never fit, or it ends later than its ``max_tokens`` allow.
    """
    scheduler = Scheduler(config)
    requests = [_request(str(i), conversation, config) for i, conversation in enumerate(load)]
    num_outputs = {str(i): conversation.num_output_tokens for i, conversation in enumerate(load)}
    for request in requests:
        scheduler.add(request)
    in_flight: deque[Batch] = deque()
    running, filled = [], []
    while scheduler.has_unfinished:
        batch = scheduler.schedule()
        if batch is not None:
            in_flight.append(batch)
            running.append(scheduler.num_running)
            if scheduler.num_waiting > 0:
                filled.append(_held_tokens(requests) / (config.num_kv_pages * config.page_size))
        while len(in_flight) > (batch is not None):
            committed = in_flight.popleft()
            scheduler.commit(committed, [_drawn(row, num_outputs) for row in committed.rows])
    return Figures(
        num_steps=len(running),
        num_output_tokens=sum(len(request.output_token_ids) for request in requests),
        mean_in_flight=sum(running) / len(running),
        peak_in_flight=max(running),
        mean_filled=sum(filled) / len(filled) if filled else 0.0,
        counters=scheduler.counters,
    )


def _request(name: str, conversation: Conversation, config: EngineConfig) -> Request:
    num_prompt = len(conversation.prompt_token_ids)
    max_new_tokens = min(conversation.max_tokens, config.max_model_len - num_prompt)
    if conversation.num_output_tokens > max_new_tokens:
        raise ValueError(
            f"a request with a prompt of {num_prompt} tokens draws {conversation.num_output_tokens}, and max_tokens "
            f"{conversation.max_tokens} and max_model_len {config.max_model_len} allow {max_new_tokens}"
        )
    return Request(
        request_id=name,
        prompt_token_ids=conversation.prompt_token_ids,
        params=SamplingParams(),
        stop_token_ids=frozenset({_STOP}),
        max_new_tokens=max_new_tokens,
        seed=0,
    )


def _drawn(row: ScheduledRow, num_outputs: dict[str, int]) -> int:
    return _STOP if row.sample_index + 1 == num_outputs[row.request.request_id] else _OTHER


def _held_tokens(requests: Sequence[Request]) -> int:
    return sum(request.num_scheduled_tokens for request in requests if request.slot is not None)
