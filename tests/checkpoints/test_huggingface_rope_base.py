"""The base of the rotary angles in a config.json: where it is written, and what its absence means."""

import pytest

from tests.checkpoints.published import MISTRAL_7B, QWEN2, without
from tests.checkpoints.writers import HF_CONFIG


@pytest.mark.parametrize(
    ("change", "theta"),
    [
        ({"rope_theta": 1000000}, 1e6),
        ({"rope_theta": None, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}, 1e6),
        ({"rope_theta": 5e5, "rope_parameters": {"rope_theta": 500000, "rope_type": "default"}}, 5e5),
        ({"rope_theta": 5e5, "rope_scaling": None}, 5e5),
        ({"rope_theta": 5e5, "rope_scaling": {"type": "default"}}, 5e5),
        ({"rope_theta": None, "rope_scaling": {"rope_type": "default", "rope_theta": 7.0}}, 7.0),
    ],
)
def test_the_rotary_base_is_read_from_both_places(read, change, theta):
    assert read(HF_CONFIG | change).rope_theta == theta


OLD = {"transformers_version": "4.32.1"}


@pytest.mark.parametrize("change", [{}, {"rope_parameters": {"rope_type": "default"}}, {"rope_parameters": None}])
@pytest.mark.parametrize("config", [HF_CONFIG, MISTRAL_7B | OLD, QWEN2 | OLD])
def test_a_missing_rotary_base_is_an_error(read, config, change):
    with pytest.raises(ValueError, match=r"config\.json: rope_theta is missing"):
        read(without(config, "rope_theta") | change)


@pytest.mark.parametrize("version", ["4.31.0.dev0", "4.28.0", "4.32.1", "3.9"])
def test_a_llama_older_than_the_key_means_10000(read, version):
    """Llama 2's own files are from 4.31, and have no ``rope_theta``."""
    old = HF_CONFIG | {"transformers_version": version}
    assert read(without(old, "rope_theta")).rope_theta == 10_000.0
    assert read(old).rope_theta == 5000.0


@pytest.mark.parametrize("version", ["4.33.0", "4.100.0", "5.0.0", "", "new", "4"])
def test_a_newer_llama_without_the_key_is_an_error(read, version):
    with pytest.raises(ValueError, match=r"config\.json: rope_theta is missing"):
        read(without(HF_CONFIG, "rope_theta") | {"transformers_version": version})


def test_two_rotary_bases_that_differ_are_an_error(read):
    with pytest.raises(ValueError, match=r"rope_theta is written twice and differs: \[5000\.0, 10000\.0\]"):
        read(HF_CONFIG | {"rope_parameters": {"rope_theta": 1e4}})


@pytest.mark.parametrize(
    "change", [{"partial_rotary_factor": 0.5}, {"rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 5000}}]
)
def test_a_part_of_the_head_is_refused(read, change):
    with pytest.raises(ValueError, match=r"partial_rotary_factor is 0\.5"):
        read(HF_CONFIG | change)
