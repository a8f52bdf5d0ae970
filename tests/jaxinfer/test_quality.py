"""Two models compared: against logits, roundings and divergences computed from their definitions in NumPy."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from checkpoints.quantization import on_device
from jaxinfer import Comparison, compare_quality, model_pair, quality
from jaxinfer.config import Quantization
from jaxinfer.divergence import Divergences, diverge
from jaxinfer.llm import LLM
from jaxinfer.loading import LoadedModel
from jaxinfer.model_pair import ModelPair
from jaxinfer.quality import compare_pair
from jaxinfer.weights import Formats, weight_shapes
from tests.engines import one_program
from tests.numpy_decoder import decoder_logits
from tests.reference import TINY_TWO_GROUPS
from tests.scoring import log_softmax

CONFIG = replace(TINY_TWO_GROUPS, num_layers=2, windows=(None, 12))
TOKEN_IDS = np.random.default_rng(3).integers(0, 128, 75)
LIMITS: dict[str, Any] = {"page_size": 8, "max_chunk_tokens": 32, "max_num_seqs": 3, "max_model_len": 40}


def drawn() -> dict[str, np.ndarray]:
    """Weights wide enough for distributions that are far from even."""
    rng = np.random.default_rng(0)
    return {
        name: (1 + rng.normal(0, 0.1, shape) if len(shape) == 1 else rng.normal(0, 0.25, shape)).astype(np.float32)
        for name, shape in weight_shapes(CONFIG).items()
    }


WEIGHTS = drawn()


def read(dtype: np.dtype, formats: Formats) -> Iterator[tuple[str, Any]]:
    return ((name, on_device(name, array.astype(dtype), formats.get(name))) for name, array in WEIGHTS.items())


MODEL = LoadedModel("drawn", CONFIG, read, tokenizer=None, eos_token_ids=())


def rounded(quantization: str) -> dict[str, np.ndarray]:
    """The matrices of the layers as their format has them; INT4 in groups of 32."""

    def to_int8(row: np.ndarray) -> np.ndarray:
        scale = np.abs(row).max() / np.float32(127)
        return np.round(row / scale) * scale

    def to_int4(row: np.ndarray) -> np.ndarray:
        groups = []
        for begin in range(0, len(row), 32):
            group = row[begin : begin + 32]
            scale, offset = (
                np.float32(np.float16(value)) for value in ((group.max() - group.min()) / np.float32(15), group.min())
            )
            groups.append(np.clip(np.round((group - offset) / scale), 0, 15) * scale + offset)
        return np.concatenate(groups)

    rounding = {"int8": to_int8, "int4": to_int4}[quantization]
    is_matrix = {name: "layers" in name and array.ndim == 2 for name, array in WEIGHTS.items()}
    return {name: np.stack([*map(rounding, array)]) if is_matrix[name] else array for name, array in WEIGHTS.items()}


@cache
def definition(window: int) -> dict[str, float]:
    """INT4 against INT8, in float64, from the logits of whole windows."""
    scores: dict[str, list[np.ndarray]] = {name: [] for name in ("reference", "model", "kl", "agrees")}
    for begin in range(0, len(TOKEN_IDS), window):
        part = TOKEN_IDS[begin : begin + window]
        of_both = (decoder_logits(CONFIG, weights, part)[:-1] for weights in (INT8, INT4))
        log_p, log_q = map(log_softmax, of_both)
        scores["reference"].append(log_p[np.arange(len(part) - 1), part[1:]])
        scores["model"].append(log_q[np.arange(len(part) - 1), part[1:]])
        scores["kl"].append((np.exp(log_p) * (log_p - log_q)).sum(axis=1))
        scores["agrees"].append(log_p.argmax(axis=1) == log_q.argmax(axis=1))
    joined = {name: np.concatenate(parts) for name, parts in scores.items()}
    return {
        "num_scored": len(joined["kl"]),
        "reference": np.exp(-joined["reference"].mean()),
        "model": np.exp(-joined["model"].mean()),
        "mean_kl": joined["kl"].mean(),
        "median_kl": np.median(joined["kl"]),
        "kl_99": np.quantile(joined["kl"], 0.99),
        "top1_agreement": joined["agrees"].mean(),
    }


INT8, INT4 = rounded("int8"), rounded("int4")
SETTINGS: dict[str, Any] = {"quantization": "int4", "group_size": 32, "against_quantization": "int8"}


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    """With matrices that no group divides, and pages for two of the longest windows where there may be three."""
    return ModelPair.load(MODEL, MODEL, window=40, num_kv_pages=10, **SETTINGS, **LIMITS)


def check(found: Comparison, window: int) -> None:
    expected = definition(window)
    assert found.num_scored == expected["num_scored"]
    assert found.num_windows == math.ceil((75 - 1) / window)
    assert (found.num_tokens, found.window) == (75, window)
    assert found.reference.perplexity == pytest.approx(expected["reference"], rel=1e-5)
    assert found.model.perplexity == pytest.approx(expected["model"], rel=1e-5)
    assert found.perplexity_change == pytest.approx(expected["model"] / expected["reference"] - 1, abs=1e-5)
    for name in ("mean_kl", "median_kl", "kl_99"):
        assert getattr(found, name) == pytest.approx(expected[name], abs=1e-5), name
    assert found.top1_agreement == pytest.approx(expected["top1_agreement"], abs=1e-9)


@pytest.mark.parametrize("window", [2, 20, 37, 40])
def test_a_model_is_as_far_from_the_reference_as_by_the_definition(pair: ModelPair, window: int) -> None:
    """Windows of which a step holds several, and such as it cuts."""
    assert definition(window)["mean_kl"] > 0.01  # there is something to see
    assert definition(window)["top1_agreement"] < 1
    check(compare_pair(replace(pair, window=window), TOKEN_IDS.tolist()), window)


def test_each_window_is_told(pair: ModelPair) -> None:
    told: list[tuple[int, int]] = []
    compare_pair(replace(pair, window=20), TOKEN_IDS.tolist(), lambda *counts: told.append(counts))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_models_are_loaded_and_compared_in_one_call(pair: ModelPair, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(model: LoadedModel, against: LoadedModel, **settings: Any) -> ModelPair:
        assert (model, against, settings) == (MODEL, other, SETTINGS)
        return pair

    other, told = replace(MODEL, name="other"), []
    monkeypatch.setattr(quality.ModelPair, "load", load)
    check(compare_quality(MODEL, other, TOKEN_IDS, on_window=lambda *counts: told.append(counts), **SETTINGS), 40)
    assert told == [(1, 2), (2, 2)]


def test_a_models_bytes_are_those_of_its_arrays(pair: ModelPair) -> None:
    """A row is filled up to 128 numbers; INT8 has a float32 beside them, INT4 two float16 for each 32 of them."""
    found = compare_pair(pair, TOKEN_IDS.tolist())
    shapes = weight_shapes(CONFIG)
    matrices = [shape for name, shape in shapes.items() if "layers" in name and len(shape) == 2]
    num_weights, num_rows = sum(map(math.prod, shapes.values())), sum(shape[0] for shape in matrices)
    assert {num_inputs for _, num_inputs in matrices} == {48, 64}
    of_floats = 4 * (num_weights - sum(map(math.prod, matrices)))
    for side, of_row in ((found.reference, 128 + 4), (found.model, 64 + 4 * 2 * 2)):
        assert side.weight_bytes == of_floats + num_rows * of_row
        assert side.bits_per_weight == 8 * side.weight_bytes / num_weights


@pytest.mark.slow
def test_a_perplexity_is_that_of_score(pair: ModelPair) -> None:
    """The quick tests hold both against the definition."""
    with one_program():
        llm = LLM(MODEL, quantization="int8", **LIMITS)
    [score] = llm.score({"prompt_token_ids": TOKEN_IDS}, window=37)
    found = compare_pair(replace(pair, window=37), TOKEN_IDS.tolist())
    assert (found.num_scored, found.num_windows) == (score.num_scored, score.num_windows)
    assert found.reference.log_likelihood == pytest.approx(score.log_likelihood, rel=1e-7)
    assert found.reference.perplexity == pytest.approx(score.perplexity, rel=1e-6)


def test_a_model_against_itself_has_lost_nothing(pair: ModelPair) -> None:
    found = compare_pair(replace(pair, reference=pair.model), TOKEN_IDS.tolist())
    assert (found.mean_kl, found.median_kl, found.kl_99, found.top1_agreement) == (0, 0, 0, 1)
    assert found.model == found.reference
    assert found.perplexity_change == 0


def test_one_that_is_interrupted_leaves_nothing_behind(pair: ModelPair) -> None:
    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare_pair(pair, TOKEN_IDS.tolist(), interrupt)
    assert not pair.scheduler.has_unfinished
    check(compare_pair(pair, TOKEN_IDS.tolist()), 40)


# ---- the numbers of one place ----------------------------------------------------------------------------------------

INF, LOG3 = np.inf, math.log(3)


@pytest.mark.parametrize(
    ("reference", "logits", "kl"),
    [
        ([0.0, LOG3], [0.0, 0.0], 0.25 * math.log(0.5) + 0.75 * math.log(1.5)),
        ([0.0, 0.0], [0.0, LOG3], 0.5 * math.log(2) + 0.5 * math.log(2 / 3)),  # not the same the other way round
        ([5.0, 5.0 + LOG3], [-7.0, -7.0 + LOG3], 0.0),
        ([0.0, -INF], [0.0, 0.0], math.log(2)),
        ([0.0, -INF], [0.0, -INF], 0.0),  # and not NaN
        ([0.0, -200.0], [0.0, -INF], 0.0),  # so unlikely that it is 0 in float32
        ([0.0, 0.0], [0.0, -INF], INF),
    ],
)
def test_divergence_is_of_the_reference_against_the_model(
    reference: list[float], logits: list[float], kl: float
) -> None:
    rows = (jnp.asarray([row], jnp.float32) for row in (reference, logits))
    assert Divergences.read(np.asarray(diverge(*rows, jnp.zeros(1, jnp.int32)))).kl.tolist() == [
        pytest.approx(kl, abs=1e-6)
    ]


def test_of_equally_likely_tokens_the_lowest_counts() -> None:
    reference = jnp.asarray([[1.0, 3, 3], [1, 3, 3], [3, 1, 3]])
    logits = jnp.asarray([[0.0, 2, 1], [0, 1, 2], [2, 2, 2]])
    found = Divergences.read(np.asarray(diverge(reference, logits, jnp.asarray([2, 0, 1]))))
    assert found.agrees.tolist() == [1, 0, 1]
    for logprobs, rows in ((found.reference_logprobs, reference), (found.logprobs, logits)):
        expected = log_softmax(np.asarray(rows))[np.arange(3), [2, 0, 1]]
        np.testing.assert_allclose(logprobs, expected, atol=1e-6)


# ---- what each model is made with ------------------------------------------------------------------------------------


def test_limits_are_of_both_and_formats_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []

    def build(loaded: LoadedModel, **settings: Any) -> tuple[Any, Any]:
        built.append((loaded.name, settings))
        programs = SimpleNamespace(compile_reading=lambda: None)
        return SimpleNamespace(scheduler=SimpleNamespace(num_free_pages=(7,))), SimpleNamespace(programs=programs)

    monkeypatch.setattr(model_pair, "build_engine", build)
    other = replace(MODEL, name="other", config=replace(CONFIG, max_position_embeddings=30))
    common: dict[str, Any] = {"kernels": "xla", "page_size": 4, "max_model_len": 30, "max_num_seqs": 10}
    of_model: dict[str, Any] = {"quantize_embeddings": True, "kv_dtype": "int8", "dtype": "bfloat16"}
    given = {name: value for name, value in common.items() if name not in ("max_model_len", "max_num_seqs")}
    pair = ModelPair.load(MODEL, other, quantization="int4", against_dtype="float32", **of_model, **given)
    assert pair.window == 30
    int4, most = Quantization(bits=4, group_size=64), 8 * 10  # a window of 30 takes 8 pages of 4
    assert built == [
        ("other", {"dtype": "float32", "quantization": None, "num_kv_pages": most} | common),
        ("drawn", {"quantization": int4, "num_kv_pages": most} | of_model | common),
    ]
    built.clear()
    settings = {"max_model_len": 20, "num_kv_pages": 9}
    ModelPair.load(MODEL, MODEL, window=5, dtype="bfloat16", against_quantization="int8", **settings)
    assert [settings["dtype"] for _, settings in built] == ["bfloat16"] * 2
    assert [settings["quantization"] for _, settings in built] == [Quantization(bits=8), "stored"]
    assert {tuple(map(settings.get, ("max_model_len", "max_num_seqs", "num_kv_pages"))) for _, settings in built} == {
        (5, 32, 9)
    }


OTHER_WORDS, OTHER_WINDOWS = replace(CONFIG, vocab_size=127), replace(CONFIG, windows=(None, 13))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"against": replace(MODEL, config=OTHER_WORDS)}, "the model has 128 tokens and the reference 127"),
        (
            {"against": replace(MODEL, config=OTHER_WINDOWS)},
            r"the model have the windows \(None, 12\) and those of the reference \(None, 13\)",
        ),
        ({"token_ids": [5]}, "the text has 1 tokens; at least 2 are needed"),
        ({"token_ids": [5, 128]}, r"token_ids has 128; a token id is a whole number in \[0, 128\)"),
        ({"token_ids": [5, True]}, "token_ids has True"),
        ({"token_ids": "12"}, "token_ids is '12'; it must be a list of token ids"),
        ({"window": 1}, r"window is 1; it must be a whole number in \[2, 256\]"),
        ({"window": 31, "max_model_len": 30}, "window is 31"),
        ({"max_model_len": 257}, r"max_model_len is 257; it must be a whole number in \[2, 256\]"),
        ({"memory_fraction": 1e-9}, r"the weights take 0.00 GiB .* for a window of 256 tokens; .* \(--window\)"),
        ({"page_size": 0}, "page_size is 0"),
        ({"quantization": "int3"}, "quantization is 'int3'"),
        ({"against_quantization": "int3"}, "quantization is 'int3'"),
        ({"against": "no/such"}, "no/such"),
    ],
)
def test_what_is_wrong_is_refused_before_weights_are_read(changes: dict[str, Any], message: str) -> None:
    unread = replace(MODEL, weights=None)
    given = {"model": unread, "against": unread, "token_ids": TOKEN_IDS} | changes
    with pytest.raises(ValueError, match=message):
        compare_quality(**given)
