"""Which implementation runs where: what was asked for, and by itself the GPU kernels only where they can run."""

import logging
from dataclasses import replace
from types import SimpleNamespace

import jax
import pytest

from checkpoints import PRESETS
from jaxinfer.kernel_choice import choose_kernels

MODEL = PRESETS["smollm2-135m"]
A10 = SimpleNamespace(platform="gpu", device_kind="NVIDIA A10", core_count=72, compute_capability="8.6")
CPU = SimpleNamespace(platform="cpu", device_kind="cpu")
T4 = SimpleNamespace(platform="gpu", device_kind="Tesla T4", core_count=40, compute_capability="7.5")


@pytest.fixture
def on(monkeypatch):
    """Pretends that jax found a device."""

    def pretend(device):
        monkeypatch.setattr(jax, "devices", lambda: [device])

    return pretend


@pytest.mark.parametrize(("device", "chosen"), [(A10, None), (T4, "xla"), (CPU, "xla")])
def test_auto_leaves_the_kernel_to_each_operation_where_they_can_run(on, device, chosen):
    on(device)
    assert choose_kernels("auto", MODEL) == chosen


@pytest.mark.parametrize(
    ("device", "name"), [(A10, "xla"), (A10, "pallas"), (T4, "xla"), (CPU, "xla"), (CPU, "pallas")]
)
def test_a_name_is_taken_at_its_word(on, device, name):
    on(device)
    assert choose_kernels(name, MODEL) == name


def test_gpu_kernels_that_cannot_run_are_refused(on):
    on(T4)
    with pytest.raises(ValueError, match=r"kernels is 'pallas', and the kernel needs compute capability 8\.0,"):
        choose_kernels("pallas", MODEL)
    on(A10)
    with pytest.raises(ValueError, match="kernels is 'pallas', and the kernel takes a head_dim of at most 256"):
        choose_kernels("pallas", replace(MODEL, head_dim=512))


@pytest.mark.parametrize("asked", ["triton", "", "XLA", None])
def test_anything_else_is_refused_with_what_is_allowed(asked):
    with pytest.raises(ValueError) as caught:
        choose_kernels(asked, MODEL)
    assert str(caught.value) == f"kernels is {asked!r}; it must be 'auto', 'xla' or 'pallas'"


def test_what_runs_is_said(on, caplog):
    on(A10)
    with caplog.at_level(logging.INFO, "jaxinfer"):
        choose_kernels("auto", MODEL)
    assert "kernels on NVIDIA A10: pallas" in caplog.messages


@pytest.mark.parametrize(("asked", "warned"), [("auto", False), ("xla", False), ("pallas", True)])
def test_only_gpu_kernels_on_a_cpu_are_warned_of(caplog, asked, warned):
    choose_kernels(asked, MODEL)
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == ["kernels is 'pallas' on a cpu: the GPU kernels are interpreted, which is slow"] * warned
