"""The comparisons of the check for the day with a GPU find what is wrong. Here the kernels are the portable versions,
and what a wrong one computes is made from what they do.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.paged_attention import LayerCache, decode_attention, paged_attention
from pallas_kernels.quantized_matmul import Int4Weight, matmul
from scripts.on_gpu import attention_correctness, product_correctness
from scripts.on_gpu.keys import random_key
from scripts.on_gpu.product_reference import row_error
from scripts.on_gpu.products import products_of
from scripts.on_gpu.result import PartResult
from scripts.on_gpu.sequences import head_error
from scripts.on_gpu.settings import Settings

TINY = Settings(seconds=86_400, tiny=True)  # from when the tests are collected


def test_faults_of_attention_are_found(monkeypatch: pytest.MonkeyPatch):
    """Each launch has a fault of its own, so that one program shows them all."""

    def decode(*arguments, implementation, config, **options):
        attended, cache, arrivals = decode_attention(*arguments, implementation="xla", **options)
        match config and config.combine:
            case "last_split":  # a share of one head is lost
                return attended.at[0, 0].multiply(0.9), cache, arrivals
            case "second_kernel":  # a token of another row is written
                pages = cache.pages.at[3, 5].add(jnp.where(jnp.isnan(cache.pages[3, 5]), 0, 1))
                return attended, LayerCache(pages.at[3, 5].set(jnp.nan_to_num(pages[3, 5])), None), arrivals
        return attended, cache, arrivals.at[0, 0].set(1)  # a counter is left

    def chunk(*arguments, implementation, config, **options):
        attended = paged_attention(*arguments, implementation="xla", **options)
        return attended.at[:-1].set(attended[1:]) if is_last_split(config) else attended  # queries are off by one

    monkeypatch.setattr(attention_correctness, "decode_attention", decode)
    monkeypatch.setattr(attention_correctness, "paged_attention", chunk)
    decoded, chunked = attention_correctness.rows(TINY)
    for row in (decoded, chunked):
        assert row.is_fault and row.values["ok"] is False
        assert row.values["last_split"] > 0.01 and row.values["between the two"] > 0.01
    assert decoded.values["rule or table"] == np.inf
    assert decoded.values["second_kernel"] > 0.01
    assert chunked.values["rule or table"] < 2e-5 and chunked.values["second_kernel"] < 2e-5


def is_last_split(config) -> bool:
    return config is not None and config.combine == "last_split"


def test_int8_pages_are_compared_with_what_they_hold(monkeypatch: pytest.MonkeyPatch):
    """One launch leaves a key's scale for its value; the others are right."""

    def decode(*arguments, implementation, config, **options):
        attended, cache, arrivals = decode_attention(*arguments, implementation="xla", **options)
        scales = jnp.roll(cache.scales, 1, axis=2) if is_last_split(config) else cache.scales
        return attended, LayerCache(cache.pages, scales), arrivals

    monkeypatch.setattr(attention_correctness, "decode_attention", decode)
    case = attention_correctness.Case(
        model="stories260k", block_q=1, num_blocks=2, longest=40, num_splits=2, kv_dtype="int8"
    )
    errors = jax.jit(case.measure)(random_key(0))
    limit = attention_correctness.LIMITS["bfloat16"]
    assert {name for name, error in errors.items() if error > limit} == {"last_split"}


def test_what_a_product_leaves_out_is_found(monkeypatch: pytest.MonkeyPatch):
    """Another part for each format, so that one run shows both."""

    def multiply(weight, implementation, **arguments):
        dropped = "norm" if isinstance(weight, Int4Weight) else "residual"
        return matmul(weight=weight, **arguments | {dropped: None}, implementation="xla")

    monkeypatch.setattr(product_correctness, "matmul", multiply)
    of_definition, of_kernels = np.split(np.array(list(product_correctness.rows(TINY))), 2)
    assert all(row.is_fault and row.values["largest error"] > 0.01 for row in of_kernels)
    assert not any(row.is_fault for row in of_definition)


def test_a_kernel_that_does_not_run_is_a_fault_with_its_reason(monkeypatch: pytest.MonkeyPatch):
    def refuse(**arguments):
        raise NotImplementedError("too large")

    monkeypatch.setattr(product_correctness, "matmul", refuse)
    row = list(product_correctness.rows(TINY))[-1]
    assert row.is_fault and "too large" in row.values["faults"]


@pytest.mark.parametrize("part", [attention_correctness, product_correctness])
def test_what_no_time_was_left_for_is_counted_and_never_ok(part):
    found = list(part.rows(Settings(seconds=0, tiny=True)))
    with_time = {attention_correctness: 2, product_correctness: 4}[part]
    assert sum(row.num_not_run for row in found) == len(found) == with_time
    assert not any(row.is_fault or row.values.get("ok") for row in found)
    result = PartResult(name="a part", status="running", rows=tuple(found)).at_its_end()
    assert (result.status, result.num_not_run) == ("incomplete", with_time)


def test_xla_in_place_of_a_kernel_may_round_more_often():
    case = partial(product_correctness.Case, product=products_of("mistral-7b-v0.1")[2], kernel="pallas")
    decode = case(weight_format="int4/row", num_rows=16, dtype="bfloat16")
    chunk = case(weight_format="int4/row", num_rows=528, dtype="bfloat16")
    exact = case(weight_format="int8", num_rows=528, dtype="float32")
    assert [each.kind["limit"] for each in (decode, chunk, exact)] == [2e-2, 4e-2, 2e-5]
    assert decode.kind["kernel"] == "pallas" and "XLA" in chunk.kind["kernel"]


def test_one_wrong_output_of_a_wide_row_counts():
    expected = jnp.asarray(np.random.default_rng(0).standard_normal((3, 1000)), jnp.float32)
    error = partial(row_error, expected=expected)
    assert error(expected) == 0
    assert error(expected.at[1, 700].add(1)) == pytest.approx(1 / 8, rel=0.1)
    assert error(expected.at[2, 999].set(jnp.nan)) == np.inf


def test_heads_where_nan_or_zeros_are_expected():
    expected = jnp.ones((4, 8)).at[0].set(jnp.nan).at[1].set(0)
    assert head_error(expected, expected) == 0
    assert head_error(expected.at[0].set(1), expected) == np.inf
    assert head_error(expected.at[1, 3].set(1e-6), expected) == np.inf
    assert head_error(expected.at[2].set(1.1), expected) == pytest.approx(0.1, rel=1e-3)
