"""What a part is told: how large its cases are, and until when it may go on."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a part runs.

    Attributes:
        seconds: what a part may take, from the moment when this is made. It ends by itself a little earlier: what is
            cut off from outside loses the row under way.
        tiny: tiny shapes and few repetitions, for a CPU, where the kernels are interpreted.
        lengths: a CSV file of ``prompt_tokens,output_tokens``, for the part that serves requests.
    """

    seconds: float
    tiny: bool = False
    lengths: Path | None = None
    _begin: float = field(default_factory=time.monotonic)

    @property
    def seconds_left(self) -> float:
        """Until the part should have ended by itself."""
        return 0.9 * self.seconds - (time.monotonic() - self._begin)

    @property
    def compiler_options(self) -> dict[str, Any]:
        """For programs with kernels in them: an interpreted kernel takes long to compile and nothing to run."""
        return {"xla_backend_optimization_level": 0} if self.tiny else {}
