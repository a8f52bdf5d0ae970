"""The sample programs that are compiled for every target: each way to draw, for as many rows as an engine has."""

from collections.abc import Iterator
from dataclasses import dataclass

from jaxinfer.config import EngineConfig
from jaxinfer.gpu_compile import GpuTarget, ProgramReport, compile_for
from jaxinfer.programs import Draw
from scripts.gpu_static.forward import Step

_NUM_ROWS = 64


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The sample program of 64 rows for a vocabulary of 32,000.

    Attributes:
        draw: how tokens are drawn.
    """

    draw: Draw

    @property
    def label(self) -> str:
        """What the program is, in a few words."""
        return f"{self.draw.value}, B {_NUM_ROWS}, V 32000"

    def compile(self, target: GpuTarget) -> ProgramReport:
        """What comes out for ``target``."""
        model = Step(model="mistral-7b-v0.1", kernels="pallas", num_layers=1)  # of which only the vocabulary counts
        windows = model.config.group_windows
        limits = EngineConfig(max_model_len=8192, max_num_seqs=_NUM_ROWS, num_kv_pages=1, windows=windows)
        sample, arguments = model.programs(limits).sample_call(self.draw, _NUM_ROWS)
        return compile_for(target, sample, *arguments).report


def samples() -> Iterator[Sample]:
    """All sample programs, in the order of the table."""
    for draw in Draw:
        yield Sample(draw=draw)
