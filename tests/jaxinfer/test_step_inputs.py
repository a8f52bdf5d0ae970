"""What a step sends to the device: every number of a batch written out by hand, and memory that nobody writes again."""

from array import array
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxinfer.batch import Batch, ScheduledRow
from jaxinfer.config import EngineConfig
from jaxinfer.engine import Engine
from jaxinfer.request import PageTable, Request
from jaxinfer.runner import ModelRunner
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.step_inputs import StepLayout
from tests.engines import TINY_MISTRAL, decoder, finish

NUM_SLOTS = 5
PADDING_SLOT, DUMMY_PAGE = NUM_SLOTS, 0


def make_layout(num_rows: int = 4, num_chunk_tokens: int = 16) -> StepLayout:
    return StepLayout(
        num_rows=num_rows,
        num_chunk_tokens=num_chunk_tokens,
        max_chunk_tokens=20,
        block_q=4,
        table_widths=(3, 2),
        num_slots=NUM_SLOTS,
    )


def make_request(name: str, *, slot: int, tables: list[tuple[int, list[int]]], seed: int = 0, **params) -> Request:
    """A request with a table for each of two cache groups: pages that left it, and the ids of the others."""
    request = Request(name, [1], SamplingParams(**params), frozenset(), 9, seed=seed)
    request.slot = slot
    request.page_tables = [PageTable(first_page, array("i", pages)) for first_page, pages in tables]
    return request


def decode_row(request: Request, start: int) -> ScheduledRow:
    return ScheduledRow(request, start, None, samples=True, sample_index=1)


def piece_row(request: Request, start: int, token_ids: list[int], *, samples: bool) -> ScheduledRow:
    return ScheduledRow(request, start, token_ids, samples=samples, sample_index=0)


def one_decode_row(**params) -> Batch:
    return Batch((decode_row(make_request("a", slot=0, tables=[(0, [1]), (0, [1])], **params), 2),), 1, 0)


@pytest.fixture
def mixed_batch() -> Batch:
    """A decode row, a piece that ends its prompt and spills into a second block, and a piece in mid-prompt."""
    drawn = {"temperature": 0.7, "top_k": 40, "top_p": 0.9, "min_p": 0.05}
    decoding = make_request("a", slot=2, tables=[(0, [7, 3]), (1, [6])], seed=0x0123456789ABCDEF, **drawn)
    ending = make_request("b", slot=0, tables=[(0, [1, 9]), (0, [2, 1])], seed=2**64 - 1, temperature=0)
    in_mid_prompt = make_request("c", slot=4, tables=[(0, [2, 5, 4]), (2**31 - 1, [9])], seed=3)
    rows = (
        decode_row(decoding, 6),
        piece_row(ending, 0, [*range(11, 16)], samples=True),
        piece_row(in_mid_prompt, 8, [21, 22, 23], samples=False),
    )
    return Batch(rows, num_decode_rows=1, num_chunk_tokens=12)


def as_lists(inputs) -> dict[str, Any]:
    """Each field's numbers; those of the tables in turn."""
    return {
        name: [as_lists(table) for table in value] if name == "tables" else np.asarray(value).tolist()
        for name, value in vars(inputs).items()
    }


# What is sent


def test_a_mixed_batch_reads_back_as_written_out_by_hand(mixed_batch):
    layout = make_layout()
    inputs = jax.jit(layout.unpack)(jnp.asarray(layout.pack(mixed_batch)))
    assert as_lists(inputs) == {
        "slot": [2, 0, 4, PADDING_SLOT],
        "decode_position": [6, -1, -1, -1],
        "sample_token": [0, 4 + 4, 4 + 8 + 2, 0],  # 4 decode tokens, 8 of the piece of b, then c
        "tables": [
            {"first_page": [0, 0, 0, 0], "page_table": [[7, 3, 0], [1, 9, 0], [2, 5, 4], [DUMMY_PAGE] * 3]},
            {"first_page": [1, 0, 2**31 - 1, 0], "page_table": [[6, 0], [2, 1], [9, 0], [DUMMY_PAGE] * 2]},
        ],
        "chunk_token": [11, 12, 13, 14, 15, 0, 0, 0, 21, 22, 23, 0, 0, 0, 0, 0],
        "block_row": [1, 1, 2, 0],
        "block_start": [0, 4, 8, 0],
        "block_len": [4, 1, 3, 0],
    }


