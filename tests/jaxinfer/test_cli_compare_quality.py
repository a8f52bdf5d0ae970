"""``jaxinfer compare-quality``: its table, its JSON, and what it refuses."""

import json
import re
import shlex
from inspect import signature
from types import SimpleNamespace

import numpy as np
import pytest

from jaxinfer.config import Quantization
from jaxinfer.kernel_self_test import KernelSelfTestError
from jaxinfer.model_pair import ModelPair
from jaxinfer.quality import Comparison, ModelQuality
from tests.command_line import jaxinfer
from tests.jaxinfer.test_cli_options import ENGINE, SETTINGS, options_of
from tests.reference import load_reference

LOAD = ModelPair.load


def compare(*arguments, stdin=None):
    return jaxinfer("compare-quality", *arguments, stdin=stdin)


def test_a_real_model_in_four_bits_against_itself(shared_data):
    """The reference's perplexity is the one that transformers finds."""
    model, text = shared_data / "stories260K-hf", shared_data / "wikitext2_test.txt"
    options = shlex.split("--quantization int4 --group-size 32 --tokens 2048 --window 512 --json")
    result = compare("--model", model, "--against", model, "--text", text, *options)
    assert result.exit_code == 0, result.output
    found, scores = json.loads(result.stdout), load_reference("perplexity").arrays["stories_512"]
    assert found["reference"]["perplexity"] == pytest.approx(np.exp(-np.nanmean(scores.astype(np.float64))), rel=2e-6)
    counts = {name: found[name] for name in ("num_scored", "num_tokens", "num_windows", "window")}
    assert counts == {"num_scored": 2044, "num_tokens": 2048, "num_windows": 4, "window": 512}
    assert 0 < found["perplexity_change"] < 0.2
    assert 0.05 < found["mean_kl"] < 0.5
    assert 0.5 < found["top1_agreement"] < 0.9
    assert found["model"]["bits_per_weight"] < 16 < found["reference"]["bits_per_weight"] == 32


# ---- a made-up pair --------------------------------------------------------------------------------------------------

REFERENCE = ModelQuality(name="a", weight_bytes=3 * 2**30, bits_per_weight=32.0, log_likelihood=-50.0, perplexity=10.0)
MODEL = ModelQuality(name="b", weight_bytes=2**29, bits_per_weight=4.5, log_likelihood=-51.0, perplexity=10.5)
FOUND = Comparison(
    reference=REFERENCE,
    model=MODEL,
    mean_kl=0.0125,
    median_kl=0.01,
    kl_99=0.5,
    top1_agreement=0.975,
    num_scored=1200,
    num_tokens=1202,
    num_windows=2,
    window=601,
)


class Letters:
    """Each letter is a token, after so many special ones."""

    def __init__(self, *special):
        self.special = [*special]

    def encode(self, text):
        return [*self.special, *map(ord, text)]

    def decode(self, token_ids):
        return "".join(map(chr, token_ids[len(self.special) :]))


@pytest.fixture
def made(monkeypatch):
    """What a made-up pair is loaded with, and what it is to compare."""
    made = SimpleNamespace(settings=None, tokenizers={"some-model": Letters(0), "other": Letters(0)}, asked=[])
    made.found = FOUND

    def open_model(model, *, load_format):
        config = SimpleNamespace(max_position_embeddings=400, vocab_size=256)
        return SimpleNamespace(name=model, tokenizer=made.tokenizers[model], config=config)

    def load(model, against, **settings):
        made.settings, made.names = settings, (model.name, against.name)
        return "the pair"

    def compare_pair(pair, token_ids, on_window):
        on_window(1, 2)
        made.asked.append((pair, token_ids))
        return made.found

    monkeypatch.setattr("jaxinfer.loading.open_model", open_model)
    monkeypatch.setattr("jaxinfer.model_pair.ModelPair.load", load)
    monkeypatch.setattr("jaxinfer.quality.compare_pair", compare_pair)
    return made


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "text.txt"
    file.write_bytes("héllo\r\nworld".encode())
    return file


PAIR = ("--model", "some-model", "--against", "other")


