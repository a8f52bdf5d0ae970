"""The rotary angles that a config.json asks for: where they are written, and what the longest context is then."""

import math

import numpy as np
import pytest

from checkpoints import rope_scaling
from jaxinfer.config import RopeScaling
from tests.checkpoints.writers import HF_CONFIG
from tests.reference import load_reference

# Four frequencies at base 10,000: 1, 0.1, 0.01 and 0.001 a token.
SMALL = HF_CONFIG | {"head_dim": 8, "rope_theta": 1e4, "max_position_embeddings": 4096}

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 1024,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}


def test_linear_divides_all(read):
    config = read(SMALL | {"rope_scaling": {"type": "linear", "factor": 2.5}})
    assert config.rope_scaling == RopeScaling((2.5,) * 4)
    assert config.max_position_embeddings == 4096


def test_llama3_by_its_definition(read):
    """In 1,024 tokens the frequencies turn 163, 16.3, 1.63 and 0.163 times: kept, kept, blended and divided by 8."""
    config = read(SMALL | {"rope_scaling": LLAMA3})
    kept = (10.24 / (2 * math.pi) - 1) / 3
    assert config.rope_scaling is not None
    assert config.rope_scaling.divisors == pytest.approx((1, 1, 1 / (kept + (1 - kept) / 8), 8), rel=1e-12)
    assert config.rope_scaling.attention_factor == 1
    assert config.max_position_embeddings == 4096


def test_yarn_by_its_definition(read):
    """The frequency of index x turns 1024 / (2 pi 10^x) times: 32 times at x = 0.71, once at 2.2, cut to 0 and 3."""
    config = read(SMALL | {"rope_scaling": YARN})
    shares = (1, 2 / 3, 1 / 3, 0)
    assert config.rope_scaling is not None
    assert config.rope_scaling.divisors == pytest.approx([1 / (s + (1 - s) / 4) for s in shares], rel=1e-12)
    assert config.rope_scaling.attention_factor == pytest.approx(0.1 * math.log(4) + 1)
    assert config.max_position_embeddings == 4096


def test_yarn_without_whole_numbers(read):
    config = read(SMALL | {"rope_scaling": YARN | {"truncate": False, "beta_fast": 30, "beta_slow": 2}})
    low, high = (math.log10(1024 / (2 * math.pi * turns)) for turns in (30, 2))
    shares = [min(max((high - i) / (high - low), 0), 1) for i in range(4)]
    assert config.rope_scaling is not None
    assert 0 < shares[1] < 1
    assert config.rope_scaling.divisors == pytest.approx([1 / (s + (1 - s) / 4) for s in shares], rel=1e-12)


@pytest.mark.parametrize(
    ("keys", "factor"),
    [
        ({"attention_factor": 1.5}, 1.5),
        ({"attention_factor": 1.5, "mscale": 2, "mscale_all_dim": 1}, 1.5),
        ({"mscale": 2, "mscale_all_dim": 1}, (0.2 * math.log(4) + 1) / (0.1 * math.log(4) + 1)),
        ({"mscale": 2}, 0.1 * math.log(4) + 1),
        ({"mscale": 2, "mscale_all_dim": 0}, 0.1 * math.log(4) + 1),
        ({"mscale_all_dim": 1.0}, 0.1 * math.log(4) + 1),
    ],
)
def test_the_attention_factor_of_yarn(read, keys, factor):
    scaling = read(SMALL | {"rope_scaling": YARN | keys}).rope_scaling
    assert scaling.attention_factor == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize(
    ("written", "section", "longest"),
    [
        (1024, YARN, 4096),
        (4096, YARN, 4096),
        (100, {"rope_type": "yarn", "factor": 4}, 400),
        (4096, YARN | {"factor": None}, 4096),
        (4096, LLAMA3, 4096),
        (4096, {"rope_type": "linear", "factor": 4}, 4096),
        (4096, {"rope_type": "default", "factor": 4}, 4096),
    ],
)
def test_the_longest_context(read, written, section, longest):
    config = read(SMALL | {"max_position_embeddings": written, "rope_scaling": section})
    assert config.max_position_embeddings == longest


@pytest.mark.parametrize("kind", ["type", "rope_type"])
@pytest.mark.parametrize("place", ["rope_scaling", "rope_parameters"])
def test_both_names_in_both_places(read, kind, place):
    section = {key: value for key, value in YARN.items() if key != "rope_type"} | {kind: "yarn"}
    assert read(SMALL | {place: section}) == read(SMALL | {"rope_scaling": YARN})


