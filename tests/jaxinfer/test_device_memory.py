"""Bytes for the cache, of a GPU that says what it has and of a CPU that is shared."""

import os

import pytest

from jaxinfer import device_memory
from jaxinfer.device_memory import room_for_cache

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
GPU = {"bytes_limit": 80_000, "bytes_in_use": 500}


@pytest.mark.parametrize(("fraction", "share"), [(None, 72_000), (0.5, 40_000), (1, 80_000), (1e-6, 0)])
def test_a_gpu_gives_its_share_less_what_is_taken(fraction, share):
    """Less than nothing where the weights do not fit."""
    assert room_for_cache(10_000, fraction, GPU) == share - 500 - 10_000


def test_a_cpu_gives_a_gib_beside_any_weights():
    assert room_for_cache(10**15, None, None) == 2**30


def test_a_cpu_gives_the_share_that_is_asked_for_less_the_weights(monkeypatch):
    monkeypatch.setattr(device_memory, "_cpu_memory", lambda: 1000)
    assert room_for_cache(100, 0.5, None) == 400
    assert room_for_cache(100, 0.05, None) == -50


@pytest.mark.parametrize("gpu_memory", [None, GPU])
@pytest.mark.parametrize("fraction", [0, -0.5, 1.01, float("nan"), float("inf"), True, "0.5", (0.5,)])
def test_a_fraction_out_of_range_is_named(fraction, gpu_memory):
    with pytest.raises(ValueError, match=r"memory_fraction is .*; it must be a number in \(0, 1\]") as error:
        room_for_cache(0, fraction, gpu_memory)
    assert repr(fraction) in str(error.value)


@pytest.mark.parametrize(
    ("content", "expected"),
    [("1000000\n", 1_000_000), ("max\n", MACHINE), (f"{2 * MACHINE}\n", MACHINE), ("", MACHINE), (None, MACHINE)],
)
def test_a_container_may_have_less_than_the_machine(tmp_path, content, expected):
    cgroup = tmp_path / "memory.max"
    if content is not None:
        cgroup.write_text(content)
    assert device_memory._cpu_memory(cgroup) == expected
