"""What is no config is refused when it is made, and what is one has a hash."""

from dataclasses import replace

import pytest

from checkpoints import PRESETS
from jaxinfer.config import EngineConfig, RopeScaling

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


def test_configs_have_hashes():
    assert MODEL.rope_scaling is not None
    assert hash(MODEL) == hash(replace(MODEL))
    assert hash(ENGINE) == hash(replace(ENGINE))
