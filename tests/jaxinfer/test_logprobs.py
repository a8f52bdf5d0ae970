"""What a caller is told of tokens, over a model whose log-probabilities are known: -t / 64 for token t, always."""

from dataclasses import astuple

import numpy as np
import pytest

from jaxinfer.config import EngineConfig
from jaxinfer.engine import Engine
from jaxinfer.logprobs import Logprob, RankedLogprobs
from jaxinfer.outputs import RequestOutput
from tests.engines import finish, greedy, run_alone
from tests.fake_runner import FakeRunner, FakeStep, expected_tokens, logprob
from tests.fakes import fake_engine
from tests.jaxinfer.tool_calls.vocabulary import byte_tokenizer

PROMPT = list(range(20, 53))


def told(token_id: int, num_top: int) -> dict[int, Logprob]:
    return {t: Logprob(logprob(t), t + 1, None) for t in [token_id, *range(num_top)]}


def test_the_token_itself_comes_first_and_then_the_most_likely() -> None:
    ranked = RankedLogprobs(
        np.float32([-1.5, -0.5]), np.int32([2, 1]), np.int32([[7, 3, 5], [4, 6, 8]]), np.float32([[-1, -1.5, -2]] * 2)
    )
    assert list(ranked.of(0, 3, 2, str).items()) == [(3, Logprob(-1.5, 2, "3")), (7, Logprob(-1.0, 1, "7"))]
    assert list(ranked.of(1, 9, 1, str)) == [9, 4]
    assert list(ranked.of(1, 9, 0, str)) == [9]
    assert [type(value) for value in astuple(ranked.of(0, 3, 0, str)[3])] == [float, int, str]


def test_equally_likely_tokens_share_a_rank_whichever_was_drawn() -> None:
    """The third and the fourth are equal, and so are the fifth and one that was drawn and is not among the five."""
    likely = np.float32([-1, -1.5, -2, -2, -3])
    for token_id, of_drawn, rank in ((8, -2, 3), (9, -2, 3), (5, -3, 5)):
        ranked = RankedLogprobs(np.float32([of_drawn]), np.int32([rank]), np.int32([[6, 7, 8, 9, 4]]), likely[None])
        told_of = ranked.of(0, token_id, 5, str)
        assert {each: told_of[each].rank for each in (6, 7, 8, 9, 4)} == {6: 1, 7: 2, 8: 3, 9: 3, 4: 5}
        assert told_of[token_id].rank == rank


@pytest.mark.parametrize("num_top", [0, 1, 20])
def test_of_every_token_the_stop_token_included(num_top: int) -> None:
    tokens = expected_tokens(PROMPT, 8)
    engine = fake_engine(eos_token_ids=[tokens[5]])
    [completion] = run_alone(engine, PROMPT, greedy(8, logprobs=num_top)).outputs
    assert completion.token_ids == tokens[:6]
    assert completion.logprobs == [told(token, num_top) for token in tokens[:6]]
    assert completion.cumulative_logprob == sum(map(logprob, tokens[:6]))


def test_who_asks_for_none_is_told_none() -> None:
    engine = fake_engine()
    engine.add_request("silent", PROMPT, greedy(3))
    engine.add_request("told", PROMPT, greedy(3, logprobs=1, prompt_logprobs=1))
    silent = finish(engine)["silent"]
    assert silent.prompt_logprobs is None
    assert (silent.outputs[0].logprobs, silent.outputs[0].cumulative_logprob) == (None, None)


def test_a_stream_tells_those_so_far() -> None:
    engine = fake_engine()
    engine.add_request("a", PROMPT, greedy(5, logprobs=2, prompt_logprobs=0), stream=True)
    seen: list[RequestOutput] = []
    while engine.has_unfinished:
        seen += engine.step()
    for output in seen:
        [completion] = output.outputs
        assert completion.logprobs == [told(token, 2) for token in completion.token_ids]
        assert output.prompt_logprobs == seen[-1].prompt_logprobs
        completion.logprobs.clear()  # it is the caller's own


