"""The kernel inside a call of jax_triton, which XLA passes on unseen and which is assembled when it first runs.

The call carries a compressed protocol buffer (jaxlib's ``triton.proto``) in its backend config. Of its fields, which
are numbered in the text, a handful is read here; no compiled form of that description is installed with JAX.
"""

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

TRITON_TARGET = "triton_kernel_call_ffi"

_OPAQUE = re.compile(r'\bopaque = "((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\(\\|[0-9A-F]{2})")

# AnyKernelCall, KernelCall and Kernel.
_KERNEL_CALL = 1
_KERNEL, _GRID_X, _GRID_Y, _GRID_Z = 1, 2, 3, 4
_NAME, _NUM_WARPS, _SHARED_BYTES, _PTX = 1, 2, 3, 4

_VARINT, _LENGTH = 0, 2
"""Kinds of fields, as the wire format numbers them."""
_FIXED_SIZES = {1: 8, 5: 4}

_THREADS_PER_WARP = 32


@dataclass(frozen=True, kw_only=True)
class TritonCall:
    """One call.

    Attributes:
        name: of the kernel in the PTX.
        ptx: what is assembled.
        grid: thread blocks in x, y and z.
        num_threads: of a block.
        shared_bytes: dynamic shared memory of a block.
    """

    name: str
    ptx: str = field(repr=False)
    grid: tuple[int, int, int]
    num_threads: int
    shared_bytes: int


def parse_triton_call(backend_config: str) -> TritonCall:
    """The call in the backend config of a custom call of ``TRITON_TARGET``, as HLO prints it.

    Raises:
        ValueError: there is no single kernel in it: where Triton tries several configurations out on the GPU, nobody
            knows before which one it will be.
    """
    match = _OPAQUE.search(backend_config)
    if match is None:
        raise ValueError(f"a call of jax_triton without its kernel: {backend_config[:80]!r}")
    message = _fields(zlib.decompress(_unescape(match[1])))
    if _KERNEL_CALL not in message:
        raise ValueError("a call of jax_triton with several configurations to choose from; one is expected")
    call = _fields(_bytes(message, _KERNEL_CALL))
    kernel = _fields(_bytes(call, _KERNEL))
    return TritonCall(
        name=_bytes(kernel, _NAME).decode(),
        ptx=_bytes(kernel, _PTX).decode(),
        grid=(_number(call, _GRID_X), _number(call, _GRID_Y), _number(call, _GRID_Z)),
        num_threads=_number(kernel, _NUM_WARPS) * _THREADS_PER_WARP,
        shared_bytes=_number(kernel, _SHARED_BYTES),
    )


def _unescape(text: str) -> bytes:
    return _ESCAPE.sub(lambda match: b"\\" if match[1] == b"\\" else bytes.fromhex(match[1].decode()), text.encode())


def _number(message: dict[int, int | bytes], number: int) -> int:
    value = message.get(number, 0)
    assert isinstance(value, int), f"field {number} is no number"
    return value


def _bytes(message: dict[int, int | bytes], number: int) -> bytes:
    value = message.get(number, b"")
    assert isinstance(value, bytes), f"field {number} is no text"
    return value


def _fields(message: bytes) -> dict[int, int | bytes]:
    """The fields of a message by number; of a repeated one the last."""
    return dict(_each_field(message))


def _each_field(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, place = _varint(message, place)
            yield number, value
            continue
        if kind == _LENGTH:
            size, place = _varint(message, place)
        else:
            size = _FIXED_SIZES[kind]
        yield number, message[place : place + size]
        place += size


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and the place after it."""
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