def test_each_option_arrives_where_it_is_used(made, text):
    words = "--window 30 --tokens 9 --max-num-seqs 3 --against-quantization int8 --against-dtype bfloat16"
    mine = ["--against", "other", "--text", text, *shlex.split(words)]
    result = compare(*ENGINE, *mine)
    assert result.exit_code == 0, result.output
    given = {str(word) for word in [*ENGINE, *mine] if str(word)[:2] == "--"}
    assert options_of("compare-quality") == given | {"--json"}
    assert made.names == ("some-model", "other")
    of_reference = {"against_quantization": "int8", "against_dtype": "bfloat16"}
    assert made.settings == SETTINGS | of_reference | {"max_num_seqs": 3, "window": 30}
    assert made.asked == [("the pair", [0, *map(ord, "héllo\r\nw")])]


def test_without_options_a_model_is_held_as_it_is_stored_and_its_reference_as_floats(made, text):
    assert compare(*PAIR, "--text", text).exit_code == 0
    held = {"quantization": "stored", "against_quantization": "none", "against_dtype": None, "dtype": "auto"}
    assert made.settings.items() >= (held | {"window": None, "max_num_seqs": None}).items()
    defaults = {name: each.default for name, each in signature(LOAD).parameters.items()}
    assert Quantization.named(held["against_quantization"], None) is defaults["against_quantization"] is None
    assert defaults["quantization"] == held["quantization"], "as in Python"


def test_stdout_has_the_table_alone(made, text):
    result = compare(*PAIR, "--text", text)
    assert result.stdout.splitlines() == [
        "             weights  bits per weight  perplexity  change   mean KL  same top token",
        "reference   3.00 GiB            32.00     10.0000",
        "model      512.0 MiB             4.50     10.5000  +5.00%  0.012500          97.50%",
    ]
    assert re.fullmatch(r"1,200 of 1,202 tokens scored, 2 windows of 601 tokens; \d+\.\d s\n", result.stderr)


def test_json_has_all_numbers_and_null_for_what_is_none(made, text):
    made.found = Comparison(
        **vars(FOUND) | {"mean_kl": np.inf, "model": ModelQuality(**vars(MODEL) | {"perplexity": np.inf})}
    )
    found = json.loads(compare(*PAIR, "--text", text, "--json").stdout)
    assert found.pop("seconds") >= 0
    expected = {name: value for name, value in vars(FOUND).items() if name not in ("reference", "model")}
    assert found == expected | {
        "reference": vars(REFERENCE),
        "model": vars(MODEL) | {"perplexity": None},
        "mean_kl": None,
        "perplexity_change": None,
    }


@pytest.mark.parametrize(
    ("tokenizers", "message"),
    [
        ({"other": Letters(1)}, "the tokenizers of --model and --against give the text different ids, from token 0 on"),
        ({"other": Letters(0, 104)}, "the tokenizers .* from token 2 on; only models with one tokenizer"),
        ({"some-model": Letters()}, "the tokenizers .* from token 0 on"),
        ({"other": None}, "this model has no tokenizer, so it can read no text"),
        ({"some-model": None}, "this model has no tokenizer"),
    ],
)
def test_models_that_read_the_text_differently_are_refused_before_the_load(made, text, tokenizers, message):
    made.tokenizers |= tokenizers
    result = compare(*PAIR, "--text", text)
    assert (result.exit_code, result.stdout, made.settings) == (2, "", None)
    assert re.match(f"error: {message}", result.stderr), result.stderr


@pytest.mark.parametrize(
    ("fault", "exit_code"), [(ValueError("not these two"), 2), (KernelSelfTestError("wrong values"), 4)]
)
def test_what_cannot_be_loaded_is_told_in_a_line(made, text, monkeypatch, fault, exit_code):
    def load(*models, **settings):
        raise fault

    monkeypatch.setattr("jaxinfer.model_pair.ModelPair.load", load)
    result = compare(*PAIR, "--text", text)
    assert (result.exit_code, result.stdout, result.stderr) == (exit_code, "", f"error: {fault}\n")


def test_a_fault_of_the_comparison_itself_is_not_the_users(made, text, monkeypatch):
    def fail(*arguments):
        raise ValueError("in the middle")

    monkeypatch.setattr("jaxinfer.quality.compare_pair", fail)
    result = compare(*PAIR, "--text", text)
    assert (result.exit_code, str(result.exception)) == (1, "in the middle")


@pytest.mark.parametrize("missing", ["--text", "--against"])
def test_text_and_reference_must_be_given(made, text, missing):
    given = {"--text": text, "--against": "other"}
    del given[missing]
    result = compare(*[word for pair in given.items() for word in pair])
    assert (result.exit_code, made.settings) == (2, None)
    assert f"Missing option '{missing}'" in result.stderr
