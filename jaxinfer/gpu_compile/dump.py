"""What XLA leaves in its dump folder for one program, put together into kernels and copies.

Three lists tell one story: the thunks say what is launched and in which order, the HLO says what a launch computes, the
PTX says with which code. The thunk's number leads to the HLO instruction, the kernel's name to the PTX.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from jaxinfer.gpu_compile.hlo import Instruction, Module
from jaxinfer.gpu_compile.ptxas import assemble, kernel_name
from jaxinfer.gpu_compile.report import CopyReport, KernelKind, KernelReport
from jaxinfer.gpu_compile.thunks import Thunk, parse_instruction_names, parse_thunks
from jaxinfer.gpu_compile.triton_call import TRITON_TARGET, parse_triton_call

_PALLAS_TARGET = "__gpu$xla.gpu.triton"
_MEMCPY = "kCopy"
_MEMSETS = frozenset({"kMemset32BitValue", "kMemzero"})


class Dump:
    """The dump of one program.

    Args:
        folder: what XLA wrote for one program, with ``xla_dump_emitter_re=ptx``.

    Raises:
        ValueError: a file is missing, or the folder holds several programs. Later, when kernels or copies are asked
            for: the files do not go together.
    """

    def __init__(self, folder: Path) -> None:
        thunks = _only(folder, "*.thunk_sequence.txt")
        # Written only where the passes changed something: where they made a command buffer.
        final = thunks.with_name(thunks.name.replace(".thunk_sequence.", ".thunk_sequence_after_thunk_passes."))
        self.thunks = parse_thunks((final if final.is_file() else thunks).read_text())
        self.hlo = Module(_only(folder, "*_gpu_after_optimizations.txt").read_text())
        self._names = parse_instruction_names(_only(folder, "*.thunk_metadata.txt").read_text())
        self._ptx = _read_ptx(folder)

    @property
    def launches(self) -> tuple[Thunk, ...]:
        """The thunks that do something on the device, in order."""
        return tuple(thunk for thunk in self.thunks if not thunk.is_container)

    @property
    def num_memsets(self) -> int:
        """Fills with a constant."""
        return sum(thunk.kind in _MEMSETS for thunk in self.launches)

    @property
    def num_command_buffers(self) -> int:
        """CUDA graphs."""
        return sum(thunk.is_command_buffer for thunk in self.thunks)

    @property
    def num_outside_command_buffers(self) -> int:
        """Launches that are in no CUDA graph."""
        return sum(not any(parent.is_command_buffer for parent in thunk.parents) for thunk in self.launches)

    def kernels(self, architecture: str) -> Iterator[KernelReport]:
        """The kernels in order of launch; ``architecture`` is what ptxas calls the GPU."""
        for thunk in self.launches:
            if thunk.kind != _MEMCPY and thunk.kind not in _MEMSETS:
                yield self._kernel(thunk, architecture)

    def copies(self) -> Iterator[CopyReport]:
        """The copies in order of launch."""
        for thunk in self.launches:
            is_memcpy = thunk.kind == _MEMCPY
            instruction = self._instruction(thunk)
            if is_memcpy or (thunk.launch is not None and self.hlo.only_copies(instruction)):
                for written in self.hlo.written(instruction):
                    yield CopyReport(
                        instruction=instruction.name,
                        shape=written.shape,
                        num_bytes=written.num_bytes,
                        by_kernel=not is_memcpy,
                    )

    def _kernel(self, thunk: Thunk, architecture: str) -> KernelReport:
        instruction = self._instruction(thunk)
        launch = thunk.launch
        if instruction.call_target == TRITON_TARGET:
            return _triton_kernel(instruction, architecture)
        if launch is None:
            return KernelReport(name=instruction.name, kind=KernelKind.LIBRARY, instruction=instruction.name)
        is_pallas = any(each.call_target == _PALLAS_TARGET for each in self.hlo.body(instruction))
        return KernelReport(
            name=launch.name,
            kind=KernelKind.PALLAS if is_pallas else KernelKind.XLA,
            instruction=instruction.name,
            grid=launch.grid,
            threads=launch.threads,
            dynamic_shared_bytes=launch.shared_bytes,
            code=assemble(self._ptx[launch.name], architecture),
        )

    def _instruction(self, thunk: Thunk) -> Instruction:
        # What a fusion of a slice is made of has no name of its own: the fusion's counts.
        names = [self._names[each.id] for each in (thunk, *reversed(thunk.parents)) if each.id in self._names]
        if not names:
            raise ValueError(f"XLA's dump does not say what the {thunk.kind} with number {thunk.id} computes")
        return self.hlo[names[0]]


def _triton_kernel(instruction: Instruction, architecture: str) -> KernelReport:
    call = parse_triton_call(instruction.backend_config)
    return KernelReport(
        name=call.name,
        kind=KernelKind.TRITON,
        instruction=instruction.name,
        grid=call.grid,
        threads=(call.num_threads, 1, 1),
        dynamic_shared_bytes=call.shared_bytes,
        code=assemble(call.ptx, architecture),
    )


def _read_ptx(folder: Path) -> Mapping[str, str]:
    texts = (path.read_text() for path in folder.glob("*.ptx"))
    # A file without a kernel holds the program's constants.
    return {name: text for text in texts if (name := kernel_name(text)) is not None}


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise ValueError(f"one file {pattern} expected in XLA's dump, got {[path.name for path in found]}")
    return found[0]
