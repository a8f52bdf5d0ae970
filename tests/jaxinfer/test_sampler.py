"""The sampler against the definitions: which tokens it may draw, how often it does, and what a draw depends on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxinfer import sampler
from jaxinfer.step_inputs import SamplingInputs
from jaxinfer.token_masks import pack_token_bits
from tests.jaxinfer.numpy_sampling import chi_square_excess, distribution

NEUTRAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
DTYPES = {"temperature": np.float32, "top_k": np.int32, "top_p": np.float32, "min_p": np.float32}

compiled_sample = jax.jit(sampler.sample, static_argnames="truncate")
compiled_candidates = jax.jit(sampler.candidates, static_argnames="truncate")


def make_params(num_rows: int, *, seed=(1, 2), position=None, **values) -> SamplingInputs:
    """Parameters of ``num_rows`` rows; a single value counts for all. Positions differ unless they are given."""
    fields = {name: np.full(num_rows, value, DTYPES[name]) for name, value in (NEUTRAL | values).items()}
    return SamplingInputs(
        **jax.tree.map(jnp.asarray, fields),
        seed=jnp.asarray(np.broadcast_to(np.array(seed, np.uint32), (num_rows, 2))),
        position=jnp.asarray(
            np.broadcast_to(np.arange(num_rows) if position is None else position, num_rows), jnp.int32
        ),
        sample_slot=jnp.zeros(num_rows, jnp.int32),
    )


def sample(logits, params: SamplingInputs, *, truncate: bool = True) -> np.ndarray:
    logits = jnp.broadcast_to(jnp.asarray(logits, jnp.float32), (params.position.shape[0], np.shape(logits)[-1]))
    return np.asarray(compiled_sample(logits, params, truncate=truncate))


def candidates(logits, params: SamplingInputs, *, truncate: bool = True) -> np.ndarray:
    logits = jnp.broadcast_to(jnp.asarray(logits, jnp.float32), (params.position.shape[0], np.shape(logits)[-1]))
    return np.asarray(compiled_candidates(logits, params, truncate=truncate))


def random_values(rng: np.random.Generator, logits: np.ndarray, temperature: float) -> dict[str, float]:
    """Random top-k, top-p and min-p for a row, each sometimes off, none so near a boundary that rounding decides.

    top-p is put in the middle of a token's share and min-p between two tokens.
    """
    values = {"temperature": np.float32(temperature), "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    if rng.random() < 0.7:
        values["top_k"] = int(np.exp(rng.uniform(0, np.log(1.1 * len(logits)))))
    if rng.random() < 0.7:
        shares = np.sort(distribution(logits, **values))[::-1]
        last = rng.integers(np.count_nonzero(shares > 1e-5))
        values["top_p"] = np.float32(shares[:last].sum() + shares[last] / 2)
    if rng.random() < 0.5:
        ratios = np.sort(np.exp((logits.astype(np.float64) - logits.max()) / temperature))[::-1]
        last = rng.integers(np.count_nonzero(ratios > 1e-5) - 1)
        values["min_p"] = np.float32(np.sqrt(ratios[last] * ratios[last + 1]))
    return values


def stacked(values: list[dict[str, float]]) -> dict[str, np.ndarray]:
    return {name: np.array([row[name] for row in values]) for name in NEUTRAL}


# Which tokens


@pytest.mark.parametrize("vocab_size", [1, 33, 1000, 49152])
def test_the_candidates_of_random_rows_are_those_of_the_definitions(vocab_size):
    rng = np.random.default_rng(vocab_size)
    logits = (3 * rng.standard_normal((64, vocab_size))).astype(np.float32)
    if vocab_size == 1:  # nothing to place a boundary between
        values = [NEUTRAL | {"top_k": int(k), "top_p": 1e-3 if k % 2 else 1.0} for k in range(64)]
    else:
        values = [random_values(rng, row, rng.uniform(0.3, 2)) for row in logits]
    expected = [distribution(row, **row_values) > 0 for row, row_values in zip(logits, values, strict=True)]
    np.testing.assert_array_equal(candidates(logits, make_params(64, **stacked(values))), expected)


def test_every_candidate_is_drawn_and_no_other_token():
    """Settings in which the rarest candidate has 0.5 % or more: not to draw it in 10,000 rows has chance 1e-21."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        logits = rng.uniform(-1.5, 1.5, 24).astype(np.float32)
        values = random_values(rng, logits, rng.uniform(1.5, 4))
        drawn = sample(logits, make_params(10_000, seed=rng.integers(0, 2**32, 2), **values))
        assert set(drawn) == set(np.flatnonzero(distribution(logits, **values))), values


