"""Shapes in annotations, checked at run time; the rest of a type is mypy's business.

beartype alone would refuse ``temperature=0`` where a float is declared, and would stop bad input before the code that
must answer it with a ValueError. So a function keeps only the annotations in which an array with a shape appears.
"""

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from typing import Annotated, Any, TypeAliasType, get_args

import jax
import numpy as np
from beartype import beartype
from beartype.vale import Is
from jaxtyping import AbstractArray, install_import_hook

PACKAGES = ["jaxinfer", "pallas_kernels", "checkpoints"]

_UNCHECKED = (
    # Triton compiles the functions as they are written, so nothing may be wrapped around them.
    "pallas_kernels.quantized_matmul.jax_triton_gpu.kernel",
    # These have no arrays, and tests call them millions of times, each call twenty times as slow if it is wrapped.
    *(f"jaxinfer.{name}" for name in ("admission", "batch", "kv_pages", "page_allocator", "page_hashes", "request")),
    "jaxinfer.scheduler",
    "jaxinfer.gguf_header",
)
"""Modules in which nothing is checked."""

_NO_ARRAY = Annotated[Any, Is[lambda part: not isinstance(part, jax.Array | np.ndarray)]]


def install() -> None:
    """Check every function and dataclass of the project that is imported from now on."""
    install_import_hook(PACKAGES, f"{__name__}.check_shapes")
    sys.meta_path.insert(0, _AsWritten)


class _AsWritten:
    """Finds the modules that stay unchecked, before the hook does."""

    @staticmethod
    def find_spec(name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path) if name in _UNCHECKED else None


def check_shapes[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """``function``, which checks the shapes and kinds of its arrays when it is called, and nothing else."""
    hints = {name: hint for name, hint in function.__annotations__.items() if _holds_array(hint)}
    if function.__name__ == "__init__":  # jax also makes dataclasses that are pytrees of shapes, indices or numbers
        hints = {name: hint | _NO_ARRAY for name, hint in hints.items()}
    function.__annotations__ = hints
    return beartype(function)


def _holds_array(hint: object) -> bool:
    if isinstance(hint, TypeAliasType):
        return _holds_array(hint.__value__)
    is_array = isinstance(hint, type) and issubclass(hint, AbstractArray)
    return is_array or any(_holds_array(part) for part in get_args(hint))
