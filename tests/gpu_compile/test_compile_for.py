"""What is reported of programs whose answer follows from what they are."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxinfer.gpu_compile import TARGETS, KernelKind, compile_for
from tests.gpu_compile.toys import add, array, double, doubled, matmul, scale_by_sum

ROOT = Path(__file__).resolve().parents[2]
A10 = TARGETS["A10"]
H100 = TARGETS["H100"]


def report(function, *arguments, target=A10, **keywords):
    return compile_for(target, function, *arguments, **keywords).report


def set_row(cache, row):
    return cache.at[3].set(row)


CACHE, ROW = array(64, 1024), array(1024)
CACHE_BYTES, ROW_BYTES = 64 * 1024 * 2, 1024 * 2


def test_a_donated_array_is_updated_in_place():
    found = report(jax.jit(set_row, donate_argnums=0), CACHE, ROW)
    assert found.alias_bytes == CACHE_BYTES
    assert [copy.num_bytes for copy in found.copies] == [ROW_BYTES]
    assert found.temporary_bytes < CACHE_BYTES


def test_without_donation_the_whole_array_is_copied_first():
    found = report(jax.jit(set_row), CACHE, ROW)
    assert found.alias_bytes == 0
    assert ("bf16[64,1024]", CACHE_BYTES, False) in [
        (copy.shape, copy.num_bytes, copy.by_kernel) for copy in found.copies
    ]


def test_a_donated_array_that_is_still_read_is_copied_all_the_same():
    """An alias in the memory analysis proves nothing."""

    def old_and_new(cache, row):
        new = cache.at[3].set(row)
        return new, add(new, cache)

    found = report(jax.jit(old_and_new, donate_argnums=0), CACHE, ROW)
    assert found.alias_bytes >= CACHE_BYTES
    assert CACHE_BYTES in [copy.num_bytes for copy in found.copies]


def test_layers_in_a_scan_are_copied_out_of_their_stack():
    def layers(x, weights):
        return jax.lax.scan(lambda carry, weight: (jnp.tanh(carry @ weight), None), x, weights)[0]

    found = report(layers, array(16, 512), array(4, 512, 512))
    assert ("bf16[1,512,512]", 512 * 512 * 2) in [(copy.shape, copy.num_bytes) for copy in found.copies]


def test_a_transpose_is_a_copy_by_a_kernel():
    found = report(jnp.transpose, array(64, 1024))
    assert [(copy.shape, copy.by_kernel) for copy in found.copies] == [("bf16[1024,64]", True)]
    assert len(found.kernels) == 1


def test_a_sum_is_no_copy():
    assert report(lambda x, y: x + y, array(64, 1024), array(64, 1024)).copies == ()


def test_the_bytes_of_arguments_results_and_intermediate():
    """The two kernels in the middle need an array each to hand on; XLA may give the second the first's place."""
    found = report(doubled(3), array(256, 256, dtype=jnp.float32))
    assert (found.argument_bytes, found.output_bytes) == (256 * 256 * 4, 256 * 256 * 4)
    assert found.temporary_bytes in (256 * 256 * 4, 2 * 256 * 256 * 4)