@pytest.mark.parametrize("num_prompt", [1, 2, 16, 33])
def test_of_every_token_of_the_prompt_but_the_first(num_prompt: int) -> None:
    """In pieces of 16 tokens; a second time too, where all its pages are known: then they are computed again."""
    engine = fake_engine()
    for max_tokens in (0, 2, 2):
        output = run_alone(engine, PROMPT[:num_prompt], greedy(max_tokens, prompt_logprobs=1))
        assert output.prompt_logprobs == [None, *(told(token, 1) for token in PROMPT[1:num_prompt])]
        assert output.usage is not None
        assert output.usage.cached_tokens == 0
        assert output.outputs[0].token_ids == expected_tokens(PROMPT[:num_prompt], max_tokens)
    output = run_alone(engine, PROMPT[:num_prompt], greedy(2, prompt_logprobs=1, n=3))
    assert output.prompt_logprobs == [None, *(told(token, 1) for token in PROMPT[1:num_prompt])]
    # One of the three computes it for all.
    assert engine.scheduler.counters.num_cached_tokens == 2 * 4 * ((num_prompt - 1) // 4)


def test_preempted_requests_are_told_of_each_token_once() -> None:
    engine = fake_engine(num_kv_pages=20, max_num_seqs=6)
    prompts = {str(i): list(range(i, i + 3 * i + 2)) for i in range(8)}
    for name, prompt in prompts.items():
        engine.add_request(name, prompt, greedy(30, logprobs=0, prompt_logprobs=0))
    outputs = finish(engine)
    assert engine.scheduler.counters.num_resumptions > 0
    for name, prompt in prompts.items():
        [completion] = outputs[name].outputs
        assert completion.token_ids == expected_tokens(prompt, 30)
        assert completion.logprobs == [told(token, 0) for token in completion.token_ids]
        assert outputs[name].prompt_logprobs == [None, *(told(token, 0) for token in prompt[1:])]


def test_a_preempted_request_whose_prompt_is_told_finds_its_pages_again() -> None:
    """It is computed again as little as one that asked for nothing, and of no token is told twice."""
    recomputed, told_of = [], []
    for prompt_logprobs in (None, 0):
        engine = fake_engine(num_kv_pages=20, max_num_seqs=6)
        for i in range(8):
            engine.add_request(str(i), range(i, i + 3 * i + 2), greedy(30, prompt_logprobs=prompt_logprobs))
        finish(engine)
        recomputed.append(engine.scheduler.counters.num_recomputed_tokens)
        rows = [row for batch in engine._runner.batches for row in batch.rows if row.scores_prompt]
        told_of.append(sum(row.num_tokens for row in rows))
    assert recomputed[0] == recomputed[1] > 0
    assert told_of == [0, sum(3 * i + 2 for i in range(8))]


def test_an_aborted_request_is_told_what_is_known() -> None:
    engine = fake_engine()
    engine.add_request("a", PROMPT, greedy(9, logprobs=0, prompt_logprobs=0))
    for _ in range(2):
        engine.step()
    output = engine.abort("a")
    assert output is not None
    assert output.prompt_logprobs == [None, *(told(token, 0) for token in PROMPT[1:17])]
    assert output.outputs[0].logprobs == []


@pytest.mark.parametrize("place", ["logprobs", "prompt_logprobs"])
def test_what_cannot_be_read_ends_the_requests_of_its_step(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine(max_num_seqs=1)
    engine.add_request("hit", PROMPT[:5], greedy(5, logprobs=0, prompt_logprobs=0))
    engine.add_request("waits", [3], greedy(5, logprobs=0))
    engine.step()
    with monkeypatch.context() as patch:
        patch.setattr(FakeStep, place, lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.step()
    outputs = finish(engine)
    assert outputs["hit"].outputs[0].finish_reason == "abort"
    assert outputs["waits"].outputs[0].logprobs == [told(token, 0) for token in expected_tokens([3], 5)]
    assert engine.scheduler.num_free_pages == (32,)


def test_tokens_have_their_text_where_there_is_a_tokenizer() -> None:
    tokenizer = byte_tokenizer()
    config = EngineConfig(max_model_len=64, num_kv_pages=64, page_size=8, max_num_seqs=4, max_chunk_tokens=16)
    runner = FakeRunner(config)
    runner.vocab_size = tokenizer.vocab_size
    engine = Engine(runner, config, tokenizer=tokenizer, eos_token_ids=())  # type: ignore[arg-type]
    prompt = tokenizer.encode("a b</s>")
    output = run_alone(engine, prompt, greedy(0, prompt_logprobs=0))
    assert output.prompt_logprobs is not None
    told_of = [
        entry and entry[token].decoded_token for entry, token in zip(output.prompt_logprobs, prompt, strict=True)
    ]
    assert told_of == [None, " ", "b", "</s>"]
