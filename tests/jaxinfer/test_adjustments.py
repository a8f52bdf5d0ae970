"""Bias and penalties against their definitions in NumPy, token by token, and what the slots of others keep."""

from dataclasses import dataclass, field

import jax
import numpy as np
import pytest

from jaxinfer import slot_state
from jaxinfer.adjustments import adjust, any_adjusts, pack_adjustments
from jaxinfer.batch import Batch, ScheduledRow
from jaxinfer.request import Request
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.slot_state import SlotState, slot_rows
from tests.jaxinfer.numpy_sampling import adjusted, chi_square_excess, distribution
from tests.jaxinfer.test_sampler import make_params, sample

VOCAB_SIZE, NUM_SLOTS, NUM_ROWS = 24, 5, 6

compiled_adjust = jax.jit(adjust, donate_argnums=1)
compiled_set_slot = jax.jit(slot_state.set_slot, donate_argnums=0)


@dataclass
class Device:
    """The state of the slots, and rows that run on it as the runner has them."""

    state: SlotState = field(default_factory=lambda: slot_state.allocate(NUM_SLOTS, VOCAB_SIZE))
    last_tokens: np.ndarray = field(default_factory=lambda: np.zeros(NUM_SLOTS + 1, np.int32))

    def logits_of(self, rows: list[ScheduledRow], logits: np.ndarray) -> np.ndarray:
        """What ``adjust`` makes of the rows' logits, those of padding left out."""
        for row in rows:
            if row.token_ids is not None and row.samples and row.request.params.adjusts_logits:
                bias, tally = slot_rows(row.request, VOCAB_SIZE)
                self.state = compiled_set_slot(self.state, np.int32(row.request.slot), bias, tally)
        batch = Batch(tuple(rows), sum(row.token_ids is None for row in rows), 16)
        packed = pack_adjustments(batch, NUM_ROWS, NUM_SLOTS)
        filled = np.zeros((NUM_ROWS, VOCAB_SIZE), np.float32)
        filled[: len(rows)] = logits
        result, self.state = compiled_adjust(filled, self.state, self.last_tokens, packed)
        return np.asarray(result)[: len(rows)]

    def draw(self, request: Request, token_id: int) -> None:
        """A token is drawn, and the host reads it."""
        self.last_tokens = self.last_tokens.copy()
        self.last_tokens[request.slot] = token_id
        request.output_token_ids.append(token_id)


def make_request(prompt: list[int], *, slot: int, **params) -> Request:
    request = Request(f"in slot {slot}", prompt, SamplingParams(**params), frozenset(), 99, seed=0)
    request.slot = slot
    return request


def first_row(request: Request) -> ScheduledRow:
    return ScheduledRow(request, 0, [*request.prompt_token_ids, *request.output_token_ids], True, 0)


def decode_row(request: Request) -> ScheduledRow:
    return ScheduledRow(request, request.num_known_tokens - 1, None, True, len(request.output_token_ids))


def random_requests(rng: np.random.Generator) -> list[Request]:
    """One for each slot, a third of which adjust nothing; the others differ in what they ask for."""
    requests = []
    for slot in range(NUM_SLOTS):
        params = {}
        if slot % 3:
            values = rng.uniform(-2, 2, 2).round(2), rng.choice([0.5, 1.0, 1.3])
            bias = dict(zip(rng.choice(VOCAB_SIZE, 3, replace=False).tolist(), rng.uniform(-9, 9, 3), strict=True))
            params = {"presence_penalty": values[0][0], "frequency_penalty": values[0][1]}
            params |= {"repetition_penalty": values[1], "logit_bias": bias if slot % 2 else None}
        requests.append(make_request(rng.integers(0, VOCAB_SIZE, 6).tolist(), slot=slot, **params))
    return requests


def random_logits(rng: np.random.Generator, num_rows: int) -> np.ndarray:
    logits = (3 * rng.standard_normal((num_rows, VOCAB_SIZE))).astype(np.float32)
    logits[:, 3], logits[:, 4] = 0, -np.inf  # neither positive nor negative, and forbidden
    return logits


