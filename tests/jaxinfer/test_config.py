"""What is no config is refused when it is made, and what is one has a hash."""

from dataclasses import fields, replace

import pytest

from checkpoints import PRESETS
from jaxinfer.config import EngineConfig, Quantization, RopeScaling

MODEL = PRESETS["llama-3.2-1b"]
ENGINE = EngineConfig(max_model_len=64, max_num_seqs=1, max_chunk_tokens=16, page_size=16, num_kv_pages=8)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RopeScaling([1.0, 2.0]), "divisors is [1.0, 2.0]; it must be a tuple"),
        (lambda: RopeScaling("12"), "divisors is '12'; it must be a tuple"),
        (lambda: RopeScaling((1.0, 2.0, 0.0)), "divisors[2] is 0.0; it must be a number in [1e-06, 1e+06]"),
        (lambda: RopeScaling((1.0, "2")), "divisors[1] is '2'; it must be a number in [1e-06, 1e+06]"),
        (lambda: replace(MODEL, windows=[None] * 16), f"windows is [{'None, ' * 6}...]; it must be a tuple"),
        (lambda: replace(MODEL, windows=(None, 8, 0)), "windows[2] is 0; it must be a whole number in [1, 2147483647]"),
        (lambda: replace(ENGINE, windows=[8]), "windows is [8]; it must be a tuple"),
        (lambda: replace(ENGINE, windows=(None, -1)), "windows[1] is -1; it must be a whole number in [1, 2147483647]"),
        (lambda: replace(ENGINE, windows=()), "windows is empty; there must be a cache group"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(make, words):
    with pytest.raises(ValueError) as caught:
        make()
    assert str(caught.value) == words


LONG = "x" * 5000
CHECKED = [
    *((ENGINE, field.name) for field in fields(ENGINE)),
    *((MODEL, name) for name in ("vocab_size", "num_heads", "rope_theta", "norm_eps", "windows")),
    *((Quantization(bits=4), name) for name in ("bits", "group_size")),
]


@pytest.mark.parametrize(
    "make",
    [
        *(lambda made=made, name=name: replace(made, **{name: LONG}) for made, name in CHECKED),
        lambda: RopeScaling(LONG),
        lambda: RopeScaling((1.0,), LONG),
        lambda: Quantization.named(LONG, None),
        lambda: Quantization.named("int4", LONG),
        lambda: Quantization.named("int8", LONG),
    ],
)
def test_a_long_value_is_cut_short(make):
    with pytest.raises(ValueError, match=r"is 'x+\.\.\.x+'") as caught:
        make()
    assert len(str(caught.value)) < 200


def test_configs_have_hashes():
    assert MODEL.rope_scaling is not None
    assert hash(MODEL) == hash(replace(MODEL))
    assert hash(ENGINE) == hash(replace(ENGINE))
