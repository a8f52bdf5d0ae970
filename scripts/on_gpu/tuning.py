"""Which tile sizes are fastest for a problem: every candidate is checked, then timed, on this device."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from pallas_kernels.device import Device
from scripts.on_gpu.compiling import Compiled, OutOfTimeError, compile_each, reason
from scripts.on_gpu.settings import Settings

_TINY_CANDIDATES = 2


class Tunable[P, C](Protocol):
    """One problem of an operation."""

    @property
    def problem(self) -> P:
        """As it stands in the operation's table."""
        ...

    @property
    def donated(self) -> tuple[int, ...]:
        """Arguments of its programs that are written in place."""
        ...

    def candidates(self, device: Device) -> list[C]:
        """What is tried, the rule of thumb first."""
        ...

    def limit(self, config: C) -> float:
        """The largest error with which a candidate is right."""
        ...

    def shapes(self, settings: Settings) -> tuple[Any, ...]:
        """The arguments of its programs, as shapes."""
        ...

    def program(self, config: C) -> Callable[..., Any]:
        """Many launches with this config."""
        ...

    def bench(self, settings: Settings) -> "Bench":
        """Its arrays, and the right results."""
        ...


class Bench(Protocol):
    """Arrays to run programs of one problem on."""

    def error(self, program: Compiled) -> float:
        """How far its results are from the definition."""
        ...

    def seconds(self, program: Compiled, settings: Settings) -> float:
        """Of one launch."""
        ...


@dataclass
class Outcome[C]:
    """What came of the candidates of a problem.

    Attributes:
        rule: the rule of thumb.
        seconds: of a launch, for each candidate that is right.
        dropped: the others, and why.
    """

    rule: C
    seconds: dict[C, float] = field(default_factory=dict)
    dropped: dict[C, str] = field(default_factory=dict)

    @property
    def best(self) -> C | None:
        """The fastest; None where none is right."""
        return min(self.seconds, key=lambda config: self.seconds[config], default=None)

    @property
    def gain(self) -> float | None:
        """How many times as fast as the rule of thumb; None where that is not right itself."""
        return self.seconds[self.rule] / min(self.seconds.values()) if self.rule in self.seconds else None


class DeviceLostError(RuntimeError):
    """A candidate left the device in a state in which nothing runs any more."""


def tune[P, C](case: Tunable[P, C], device: Device, settings: Settings) -> Outcome[C]:
    """Try all candidates of a problem.

    Args:
        case: the problem.
        device: what it is tuned for.
        settings: with the time that is left.

    Raises:
        OutOfTimeError: the time was over before every candidate was tried.
        DeviceLostError: the message names the candidate.
    """
    candidates, shapes = list(dict.fromkeys(case.candidates(device))), case.shapes(settings)
    if settings.tiny:
        del candidates[_TINY_CANDIDATES:]
    programs = {config: (case.program(config), shapes) for config in candidates}
    compiled: Mapping[C, Compiled | Exception] = dict(compile_each(programs, settings, donate=case.donated))
    outcome, bench = Outcome(rule=candidates[0]), case.bench(settings)
    for config, program in compiled.items():
        if settings.seconds_left <= 0 or isinstance(program, OutOfTimeError):
            raise OutOfTimeError
        try:
            if isinstance(program, Exception):
                raise program
            error = bench.error(program)
            if error <= case.limit(config):
                outcome.seconds[config] = bench.seconds(program, settings)
            else:
                outcome.dropped[config] = f"wrong by {error:.2g}"
        except Exception as fault:  # of this candidate: too much shared memory, say
            outcome.dropped[config] = reason(fault)
            _check_alive(case.problem, config)
    return outcome


def _check_alive(problem: object, config: object) -> None:
    try:
        jax.block_until_ready(jnp.zeros(1) + 1)
    except Exception as fault:
        raise DeviceLostError(f"nothing runs any more after {config} of {problem}: {reason(fault)}") from fault