def test_how_a_mixed_batch_is_sampled_reads_back_as_written_out_by_hand(mixed_batch):
    layout = make_layout()
    params = jax.jit(layout.unpack_sampling)(jnp.asarray(layout.pack(mixed_batch)))
    assert as_lists(params) == {
        "temperature": [float(np.float32(0.7)), 0, 0, 0],
        "top_k": [40, 0, 0, 0],
        "top_p": [float(np.float32(0.9)), 1, 0, 0],  # rows that do not sample say nothing
        "min_p": [float(np.float32(0.05)), 0, 0, 0],
        "seed": [[0x89ABCDEF, 0x01234567], [2**32 - 1, 2**32 - 1], [0, 0], [0, 0]],
        "position": [7, 5, 0, 0],
        "sample_slot": [2, 0, PADDING_SLOT, PADDING_SLOT],
    }


def test_the_padding_of_an_empty_batch_touches_no_slot_and_no_page_of_a_request():
    layout = make_layout()
    packed = jnp.asarray(layout.pack(Batch((), 0, 0)))
    inputs, params = layout.unpack(packed), layout.unpack_sampling(packed)
    assert set(inputs.slot.tolist()) == set(params.sample_slot.tolist()) == {PADDING_SLOT}
    assert set(inputs.decode_position.tolist()) == {-1}
    assert set(inputs.block_len.tolist()) == {0}
    assert [table.page_table.shape for table in inputs.tables] == [(4, 3), (4, 2)]
    assert {page for table in inputs.tables for page in table.page_table.ravel().tolist()} == {DUMMY_PAGE}
    assert set(params.temperature.tolist()) == {0}


def test_one_sample_program_reads_the_buffer_of_any_forward_program(mixed_batch):
    layout = make_layout()
    packed = layout.pack(mixed_batch)
    for num_chunk_tokens in (0, 4, 20):
        other = make_layout(num_chunk_tokens=num_chunk_tokens)
        assert other.size == layout.size == packed.size
        expected, read = layout.unpack_sampling(jnp.asarray(packed)), other.unpack_sampling(jnp.asarray(packed))
        assert as_lists(read) == as_lists(expected)


@pytest.mark.parametrize("temperature", [1e-5, 1e30, float(np.finfo(np.float32).max)])
def test_every_temperature_of_float32_is_sent(temperature):
    layout = make_layout()
    packed = jnp.asarray(layout.pack(one_decode_row(temperature=temperature)))
    assert layout.unpack_sampling(packed).temperature[0] == np.float32(temperature)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e-4, 0.9999999, 1.0])
def test_floats_arrive_bit_for_bit(value):
    layout = make_layout()
    packed = jnp.asarray(layout.pack(one_decode_row(temperature=value, top_p=value, min_p=value)))
    params = jax.jit(layout.unpack_sampling)(packed)
    for floats in (params.temperature, params.top_p, params.min_p):
        assert np.asarray(floats)[0].tobytes() == np.float32(value).tobytes()


@pytest.mark.parametrize(("temperature", "sent"), [(0, 0), (1e-6, 0), (9.9e-6, 0), (1e-5, np.float32(1e-5))])
def test_a_temperature_below_the_limit_is_sent_as_greedy(temperature, sent):
    layout = make_layout()
    packed = jnp.asarray(layout.pack(one_decode_row(temperature=temperature)))
    assert layout.unpack_sampling(packed).temperature[0] == sent


@pytest.mark.parametrize("top_k", [-1, 0])
def test_both_ways_to_keep_all_tokens_are_sent_as_0(top_k):
    layout = make_layout()
    assert layout.unpack_sampling(jnp.asarray(layout.pack(one_decode_row(top_k=top_k)))).top_k[0] == 0


@pytest.mark.parametrize("top_k", [2**31 - 1, 2**31, 2**32, 2**70])
def test_a_top_k_above_every_vocabulary_is_sent_as_the_largest_number(top_k):
    layout = make_layout()
    assert layout.unpack_sampling(jnp.asarray(layout.pack(one_decode_row(top_k=top_k)))).top_k[0] == 2**31 - 1


