"""``jaxinfer perplexity``: its number, what it says beside it, and what it refuses."""

import json
import math
import re
import shlex
from types import SimpleNamespace

import numpy as np
import pytest
import sentencepiece
from typer.testing import CliRunner

from jaxinfer.cli import app
from jaxinfer.scoring import TextScore
from tests.engines import one_program
from tests.jaxinfer.test_cli_options import ENGINE, SETTINGS, options_of
from tests.reference import load_reference


def perplexity(*arguments, stdin=None):
    return CliRunner().invoke(app, ["perplexity", *map(str, arguments)], input=stdin)


# ---- a real model ----------------------------------------------------------------------------------------------------


def test_its_numbers_are_those_of_transformers(shared_data):
    model, text = shared_data / "stories260K-hf", shared_data / "wikitext2_test.txt"
    with one_program():
        result = perplexity(
            "--model", model, "--text", text, *shlex.split("--tokens 2048 --window 512 --stride 256 --json")
        )
    assert result.exit_code == 0, result.output
    found, reference = json.loads(result.stdout), load_reference("perplexity").arrays
    scores = reference["stories_256"][1:].astype(np.float64)
    assert found["perplexity"] == pytest.approx(np.exp(-scores.mean()), rel=2e-6)
    assert found["log_likelihood"] == pytest.approx(scores.sum(), rel=1e-5)
    counts = {name: found[name] for name in ("num_scored", "num_tokens", "num_windows", "window", "stride")}
    assert counts == {"num_scored": 2047, "num_tokens": 2048, "num_windows": 7, "window": 512, "stride": 256}
    assert found["tokens_per_second"] == pytest.approx(2047 / found["seconds"])
    library = sentencepiece.SentencePieceProcessor(model_file=str(model / "tokenizer.model"))
    num_bytes = len(library.decode(reference["stories_token_ids"].tolist()).encode())
    assert found["bits_per_byte"] == pytest.approx(-scores.sum() / math.log(2) / num_bytes, rel=1e-5)


# ---- a made-up model -------------------------------------------------------------------------------------------------


class Letters:
    """Each letter is a token, and BOS comes first."""

    def encode(self, text):
        return [0, *map(ord, text)]

    def decode(self, token_ids):
        return "".join(map(chr, token_ids[1:]))


class Scorer:
    """Gives each token but the first a quarter of the probability, and remembers what it was asked."""

    def __init__(self):
        self.max_model_len, self.asked, self.log_likelihood = 50, [], None

    def score(self, prompt, *, window, stride, on_window):
        self.asked.append((prompt, window, stride))
        on_window(1, 1)
        num_scored = len(prompt["prompt_token_ids"]) - 1
        total = num_scored * math.log(1 / 4) if self.log_likelihood is None else self.log_likelihood
        return [TextScore(prompt["prompt_token_ids"], np.zeros(num_scored + 1, np.float32), num_scored, 1, total)]


@pytest.fixture
def made(monkeypatch):
    """What a made-up model is made with, and itself."""
    made = SimpleNamespace(llm=Scorer(), settings=None, tokenizer=Letters())

    def make(opened, *, progress, **settings):
        made.settings, made.model = settings, opened.model
        return made.llm

    def open_model(model, *, load_format):
        config = SimpleNamespace(max_position_embeddings=400, vocab_size=256)
        return SimpleNamespace(model=model, tokenizer=made.tokenizer, config=config)

    monkeypatch.setattr("jaxinfer.llm.LLM", make)
    monkeypatch.setattr("jaxinfer.loading.open_model", open_model)
    return made


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "text.txt"
    file.write_bytes("héllo\r\nworld".encode())
    return file


def test_each_option_arrives_where_it_is_used(made, text):
    mine = ["--text", text, *shlex.split("--window 30 --stride 7 --tokens 9 --max-num-seqs 3")]
    result = perplexity(*ENGINE, *mine)
    assert result.exit_code == 0, result.output
    assert options_of("perplexity") == {str(word) for word in [*ENGINE, *mine] if str(word)[:2] == "--"} | {"--json"}
    assert made.model == "some-model"
    assert made.settings == SETTINGS | {"max_num_seqs": 3}
    [(prompt, window, stride)] = made.llm.asked
    assert (prompt, window, stride) == ({"prompt_token_ids": [0, *map(ord, "héllo\r\nw")]}, 30, 7)


