"""Log-probabilities, ranks and the most likely tokens, against log_softmax and argsort in NumPy and float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxinfer.logprobs import RankedLogprobs
from jaxinfer.ranking import rank, read_ranked

compiled = jax.jit(rank, static_argnames="num_top")


def ranked(logits: np.ndarray, token_ids: np.ndarray, num_top: int) -> RankedLogprobs:
    words = compiled(jnp.asarray(logits, jnp.float32), jnp.asarray(token_ids, jnp.int32), num_top=num_top)
    return read_ranked(np.asarray(words))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def check(logits: np.ndarray, token_ids: np.ndarray, num_top: int) -> None:
    """Everything that is told of these rows is what the definitions give."""
    rows, told = np.arange(len(logits)), ranked(logits, token_ids, num_top)
    expected, own = log_softmax(logits), logits[rows, token_ids]
    np.testing.assert_allclose(told.logprob, expected[rows, token_ids], rtol=2e-6, atol=2e-6)
    np.testing.assert_array_equal(told.rank, 1 + (logits > own[:, None]).sum(axis=1))
    order = np.argsort(-logits, axis=1, kind="stable")[:, :num_top]
    np.testing.assert_array_equal(told.top_ids, order)
    np.testing.assert_allclose(told.top_logprobs, expected[rows[:, None], order], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("num_top", [1, 20])
@pytest.mark.parametrize("vocab_size", [20, 63, 64, 65, 1000, 49152])
def test_random_rows_are_told_what_the_definitions_give(vocab_size, num_top):
    rng = np.random.default_rng(vocab_size)
    logits = (4 * rng.standard_normal((8, vocab_size))).astype(np.float32)
    check(logits, rng.integers(0, vocab_size, 8), num_top)


@pytest.mark.parametrize("levels", [1, 2, 40, 1000])
def test_equal_logits_come_in_the_order_of_their_ids_and_share_a_rank(levels):
    """With few levels the largest logit is in more blocks, and more often in each, than there are tokens to tell of.

    With many, equals stand in blocks whose largest logits differ.
    """
    rng = np.random.default_rng(levels)
    logits = rng.integers(0, levels, (16, 5000)).astype(np.float32)
    check(logits, rng.integers(0, 5000, 16), 20)


def test_the_most_likely_tokens_may_all_be_in_one_block_or_each_in_another():
    logits = np.random.default_rng(1).standard_normal((2, 6400)).astype(np.float32)
    logits[0, 3200:3220] += 100
    logits[1, 63:6400:320] += 100
    check(logits, np.array([3205, 63]), 20)


def test_the_rank_is_that_of_the_log_probabilities_that_are_told():
    """The first logits differ by less than log-probabilities of their size can."""
    logits = np.float32([[1e-8, 2e-8, -1, 0, *[-0.5] * 60]])
    found = [ranked(logits, np.array([token]), 3) for token in range(4)]
    assert len({told.logprob.item() for told in found}) == 2
    assert [told.rank.item() for told in found] == [1, 1, 64, 1]


def test_what_a_vocabulary_of_one_token_tells():
    check(np.array([[-7.5]], np.float32), np.array([0]), 1)


def test_impossible_tokens_have_no_probability_and_come_last():
    logits = np.full((2, 130), -np.inf, np.float32)
    logits[:, [5, 129]] = 3, 2
    told = ranked(logits, np.array([129, 0]), 20)
    assert told.top_ids[0].tolist() == [5, 129, *(token for token in range(19) if token != 5)]
    assert told.rank.tolist() == [2, 3]
    assert told.logprob[1] == -np.inf
    assert (told.top_logprobs[:, 2:] == -np.inf).all()


@pytest.mark.parametrize("shift", [-1e4, 1e4, 1e30])
def test_large_logits_do_not_overflow(shift):
    logits = np.linspace(0, 8, 100, dtype=np.float32)[None]
    check(np.float32(shift) + logits, np.array([40]), 20)


def test_large_logits_round_nothing_off():
    logits = np.full((1, 100), 2.0**17, np.float32)  # a float32 has no place for what log(100) is beside this
    assert ranked(logits, np.array([40]), 1).logprob == pytest.approx(np.log([0.01]), abs=1e-6)


def test_numbers_of_a_row_of_four_tokens_worked_out_by_hand():
    """Probabilities 0.5, 0.125, 0.25 and 0.125."""
    told = ranked(np.log(np.array([[4, 1, 2, 1]], np.float32)), np.array([3]), 4)
    assert told.rank.tolist() == [3]
    assert told.logprob == pytest.approx(np.log([0.125]), abs=1e-6)
    assert told.top_ids.tolist() == [[0, 2, 1, 3]]
    assert told.top_logprobs[0] == pytest.approx(np.log([0.5, 0.25, 0.125, 0.125]), abs=1e-6)
