"""XLA's dump folder of one program, written by hand: what the three lists say together."""

import pytest

from jaxinfer.gpu_compile import dump as dump_module
from jaxinfer.gpu_compile.dump import Dump
from jaxinfer.gpu_compile.report import KernelCode, KernelKind

THUNKS = """\
001: kCustomKernel [source | next=002 (1)] mine grid: [4, 2, 1] threads: [256, 1, 1]  shared_memory: 512 bytes
002: kMemzero [prev=001 (1) | next=003 (1)] kMemzero
003: kGemm [prev=002 (1) | next=004 (1)]
004: kDynamicSliceFusion [prev=003 (1) | next=006 (1)] params=1, results=1
    005: kCopy [source | sink] kCopy
006: kCustomKernel [prev=004 (1) | sink] fusion_2 grid: [1, 1, 1] threads: [32, 1, 1]  shared_memory: 0 bytes
"""
AFTER_PASSES = "000: kCommandBuffer [source | sink]\n" + "".join(f"    {line}\n" for line in THUNKS.splitlines())
NAMES = {1: "pallas_call.1", 2: "memset.1", 3: "cublas-gemm.1", 4: "fusion.1", 6: "fusion.2"}
HLO = """\
%slice_of (param_0: f32[8,4]) -> f32[2,4] {
  %param_0 = f32[8,4]{1,0} parameter(0)
  ROOT %slice.1 = f32[2,4]{1,0} slice(%param_0), slice={[0:2], [0:4]}
}

%sum_of (param_1: f32[2,4]) -> f32[2,4] {
  %param_1 = f32[2,4]{1,0} parameter(0)
  ROOT %add.1 = f32[2,4]{1,0} add(%param_1, %param_1)
}

ENTRY %main (x: f32[8,4]) -> f32[2,4] {
  %x = f32[8,4]{1,0} parameter(0)
  %pallas_call.1 = f32[8,4]{1,0} custom-call(%x), custom_call_target="__gpu$xla.gpu.triton"
  %memset.1 = f32[8,4]{1,0} broadcast(%x), dimensions={}
  %cublas-gemm.1 = (f32[8,4]{1,0}, s8[64]{0}) custom-call(%x, %x), custom_call_target="__cublas$gemm"
  %fusion.1 = f32[2,4]{1,0} fusion(%x), kind=kLoop, calls=%slice_of
  ROOT %fusion.2 = f32[2,4]{1,0} fusion(%fusion.1), kind=kLoop, calls=%sum_of
}
"""


@pytest.fixture
def folder(tmp_path):
    metadata = "".join(
        f'thunk_metadata {{\n  thunk_info {{\n    profile_annotation: "{name}"\n    thunk_id: {id}\n  }}\n}}\n'
        for id, name in NAMES.items()
    )
    for name, text in {
        "thunk_sequence.txt": THUNKS,
        "thunk_metadata.txt": metadata,
        "sm_8.6_gpu_after_optimizations.txt": HLO,
        "sm_8.6_gpu_after_optimizations-buffer-assignment.txt": "",
        "1.ptx": ".entry mine(",
        "3.ptx": ".entry fusion_2(",
        "5.ptx": ".global .b8 constants[4];",
    }.items():
        (tmp_path / f"module_0001.jit_f.{name}").write_text(text)
    return tmp_path


@pytest.fixture
def assembled(monkeypatch):
    def assemble(ptx, architecture):
        return KernelCode(
            registers=len(ptx),
            spill_store_bytes=0,
            spill_load_bytes=0,
            static_shared_bytes=64,
            ptx=f"{architecture} {ptx}",
        )

    monkeypatch.setattr(dump_module, "assemble", assemble)


def test_kernels(folder, assembled):
    mine, gemm, fusion = Dump(folder).kernels("sm_86")
    assert [kernel.kind for kernel in (mine, gemm, fusion)] == [KernelKind.PALLAS, KernelKind.LIBRARY, KernelKind.XLA]
    assert [kernel.name for kernel in (mine, gemm, fusion)] == ["mine", "cublas-gemm.1", "fusion_2"]
    assert (mine.grid, mine.threads, mine.num_threads) == ((4, 2, 1), (256, 1, 1), 256)
    assert (mine.dynamic_shared_bytes, mine.shared_bytes) == (512, 512 + 64)
    assert (mine.code.ptx, fusion.code.ptx) == ("sm_86 .entry mine(", "sm_86 .entry fusion_2(")


def test_copies_and_memsets(folder):
    dump = Dump(folder)
    [copy] = dump.copies()
    assert (copy.instruction, copy.shape, copy.num_bytes, copy.by_kernel) == ("fusion.1", "f32[2,4]", 32, False)
    assert dump.num_memsets == 1


def test_no_command_buffer_was_made(folder):
    dump = Dump(folder)
    assert (dump.num_command_buffers, dump.num_outside_command_buffers) == (0, 5)


def test_a_command_buffer_was_made(folder):
    (folder / "module_0001.jit_f.thunk_sequence_after_thunk_passes.txt").write_text(AFTER_PASSES)
    dump = Dump(folder)
    assert (dump.num_command_buffers, dump.num_outside_command_buffers) == (1, 0)
    assert len(dump.launches) == 5


def test_a_launch_of_unknown_origin_is_refused(folder):
    (folder / "module_0001.jit_f.thunk_metadata.txt").write_text("")
    with pytest.raises(ValueError, match="the kCustomKernel with number 1"):
        list(Dump(folder).copies())


def test_a_folder_that_is_not_one_program_is_refused(folder):
    (folder / "module_0002.jit_g.thunk_sequence.txt").write_text(THUNKS)
    with pytest.raises(ValueError, match="module_0002"):
        Dump(folder)
    for path in folder.glob("*.thunk_sequence.txt"):
        path.unlink()
    with pytest.raises(ValueError, match="thunk_sequence"):
        Dump(folder)