def check(device: Device, rows: list[ScheduledRow], logits: np.ndarray) -> None:
    expected = [adjusted(values, row.request) for values, row in zip(logits, rows, strict=True)]
    np.testing.assert_allclose(device.logits_of(rows, logits), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_a_mixed_batch_are_adjusted_as_defined_token_after_token(seed):
    """Few different tokens, so that many come again; the second request joins late and the third is preempted."""
    rng, device = np.random.default_rng(seed), Device()
    requests = random_requests(rng)
    running: list[Request] = []
    for step in range(12):
        if step == 6:  # preempted: its tokens are read once more, in another slot that nobody has
            running.remove(requests[2])
            requests[2].slot = NUM_SLOTS - 1 if requests[-1] not in running else 2
        joining = [request for request in requests[:4] if request not in running and (step > 3 or request.slot != 1)]
        rows = [*map(decode_row, running), *map(first_row, joining)]
        check(device, rows, random_logits(rng, len(rows)))
        running += joining
        for request in running:
            device.draw(request, int(rng.integers(0, 6)))


def test_a_slot_that_another_request_used_starts_anew():
    rng, device = np.random.default_rng(0), Device()
    first = make_request([1, 2], slot=3, logit_bias={7: 5.0}, frequency_penalty=1.0)
    for make_row in (first_row, decode_row, decode_row):
        rows = [make_row(first)]
        check(device, rows, random_logits(rng, 1))
        device.draw(first, 9)
    second = make_request([4], slot=3, presence_penalty=1.0, repetition_penalty=2.0)
    check(device, [first_row(second)], random_logits(rng, 1))


def test_rows_that_adjust_nothing_keep_their_logits_bit_for_bit():
    rng, device = np.random.default_rng(0), Device()
    requests = random_requests(rng)
    logits = random_logits(rng, NUM_SLOTS)
    result = device.logits_of([first_row(request) for request in requests], logits)
    plain = [i for i, request in enumerate(requests) if not request.params.adjusts_logits]
    assert 0 < len(plain) < NUM_SLOTS
    np.testing.assert_array_equal(result[plain], logits[plain])
    assert not np.asarray(device.state.tally[NUM_SLOTS]).any()
    assert not np.asarray(device.state.bias[NUM_SLOTS]).any()


def test_a_piece_that_draws_nothing_asks_for_no_adjustment():
    request = make_request([1, 2, 3], slot=0, presence_penalty=1.0)
    in_mid_prompt, decoding = ScheduledRow(request, 0, [1, 2], False, 0), decode_row(request)
    assert not any_adjusts(Batch((in_mid_prompt,), 0, 16))
    assert any_adjusts(Batch((decoding,), 1, 0))
    assert not any_adjusts(Batch((decode_row(make_request([1], slot=0, temperature=0.5)),), 1, 0))


def test_the_logits_of_one_row_worked_out_by_hand():
    """Token 0 twice in the output, 1 in prompt and output, 2 in the prompt only (twice), 3 has a bias, 4 nothing."""
    params = {"presence_penalty": 0.5, "frequency_penalty": 0.25, "repetition_penalty": 2.0, "logit_bias": {3: -1.5}}
    request, device = make_request([1, 2, 2], slot=0, **params), Device()
    request.output_token_ids = [0, 1, 0]
    logits = np.zeros((1, VOCAB_SIZE), np.float32)
    logits[0, :5] = 4, -4, 3, 1, 7
    result = device.logits_of([first_row(request)], logits)
    assert result[0, :6].tolist() == [4 / 2 - 0.5 - 0.5, -4 * 2 - 0.25 - 0.5, 3 / 2, 1 - 1.5, 7, 0]


@pytest.mark.parametrize(
    "params",
    [
        {"logit_bias": {0: 1.5, 5: -2.0, 7: 100.0, 8: 99.0}},
        {"presence_penalty": 2.0},
        {"presence_penalty": -1.0, "frequency_penalty": 0.7},
        {"frequency_penalty": -0.8},
        {"repetition_penalty": 1.8},
        {"repetition_penalty": 0.6},
        {"logit_bias": {1: 2.0}, "presence_penalty": 0.5, "frequency_penalty": 0.3, "repetition_penalty": 1.4},
    ],
)
def test_draws_follow_the_adjusted_distribution(params):
    rng, device = np.random.default_rng(3), Device()
    request = make_request([1, 2, 3, 3], slot=1, **params)
    request.output_token_ids = [0, 1, 1, 5, 5, 5]
    logits = rng.standard_normal(VOCAB_SIZE).astype(np.float32)
    moved = device.logits_of([first_row(request)], logits[None])
    values = {"temperature": 0.8, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    counts = np.bincount(sample(moved, make_params(10_000, **values)), minlength=VOCAB_SIZE)
    assert chi_square_excess(counts, distribution(adjusted(logits, request), **values)) < 1
    assert chi_square_excess(counts, distribution(logits, **values)) > 1, "the adjustment would not be noticed"


def test_a_state_that_the_device_cannot_hold_is_refused_with_the_numbers():
    message = f"max_num_seqs is 65536: the device has no room for {65_537 * 10**9 * 8} bytes"
    with pytest.raises(ValueError, match=message):
        slot_state.allocate(65_536, 10**9)