LOGITS = np.array([0.5, 2.0, -1.0, 2.0, 1.0, -3.0, 0.0, 1.0], np.float32)
"""From the top: tokens 1 and 3, then 4 and 7, then 0, 6, 2, 5."""
ALL = {0, 1, 2, 3, 4, 5, 6, 7}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"top_k": 0}, ALL),
        ({"top_k": 1}, {1, 3}),  # a tie with the first
        ({"top_k": 2}, {1, 3}),
        ({"top_k": 3}, {1, 3, 4, 7}),  # a tie with the third
        ({"top_k": 5}, {0, 1, 3, 4, 7}),
        ({"top_k": 7}, ALL - {5}),
        ({"top_k": 8}, ALL),
        ({"top_k": 9}, ALL),
        ({"top_k": 2**31 - 1}, ALL),
        ({"top_p": 1.0}, ALL),
        ({"top_p": 1e-9}, {1, 3}),
        ({"top_p": 1e-60}, {1, 3}),  # 0 in float32
        ({"min_p": 0.0}, ALL),
        ({"min_p": 1.0}, {1, 3}),
        ({"min_p": 1e-60}, ALL),
        ({"min_p": 0.3}, {1, 3, 4, 7}),  # exp(-1) = 0.37, exp(-1.5) = 0.22
        ({"min_p": 0.3, "temperature": 4.0}, ALL - {5}),  # exp(-3 / 4) = 0.47, exp(-5 / 4) = 0.29
        ({"temperature": 1e-5}, ALL),
        ({"temperature": 100.0}, ALL),
        # top-k leaves 1, 3, 4, 7 with shares 0.366, 0.366, 0.135, 0.135; of all eight they are 0.317 and 0.117.
        ({"top_k": 3, "top_p": 0.7}, {1, 3}),
        ({"top_k": 3, "top_p": 0.74}, {1, 3, 4, 7}),
        ({"top_p": 0.62}, {1, 3}),
        ({"top_p": 0.7}, {1, 3, 4, 7}),
        ({"top_k": 5, "top_p": 0.999, "min_p": 0.3}, {1, 3, 4, 7}),
    ],
)
def test_the_candidates_of_one_row_worked_out_by_hand(values, expected):
    assert set(np.flatnonzero(candidates(LOGITS, make_params(1, **values))[0])) == expected


@pytest.mark.parametrize(("min_p", "expected"), [(0.0, ALL), (0.3, {1, 3, 4, 7}), (1.0, {1, 3})])
def test_the_program_without_truncation_applies_min_p_alone(min_p, expected):
    params = make_params(1, min_p=min_p, top_k=1, top_p=0.1)
    assert set(np.flatnonzero(candidates(LOGITS, params, truncate=False)[0])) == expected


def test_zero_and_minus_zero_tie():
    logits = [-0.0, 0.0, -1.0, 0.0, -2.0, -2.0, -2.0, -2.0]
    assert set(np.flatnonzero(candidates(logits, make_params(1, top_k=1))[0])) == {0, 1, 3}


@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize("temperature", [1e-5, 1.0, 100.0, 1e30, np.inf])
def test_a_row_with_one_token_that_is_allowed_gives_it(temperature, truncate):
    logits = np.full(1000, -np.inf)
    logits[37] = -12.5
    values = {"temperature": temperature, "top_k": np.arange(64) % 7, "top_p": np.where(np.arange(64) % 2, 0.3, 1)}
    assert set(sample(logits, make_params(64, **values), truncate=truncate)) == {37}


@pytest.mark.parametrize("values", [{}, {"top_k": 3}, {"top_p": 0.1}, {"top_p": 0.999999}, {"min_p": 1.0}])
@pytest.mark.parametrize("logit", [0.0, -7.25, 1e30, -1e30, np.finfo(np.float32).max])
def test_equal_logits_are_equally_likely_however_large(logit, values):
    drawn = sample(np.full(24, logit), make_params(10_000, **values))
    assert chi_square_excess(np.bincount(drawn, minlength=24), np.full(24, 1 / 24)) < 1


