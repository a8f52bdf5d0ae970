"""What ptxas prints, and what is made of it."""

import pytest

from jaxinfer.gpu_compile import toolchain
from jaxinfer.gpu_compile.ptxas import assemble, kernel_name, parse_verbose

SPILLING = """\
ptxas info    : 24 bytes gmem, 8 bytes cmem[4]
ptxas info    : Compiling entry function 'k' for 'sm_86'
ptxas info    : Function properties for k
    400 bytes stack frame, 120 bytes spill stores, 248 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 400 bytes cumulative stack size, 8192 bytes smem, 368 bytes cmem[0]
ptxas info    : Compile time = 5.715 ms
"""
PLAIN = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 18 registers, used 0 barriers, 368 bytes cmem[0], 8 bytes cmem[2]
"""


def test_registers_spills_and_shared_memory():
    code = parse_verbose(SPILLING, "the text")
    assert (code.registers, code.spill_store_bytes, code.spill_load_bytes) == (255, 120, 248)
    assert (code.static_shared_bytes, code.ptx) == (8192, "the text")


def test_a_kernel_without_shared_memory():
    code = parse_verbose(PLAIN, "")
    assert (code.registers, code.static_shared_bytes, code.spill_store_bytes, code.spill_load_bytes) == (18, 0, 0, 0)


def test_anything_else_is_refused():
    with pytest.raises(ValueError, match="usage: ptxas"):
        parse_verbose("usage: ptxas", "")


@pytest.mark.parametrize(
    ("ptx", "name"),
    [
        (".visible .entry my_kernel__1(\n\t.param .u64 p\n)", "my_kernel__1"),
        ("\t// .globl\tk\n.entry k (", "k"),
        (".visible .global .align 4 .b8 constants[4];", None),
    ],
)
def test_the_name_of_a_kernel(ptx, name):
    assert kernel_name(ptx) == name


def test_two_kernels_in_one_text_are_refused():
    with pytest.raises(ValueError, match="'first', 'second'"):
        kernel_name(".entry first(\n)\n.entry second(\n)")


def test_a_missing_assembler_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(toolchain, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"ptxas .* pip install 'jaxinfer\[gpu-compile\]'"):
        assemble(".entry not_assembled_before(", "sm_86")
