"""The main loop of a kernel, found in PTX written by hand."""

import pytest

from scripts.gpu_static.loops import instructions_per_weight, main_loop, operations

MULTIPLY = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 { %r1, %r2 }, { %r3, %r4 }, { %r5 }, { %r1, %r2 };"
KERNEL = f"""\
.version 8.4
.target sm_86
.visible .entry kernel(
    .param .u64 .ptr .global .align 1 kernel_param_0
)
.reqntid 64
{{
    .reg .pred  %p<3>;
    .reg .b32   %r<9>;
    // a loop before: it is short and multiplies nothing
$L__BB0_1:                              // =>This Inner Loop Header: Depth=1
    add.s32     %r1, %r1, 1;
    @%p1 bra    $L__BB0_1;
$L__BB0_2:                              // outer
    mov.b32     %r9, 0;
$L__BB0_3:
    .loc    1 32 0
    cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;
    fence.proxy.async.shared::cta;
    // begin inline asm
    {{
        .reg .b32 even;
        prmt.b32 even, %r1, 0x43434343, 0x4140; and.b32 %r2, even, 0xff0fff0f;
    }}
    // end inline asm
    {MULTIPLY}
    setp.lt.s32 %p2, %r1,
        %r2;
    @%p2 bra    $L__BB0_3;
    @!%p1 bra.uni $L__BB0_2;
    bra.uni     $L__BB0_4;
$L__BB0_4:
    ret;
}}
"""


def test_the_loop_that_multiplies_is_found_and_the_one_around_it_is_not():
    loop = main_loop(KERNEL)
    assert [each.split()[0].split(".")[0] for each in loop] == ["cp", "fence", "prmt", "and", "mma", "setp", "@%p2"]
    assert loop[-2:] == ("setp.lt.s32 %p2, %r1, %r2", "@%p2 bra $L__BB0_3")


def test_operations_go_by_their_whole_names():
    counted = operations(main_loop(KERNEL))
    assert counted["cp.async.cg.shared.global"] == counted["bra"] == counted["fence.proxy.async.shared::cta"] == 1


def test_all_threads_share_the_weights_of_a_round():
    assert instructions_per_weight(KERNEL, num_threads=64, weights_per_round=16 * 16) == 7 * 64 / 256


def test_of_two_loops_that_multiply_the_longer_counts():
    short = f"$L__BB0_9:\n{MULTIPLY}\n@%p1 bra $L__BB0_9;\n"
    assert main_loop(KERNEL.replace("    ret;", short + "    ret;")) == main_loop(KERNEL)


def test_a_kernel_without_products_is_refused():
    with pytest.raises(ValueError, match="no loop with a product"):
        main_loop(KERNEL.replace(MULTIPLY, ""))
