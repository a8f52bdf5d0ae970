"""What runs after the forward pass, compiled for every target: each way to draw, and what only some requests want."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from jaxinfer.config import EngineConfig
from jaxinfer.gpu_compile import GpuTarget, ProgramReport, compile_for
from jaxinfer.programs import Draw, Programs
from scripts.gpu_static.forward import Step

NUM_ROWS = 64

Call = Callable[[Programs], tuple[Any, tuple[Any, ...]]]
"""Of a program before it is compiled: the jitted function, and the shapes of its arguments."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A program of 64 rows, or of a tile of 64 prompt tokens, for a vocabulary of 32,000.

    Attributes:
        name: what it does.
        call: of it.
    """

    name: str
    call: Call

    @property
    def label(self) -> str:
        """What the program is, in a few words."""
        return f"{self.name}, B {NUM_ROWS}, V 32000"

    def compile(self, target: GpuTarget) -> ProgramReport:
        """What comes out for ``target``."""
        model = Step(model="mistral-7b-v0.1", kernels="pallas", num_layers=1)  # of which vocabulary and head count
        windows = model.config.group_windows
        limits = EngineConfig(max_model_len=8192, max_num_seqs=NUM_ROWS, num_kv_pages=1, windows=windows)
        program, arguments = self.call(model.programs(limits))
        return compile_for(target, program, *arguments).report


def samples() -> Iterator[Sample]:
    """All of them, in the order of the table."""
    for draw in Draw:
        yield Sample(name=draw.value, call=partial(Programs.sample_call, draw=draw, b=NUM_ROWS))
    yield Sample(name="forbid", call=partial(Programs.forbid_call, b=NUM_ROWS))
    yield Sample(name="adjust", call=partial(Programs.adjust_call, b=NUM_ROWS))
    yield Sample(name="set slot", call=Programs.set_slot_call)
    yield Sample(name="rank", call=partial(Programs.rank_call, b=NUM_ROWS))
    yield Sample(name="score", call=Programs.score_call)