def test_a_scaling_added_by_hand_beside_the_new_section(read):
    new = {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    assert read(SMALL | new | {"rope_scaling": YARN}) == read(SMALL | {"rope_scaling": YARN})
    assert read(SMALL | {"rope_scaling": YARN, "rope_parameters": YARN}) == read(SMALL | {"rope_scaling": YARN})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "type is 'dynamic'; it must be default, linear, llama3"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "rope_type is 'longrope'; it must be default, linear"),
        ({"rope_scaling": {"type": 3}}, "type is 3; it must be a string"),
        ({"rope_scaling": {"factor": 4.0}}, "rope_type is missing; it must be given beside 'factor'"),
        ({"rope_scaling": {"type": None, "factor": 4.0}}, "rope_type is missing; it must be given beside 'factor'"),
        ({"rope_parameters": {"rope_theta": 1e4, "beta_fast": 32}}, "rope_type is missing; .* beside 'beta_fast'"),
        ({"rope_parameters": {"mrope_section": [1, 1, 2]}}, "rope_type is missing; .* beside 'mrope_section'"),
        ({"rope_scaling": {"type": "linear"}}, "factor is missing; it must be a number"),
        ({"rope_scaling": {"type": "linear", "factor": 0.5}}, r"factor is 0\.5; it must be in \[1, 1e\+06\]"),
        ({"rope_scaling": {"type": "linear", "factor": float("nan")}}, "factor is nan"),
        ({"rope_scaling": {"type": "linear", "factor": float("inf")}}, "factor is inf"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}, "head_dim": 10**9}, "head_dim is 1000000000"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}, "head_dim": -8}, "head_dim is -8"),
        ({"rope_scaling": YARN | {"factor": 2.0**22}}, "factor is 4194304"),
        ({"rope_scaling": YARN | {"original_max_position_embeddings": 2**30}}, "max_position_embeddings is 4294967296"),
        ({"rope_scaling": YARN, "max_position_embeddings": 10**400}, "max_position_embeddings is 1000"),
        ({"rope_scaling": YARN | {"factor": "4"}}, "factor is '4'; it must be a number"),
        ({"rope_scaling": YARN | {"original_max_position_embeddings": 0}}, "original_max_position_embeddings is 0"),
        ({"rope_scaling": YARN | {"original_max_position_embeddings": 10**400}}, "original_max_position_embeddings is"),
        ({"rope_scaling": YARN | {"beta_fast": -1}}, "beta_fast is -1"),
        ({"rope_scaling": YARN | {"beta_slow": float("nan")}}, "beta_slow is nan"),
        ({"rope_scaling": YARN | {"attention_factor": 0}}, "attention_factor is 0"),
        ({"rope_scaling": YARN | {"truncate": 1}}, "truncate is 1; it must be true or false"),
        ({"rope_scaling": YARN, "rope_theta": 1}, r"rope_theta is 1\.0; it must be in \[1\.001, "),
        ({"rope_scaling": LLAMA3, "rope_theta": 0}, r"rope_theta is 0\.0"),
        ({"rope_scaling": LLAMA3 | {"low_freq_factor": 4.0}}, r"high_freq_factor is 4\.0; .* above low_freq_factor 4"),
        ({"rope_scaling": LLAMA3 | {"low_freq_factor": None}}, "low_freq_factor is missing"),
        (
            {"rope_scaling": LLAMA3 | {"original_max_position_embeddings": None}},
            "original_max_position_embeddings is missing",
        ),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1e4}}},
            "full_attention is .*: having other rotary angles in some layers is not supported",
        ),
        (
            {"rope_scaling": YARN, "original_max_position_embeddings": 2048},
            r"original_max_position_embeddings is written twice and differs: \[1024, 2048\]",
        ),
        (
            {"rope_scaling": LLAMA3, "original_max_position_embeddings": 2048},
            r"original_max_position_embeddings is written twice and differs: \[1024, 2048\]",
        ),
        ({"rope_scaling": YARN, "original_max_position_embeddings": "1k"}, "original_max_position_embeddings is '1k'"),
        (
            {"rope_scaling": YARN, "rope_parameters": YARN | {"factor": 8.0}},
            "rope_scaling and rope_parameters scale the rotary angles differently",
        ),
    ],
)
def test_what_is_refused(read, change, message):
    with pytest.raises(ValueError, match=r"config\.json: .*" + message) as error:
        read(SMALL | change)
    assert len(str(error.value)) < 500 + len(str(error.value).split(": ")[0])


def test_every_scaling_is_that_of_transformers(read):
    """Frequencies within the rounding of float32, in which transformers computes them."""
    reference = load_reference("rope_scalings")
    head_dim = reference.info["head_dim"]
    assert len(reference.info["cases"]) > 40
    for i, case in enumerate(reference.info["cases"]):
        scaling = read(SMALL | {"rope_theta": None, "head_dim": head_dim, "rope_parameters": case}).rope_scaling
        frequencies = case["rope_theta"] ** (-2 * np.arange(head_dim // 2) / head_dim) / scaling.divisors
        np.testing.assert_allclose(frequencies, reference.arrays["frequencies"][i], rtol=2e-6, err_msg=str(case))
        assert scaling.attention_factor == pytest.approx(reference.arrays["attention_factors"][i], rel=1e-12)


def test_every_file_is_read_as_transformers_reads_it(read):
    """Whole files, the first context in each of its places."""
    reference = load_reference("rope_scalings")
    assert len(reference.info["files"]) == 8
    for i, file in enumerate(reference.info["files"]):
        scaling = read(file).rope_scaling
        frequencies = file["rope_theta"] ** (-2 * np.arange(16) / 32) / scaling.divisors
        np.testing.assert_allclose(frequencies, reference.arrays["file_frequencies"][i], rtol=2e-6, err_msg=str(file))
        assert scaling.attention_factor == pytest.approx(reference.arrays["file_attention_factors"][i], rel=1e-12)


FIRST = "original_max_position_embeddings"


def test_the_first_context_may_stand_at_the_top(read):
    for section in (YARN, LLAMA3):
        bare = {key: value for key, value in section.items() if key != FIRST}
        expected = read(SMALL | {"rope_scaling": section})
        assert read(SMALL | {"rope_scaling": bare, FIRST: 1024}) == expected
        assert read(SMALL | {"rope_scaling": section, FIRST: 1024}) == expected
        assert read(SMALL | {"rope_scaling": section, FIRST: None}) == expected
    assert read(SMALL | {FIRST: 1024}).rope_scaling is None


def test_a_factor_of_one_changes_nothing():
    assert rope_scaling.linear(8, 1) == RopeScaling((1.0,) * 4)
    assert rope_scaling.llama3(8, 1e4, 1, 1, 4, 1024) == RopeScaling((1.0,) * 4)
    assert rope_scaling.yarn(8, 1e4, 1, 1024).divisors == pytest.approx((1.0,) * 4)
    assert rope_scaling.yarn(8, 1e4, 1, 1024).attention_factor == 1