@pytest.mark.parametrize(
    ("options", "max_model_len", "num_seqs", "window"),
    [
        ([], None, 2, 50),  # what the engine can hold
        (["--window", 20], 20, 14, 20),
        (["--window", 2], 2, 32, 2),
        (["--max-model-len", 30], 30, 10, 50),
        (["--max-model-len", 30, "--window", 20], 30, 14, 20),
    ],
)
def test_the_engine_is_no_larger_than_the_windows(made, text, options, max_model_len, num_seqs, window):
    assert perplexity("--text", text, *options).exit_code == 0
    settings = {name: made.settings[name] for name in ("max_model_len", "max_num_seqs")}
    assert settings == {"max_model_len": max_model_len, "max_num_seqs": num_seqs}
    assert made.llm.asked[0][1:] == (window, window)


def test_stdout_has_the_number_alone(made, text):
    result = perplexity("--text", text, "--window", 20, "--stride", 10)
    assert result.stdout == "4.0000\n"
    assert re.fullmatch(
        r"12 of 13 tokens scored, 1\.8462 bits per byte; 1 windows of 20 tokens, one every 10; "
        r"\d+\.\d s, [\d,]+ tokens per second\n",
        result.stderr,
    )


def test_text_of_a_pipe_is_the_text_of_a_file_and_its_bytes_are_counted(made, text):
    """12 letters of 2 bits each, one of which has two bytes."""
    from_file = perplexity("--text", text, "--json")
    from_pipe = perplexity("--text", "-", "--json", stdin=text.read_bytes())
    assert made.llm.asked[0] == made.llm.asked[1]
    for result in (from_file, from_pipe):
        assert json.loads(result.stdout)["bits_per_byte"] == pytest.approx(24 / 13)
    cut = perplexity("--text", text, "--tokens", 3, "--json")
    assert json.loads(cut.stdout)["bits_per_byte"] == pytest.approx(4 / 3)


@pytest.mark.parametrize(("total", "shown"), [(-math.inf, "inf"), (-1e9, "inf"), (math.nan, "nan")])
def test_what_is_no_number_is_null_in_json(made, text, total, shown):
    made.llm.log_likelihood = total
    assert perplexity("--text", text).stdout == f"{shown}\n"
    assert json.loads(perplexity("--text", text, "--json").stdout)["perplexity"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--window", 1], r"window is 1; it must be a whole number in \[2, 400\], which is max_model_len"),
        (["--window", 401], "window is 401"),
        (["--window", 60], r"window is 60; it must be a whole number in \[2, 50\]"),  # the engine has room for 50
        (["--max-model-len", 30, "--window", 31], r"window is 31; it must be a whole number in \[2, 30\]"),
        (
            ["--window", 20, "--stride", 21],
            r"stride is 21; it must be a whole number in \[1, 20\], which is the window",
        ),
        (["--stride", 0], "stride is 0"),
        (["--tokens", 1], "--tokens is 1; it must be a whole number >= 2"),
        (["--tokens", 14], "the text has 13 tokens; at least 14 are needed"),
        (["--text", ""], "--text has an empty name; give a file, or - for stdin"),
        (["--text", "no/such"], "the text no/such cannot be read: No such file or directory"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(made, text, options, message):
    result = perplexity("--text", text, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.match(f"error: {message}", result.stderr), result.stderr
    assert made.llm.asked == []


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "the text has 1 tokens; at least 2 are needed"), (b"a\xff", r"the text stdin is not UTF-8: byte 1 is 0xff")],
)
def test_a_text_that_is_none_is_refused_before_the_load(made, content, message):
    result = perplexity("--text", "-", stdin=content)
    assert (result.exit_code, made.settings) == (2, None)
    assert result.stderr.startswith(f"error: {message}")


def test_a_model_without_a_tokenizer_is_refused(made, text):
    made.tokenizer = None
    result = perplexity("--text", text)
    assert (result.exit_code, made.settings) == (2, None)
    assert result.stderr == "error: this model has no tokenizer, so it can read no text\n"


def test_a_tokenizer_of_another_model_is_refused(made, tmp_path):
    (tmp_path / "text.txt").write_text("pāx", encoding="utf-8")
    result = perplexity("--text", tmp_path / "text.txt")
    assert (result.exit_code, made.settings) == (2, None)
    assert result.stderr == "error: the tokenizer gives the id 257, and this model has 256 tokens\n"


def test_the_text_must_be_given(made):
    result = perplexity()
    assert (result.exit_code, made.settings) == (2, None)
    assert "Missing option '--text'" in result.stderr
