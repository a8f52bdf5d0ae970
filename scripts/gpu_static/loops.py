"""The main loop of a kernel in its PTX, and what it spends on a weight: text in, numbers out.

A GPU that streams a quantized matrix has a budget: instructions it can issue over weights that its memory delivers,
about 5 on an A100 or H100 and 15 on an A10 for INT4. PTX is not what runs; the assembler drops moves of constants, for
one. But it is the same text for whoever wrote the kernel, so kernels can be compared by it, and it is there without
a GPU.
"""

import re
from collections import Counter
from collections.abc import Iterator

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# Lines that tell a debugger or the assembler something; they end without a semicolon.
_BARE_DIRECTIVE = re.compile(r"^[ \t]*\.[^;\n]*$", re.MULTILINE)
_LABEL = re.compile(r"^\s*([$%\w]+):(?!:)", re.MULTILINE)
_PREDICATE = re.compile(r"^@!?%?\w+\s+")
_BRANCH = re.compile(r"^bra(?:\.uni)?\s+([$%\w]+)$")
_PRODUCTS = ("mma.", "wgmma.mma_async")


def instructions_per_weight(ptx: str, *, num_threads: int, weights_per_round: int) -> float:
    """PTX instructions that the threads of a block issue in the main loop for each weight.

    One thread's instructions of one round, the branch back included, times the threads, over the weights.

    Args:
        ptx: of one kernel.
        num_threads: of a block.
        weights_per_round: elements of the matrix that a block takes in one round of that loop: outputs of its tile
            (gates and what they gate both) times inputs of a round.

    Raises:
        ValueError: the kernel has no loop with a product.
    """
    return len(main_loop(ptx)) * num_threads / weights_per_round


def operations(instructions: tuple[str, ...]) -> Counter[str]:
    """How often each operation occurs, by its name with all suffixes: ``cp.async.cg.shared.global``."""
    return Counter(_PREDICATE.sub("", each).split()[0] for each in instructions)


def main_loop(ptx: str) -> tuple[str, ...]:
    """The instructions of one round: of the longest loop that multiplies tiles and has no other such loop inside.

    Labels, declarations and braces are no instructions; those of inline assembly are.

    Raises:
        ValueError: the kernel has no loop with a product.
    """
    loops = [loop for loop in _loops(_statements(ptx)) if any(_multiplies(each) for each in loop)]
    innermost = [loop for loop in loops if not any(_is_part(other, loop) for other in loops)]
    if not innermost:
        raise ValueError("the kernel has no loop with a product of tiles (mma or wgmma)")
    return max(innermost, key=len)


def _statements(ptx: str) -> list[str]:
    """Instructions and labels ("name:") in order."""
    text = _BARE_DIRECTIVE.sub("", _COMMENT.sub("", ptx))
    parts = (" ".join(part.split()).lstrip("{}() ") for part in _LABEL.sub(r"\1:;", text).split(";"))
    return [part for part in parts if part and not part.startswith(".")]


def _loops(statements: list[str]) -> Iterator[tuple[str, ...]]:
    """From each label to a branch back to it."""
    places = {each[:-1]: place for place, each in enumerate(statements) if each.endswith(":")}
    for end, each in enumerate(statements):
        branch = _BRANCH.match(_PREDICATE.sub("", each))
        if branch and places.get(branch[1], end) < end:
            yield tuple(each for each in statements[places[branch[1]] : end + 1] if not each.endswith(":"))


def _multiplies(instruction: str) -> bool:
    return _PREDICATE.sub("", instruction).startswith(_PRODUCTS)


def _is_part(inner: tuple[str, ...], outer: tuple[str, ...]) -> bool:
    size = len(inner)
    return size < len(outer) and any(outer[start : start + size] == inner for start in range(len(outer) - size + 1))