def test_a_pallas_kernel_with_its_launch():
    [kernel] = report(matmul, array(256, 64), array(64, 128)).kernels
    assert (kernel.name, kernel.kind) == ("matmul", KernelKind.PALLAS)
    assert kernel.grid == (256 // 64, 128 // 64, 1)
    assert kernel.num_threads == 8 * 32
    # The two bfloat16 tiles of 64 x 64 that the matrix units read.
    assert kernel.shared_bytes == 2 * 64 * 64 * 2
    assert "mma" in kernel.code.ptx
    assert 0 < kernel.code.registers <= 255


def test_a_kernel_without_a_product_uses_no_matrix_unit_and_no_shared_memory():
    [kernel] = report(double, array(256, 64)).kernels
    assert "mma" not in kernel.code.ptx
    assert (kernel.grid, kernel.num_threads, kernel.shared_bytes) == ((1, 1, 1), 4 * 32, 0)


def test_a_static_buffer_of_xlas_own_kernel_is_shared_memory_too():
    """XLA transposes through a buffer whose size ptxas knows, not the launch."""
    [kernel] = report(jnp.transpose, array(64, 1024)).kernels
    assert (kernel.kind, kernel.dynamic_shared_bytes) == (KernelKind.XLA, 0)
    assert kernel.shared_bytes == kernel.code.static_shared_bytes > 0


@pytest.mark.parametrize(("size", "spills"), [(1024, False), (8192, True)])
def test_spills(size, spills):
    """A thread holds size / 32 floats; it has 255 registers."""
    [kernel] = report(scale_by_sum, array(size, dtype=jnp.float32)).kernels
    assert (kernel.spill_bytes > 0) is spills
    assert (kernel.code.registers == 255) is spills


def test_a_product_of_xlas_is_a_kernel():
    found = report(jnp.matmul, array(512, 512), array(512, 512))
    assert len(found.kernels) >= 1
    assert any("dot" in kernel.instruction for kernel in found.kernels)


def test_a_call_of_a_library_is_a_kernel_of_which_nothing_more_is_known():
    found = report(jnp.linalg.cholesky, array(64, 64, dtype=jnp.float32))
    [call] = [kernel for kernel in found.kernels if kernel.kind is KernelKind.LIBRARY]
    assert "cholesky" in call.name
    assert (call.grid, call.code) == (None, None)
    assert (call.num_threads, call.shared_bytes, call.spill_bytes) == (0, 0, 0)


def test_kernels_come_in_the_order_of_launch():
    def chain(x):
        return double(double(double(x, "first"), "second"), "third")

    assert [kernel.name for kernel in report(chain, array(256)).kernels] == ["first", "second", "third"]


def test_one_kernel_launched_often_and_others_of_the_same_name():
    def chain(x):
        return double(double(double(x)).astype(jnp.float32))

    found = report(chain, array(256))
    assert len(found.kernels_named("double")) == 3
    assert len({kernel.code.ptx for kernel in found.kernels_named("double")}) == 2
    assert found.kernels_named("doubl") == ()


@pytest.mark.parametrize(("num_kernels", "num_command_buffers", "num_outside"), [(4, 0, 4), (6, 1, 0)])
def test_command_buffers(num_kernels, num_command_buffers, num_outside):
    found = report(doubled(num_kernels), array(256))
    assert len(found.kernels) == num_kernels
    assert found.num_command_buffers == num_command_buffers
    assert found.num_outside_command_buffers == num_outside


def test_a_loop_stays_outside_and_has_a_command_buffer_within():
    def loop(x):
        return jax.lax.fori_loop(0, 3, lambda _, y: doubled(6)(y), doubled(6)(x))

    found = report(loop, array(256))
    assert len(found.kernels_named("double")) == 12
    assert found.num_command_buffers == 2


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_every_target(target):
    found = report(lambda x, y: matmul(x, y).T + 1, array(256, 64), array(64, 128), target=target)
    assert found.target == target.name
    assert len(found.kernels_named("matmul")) == 1
    assert {f".target {target.architecture}\n" in kernel.code.ptx.replace(",", "\n") for kernel in found.kernels} == {
        True
    }


def test_one_function_for_one_gpu_after_the_other():
    """Traced for each anew, inner jit and kernel too, though JAX remembers traces."""
    seen = []

    @jax.jit
    def inner(x):
        seen.append(jax.sharding.get_abstract_mesh().abstract_device)
        return double(x)

    outer = jax.jit(lambda x: inner(x) + 1)
    texts = [report(outer, array(256), target=target).kernels[0].code.ptx for target in (A10, H100, A10)]
    assert [(device.device_kind, device.num_cores) for device in seen][:2] == [
        ("NVIDIA A10", 72),
        ("NVIDIA H100 80GB HBM3", 132),
    ]
    assert ".target sm_86" in texts[0] and ".target sm_90a" in texts[1]
    assert texts[0] == texts[2]


def test_what_the_process_runs_itself_runs_on_the_cpu():
    report(double, array(256))
    assert jnp.arange(3).sum().device.platform == "cpu"


def test_the_same_program_gives_the_same_report():
    first, second = (report(matmul, array(256, 64), array(64, 128)) for _ in range(2))
    assert first == second


PRINT_PTX = """
from tests.gpu_compile import test_compile_for as tests
from tests.gpu_compile.toys import array, matmul
[kernel] = tests.report(matmul, array(256, 64), array(64, 128)).kernels
print(kernel.code.ptx)
"""


def run_alone(code):
    """Run ``code`` in a process that nobody has told which platform it has."""
    environment = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )


