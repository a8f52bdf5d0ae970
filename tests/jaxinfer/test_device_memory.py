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
    monkeypatch.setattr(device_memory, "cpu_memory", lambda: 1000)
    assert room_for_cache(100, 0.5, None) == 400
    assert room_for_cache(100, 0.05, None) == -50


@pytest.mark.parametrize("gpu_memory", [None, GPU])
@pytest.mark.parametrize("fraction", [0, -0.5, 1.01, float("nan"), float("inf"), True, "0.5", (0.5,)])
def test_a_fraction_out_of_range_is_named(fraction, gpu_memory):
    with pytest.raises(ValueError, match=r"memory_fraction is .*; it must be a number in \(0, 1\]") as error:
        room_for_cache(0, fraction, gpu_memory)
    assert repr(fraction) in str(error.value)


def test_the_limits_of_a_container_are_those_of_its_group_and_of_all_above(tmp_path):
    """Where the group is the root that is seen, as in most containers, and where it lies deeper, as of a batch job."""
    (tmp_path / "job" / "step").mkdir(parents=True)
    for folder, content in (("", "9000\n"), ("job", "7000\n"), ("job/step", "max\n")):
        (tmp_path / folder / "memory.max").write_text(content)
    own = tmp_path / "cgroup"
    for path, expected in (("/", [9000]), ("/job", [7000, 9000]), ("/job/step", [7000, 9000]), ("/gone", [9000])):
        own.write_text(f"12:memory:/of/version/1\n0::{path}\n")
        assert device_memory.container_limits(tmp_path, own) == expected


@pytest.mark.parametrize("content", [None, "", "12:memory:/of/version/1\n", "0::/\n"])
def test_no_container_has_no_limit(tmp_path, content):
    own = tmp_path / "cgroup"
    if content is not None:
        own.write_text(content)
    assert device_memory.container_limits(tmp_path, own) == []


def test_a_container_may_have_less_than_the_machine_and_more_counts_as_the_machine(monkeypatch):
    for limits, expected in (([], MACHINE), ([1000, 2 * MACHINE], 1000), ([2 * MACHINE], MACHINE)):
        monkeypatch.setattr(device_memory, "container_limits", lambda root, own, limits=limits: limits)
        assert device_memory.cpu_memory() == expected
