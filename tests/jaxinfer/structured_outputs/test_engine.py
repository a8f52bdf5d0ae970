"""Requests with a form among others, in the real engine: each gets what it gets alone."""

from collections.abc import Sequence

import pytest

from jaxinfer.config import EngineConfig
from jaxinfer.engine import Engine
from jaxinfer.outputs import RequestOutput
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.structured_outputs.params import StructuredOutputsParams
from jaxinfer.tokenizers import Tokenizer, load_tokenizer
from tests.engines import finish
from tests.scripted_runner import ScriptedRunner
from tests.shared_runner import SharedRunner, shared_runner
from tests.vocabularies import BYTE_LEVEL_TOKENS, write_byte_level_json

LETTERS = StructuredOutputsParams(regex="([!-/]{3}[0-9]{2}){1,9}")
DIGITS = StructuredOutputsParams(regex="[0-9]{20}(A|B)")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Of whose tokens the model knows the first, which are the printable characters of ASCII."""
    return load_tokenizer(write_byte_level_json(tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture(scope="module")
def shared() -> SharedRunner:
    return shared_runner([None], max_model_len=64, max_num_seqs=4, max_chunk_tokens=16, page_size=4, num_kv_pages=64)


REQUESTS: dict[str, tuple[list[int], SamplingParams]] = {
    "letters": ([5, 6, 7], SamplingParams(structured_outputs=LETTERS, seed=1, max_tokens=24)),
    "greedy": ([9, 8], SamplingParams(temperature=0, max_tokens=24)),
    "digits": ([5, 6, 7, 8, 9], SamplingParams(structured_outputs=DIGITS, temperature=0, max_tokens=24)),
    "seeded": ([11] * 6, SamplingParams(seed=3, max_tokens=24)),
}


def run(engine: Engine, names: Sequence[str], steps_between: int = 0) -> dict[str, RequestOutput]:
    outputs: dict[str, RequestOutput] = {}
    for name in names:
        engine.add_request(name, *REQUESTS[name])
        for _ in range(steps_between):
            outputs |= {output.request_id: output for output in engine.step()}
    return outputs | finish(engine)


@pytest.fixture(scope="module")
def alone(shared: SharedRunner, tokenizer: Tokenizer) -> dict[str, RequestOutput]:
    return {name: run(shared.engine(tokenizer=tokenizer), [name])[name] for name in REQUESTS}


def check(outputs: dict[str, RequestOutput], alone: dict[str, RequestOutput]) -> None:
    for name, output in outputs.items():
        answer, expected = output.outputs[0], alone[name].outputs[0]
        assert (answer.token_ids, answer.text, answer.finish_reason) == (
            expected.token_ids,
            expected.text,
            expected.finish_reason,
        ), name


def test_forms_are_held(alone):
    assert alone["digits"].outputs[0].text[:20].isdigit()
    assert alone["digits"].outputs[0].text[20:] in ("A", "B")
    assert (alone["digits"].outputs[0].finish_reason, len(alone["digits"].outputs[0].token_ids)) == ("stop", 21)
    assert set(alone["letters"].outputs[0].text[:3]) <= set(map(chr, range(33, 48)))
    assert len(alone["greedy"].outputs[0].token_ids) == 24


@pytest.mark.parametrize("steps_between", [0, 1, 3])
@pytest.mark.parametrize("order", [list(REQUESTS), list(REQUESTS)[::-1]], ids=["in order", "reversed"])
def test_each_gets_what_it_gets_alone_beside_others(shared, tokenizer, alone, order, steps_between):
    check(run(shared.engine(tokenizer=tokenizer), order, steps_between), alone)


def test_each_gets_what_it_gets_alone_after_preemption(shared, tokenizer, alone):
    engine = shared.engine(tokenizer=tokenizer, num_kv_pages=17)
    outputs = run(engine, list(REQUESTS))
    assert engine.scheduler.counters.num_preemptions > 0
    check(outputs, alone)


def test_an_abort_in_the_middle_changes_nothing_for_the_others(shared, tokenizer, alone):
    engine = shared.engine(tokenizer=tokenizer)
    for name, (prompt, params) in REQUESTS.items():
        engine.add_request(name, prompt, params)
    for _ in range(6):
        engine.step()
    aborted = engine.abort("letters")
    assert aborted is not None
    assert aborted.outputs[0].finish_reason == "abort"
    kept = aborted.outputs[0].token_ids
    assert kept == alone["letters"].outputs[0].token_ids[: len(kept)]
    outputs = finish(engine)
    check(outputs, alone)
    assert set(outputs) == {"greedy", "digits", "seeded"}


def test_several_sequences_are_each_held(shared, tokenizer):
    engine = shared.engine(tokenizer=tokenizer)
    engine.add_request("n", [5], SamplingParams(n=3, seed=0, structured_outputs=DIGITS, max_tokens=30))
    texts = [answer.text for answer in finish(engine)["n"].outputs]
    assert len(set(texts)) == 3
    assert all(len(text) == 21 and text[:20].isdigit() and text[20] in "AB" for text in texts)


def test_a_bad_form_is_refused_and_leaves_nothing_behind(shared, tokenizer, alone):
    engine = shared.engine(tokenizer=tokenizer)
    with pytest.raises(ValueError, match="structured_outputs with regex"):
        engine.add_request("bad", [5], SamplingParams(structured_outputs=StructuredOutputsParams(regex="(")))
    assert not engine.has_unfinished
    check(run(engine, ["greedy"]), alone)


# A runner that draws what it was told, forbidden or not


def scripted(tokenizer: Tokenizer, text: str) -> Engine:
    ids, eos = [BYTE_LEVEL_TOKENS.index(character) for character in text], BYTE_LEVEL_TOKENS.index("</s>")
    runner = ScriptedRunner({"a": ids}, vocab_size=tokenizer.vocab_size, eos_token_id=eos)
    engine = Engine(runner, EngineConfig(max_model_len=64, num_kv_pages=32), tokenizer=tokenizer, eos_token_ids=(eos,))  # type: ignore[arg-type]
    engine.add_request("a", [5], SamplingParams(structured_outputs=StructuredOutputsParams(regex="abc(de)?f?")))
    return engine


def test_a_token_that_is_not_of_the_form_is_an_error_of_its_request(tokenizer):
    output = finish(scripted(tokenizer, "abx"))["a"]
    assert output.outputs[0].finish_reason == "error"
    assert "cannot come next in the form" in str(output.error)


def test_the_end_of_the_form_ends_the_request_and_eos_does_where_it_may(tokenizer):
    for text in ("abcdef", "abcde", "abc"):
        output = finish(scripted(tokenizer, text))["a"]
        assert (output.outputs[0].text, output.outputs[0].finish_reason) == (text, "stop")


def test_ctrl_c_between_the_forward_pass_and_the_draw_loses_nothing(tokenizer, monkeypatch):
    """The token before is read there, which is where the host waits."""
    engine = scripted(tokenizer, "abcdef")
    outputs, interrupted = {}, 0
    while engine.has_unfinished:
        commit, calls = Engine._commit, []

        def interrupt(self: Engine, commit=commit, calls=calls) -> None:
            if self._to_sample is not None and not calls:
                calls.append(self)
                raise KeyboardInterrupt
            commit(self)

        monkeypatch.setattr(Engine, "_commit", interrupt)
        try:
            outputs |= {output.request_id: output for output in engine.step()}
        except KeyboardInterrupt:
            interrupted += 1
        monkeypatch.setattr(Engine, "_commit", commit)
        outputs |= {output.request_id: output for output in engine.step()}
    assert interrupted > 1
    assert (outputs["a"].outputs[0].text, outputs["a"].outputs[0].finish_reason) == ("abcdef", "stop")
