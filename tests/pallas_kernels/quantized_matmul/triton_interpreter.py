"""The body of the Triton kernel in Triton's interpreter: ``python -m ... IN.npz OUT.npz``, a process of its own.

Whether a kernel is compiled or interpreted is settled when its module is imported, by an environment variable; a
process that compiles the kernel as well cannot also interpret it. IN holds one case after another, ``0.x``,
``0.values`` and so on, and as ``0.options`` the keywords of the kernel as JSON; bfloat16 lies there as its bits. Inline
assembly cannot be interpreted: the branch without it runs, and another test holds the two against each other.
"""

import json
import os
import sys

import numpy as np

ARRAYS = ("x", "values", "scales", "offsets", "norm", "bias", "residual", "out")
_TRITON_NAMES = {"uint16": "bfloat16"}
"""NumPy has no bfloat16, so its bits stand for it."""


class Memory:
    """An array where Triton's interpreter expects a tensor of PyTorch's; it copies them to the host and back."""

    def __init__(self, array):
        self.array = array
        self.dtype = _TRITON_NAMES.get(array.dtype.name, array.dtype.name)

    def data_ptr(self):
        return self.array.ctypes.data

    def untyped_storage(self):
        return self

    def storage_offset(self):
        return 0

    def size(self):
        return self.array.shape

    def stride(self):
        return self.array.strides

    def cpu(self):
        return self

    def new_empty(self, size, device):
        return Memory(self.array)

    def set_(self, storage, offset, size, stride):
        assert storage.array is self.array

    def copy_(self, host):
        assert host.array is self.array


def multiply_bfloat16():
    """Mend the interpreter, which multiplies the bits of bfloat16 as if they were integers."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    multiply = InterpreterBuilder.create_dot

    def widened(handle):
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        return TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def create_dot(self, a, b, *rest):
        return multiply(self, widened(a), widened(b), *rest)

    InterpreterBuilder.create_dot = create_dot


def run(arrays, options, grid):
    """Run the kernel, which writes to ``arrays["out"]``."""
    from pallas_kernels.quantized_matmul.jax_triton_gpu.kernel import int4_matmul

    memories = [Memory(arrays[name]) if name in arrays else None for name in ARRAYS]
    int4_matmul[tuple(grid)](*memories, **options, assembly=False)


def main(read, written):
    with np.load(read) as file:
        cases = dict(file)
    results = {}
    multiply_bfloat16()
    for number in sorted({name.partition(".")[0] for name in cases}):
        arrays = {name: cases[f"{number}.{name}"] for name in ARRAYS if f"{number}.{name}" in cases}
        options = json.loads(str(cases[f"{number}.options"]))
        run(arrays, options, options.pop("grid"))
        results[number] = arrays["out"]
    np.savez(written, **results)


if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"
    main(*sys.argv[1:])
