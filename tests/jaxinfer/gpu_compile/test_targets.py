"""The GPUs, against NVIDIA's published numbers."""

import re

import pytest

from jaxinfer.gpu_compile import TARGETS

# Multiprocessors of the data sheets; shared memory in KiB, one multiprocessor's and the most that a block may have, by
# compute capability, from the CUDA programming guide's table of technical specifications.
MULTIPROCESSORS = {"A10": 72, "A100-40": 108, "A100-80": 108, "L4": 58, "L40S": 142, "H100": 132, "H200": 132}
SHARED_KIB = {(8, 0): (164, 163), (8, 6): (100, 99), (8, 9): (100, 99), (9, 0): (228, 227)}
THREADS = {(8, 0): 2048, (8, 6): 1536, (8, 9): 1536, (9, 0): 2048}


def field(text, name):
    return re.search(rf"\b{name}: (\S+)", text)[1]


def test_there_are_seven():
    assert set(TARGETS) == set(MULTIPROCESSORS)
    assert all(target.name == name for name, target in TARGETS.items())


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_what_xla_is_told(target):
    text = target.config_text
    core, block = SHARED_KIB[target.compute_capability]
    major, minor = target.compute_capability
    assert f"cuda_compute_capability {{ major: {major} minor: {minor} }}" in text
    assert int(field(text, "core_count")) == MULTIPROCESSORS[target.name]
    assert int(field(text, "shared_memory_per_core")) == core * 1024
    assert int(field(text, "shared_memory_per_block_optin")) == block * 1024
    assert int(field(text, "shared_memory_per_block")) == 48 * 1024
    assert int(field(text, "threads_per_core_limit")) == THREADS[target.compute_capability]
    assert int(field(text, "memory_bandwidth")) == target.memory_bandwidth
    assert int(field(text, "device_memory_size")) == target.memory_bytes
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize(
    ("name", "architecture"), [("A10", "sm_86"), ("A100-80", "sm_80"), ("L40S", "sm_89"), ("H100", "sm_90a")]
)
def test_what_ptxas_is_told(name, architecture):
    assert TARGETS[name].architecture == architecture


def test_memory_is_what_the_name_says():
    gigabytes = {"A10": 24, "A100-40": 40, "A100-80": 80, "L4": 24, "L40S": 48, "H100": 80, "H200": 141}
    for name, size in gigabytes.items():
        assert size * 1e9 <= TARGETS[name].memory_bytes <= 1.08 * size * 1e9
