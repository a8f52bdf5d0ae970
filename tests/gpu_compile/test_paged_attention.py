"""The kernel of paged attention as it was compiled: within the limits that docs/gpu-static.md gives."""

import re

import pytest

from jaxinfer.gpu_compile import TARGETS, KernelKind
from pallas_kernels.paged_attention import Config
from scripts.gpu_static.attention import Launch, launches
from scripts.gpu_static.tables import TARGET_NAMES, launch_table
from tests.gpu_compile.reports import assert_on_the_page, assert_row_on_the_page, everywhere, on_targets, report

MOST_REGISTERS = {"decode": 168, "chunk": 210}
MOST_SHARED_BYTES = 99 * 1024

LAUNCHES = tuple(launches())
MISTRAL = Launch(model="mistral-7b-v0.1", block_q=1)
CHUNK = Launch(model="mistral-7b-v0.1", block_q=16)

ON_TARGETS = on_targets(LAUNCHES, typical=(MISTRAL, CHUNK))

on_every_target = pytest.mark.parametrize("target", TARGET_NAMES)
of_every_launch = pytest.mark.parametrize(("launch", "target"), ON_TARGETS)


def code(launch, target):
    """The PTX of a launch's attention kernel."""
    (kernel,) = report(launch, target).kernels_named("attend")
    return kernel.code.ptx


def test_the_launches_have_every_head_and_every_use():
    assert {launch.block_q for launch in LAUNCHES} == {1, 16, 32}
    assert any(launch.int8_pages for launch in LAUNCHES)
    assert any(launch.qk_norm for launch in LAUNCHES)
    assert any(launch.config is not None and launch.config.combine == "second_kernel" for launch in LAUNCHES)
    labels = " ".join(launch.label for launch in LAUNCHES)
    assert all(f"D {dim}," in labels for dim in (64, 80, 96, 128, 256))
    assert all(f"G {group}," in labels for group in (1, 3, 4, 12))


@of_every_launch
def test_a_launch_keeps_to_the_limits(launch, target):
    found = report(launch, target)
    most_registers = MOST_REGISTERS["decode" if launch.block_q == 1 else "chunk"]
    for kernel in found.kernels:
        assert kernel.kind is KernelKind.PALLAS
        assert kernel.spill_bytes == 0
        assert kernel.code.registers <= most_registers
        assert kernel.shared_bytes <= MOST_SHARED_BYTES
    assert (found.copies, found.num_memsets) == ((), 0)


@of_every_launch
def test_a_launch_is_one_kernel_and_at_most_one_more_that_merges(launch, target):
    attending, *merging = report(launch, target).kernels
    assert attending.name == "attend"
    by_second_kernel = launch.block_q > 1 or (launch.config is not None and launch.config.combine == "second_kernel")
    is_split = attending.grid[2] > 1
    assert [kernel.name for kernel in merging] == (["merge"] if is_split and by_second_kernel else [])


@pytest.mark.parametrize(("launch", "target"), [each for each in ON_TARGETS if each.values[0].block_q == 1])
def test_decode_rows_update_the_cache_in_place(launch, target):
    assert report(launch, target).alias_bytes >= launch.cache_bytes


@on_every_target
def test_a_small_batch_is_split_until_every_multiprocessor_has_work_twice_over(target):
    x, y, z = report(MISTRAL, target).kernels[0].grid
    assert x * y * z >= 2 * TARGETS[target].core_count
    assert x * y * (z - 1) < 2 * TARGETS[target].core_count


@on_every_target
@pytest.mark.parametrize("launch", [MISTRAL, CHUNK], ids=["decode", "chunk"])
def test_products_run_on_tensor_cores_and_keys_arrive_by_the_widest_asynchronous_copies(launch, target):
    ptx = code(launch, target)
    assert re.search(r"(wgmma\.mma_async|mma)\.sync\.aligned\.\w*.*bf16", ptx)
    assert re.search(r"cp\.async\.cg\.shared\.global .*16;", ptx) or re.search(
        r"cp\.async\.cg\.shared\.global .*0x10", ptx
    )
    assert not re.search(r"ld\.shared\.[bus]8", ptx)


@on_every_target
def test_the_last_share_reads_what_the_others_have_released(target):
    """The order that no interpreter can show: stores, a barrier, the counting addition, a barrier, fresh loads."""
    ptx = code(MISTRAL, target)
    count = ptx.index("atom.global.gpu.acq_rel.add")
    before, after = ptx[:count], ptx[count:]
    assert before.rindex("bar.sync") > before.rindex("st.global")
    assert after.index("bar.sync") < after.index("ld.volatile.global")
    assert not re.search(r"ld\.global", after), "a load that may be served from a stale cache"


@pytest.mark.parametrize("target", sorted(set(TARGETS) - set(TARGET_NAMES)))
@pytest.mark.parametrize("launch", [MISTRAL, CHUNK], ids=["decode", "chunk"])
def test_the_other_targets_compile_within_the_limits_too(launch, target):
    test_a_launch_keeps_to_the_limits(launch, target)


def test_a_tile_that_is_too_large_is_seen_to_break_the_limits():
    too_many_rows = Config(block_rows=128, block_keys=64, num_warps=4)
    (kernel,) = report(Launch(model="mistral-7b-v0.1", block_q=32, config=too_many_rows), "A10").kernels
    assert kernel.spill_bytes > 0
    assert kernel.code.registers > MOST_REGISTERS["chunk"]


@pytest.mark.parametrize(("launch", "target"), ON_TARGETS)
def test_a_row_of_the_page_is_up_to_date(launch, target):
    assert_row_on_the_page(launch_table, launch, target)


# Compiles every program for every target.
@pytest.mark.slow
def test_the_page_is_up_to_date():
    assert_on_the_page("attention", launch_table((each, everywhere(each)) for each in LAUNCHES))
