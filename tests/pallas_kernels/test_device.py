"""Which device a trace is for."""

import jax
import pytest
from jax.sharding import AbstractDevice

from pallas_kernels.device import Device, current_device
from tests.pallas_kernels.gpus import described, tracing_for


def test_a_cpu():
    assert current_device() == Device(platform="cpu", kind="cpu", num_cores=1, compute_capability=None)
    assert not current_device().is_gpu


def test_a_gpu_that_is_only_described():
    with tracing_for(described("NVIDIA A10")):
        found = current_device()
    assert found == Device(platform="gpu", kind="NVIDIA A10", num_cores=72, compute_capability=None)
    assert found.is_gpu
    assert not current_device().is_gpu


def test_the_device_is_seen_inside_a_trace():
    seen = []
    with tracing_for(described("NVIDIA A10")):
        jax.jit(lambda x: seen.append(current_device().kind) or x).trace(1.0)
    assert seen == ["NVIDIA A10"]


@pytest.mark.parametrize(
    ("text", "capability"), [("8.6", (8, 6)), ("12.0", (12, 0)), ("gfx942", (0, 0)), ("gfx9.4", (0, 0)), ("9", (0, 0))]
)
def test_the_compute_capability(text, capability):
    with tracing_for(described("a GPU", text)):
        assert current_device().compute_capability == capability


class RealGpu:
    """What jax says of a GPU that is there: its platform by the maker's interface, its multiprocessors as cores."""

    platform = "cuda"
    device_kind = "NVIDIA L4"
    core_count = 58
    compute_capability = "8.9"


def test_a_gpu_that_is_there(monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: [RealGpu(), RealGpu()])
    assert current_device() == Device(platform="gpu", kind="NVIDIA L4", num_cores=58, compute_capability=(8, 9))


def test_a_described_device_of_the_same_kind_is_the_real_one(monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: [RealGpu()])
    with tracing_for(described("NVIDIA L4")):
        assert current_device().compute_capability == (8, 9)


def test_the_default_device_goes_before_the_first(monkeypatch):
    with jax.default_device(jax.devices()[0]):
        monkeypatch.setattr(jax, "devices", lambda: [RealGpu()])
        assert current_device().platform == "cpu"
    assert current_device().platform == "gpu"


def test_another_platform_keeps_its_name():
    with tracing_for(AbstractDevice(device_kind="TPU v5", num_cores=2, platform="tpu")):
        assert current_device().platform == "tpu"
        assert not current_device().is_gpu
