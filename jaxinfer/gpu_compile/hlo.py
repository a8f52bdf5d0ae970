"""The little that is asked of optimized HLO text: what an instruction is and how large the array that it yields."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

_INSTRUCTION = re.compile(
    r"^\s+(?:ROOT )?%(?P<name>\S+) = (?P<shape>\([^=]*?\)|\S+) (?P<opcode>[a-z][a-z0-9-]*)\((?P<rest>.*)$"
)
_ARRAY = re.compile(r"\b(?:pred|[a-z]+(?P<bits>\d+)\w*)\[(?P<dims>[\d,]*)\]")
_CALL_TARGET = re.compile(r'custom_call_target="([^"]*)"')


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One instruction.

    Attributes:
        name: without the percent sign.
        opcode: "copy", "fusion", "custom-call".
        shape: of the result, without the layout: "bf16[10,1024]", "(s32[], bf16[2,3])".
        call_target: of a custom call; else empty.
    """

    name: str
    opcode: str
    shape: str
    call_target: str

    @property
    def num_bytes(self) -> int:
        """Bytes of the arrays in ``shape``."""
        return sum(_array_bytes(int(match["bits"] or 8), match["dims"]) for match in _ARRAY.finditer(self.shape))


def parse_instructions(text: str) -> Mapping[str, Instruction]:
    """All instructions of an HLO module by name, those inside of fusions and loops too."""
    found = {}
    for match in filter(None, map(_INSTRUCTION.match, text.splitlines())):
        target = _CALL_TARGET.search(match["rest"]) if match["opcode"] == "custom-call" else None
        found[match["name"]] = Instruction(
            name=match["name"],
            opcode=match["opcode"],
            shape=re.sub(r"\{[^}]*\}", "", match["shape"]),
            call_target=target[1] if target else "",
        )
    return found


def _array_bytes(bits: int, dims: str) -> int:
    return -(-bits * prod(int(size) for size in dims.split(",") if size) // 8)
