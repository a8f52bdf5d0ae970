"""What a program compiled for a GPU is made of: the numbers that can be known before any GPU has run it."""

import re
from dataclasses import dataclass, field
from enum import StrEnum


class KernelKind(StrEnum):
    """Who wrote a kernel."""

    PALLAS = "pallas"
    """A ``pallas_call``."""
    TRITON = "triton"
    """A kernel written in Triton itself, called through jax_triton."""
    XLA = "xla"
    """A fusion or a GEMM that XLA wrote itself."""
    LIBRARY = "library"
    """A call of cuBLAS, cuDNN or another library; what it launches is known only on the GPU."""


@dataclass(frozen=True, kw_only=True)
class KernelCode:
    """What ptxas says of one kernel.

    Attributes:
        registers: per thread.
        spill_store_bytes, spill_load_bytes: of one thread, to and from local memory.
        static_shared_bytes: shared memory of a block that is laid out at compile time.
        ptx: the text that was assembled.
    """

    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_shared_bytes: int
    ptx: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class KernelReport:
    """One launch of a kernel.

    Attributes:
        name: of the kernel in the PTX; of a library call the name of the HLO instruction.
        kind: who wrote it.
        instruction: the HLO instruction that it computes.
        grid: thread blocks in x, y and z; None for a library call, as are all that follow.
        threads: threads of a block in x, y and z.
        dynamic_shared_bytes: shared memory of a block that is asked for at launch.
        code: what ptxas says of it.
    """

    name: str
    kind: KernelKind
    instruction: str
    grid: tuple[int, int, int] | None = None
    threads: tuple[int, int, int] | None = None
    dynamic_shared_bytes: int | None = None
    code: KernelCode | None = None

    @property
    def num_threads(self) -> int:
        """Threads of a block; 0 for a library call."""
        x, y, z = self.threads or (0, 0, 0)
        return x * y * z

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, static and dynamic; 0 for a library call."""
        return (self.code.static_shared_bytes if self.code else 0) + (self.dynamic_shared_bytes or 0)

    @property
    def spill_bytes(self) -> int:
        """Bytes that one thread stores to and loads from local memory for want of registers; 0 for a library call."""
        return self.code.spill_store_bytes + self.code.spill_load_bytes if self.code else 0


@dataclass(frozen=True, kw_only=True)
class CopyReport:
    """One array that is written elsewhere, or in another order, without anything being computed.

    Attributes:
        instruction: the HLO instruction that does it.
        shape: of what is written, as HLO writes it ("bf16[10,1024]"): the slice where only a slice is written.
        num_bytes: of what is written. Where an instruction that computes copies its input first (a sort does), this
            is the size of its results, which is an upper bound.
        by_kernel: a kernel does it (a transpose, say), which is among the program's kernels too; else it is a memcpy.
    """

    instruction: str
    shape: str
    num_bytes: int
    by_kernel: bool


@dataclass(frozen=True, kw_only=True)
class ProgramReport:
    """What one launch of the program does and needs.

    A kernel in the body of a loop counts once, however often the loop runs it.

    Attributes:
        target: name of the GPU that it was compiled for.
        kernels: every launch, in the order in which they are launched.
        copies: arrays that are copied, in the order of launch; a kernel that also computes is not among them.
        num_memsets: fills with a constant.
        num_command_buffers: CUDA graphs. XLA makes none of fewer than five launches.
        num_outside_command_buffers: kernels, copies and memsets that are launched one by one; 0 in a program that is
            one graph from end to end.
        argument_bytes, output_bytes: of the arguments and results, padding included.
        alias_bytes: of the results that reuse a donated argument's memory.
        temporary_bytes: scratch memory while the program runs.
        hlo: the optimized HLO.
    """

    target: str
    kernels: tuple[KernelReport, ...]
    copies: tuple[CopyReport, ...]
    num_memsets: int
    num_command_buffers: int
    num_outside_command_buffers: int
    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    temporary_bytes: int
    hlo: str = field(repr=False)

    def kernels_named(self, name: str) -> tuple[KernelReport, ...]:
        """The launches of the kernel ``name``, in order; empty if there is none.

        Different kernels that were given one name count all: XLA calls the second ``name__1``.
        """
        return tuple(kernel for kernel in self.kernels if re.sub(r"__\d+$", "", kernel.name) == name)
