"""Steps whose draw waits for the token before: in which order things happen, and what goes wrong in between.

The form that a request is held to is a digest of all it wrote: a mask made from other tokens is another one, and the
fake model then draws something else.
"""

import random
import signal
import zlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from jaxinfer.batch import Batch
from jaxinfer.engine import Engine
from jaxinfer.outputs import RequestOutput
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.structured_outputs.params import StructuredOutputsParams
from jaxinfer.token_masks import TokenBits, pack_token_bits
from tests.engines import finish, greedy
from tests.fake_runner import VOCAB_SIZE, FakeStep, expected_tokens, forbidden_tokens
from tests.fakes import fake_engine

HELD = StructuredOutputsParams(regex="whatever")
ENDLESS = 1000


def allowed_after(output: Sequence[int]) -> set[int]:
    """A third of all tokens, and another one after each output."""
    return set(range(zlib.crc32(array("q", output).tobytes()) % 3, VOCAB_SIZE, 3))


def forbidden_after(output: Sequence[int]) -> set[int]:
    return set(range(VOCAB_SIZE)) - allowed_after(output)


def held_tokens(prompt: Sequence[int], num_tokens: int) -> list[int]:
    """What a request that is held to the form writes."""
    return expected_tokens(prompt, num_tokens, forbidden=forbidden_after)


@dataclass
class DigestForm:
    """The form of one sequence; complete after so many tokens."""

    length: int
    faults: dict[str, Callable[[], Any]]

    def __post_init__(self) -> None:
        self.output: list[int] = []

    @property
    def is_done(self) -> bool:
        return len(self.output) == self.length

    def allowed(self) -> TokenBits:
        self.faults.get("allowed", lambda: None)()
        return pack_token_bits(allowed_after(self.output), VOCAB_SIZE)

    def accept(self, token_id: int) -> None:
        self.faults.get("accept", lambda: None)()
        assert token_id in allowed_after(self.output)
        self.output.append(token_id)


class Forms:
    """Stands for the grammars of an engine."""

    def __init__(self, length: int) -> None:
        self.length, self.faults = length, {}

    def make(self, params: StructuredOutputsParams | None) -> "Forms | None":
        return self if params is not None else None

    def fresh(self) -> DigestForm:
        return DigestForm(self.length, self.faults)


def engine_with_forms(length: int = ENDLESS, **limits: Any) -> tuple[Engine, Forms]:
    engine, forms = fake_engine(**limits), Forms(length)
    engine._intake._grammars = forms
    return engine, forms


def held(num_tokens: int, **others: Any) -> SamplingParams:
    return greedy(num_tokens, structured_outputs=HELD, **others)


def tokens_of(outputs: dict[str, RequestOutput]) -> dict[str, list[int]]:
    return {name: output.outputs[0].token_ids for name, output in outputs.items()}


def assert_idle(engine: Engine, num_pages: int = 32) -> None:
    assert not engine.has_unfinished
    assert engine.scheduler.num_free_pages == (num_pages,)
    assert not engine._owners
    assert not engine._attended
    assert not engine._tracked


