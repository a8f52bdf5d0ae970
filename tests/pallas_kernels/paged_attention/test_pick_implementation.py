"""Which implementation runs, and what is said of it."""

import jax
import pytest

from pallas_kernels.paged_attention import paged_attention, pick_implementation
from tests.pallas_kernels.gpus import described, tracing_for
from tests.pallas_kernels.paged_attention.attention_cases import Row, make_case
from tests.pallas_kernels.paged_attention.calls import arguments_of


@pytest.mark.parametrize("head_dim", [64, 512])
def test_a_cpu_takes_the_portable_one_and_says_nothing(caplog, head_dim):
    caplog.set_level("DEBUG", "pallas_kernels")
    assert pick_implementation(None, head_dim=head_dim) == "xla"
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("capability", "head_dim", "picked", "level", "said"),
    [
        ("8.0", 128, "pallas", "INFO", "the GPU kernel"),
        ("9.0", 256, "pallas", "INFO", "the GPU kernel"),
        (None, 128, "pallas", "INFO", "the GPU kernel"),
        ("7.5", 128, "xla", "WARNING", "the portable implementation, since the kernel needs compute capability 8.0"),
        ("9.0", 512, "xla", "WARNING", "the portable implementation, since the kernel takes a head_dim of at most 256"),
    ],
)
def test_a_gpu_takes_the_kernel_where_it_can_and_says_so_once(caplog, capability, head_dim, picked, level, said):
    caplog.set_level("DEBUG", "pallas_kernels")
    kind = f"GPU {capability} of the test with head_dim {head_dim}"  # seen by no other test, so not yet spoken of
    with tracing_for(described(kind, capability)):
        assert [pick_implementation(None, head_dim=head_dim) for _ in range(3)] == [picked] * 3
    assert [record.levelname for record in caplog.records] == [level]
    assert f"attention on {kind}: {said}" in caplog.text


@pytest.mark.parametrize("asked", ["xla", "pallas"])
def test_who_asks_for_one_gets_it_and_hears_nothing(caplog, asked):
    caplog.set_level("DEBUG", "pallas_kernels")
    assert pick_implementation(asked, head_dim=256) == asked
    with tracing_for(described("GPU of the test with a wish", "8.0")):
        assert pick_implementation(asked, head_dim=256) == asked
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("capability", "head_dim", "reason"),
    [("7.5", 128, "capability 8.0, and this GPU has 7.5"), ("9.0", 512, "at most 256, and this is 512")],
)
def test_who_asks_for_a_kernel_that_cannot_run_is_told_why(capability, head_dim, reason):
    with tracing_for(described("GPU of the test with a vain wish", capability)):
        assert pick_implementation("xla", head_dim=head_dim) == "xla"
        with pytest.raises(NotImplementedError, match=reason):
            pick_implementation("pallas", head_dim=head_dim)


@pytest.mark.parametrize("asked", ["cuda", "", "XLA"])
def test_one_that_is_not_known(asked):
    with pytest.raises(ValueError, match=f"implementation is '{asked}'; known are xla, pallas"):
        pick_implementation(asked, head_dim=64)


@pytest.mark.parametrize(("asked", "runs_kernel"), [(None, True), ("xla", False), ("pallas", True)])
def test_what_is_picked_is_what_runs(asked, runs_kernel):
    case = make_case([Row(length=5)])
    with tracing_for(described("GPU of the test that traces", "8.6")):
        traced = jax.make_jaxpr(lambda a: paged_attention(**a, window=None, scale=1.0, implementation=asked))(
            arguments_of(case.arrays)
        )
    assert ("pallas_call" in str(traced)) == runs_kernel