@pytest.mark.parametrize(("num_rows", "num_chunk_tokens"), [(2, 16), (4, 8)])
def test_a_batch_that_does_not_fit_is_refused(mixed_batch, num_rows, num_chunk_tokens):
    with pytest.raises(ValueError, match=f"3 rows and 12 chunk tokens .* of {num_rows} rows and {num_chunk_tokens} "):
        make_layout(num_rows, num_chunk_tokens).pack(mixed_batch)


# Whose memory it is. A compiled call on a CPU may read the host's memory while it runs: a buffer that is written again
# for the next step changes the step before (it gave wrong tokens once).


def is_read_only(array: np.ndarray) -> bool:
    """Whether neither the array nor what it is a view of can be written."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    return array is None


def test_a_packed_buffer_is_fresh_and_cannot_be_written(mixed_batch):
    layout = make_layout()
    first, second = layout.pack(mixed_batch), layout.pack(mixed_batch)
    assert not np.shares_memory(first, second)
    for buffer in (first, second):
        assert is_read_only(buffer)
        with pytest.raises(ValueError, match="read-only"):
            buffer[0] = 1


class Spy:
    """Sees every NumPy array that a runner gives to jax, and in which step; keeps them, so none's memory is reused."""

    def __init__(self) -> None:
        self.steps: list[list[np.ndarray]] = []
        self.called: set[str] = set()

    def watch(self, function, name: str):
        def watched(*arguments, **options):
            self.called.add(name)
            leaves = jax.tree.leaves((arguments, options))
            self.steps[-1] += [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]
            return function(*arguments, **options)

        return watched

    def install(self, runner: ModelRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(jax, "device_put", self.watch(jax.device_put, "device_put"))
        for name, value in vars(runner.programs).items():
            if isinstance(value, jax.stages.Compiled):
                monkeypatch.setattr(runner.programs, name, self.watch(value, name))
            elif isinstance(value, dict):
                for shape, program in value.items():
                    if isinstance(program, jax.stages.Compiled):
                        monkeypatch.setitem(value, shape, self.watch(program, name))
        forward = runner.forward

        def next_step(batch: Batch):
            self.steps.append([])
            return forward(batch)

        monkeypatch.setattr(runner, "forward", next_step)


@pytest.fixture
def spy(monkeypatch) -> Spy:
    """What is handed over in each step of a real engine that serves requests of every kind, one after another."""
    model = decoder(TINY_MISTRAL)
    limits = {"max_model_len": 64, "max_num_seqs": 1, "max_chunk_tokens": 16, "page_size": 8, "num_kv_pages": 16}
    config = EngineConfig(**limits, windows=model.config.group_windows)
    runner, spy = ModelRunner(model, config, kv_dtype=jnp.float32), Spy()
    runner.warm_up()
    spy.install(runner, monkeypatch)
    engine = Engine(runner, config, tokenizer=None, eos_token_ids=(2,))
    for i, params in enumerate(
        [
            {"temperature": 0, "logprobs": 1},
            {"top_p": 0.9, "prompt_logprobs": 1},
            {"min_p": 0.1, "seed": 1, "logit_bias": {3: 1}},
            {"top_k": 5, "min_tokens": 12, "presence_penalty": 1},
        ]
    ):
        engine.add_request(str(i), range(5, 10 + 9 * i), SamplingParams(max_tokens=16, **params))
    finish(engine)
    return spy


def test_no_step_can_change_what_another_one_reads(spy):
    programs = {"forward", "sample", "forbid", "adjust", "set_slot", "rank", "pick", "score"}
    assert spy.called == programs | {"device_put"}, "a program that no request used, or that the spy does not watch"
    assert len(spy.steps) > 30
    assert all(spy.steps), "a step in which nothing was seen: the spy watches the wrong places"
    assert all(is_read_only(array) for step in spy.steps for array in step)
    for i, step in enumerate(spy.steps):
        for other in spy.steps[:i]:
            assert not any(np.may_share_memory(mine, theirs) for mine in step for theirs in other)
