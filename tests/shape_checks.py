"""Shapes in annotations, checked at run time; the rest of a type is mypy's business.

beartype alone would refuse ``temperature=0`` where a float is declared, and would stop bad input before the code that
must answer it with a ValueError. So a function keeps only the annotations in which an array with a shape appears.
"""

from collections.abc import Callable
from typing import TypeAliasType, get_args

from beartype import beartype
from jaxtyping import AbstractArray, install_import_hook

PACKAGES = ["jaxinfer", "pallas_kernels", "checkpoints"]


def install() -> None:
    """Check every function and dataclass of the project that is imported from now on."""
    install_import_hook(PACKAGES, f"{__name__}.check_shapes")


def check_shapes[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """``function``, which checks the shapes and kinds of its arrays when it is called, and nothing else."""
    hints = function.__annotations__
    function.__annotations__ = {name: hint for name, hint in hints.items() if _holds_array(hint)}
    return beartype(function)


def _holds_array(hint: object) -> bool:
    if isinstance(hint, TypeAliasType):
        return _holds_array(hint.__value__)
    is_array = isinstance(hint, type) and issubclass(hint, AbstractArray)
    return is_array or any(_holds_array(part) for part in get_args(hint))