def test_huge_logits_do_not_overflow():
    logits = np.zeros(1000)
    logits[:4] = 1e30, 3e38, -3e38, 1e38
    assert set(sample(logits, make_params(64, temperature=1e-5, top_k=2, top_p=0.9, min_p=0.1))) == {1}


def test_masses_of_a_large_flat_vocabulary_add_up():
    """A third of the tokens has 39 % of the mass. Sums over 2^18 tokens near the largest mass must not overflow."""
    likely = np.arange(2**18) % 3 == 0
    kept = candidates(np.where(likely, 0, -0.25), make_params(2, top_p=np.array([0.38, 0.4])))
    np.testing.assert_array_equal(kept[0], likely)
    assert kept[1].all()


# How often


@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0, 100.0])
def test_draws_follow_the_distribution(temperature, truncate):
    rng = np.random.default_rng(int(10 * temperature) + truncate)
    logits = rng.standard_normal(24).astype(np.float32)
    values = random_values(rng, logits, temperature)
    if not truncate:
        values |= {"top_k": 0, "top_p": 1.0}
    drawn = sample(logits, make_params(10_000, seed=(3, 4), **values), truncate=truncate)
    assert chi_square_excess(np.bincount(drawn, minlength=24), distribution(logits, **values)) < 1


@pytest.mark.parametrize(
    "values",
    [
        {"top_k": 0},
        {"top_k": 1},
        {"top_k": 24},
        {"top_k": 25},
        {"top_k": 2**31 - 1},
        {"top_p": 1.0},
        {"top_p": 1e-9},
        {"temperature": 1e-6},
        {"temperature": 1e-6, "top_k": 3, "top_p": 0.5, "min_p": 0.5},
        {"min_p": 1.0, "top_p": 1e-9, "top_k": 1},
    ],
)
def test_draws_at_the_edge_values_follow_the_distribution(values):
    logits = np.random.default_rng(11).standard_normal(24).astype(np.float32)
    counts = np.bincount(sample(logits, make_params(10_000, **values)), minlength=24)
    assert chi_square_excess(counts, distribution(logits, **NEUTRAL | values)) < 1


def test_draws_follow_the_distribution_where_all_but_two_tokens_are_forbidden():
    logits = np.full(24, -np.inf, np.float32)
    logits[[3, 20]] = 0.5, -0.5
    counts = np.bincount(sample(logits, make_params(10_000, top_k=5, top_p=0.99)), minlength=24)
    assert chi_square_excess(counts, distribution(logits, **NEUTRAL | {"top_k": 5, "top_p": 0.99})) < 1


@pytest.mark.parametrize("wrong", [{"temperature": 0.9}, {"temperature": 1.1}, {"top_k": 23}, {"min_p": 0.1}])
def test_draws_from_another_distribution_are_noticed(wrong):
    logits = np.random.default_rng(7).standard_normal(24).astype(np.float32)
    counts = np.bincount(sample(logits, make_params(10_000, **wrong)), minlength=24)
    assert chi_square_excess(counts, distribution(logits, **NEUTRAL)) > 1


def test_seeds_are_as_good_as_positions():
    logits = np.random.default_rng(8).standard_normal(24).astype(np.float32)
    seeds = np.stack([np.arange(10_000), np.zeros(10_000)], axis=1)
    for seed in (seeds, seeds[:, ::-1]):
        counts = np.bincount(sample(logits, make_params(10_000, seed=seed, position=5)), minlength=24)
        assert chi_square_excess(counts, distribution(logits, **NEUTRAL)) < 1


# What a draw depends on

ROWS = 64