def test_another_process_compiles_the_same_code_and_needs_no_preparation():
    done = run_alone(PRINT_PTX)
    [kernel] = report(matmul, array(256, 64), array(64, 128)).kernels
    assert (done.stdout.strip(), done.returncode) == (kernel.code.ptx.strip(), 0), done.stderr


def test_caches_that_are_set_change_nothing(tmp_path):
    """XLA leaves what it finds in its own cache of kernels out of the dump."""
    settings = "\n".join(
        f"jax.config.update({name!r}, {value!r})"
        for name, value in {
            "jax_compilation_cache_dir": str(tmp_path),
            "jax_persistent_cache_min_compile_time_secs": 0,
            "jax_persistent_cache_enable_xla_caches": "all",
        }.items()
    )
    first, second = (run_alone(f"import jax\n{settings}{PRINT_PTX}") for _ in range(2))
    assert any(tmp_path.iterdir())
    assert ".entry matmul" in first.stdout, first.stderr
    assert first.stdout == second.stdout


def test_too_late_where_jax_has_left_the_compiler_out():
    done = run_alone(f"import jax; jax.devices(){PRINT_PTX}")
    assert "RuntimeError: JAX left its CUDA compiler out" in done.stderr
    assert "JAX_PLATFORMS=cpu" in done.stderr


def test_arguments_of_every_sort():
    @jax.jit
    def keyed(tree, factor, *, bias):
        return tree["x"] * factor + bias

    found = report(keyed, {"x": jnp.ones((4, 8))}, 3.0, bias=np.ones(8, np.float32))
    assert found.argument_bytes == 4 * 8 * 4 + 4 + 8 * 4
    static = jax.jit(lambda x, power: x**power, static_argnames="power")
    assert report(static, array(4, 8), power=3).argument_bytes == 4 * 8 * 2
    assert report(lambda: jnp.arange(8) * 2).argument_bytes == 0


def test_what_does_not_fit_does_not_compile():
    """The two tiles of one block are 256 KiB; an A10 has 99 of shared memory, an H100 227."""
    with pytest.raises(jax.errors.JaxRuntimeError, match="Shared memory size limit exceeded"):
        report(matmul, array(64, 1024), array(1024, 64))
    with pytest.raises(jax.errors.JaxRuntimeError, match="Shared memory size limit exceeded"):
        report(matmul, array(64, 1024), array(1024, 64), target=H100)


def test_the_compiled_program_is_there():
    program = compile_for(A10, double, array(256))
    assert program.compiled.as_text().splitlines()[0].startswith("HloModule")
    assert "double" in program.report.hlo


def test_a_function_that_places_its_work_elsewhere_is_refused():
    cpu = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
    with pytest.raises(ValueError, match="nothing of a program for A10: the function places its work on devices of"):
        compile_for(A10, jax.jit(lambda x: 2 * x, in_shardings=cpu), array(8))


def test_a_static_number_with_a_dtype_is_passed_on():
    scaled = jax.jit(lambda x, factor: x * int(factor), static_argnums=1)
    assert len(report(scaled, array(8), np.int32(3)).kernels) == 1


@pytest.mark.parametrize("target", ["A10", None])
def test_what_is_no_target_is_refused_with_those_that_are(target):
    with pytest.raises(TypeError, match=f"target is {target!r}; it must be one of TARGETS: A10, L4"):
        compile_for(target, double, array(8))
