"""The kernel in a call of jax_triton, packed by hand as jaxlib packs it."""

import zlib

import pytest

from jaxinfer.gpu_compile.hlo import Module
from jaxinfer.gpu_compile.triton_call import TRITON_TARGET, parse_triton_call

PTX = "// of a kernel\n.visible .entry mine()\n"


def varint(value):
    """Seven bits a byte, the lowest first."""
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def number(field, value):
    return varint(field << 3) + varint(value)


def text(field, value):
    return varint(field << 3 | 2) + varint(len(value)) + value


def escaped(raw):
    """As HLO prints bytes: what is printable as it is, the backslash twice, the rest and quotes in hexadecimal."""
    return "".join(
        "\\\\" if byte == ord("\\") else chr(byte) if 32 <= byte < 127 and byte != ord('"') else f"\\{byte:02X}"
        for byte in raw
    )


def config(message, level=-1):
    return f'{{opaque = "{escaped(zlib.compress(message, level))}"}}'


KERNEL = (
    text(1, b"mine") + number(2, 4) + number(3, 79_872) + text(4, PTX.encode()) + text(5, b"module {}") + number(6, 86)
)
CALL = text(1, KERNEL) + number(2, 1) + number(3, 896) + number(4, 1) + text(5, b"\x08\x10")


def test_the_kernel_and_its_launch():
    call = parse_triton_call(config(text(1, CALL) + text(3, b"metadata") + text(4, b"int4_matmul")))
    assert (call.name, call.ptx) == ("mine", PTX)
    assert (call.grid, call.num_threads, call.shared_bytes) == ((1, 896, 1), 128, 79_872)


def test_what_looks_like_a_comment_of_hlo_is_part_of_the_bytes():
    """It once was cut out of the line with the comments, and the rest did not decompress."""
    backend_config = config(text(1, CALL) + text(3, b'/* "\\" */'), level=0)
    attributes = f'custom_call_target="{TRITON_TARGET}", backend_config={backend_config}'
    hlo = f"ENTRY %main () -> f32[2] {{\n  ROOT %call.1 = f32[2]{{0}} custom-call(), {attributes}\n}}\n"
    assert "/* " in backend_config
    assert parse_triton_call(Module(hlo)["call.1"].backend_config).ptx == PTX


def test_a_call_that_chooses_among_several_on_the_gpu_is_refused():
    with pytest.raises(ValueError, match="several configurations"):
        parse_triton_call(config(text(2, b"") + text(4, b"tuned")))


def test_a_config_without_a_kernel_is_refused():
    with pytest.raises(ValueError, match="without its kernel"):
        parse_triton_call("{}")
