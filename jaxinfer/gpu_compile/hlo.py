"""The little that is asked of optimized HLO: what an instruction is, how large its result, and whether it only copies.

An instruction is a line of text::

    %fusion.1 = bf16[10,1024]{1,0} fusion(%c, %x), kind=kLoop, calls=%fused_computation.1

and the computation that a fusion calls is a block of such lines before it. Names are unique in a module.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

_COMPUTATION = re.compile(r"^(?:ENTRY )?%(?P<name>\S+) \(.*\{$")
_INSTRUCTION = re.compile(
    r"^\s+(?P<root>ROOT )?%(?P<name>\S+) = (?P<shape>\(.*?\)|\S+) (?P<opcode>[a-z][a-z0-9-]*)"
    r"\((?P<operands>[^)]*)\)(?P<rest>.*)$"
)
_LAYOUT = re.compile(r"\{[^}]*\}")
_COMMENT = re.compile(r"/\*.*?\*/")
_ARRAY = re.compile(r"\b(?:pred|[a-z]+(?P<bits>\d+)\w*)\[(?P<dims>[\d,]*)\]")
_OPERAND = re.compile(r"%([^\s,#]+)")
_CALLS = re.compile(r"\bcalls=%([^\s,]+)")
_BACKEND_CONFIG = re.compile(r"\bbackend_config=(.*)$")
_CALL_TARGET = re.compile(r'\bcustom_call_target="([^"]*)"')

_MOVES = frozenset(
    {
        "bitcast",
        "concatenate",
        "constant",
        "copy",
        "dynamic-slice",
        "dynamic-update-slice",
        "get-tuple-element",
        "pad",
        "parameter",
        "reshape",
        "reverse",
        "slice",
        "transpose",
        "tuple",
    }
)
"""Opcodes that write what they read, elsewhere or in another order."""


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One instruction.

    Attributes:
        name: without the percent sign.
        opcode: "copy", "fusion", "custom-call".
        shape: of the result, without the layout: "bf16[10,1024]", "(s32[], bf16[2,3])".
        operands: names of what it reads.
        call_target: of a custom call; else empty.
        backend_config: what a custom call is told beside its operands, as HLO prints it; else empty.
        calls: the computation that a fusion calls; else empty.
        computation: the computation that it stands in.
        is_root: it yields the result of that computation.
    """

    name: str
    opcode: str
    shape: str
    operands: tuple[str, ...]
    call_target: str
    backend_config: str
    calls: str
    computation: str
    is_root: bool

    @property
    def is_scalar(self) -> bool:
        """Whether its result is a single number."""
        return self.shape.endswith("[]")

    @property
    def num_bytes(self) -> int:
        """Bytes of the arrays in ``shape``."""
        return sum(
            -(-int(array["bits"] or 8) * prod(int(size) for size in array["dims"].split(",") if size) // 8)
            for array in _ARRAY.finditer(self.shape)
        )


class Module:
    """The instructions of an HLO module by name.

    Args:
        text: the module as XLA prints it.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._instructions: dict[str, Instruction] = {}
        self._computations: dict[str, list[Instruction]] = {}
        for instruction in _instructions(text):
            self._instructions[instruction.name] = instruction
            self._computations.setdefault(instruction.computation, []).append(instruction)

    def __getitem__(self, name: str) -> Instruction:
        return self._instructions[name]

    def body(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """What ``instruction`` is made of: the instructions of the fusion, else itself alone."""
        if instruction.opcode != "fusion":
            return (instruction,)
        return tuple(self._computations[instruction.calls])

    def only_copies(self, instruction: Instruction) -> bool:
        """Whether ``instruction`` is a copy, or a fusion that yields arrays and computes scalars at most: places."""
        if instruction.opcode != "fusion":
            return instruction.opcode == "copy"
        body = self.body(instruction)
        return not instruction.is_scalar and all(each.opcode in _MOVES or each.is_scalar for each in body)

    def written(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """The instructions whose results ``instruction`` writes to memory, one for each of its arrays.

        Where a fusion ends with an update of a slice, the array stays in place and only the slice is written.
        """
        if instruction.opcode != "fusion":
            return (instruction,)
        root = next(each for each in self.body(instruction) if each.is_root)
        results = [self[name] for name in root.operands] if root.opcode == "tuple" else [root]
        return tuple(self._updated(result) for result in results)

    def _updated(self, result: Instruction) -> Instruction:
        source = result
        while source.opcode == "bitcast":
            source = self[source.operands[0]]
        return self[source.operands[1]] if source.opcode == "dynamic-update-slice" else result


def _instructions(text: str) -> Iterator[Instruction]:
    computation = ""
    for line in text.splitlines():
        if start := _COMPUTATION.match(line):
            computation = start["name"]
        elif match := _INSTRUCTION.match(_COMMENT.sub("", line)):
            is_custom_call = match["opcode"] == "custom-call"
            yield Instruction(
                name=match["name"],
                opcode=match["opcode"],
                shape=_LAYOUT.sub("", match["shape"]),
                operands=tuple(_OPERAND.findall(match["operands"])),
                call_target=_first(_CALL_TARGET, match["rest"]) if is_custom_call else "",
                # Of the whole line: what looks like a comment may stand in there.
                backend_config=_first(_BACKEND_CONFIG, line) if is_custom_call else "",
                calls=_first(_CALLS, match["rest"]) if match["opcode"] == "fusion" else "",
                computation=computation,
                is_root=match["root"] is not None,
            )


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""
