"""Prompts and lengths of answers."""

import numpy as np
import pytest

from jaxinfer.bench.lengths import read_lengths
from jaxinfer.bench.prompts_file import prompts_of_file
from jaxinfer.bench.token_counts import FEW_WORDS, MORE_WORDS, TokenCounts
from jaxinfer.bench.workload import Ask, MadeUpPrompts


def made_up(prompts, number, seed=0, counts=TokenCounts()):  # noqa: B008  it is frozen
    return prompts.asks(number, counts, np.random.default_rng(seed))


def test_made_up_prompts_have_the_lengths_that_are_asked_for():
    asks = made_up(MadeUpPrompts([(3, 7), (500, 0)]), 5)
    assert [(len(ask.prompt.split()), ask.max_tokens) for ask in asks] == [(3, 7), (500, 1)] * 2 + [(3, 7)]
    assert len({ask.prompt for ask in asks}) == 5


def test_words_are_as_many_as_give_the_tokens_of_this_server():
    """Here a word has 1.5 tokens, and each prompt 10 more."""
    counts = TokenCounts.measured(*(10 + 3 * number // 2 for number in (FEW_WORDS, MORE_WORDS)))
    assert counts == TokenCounts(per_word=1.5, around=10)
    lengths = [(100, 1), (11, 1), (1, 1)]
    assert [len(ask.prompt.split()) for ask in made_up(MadeUpPrompts(lengths), 3, counts=counts)] == [60, 1, 1]


def test_a_server_whose_counts_make_no_sense_is_taken_to_have_a_token_for_each_word():
    assert TokenCounts.measured(5, 5) == TokenCounts(1, 0)


def test_the_same_seed_gives_the_same_prompts():
    prompts = MadeUpPrompts([(20, 1)])
    assert made_up(prompts, 3, seed=1) == made_up(prompts, 3, seed=1) != made_up(prompts, 3, seed=2)


def test_lengths_that_the_model_does_not_take_are_left_out():
    prompts = MadeUpPrompts([(10, 10), (10, 11), (20, 0), (19, 0)])
    assert prompts.fitting(20).lengths == [(10, 10), (19, 0)]
    with pytest.raises(ValueError, match="no prompt and its output have together at most 19 tokens"):
        prompts.fitting(19)


def test_all_lines_of_real_lengths(shared_data):
    file = shared_data / "sharegpt_lengths.csv"
    assert len(read_lengths(file, None)) == 2000
    assert read_lengths(file, 3) == [(33, 256), (17, 73), (62, 448)]


def test_lines_are_prompts():
    prompts = prompts_of_file("one\n\n  two \r\n{}\n", "p.txt", 9)
    assert prompts.asks(4, TokenCounts(), np.random.default_rng()) == [
        Ask("one", 9),
        Ask("  two ", 9),
        Ask("{}", 9),
        Ask("one", 9),
    ]


def test_json_lines_are_prompts_with_lengths():
    prompts = prompts_of_file('{"prompt": "a\\nb", "max_tokens": 3}\n{"prompt": "c", "id": 1}\n', "p.jsonl", 9)
    assert prompts.prompts == [Ask("a\nb", 3), Ask("c", 9)]


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("\n \n", "p.txt", "the prompts file p.txt has no prompt"),
        ('{"prompt": "a"}\n\n{"p', "p.jsonl", "p.jsonl, line 3 is '{\"p', which is no JSON"),
        ("3", "p.jsonl", "p.jsonl, line 1 is 3; it must be an object with a text called prompt"),
        ('{"prompt": 3}', "p.jsonl", "it must be an object with a text called prompt"),
        ('{"prompt": "a", "max_tokens": 0}', "p.jsonl", "line 1: max_tokens is 0; it must be a whole number >= 1"),
        ("[" * 100_000, "p.jsonl", "which is no JSON"),
    ],
)
def test_a_file_without_prompts_is_refused(text, name, message):
    with pytest.raises(ValueError) as caught:
        prompts_of_file(text, name, 9)
    assert message in str(caught.value)
