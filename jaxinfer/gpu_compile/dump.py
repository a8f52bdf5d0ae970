"""What XLA leaves in its dump folder for one program, put together into kernels and copies."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jaxinfer.gpu_compile import hlo
from jaxinfer.gpu_compile.ptxas import assemble, kernel_name
from jaxinfer.gpu_compile.report import CopyReport, KernelKind, KernelReport
from jaxinfer.gpu_compile.thunks import CONTAINERS, Thunk, parse_instructions, parse_thunks

_MEMSETS = frozenset({"kMemzero", "kMemset32BitValue"})
_PALLAS_TARGET = "__gpu$xla.gpu.triton"


@dataclass(frozen=True, kw_only=True)
class Dump:
    """The dump of one program.

    Attributes:
        thunks: every step, containers too, in order of launch.
        instructions: the HLO instruction of a thunk, by the thunk's id.
        hlo: the instructions of the optimized module by name.
        hlo_text: its text.
        ptx: the PTX of each kernel by name.
    """

    thunks: tuple[Thunk, ...]
    instructions: Mapping[int, str]
    hlo: Mapping[str, hlo.Instruction]
    hlo_text: str
    ptx: Mapping[str, str]

    @property
    def launches(self) -> tuple[Thunk, ...]:
        """The thunks that do something on the device."""
        return tuple(thunk for thunk in self.thunks if thunk.kind not in CONTAINERS)

    @property
    def num_command_buffers(self) -> int:
        """CUDA graphs."""
        return sum(thunk.kind == "kCommandBuffer" for thunk in self.thunks)

    @property
    def num_outside_command_buffers(self) -> int:
        """Launches that are in no CUDA graph."""
        return sum(all(parent.kind != "kCommandBuffer" for parent in thunk.parents) for thunk in self.launches)

    @property
    def num_memsets(self) -> int:
        """Fills with a constant."""
        return sum(thunk.kind in _MEMSETS for thunk in self.launches)

    def copies(self) -> tuple[CopyReport, ...]:
        """The copies, in order of launch."""
        return tuple(self._copy(thunk) for thunk in self.launches if thunk.kind == "kCopy")

    def kernels(self, architecture: str) -> tuple[KernelReport, ...]:
        """The kernels, in order of launch; ``architecture`` is ptxas's name of the GPU."""
        others = _MEMSETS | {"kCopy"}
        return tuple(self._kernel(thunk, architecture) for thunk in self.launches if thunk.kind not in others)

    def _instruction_of(self, thunk: Thunk) -> str:
        # A thunk inside a sliced fusion has no instruction of its own: it is the fusion's.
        found = [self.instructions[step.id] for step in (*thunk.parents, thunk) if step.id in self.instructions]
        return found[-1] if found else ""

    def _copy(self, thunk: Thunk) -> CopyReport:
        instruction = self.hlo[self._instruction_of(thunk)]
        return CopyReport(
            instruction=instruction.name,
            shape=instruction.shape,
            num_bytes=instruction.num_bytes,
            is_slice=any(parent.kind.startswith("kDynamicSlice") for parent in thunk.parents),
        )

    def _kernel(self, thunk: Thunk, architecture: str) -> KernelReport:
        instruction = self._instruction_of(thunk)
        launch = thunk.launch
        if launch is None:
            return KernelReport(
                name=instruction,
                kind=KernelKind.LIBRARY,
                instruction=instruction,
                grid=None,
                threads=None,
                dynamic_shared_bytes=None,
                code=None,
            )
        is_pallas = self.hlo[instruction].call_target == _PALLAS_TARGET
        return KernelReport(
            name=launch.name,
            kind=KernelKind.PALLAS if is_pallas else KernelKind.XLA,
            instruction=instruction,
            grid=launch.grid,
            threads=launch.threads,
            dynamic_shared_bytes=launch.shared_bytes,
            code=assemble(self.ptx[launch.name], architecture),
        )


def read_dump(folder: Path) -> Dump:
    """Read the dump that XLA left in ``folder``, which holds one program.

    Raises:
        ValueError: a file is missing, or the folder holds several programs.
    """
    thunks = _only(folder, "*.thunk_sequence.txt")
    # Written only where the passes changed something, that is, formed a command buffer.
    final = thunks.with_name(thunks.name.replace(".thunk_sequence.", ".thunk_sequence_after_thunk_passes."))
    hlo_text = _only(folder, "*_gpu_after_optimizations.txt").read_text()
    texts = [path.read_text() for path in folder.glob("*.ptx")]
    return Dump(
        thunks=parse_thunks((final if final.is_file() else thunks).read_text()),
        instructions=parse_instructions(_only(folder, "*.thunk_metadata.txt").read_text()),
        hlo=hlo.parse_instructions(hlo_text),
        hlo_text=hlo_text,
        ptx={name: text for text in texts if (name := kernel_name(text))},
    )


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise ValueError(f"one file {pattern} expected in XLA's dump, got {[path.name for path in found]}")
    return found[0]
