"""Programs compiled side by side: with dozens of kernels, compiling is nearly all that a part does."""

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax

from scripts.on_gpu.settings import Settings

type Compiled = Callable[..., Any]

UNTUNED = {"xla_gpu_autotune_level": 0}
"""For programs that are not timed: XLA's GEMMs are taken as they come, and none is tried out."""


class OutOfTimeError(Exception):
    """The part's time was over before the program was compiled."""


def compile_each[Name](
    programs: Mapping[Name, tuple[Callable[..., Any], tuple[Any, ...]]],
    settings: Settings,
    options: Mapping[str, Any] | None = None,
    donate: tuple[int, ...] = (),
) -> Iterator[tuple[Name, Compiled | Exception]]:
    """Each function compiled for its arguments, or what went wrong: in their order, while others are being compiled.

    Args:
        programs: for each name a function and its arguments, or their shapes.
        settings: with compiler options of their own.
        options: of the compiler, on a GPU.
        donate: arguments that a program may write its results into.
    """
    compiler_options = settings.compiler_options or dict(options or {})

    def compiled(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Compiled | Exception:
        if settings.seconds_left <= 0:
            return OutOfTimeError("no time was left to compile it")
        try:
            jitted = jax.jit(function, compiler_options=compiler_options, donate_argnums=donate)
            return jitted.lower(*arguments).compile()
        except Exception as error:  # whatever a compiler says: one program that fails leaves the others
            return error

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        futures = {name: pool.submit(compiled, *program) for name, program in programs.items()}
        for name, future in futures.items():
            yield name, future.result()


def reason(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