def watch(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """A list that gets each launch, draw and read from now on, with the number of its step."""
    events: list[tuple[str, int]] = []
    runner, read = engine._runner, FakeStep.read
    forward, sample = runner.forward, runner.sample

    def number(step: FakeStep) -> int:
        return next(i for i, batch in enumerate(runner.batches) if batch is step.batch)

    def noting_forward(batch: Batch) -> FakeStep:
        events.append(("forward", len(runner.batches)))
        return forward(batch)

    def noting_sample(step: FakeStep, forbidden: Sequence[TokenBits | None] = ()) -> FakeStep:
        events.append(("sample", number(step)))
        return sample(step, forbidden)

    def noting_read(step: FakeStep) -> list[int]:
        events.append(("read", number(step)))
        return read(step)

    monkeypatch.setattr(runner, "forward", noting_forward)
    monkeypatch.setattr(runner, "sample", noting_sample)
    monkeypatch.setattr(FakeStep, "read", noting_read)
    return events


# ---- what happens when -----------------------------------------------------------------------------------------------


def test_a_draw_waits_for_the_token_before_and_its_forward_pass_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = engine_with_forms(max_chunk_tokens=32)
    events = watch(engine, monkeypatch)
    engine.add_request("held", [1, 2], held(3))
    engine.add_request("free", [3], greedy(3))
    outputs = finish(engine)
    assert events == [
        *[("forward", 0), ("sample", 0)],  # nothing is drawn before the first token: its mask is known
        *[("forward", 1), ("read", 0), ("sample", 1)],
        *[("forward", 2), ("read", 1), ("sample", 2)],
        ("read", 2),
    ]
    assert tokens_of(outputs) == {"held": held_tokens([1, 2], 3), "free": expected_tokens([3], 3)}
    assert_idle(engine)


def test_without_a_form_each_step_is_drawn_before_the_one_before_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else is forbidden: it depends on nothing, or on how many tokens there are."""
    engine, _ = engine_with_forms(eos_token_ids=[5])
    events = watch(engine, monkeypatch)
    engine.add_request("a", [1, 2], greedy(3, min_tokens=2, allowed_token_ids=range(7, 500)))
    finish(engine)
    assert events == [
        *[("forward", 0), ("sample", 0)],
        *[("forward", 1), ("sample", 1), ("read", 0)],
        *[("forward", 2), ("sample", 2), ("read", 1)],
        ("read", 2),
    ]


def test_masks_are_those_of_all_tokens_before(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = engine_with_forms()
    sample, masks = engine._runner.sample, {}

    def noting(step: FakeStep, forbidden: Sequence[TokenBits | None] = ()) -> FakeStep:
        for row, words in zip(step.batch.rows, forbidden, strict=True):
            if row.samples:
                masks[row.request.request_id, row.sample_index] = forbidden_tokens(words)
        return sample(step, forbidden)

    monkeypatch.setattr(engine._runner, "sample", noting)
    engine.add_request("held", [1] * 20, held(6))  # in two pieces
    engine.add_request("free", [3], greedy(6, allowed_token_ids=range(500)))
    finish(engine)
    written = held_tokens([1] * 20, 6)
    assert {key: mask for key, mask in masks.items() if key[0] == "held"} == {
        ("held", i): forbidden_after(written[:i]) for i in range(6)
    }
    assert {frozenset(mask) for key, mask in masks.items() if key[0] == "free"} == {frozenset(range(500, VOCAB_SIZE))}


@pytest.mark.parametrize("num_kv_pages", [1000, 24])
def test_held_and_free_requests_get_what_each_gets_alone(num_kv_pages: int) -> None:
    """Arriving at any time, and, in the small pool, preempted in the middle."""
    rng = random.Random(num_kv_pages)
    engine, _ = engine_with_forms(num_kv_pages=num_kv_pages, max_num_seqs=6)
    wanted, outputs = {}, {}
    for i in range(25):
        prompt = [rng.randrange(VOCAB_SIZE) for _ in range(rng.randint(1, 20))]
        num_tokens = rng.randint(1, 64 - len(prompt))
        is_held = rng.random() < 0.5
        wanted[str(i)] = (held_tokens if is_held else expected_tokens)(prompt, num_tokens)
        engine.add_request(str(i), prompt, (held if is_held else greedy)(num_tokens))
        for _ in range(rng.randint(0, 3)):
            outputs |= {output.request_id: output for output in engine.step()}
    outputs |= finish(engine)
    assert tokens_of(outputs) == wanted
    assert (engine.scheduler.counters.num_resumptions > 0) == (num_kv_pages == 24)
    assert_idle(engine, num_kv_pages)


def test_who_ends_while_its_draw_waits_draws_nothing_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the end of its form, by a stop token; both only known once the step before is read."""
    written = held_tokens([1, 2], 10)
    engine, _ = engine_with_forms(length=4)
    sample, masks = engine._runner.sample, []

    def noting(step: FakeStep, forbidden: Sequence[TokenBits | None] = ()) -> FakeStep:
        if step.batch.rows[0].request.is_finished:
            masks.append(list(forbidden))
        return sample(step, forbidden)

    monkeypatch.setattr(engine._runner, "sample", noting)
    for params, num_tokens in ((held(10), 4), (held(10, stop_token_ids=[written[2]]), 3)):
        masks.clear()
        engine.add_request("a", [1, 2], params)
        output = finish(engine)["a"].outputs[0]
        assert (output.token_ids, output.finish_reason) == (written[:num_tokens], "stop")
        assert masks == [[None]]
        assert_idle(engine)


# ---- interrupts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nth", [0, 1, 3])
@pytest.mark.parametrize("point", ["forward", "sample", "read", "allowed", "accept", "report"])
def test_ctrl_c_at_any_point_loses_nothing(point: str, nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real SIGINT at the n-th time that it comes there; streamed, so that what is told in between is seen too."""
    calls = iter(range(ENDLESS))

    def interrupting() -> None:
        if next(calls) == nth:
            signal.raise_signal(signal.SIGINT)

    def interrupted(whole: Callable) -> Callable:
        def call(*arguments: Any) -> Any:
            interrupting()
            result = whole(*arguments)
            return result

        return call

    engine, forms = engine_with_forms()
    if point in ("forward", "sample"):
        monkeypatch.setattr(engine._runner, point, interrupted(getattr(engine._runner, point)))
    elif point == "read":
        monkeypatch.setattr(FakeStep, "read", interrupted(FakeStep.read))
    elif point == "report":
        monkeypatch.setattr(engine, "_output", interrupted(engine._output))
    else:
        forms.faults[point] = interrupting
    engine.add_request("held", [1, 2], held(6), stream=True)
    engine.add_request("free", [3], greedy(6), stream=True)
    seen: dict[str, list[list[int]]] = {"held": [], "free": []}
    num_interrupts = 0
    while engine.has_unfinished:
        try:
            outputs = engine.step()
        except KeyboardInterrupt:
            num_interrupts += 1
            continue
        for output in outputs:
            seen[output.request_id].append(output.outputs[0].token_ids)
    assert num_interrupts == 1
    whole = {"held": held_tokens([1, 2], 6), "free": expected_tokens([3], 6)}
    assert seen == {name: [tokens[: i + 1] for i in range(6)] for name, tokens in whole.items()}
    assert_idle(engine)


def interrupted_before_its_draw(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bring the engine to where a step waits for its draw: Ctrl-C came while the one before was waited for."""
    engine.step()
    with monkeypatch.context() as patch:
        patch.setattr(FakeStep, "read", lambda step: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            engine.step()
    assert engine._to_sample is not None


def test_an_abort_while_a_draw_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = engine_with_forms()
    for name, params in (("leaves", held(6)), ("stays", held(6)), ("free", greedy(6))):
        engine.add_request(name, [len(name)], params)
    interrupted_before_its_draw(engine, monkeypatch)
    output = engine.abort("leaves")
    assert output is not None
    assert (output.outputs[0].finish_reason, output.outputs[0].token_ids) == ("abort", [])
    engine.add_request("leaves", [8] * 9, held(5))  # takes over slot, pages and name
    assert tokens_of(finish(engine)) == {
        "stays": held_tokens([5], 6),
        "free": expected_tokens([4], 6),
        "leaves": held_tokens([8] * 9, 5),
    }
    assert_idle(engine)


def test_an_abort_of_all_while_a_draw_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = engine_with_forms()
    engine.add_request("a", [1], held(6))
    interrupted_before_its_draw(engine, monkeypatch)
    engine.abort("a")
    assert_idle(engine)
    assert engine.step() == []
    engine.add_request("b", [2], held(6))
    assert tokens_of(finish(engine)) == {"b": held_tokens([2], 6)}
    assert_idle(engine)


# ---- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["forward", "sample", "read"])
def test_a_step_that_fails_ends_its_requests_and_no_others(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the step before is read, the one that waits for its draw has failed with it."""
    engine, _ = engine_with_forms(max_num_seqs=2)
    engine.add_request("held", [1, 2], held(6))
    engine.step()
    engine.step()
    engine.add_request("joins", [3], greedy(6))
    engine.add_request("waits", [4], held(6))
    with monkeypatch.context() as patch:
        if place == "read":
            patch.setattr(FakeStep, "read", lambda step: 1 / 0)
        else:
            patch.setattr(engine._runner, place, lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.step()
    assert engine._to_sample is None
    outputs = finish(engine)
    assert outputs["held"].outputs[0].finish_reason == "abort"
    assert (outputs["joins"].outputs[0].finish_reason, outputs["joins"].outputs[0].token_ids) == ("abort", [])
    # What was read before the failure stays: of the forward pass that fails in the third step, one token.
    assert len(outputs["held"].outputs[0].token_ids) == (2 if place == "sample" else 1)
    assert outputs["held"].error is None
    assert outputs["waits"].outputs[0].token_ids == held_tokens([4], 6)
    assert_idle(engine)


@pytest.mark.parametrize("place", ["allowed", "accept"])
@pytest.mark.parametrize("nth", [0, 2])
def test_a_form_that_breaks_ends_its_request_only(place: str, nth: int) -> None:
    engine, _ = engine_with_forms()
    calls = iter(range(ENDLESS))

    def breaking() -> None:
        if next(calls) == nth:
            raise RuntimeError("out of fuel")

    engine.add_request("free", [3], greedy(6))
    engine.add_request("breaks", [1, 2], held(6))
    engine._tracked["breaks"].answers[0].mask._grammar.faults = {place: breaking}
    engine.add_request("held", [1, 2], held(6))
    outputs = finish(engine)
    broken = outputs.pop("breaks")
    assert "out of fuel" in broken.error
    assert broken.outputs[0].finish_reason == "error"
    assert broken.outputs[0].token_ids == held_tokens([1, 2], 6)[: nth + (place == "accept")]
    assert tokens_of(outputs) == {"free": expected_tokens([3], 6), "held": held_tokens([1, 2], 6)}
    assert_idle(engine)


def test_a_mask_that_leaves_no_token_is_an_error_of_its_request(caplog: pytest.LogCaptureFixture) -> None:
    written = held_tokens([1, 2], 6)
    engine, _ = engine_with_forms()
    engine.add_request("stuck", [1, 2], held(6))
    engine.add_request("free", [3], greedy(6))
    form = engine._tracked["stuck"].answers[0].mask._grammar
    allowed = form.allowed
    form.allowed = lambda: allowed() & 0 if len(form.output) == 3 else allowed()
    outputs = finish(engine)
    assert outputs["stuck"].outputs[0].token_ids == written[:3]
    assert "every token of the vocabulary is forbidden" in outputs["stuck"].error
    assert "request 'stuck'" in caplog.text
    assert outputs["free"].outputs[0].token_ids == expected_tokens([3], 6)
    assert outputs["free"].error is None
    assert_idle(engine)


def test_has_unfinished_until_the_last_output_is_out() -> None:
    engine, _ = engine_with_forms(length=2)
    assert not engine.has_unfinished
    engine.add_request("a", [1, 2], held(6))
    seen = []
    while engine.has_unfinished:
        seen += engine.step()
    assert [output.finished for output in seen] == [True]
    assert engine.step() == []
