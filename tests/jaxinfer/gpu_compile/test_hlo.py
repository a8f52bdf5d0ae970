"""Optimized HLO, reduced to what is asked of it."""

import pytest

from jaxinfer.gpu_compile.hlo import Module

TEXT = """\
HloModule jit_f, is_scheduled=true, entry_computation_layout={(bf16[4,8]{1,0})->bf16[4,8]{1,0}}

FileNames
1 "f.py"

%turned (param_0: bf16[4,8]) -> bf16[8,4] {
  %param_0 = bf16[4,8]{1,0} parameter(0)
  ROOT %transpose.1 = bf16[8,4]{1,0} transpose(%param_0), dimensions={1,0}, metadata={op_name="a=b (c)"}
}

%picked (param_1: bf16[4,8], param_2: s32[]) -> bf16[1,8] {
  %param_1 = bf16[4,8]{1,0} parameter(0)
  %param_2 = s32[] parameter(1)
  %zero = s32[] constant(0)
  %clamp.1 = s32[] clamp(%zero, %param_2, %zero)
  ROOT %dynamic-slice.1 = bf16[1,8]{1,0} dynamic-slice(%param_1, %clamp.1, %zero), dynamic_slice_sizes={1,8}
}

%updated (param_3: bf16[4,8], param_4: bf16[8]) -> bf16[4,8] {
  %param_3 = bf16[4,8]{1,0} parameter(0)
  %param_4 = bf16[8]{0} parameter(1)
  %row = bf16[1,8]{1,0} bitcast(%param_4)
  %three = s32[] constant(3)
  %dynamic-update-slice.1 = bf16[4,8]{1,0} dynamic-update-slice(%param_3, %row, %three, %three)
  ROOT %bitcast.9 = bf16[4,8]{1,0} bitcast(%dynamic-update-slice.1)
}

%updated_and_turned (param_5: bf16[4,8], param_6: bf16[1,8]) -> bf16[8,4] {
  %param_5 = bf16[4,8]{1,0} parameter(0)
  %param_6 = bf16[1,8]{1,0} parameter(1)
  %one = s32[] constant(1)
  %dynamic-update-slice.2 = bf16[4,8]{1,0} dynamic-update-slice(%param_5, %param_6, %one, %one)
  ROOT %transpose.2 = bf16[8,4]{1,0} transpose(%dynamic-update-slice.2), dimensions={1,0}
}

%two (param_7: bf16[4,8]) -> (bf16[2,8], bf16[4,8]) {
  %param_7 = bf16[4,8]{1,0} parameter(0)
  %slice.1 = bf16[2,8]{1,0} slice(%param_7), slice={[0:2], [0:8]}
  %copy.1 = bf16[4,8]{1,0} copy(%param_7)
  ROOT %tuple.1 = (bf16[2,8]{1,0}, /*index=1*/bf16[4,8]{1,0}) tuple(%slice.1, %copy.1)
}

%summed (param_8: bf16[4,8]) -> bf16[4,8] {
  %param_8 = bf16[4,8]{1,0} parameter(0)
  ROOT %add.1 = bf16[4,8]{1,0} add(%param_8, %param_8)
}

%compared (param_9: s32[]) -> pred[] {
  %param_9 = s32[] parameter(0)
  ROOT %compare.1 = pred[] compare(%param_9, %param_9), direction=LT
}

ENTRY %main.1 (x.1: bf16[4,8], i.1: s32[]) -> bf16[4,8] {
  %x.1 = bf16[4,8]{1,0} parameter(0), sharding={mesh[], [{}, {}]}
  %i.1 = s32[] parameter(1)
  %transpose_fusion = bf16[8,4]{1,0} fusion(%x.1), kind=kInput, calls=%turned, backend_config={"a":[{"b":"0"}]}
  %slice_fusion = bf16[1,8]{1,0} fusion(%x.1, %i.1), kind=kLoop, calls=%picked
  %update_fusion = bf16[4,8]{1,0} fusion(%x.1, %two_fusion#1), kind=kLoop, calls=%updated
  %update_transpose_fusion = bf16[8,4]{1,0} fusion(%x.1, %slice_fusion), kind=kLoop, calls=%updated_and_turned
  %two_fusion = (bf16[2,8]{1,0}, bf16[4,8]{1,0}) fusion(%x.1), kind=kLoop, calls=%two
  %add_fusion = bf16[4,8]{1,0} fusion(%x.1), kind=kLoop, calls=%summed
  %compare_fusion = pred[] fusion(%i.1), kind=kLoop, calls=%compared
  %pallas_call.2 = bf16[4,8]{1,0} custom-call(%x.1), custom_call_target="__gpu$xla.gpu.triton", api_version=4
  %copy.2 = bf16[4,8]{0,1:T(8,128)} copy(%x.1)
  ROOT %done = (bf16[4,8]{1,0}) tuple(%copy.2)
}
"""


@pytest.fixture(scope="module")
def module():
    return Module(TEXT)


def test_an_instruction(module):
    fusion = module["slice_fusion"]
    assert (fusion.opcode, fusion.shape, fusion.operands) == ("fusion", "bf16[1,8]", ("x.1", "i.1"))
    assert (fusion.calls, fusion.computation, fusion.is_root) == ("picked", "main.1", False)
    assert module["done"].is_root
    assert module["pallas_call.2"].call_target == "__gpu$xla.gpu.triton"
    assert module["update_fusion"].operands == ("x.1", "two_fusion")


def test_a_layout_is_no_part_of_the_shape(module):
    assert module["copy.2"].shape == "bf16[4,8]"
    assert module["tuple.1"].shape == "(bf16[2,8], bf16[4,8])"


@pytest.mark.parametrize(
    ("shape", "num_bytes"),
    [
        ("bf16[10,1024]", 20480),
        ("f32[]", 4),
        ("pred[3]", 3),
        ("s4[5]", 3),
        ("f8e4m3fn[7]", 7),
        ("c64[2]", 16),
        ("(f32[2,3], s32[5], token[])", 44),
        ("bf16[0,4]", 0),
    ],
)
def test_bytes(shape, num_bytes):
    module = Module(f"ENTRY %main () -> f32[] {{\n  %x = {shape} iota(), iota_dimension=0\n}}\n")
    assert module["x"].num_bytes == num_bytes


def test_the_body_of_a_fusion(module):
    names = [each.name for each in module.body(module["two_fusion"])]
    assert names == ["param_7", "slice.1", "copy.1", "tuple.1"]
    assert module.body(module["copy.2"]) == (module["copy.2"],)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("copy.2", True),
        ("transpose_fusion", True),
        ("slice_fusion", True),  # it computes where to begin
        ("update_fusion", True),
        ("two_fusion", True),
        ("add_fusion", False),
        ("compare_fusion", False),  # a scalar is its result
        ("pallas_call.2", False),
    ],
)
def test_what_only_copies(module, name, expected):
    assert module.only_copies(module[name]) is expected


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("copy.2", ["bf16[4,8]"]),
        ("slice_fusion", ["bf16[1,8]"]),
        ("update_fusion", ["bf16[1,8]"]),  # in place
        ("update_transpose_fusion", ["bf16[8,4]"]),  # not in place
        ("two_fusion", ["bf16[2,8]", "bf16[4,8]"]),
        ("pallas_call.2", ["bf16[4,8]"]),
    ],
)
def test_what_is_written(module, name, shapes):
    assert [each.shape for each in module.written(module[name])] == shapes