def mixed_rows() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Logits and parameters of rows that differ in everything."""
    rng = np.random.default_rng(3)
    values = {
        "temperature": rng.choice([0.0, 0.5, 1.0, 2.0], ROWS),
        "top_k": rng.choice([0, 1, 7, 200], ROWS),
        "top_p": rng.choice([0.3, 0.9, 1.0], ROWS),
        "min_p": rng.choice([0.0, 0.05], ROWS),
        "seed": rng.integers(0, 2**32, (ROWS, 2)),
        "position": rng.integers(0, 9000, ROWS),
    }
    return rng.standard_normal((ROWS, 1000)).astype(np.float32), values


def test_a_row_draws_the_same_alone_in_any_place_and_beside_any_others():
    logits, values = mixed_rows()
    together = sample(logits, make_params(ROWS, **values))
    order = np.random.default_rng(4).permutation(ROWS)
    shuffled = sample(logits[order], make_params(ROWS, **{name: value[order] for name, value in values.items()}))
    np.testing.assert_array_equal(shuffled, together[order])
    for i in range(ROWS):
        one = slice(i, i + 1)
        alone = sample(logits[one], make_params(1, **{name: value[one] for name, value in values.items()}))
        assert alone == together[i]


def test_a_row_that_truncates_nothing_draws_the_same_from_either_program():
    logits, values = mixed_rows()
    params = make_params(ROWS, **values | {"top_k": 0, "top_p": 1.0})
    np.testing.assert_array_equal(sample(logits, params, truncate=False), sample(logits, params, truncate=True))


@pytest.mark.parametrize(
    "change",
    [{"seed": (2, 1)}, {"seed": (1, 3)}, {"seed": (0, 2)}, {"seed": (1, 2 | 2**31)}, {"position": np.arange(1, 65)}],
)
def test_each_half_of_the_seed_and_the_position_make_another_draw(change):
    flat = np.zeros(1000)
    before, after = sample(flat, make_params(64)), sample(flat, make_params(64, **change))
    assert np.count_nonzero(before == after) <= 2  # by chance, one in 1,000 each


def test_greedy_rows_of_a_mixed_batch_take_the_most_likely_token():
    logits, values = mixed_rows()
    logits[:, 500] = logits[:, 700] = 50 + np.arange(ROWS)  # the lower id of two equals
    greedy = values["temperature"] == 0
    assert 0 < greedy.sum() < ROWS
    assert (sample(logits, make_params(ROWS, **values))[greedy] == 500).all()
    assert (np.asarray(sampler.greedy(jnp.asarray(logits))) == 500).all()


def test_a_tiny_temperature_takes_the_most_likely_token():
    logits = np.random.default_rng(9).standard_normal((64, 1000)).astype(np.float32)
    np.testing.assert_array_equal(sample(logits, make_params(64, temperature=1e-6)), logits.argmax(axis=1))


@pytest.mark.parametrize("row", [np.full(8, -np.inf), np.full(8, np.nan)])
def test_a_row_without_any_likely_token_still_gives_a_token_of_the_vocabulary(row):
    assert 0 <= np.asarray(sampler.greedy(jnp.asarray(row[None])))[0] < 8
    assert 0 <= sample(row, make_params(1, top_k=3, top_p=0.5))[0] < 8


# Masks


@pytest.mark.parametrize("vocab_size", [1, 31, 32, 33, 64, 70])
def test_what_is_forbidden_is_impossible_and_the_rest_is_untouched(vocab_size):
    logits = np.random.default_rng(5).standard_normal((4, vocab_size)).astype(np.float32)
    last = vocab_size - 1
    masks = [{0}, {last}, {token for token in (0, 30, 31, 32, 63, last) if token <= last}, set()]
    packed = np.stack([pack_token_bits(tokens, vocab_size) for tokens in masks])
    expected = logits.copy()
    for row, tokens in zip(expected, masks, strict=True):
        row[list(tokens)] = -np.inf
    np.testing.assert_array_equal(sampler.forbid(jnp.asarray(logits), jnp.asarray(packed)), expected)


# The program


@pytest.mark.parametrize("truncate", [False, True])
def test_the_program_neither_sorts_nor_loops(truncate):
    """A loop or a branch would leave the GPU's command buffer; a sort costs more than all the rest."""
    params = vars(make_params(2))
    program = jax.jit(lambda logits, params: sampler.sample(logits, SamplingInputs(**params), truncate=truncate))
    program = program.trace(jnp.zeros((2, 50)), params).lower(lowering_platforms=("cuda",)).as_text()
    assert "stablehlo.reduce" in program
    for operation in ("sort", "while", "case", "if", "custom_call"):
        assert f"stablehlo.{operation}" not in program
