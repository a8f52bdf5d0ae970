"""XLA's list of launches, read from its dump.

A thunk is a step of the compiled program: a kernel, a copy, a library call, or a container of others (a loop, a
command buffer). XLA prints them as an indented list, one a line, and says in a second file which HLO instruction each
comes from::

    000: kCommandBuffer [source | sink]
        002: kCustomKernel [source | sink] my_kernel grid: [4, 2, 1] threads: [256, 1, 1]  shared_memory: 0 bytes
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_CONTAINERS = frozenset(
    {
        "kAsyncDone",
        "kAsyncStart",
        "kCommandBuffer",
        "kConditional",
        "kDynamicSlice",
        "kDynamicSliceFusion",
        "kSequential",
        "kWhile",
    }
)

_LINE = re.compile(r"^(?P<indent> *)(?P<id>\d+): (?P<kind>k\w+)\s*\[[^\]]*\](?P<rest>.*)$")
_LAUNCH = re.compile(
    r"(?P<name>\S+) grid: \[(?P<grid>[\d, ]+)\] threads: \[(?P<threads>[\d, ]+)\]"
    r"\s+shared_memory: (?P<shared>\d+) bytes"
)
_METADATA = re.compile(r'profile_annotation: "(?P<instruction>[^"]*)"\s+thunk_id: (?P<id>\d+)')


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How a kernel is launched: its name, the grid and the block in x, y and z, and dynamic shared memory in bytes."""

    name: str
    grid: tuple[int, int, int]
    threads: tuple[int, int, int]
    shared_bytes: int


@dataclass(frozen=True, kw_only=True)
class Thunk:
    """One line of the list.

    Attributes:
        id: XLA's number of it, by which the metadata names it.
        kind: XLA's word, "kCustomKernel".
        launch: of a kernel that XLA compiled; None for the others.
        parents: the thunks that contain it, the outermost first.
    """

    id: int
    kind: str
    launch: Launch | None
    parents: tuple["Thunk", ...]

    @property
    def is_container(self) -> bool:
        """Whether it launches nothing itself."""
        return self.kind in _CONTAINERS

    @property
    def is_command_buffer(self) -> bool:
        """Whether it is a CUDA graph."""
        return self.kind == "kCommandBuffer"


def parse_thunks(text: str) -> tuple[Thunk, ...]:
    """The thunks of a ``thunk_sequence`` file, containers too, in the order of launch.

    Lines that are no thunk ("condition:", "body:") are passed over: their thunks are those that follow.
    """
    return tuple(_thunks(text))


def parse_instruction_names(text: str) -> Mapping[int, str]:
    """From a thunk's id to the name of the HLO instruction that it comes from, as a ``thunk_metadata`` file tells.

    Command buffers, which all have id 0, and the parts of a fusion of a slice have no entry.
    """
    return {int(match["id"]): match["instruction"] for match in _METADATA.finditer(text)}


def _thunks(text: str) -> Iterator[Thunk]:
    open_thunks: list[tuple[int, Thunk]] = []
    for match in filter(None, map(_LINE.match, text.splitlines())):
        indent = len(match["indent"])
        while open_thunks and open_thunks[-1][0] >= indent:
            open_thunks.pop()
        thunk = Thunk(
            id=int(match["id"]),
            kind=match["kind"],
            launch=_parse_launch(match["rest"]),
            parents=tuple(parent for _, parent in open_thunks),
        )
        open_thunks.append((indent, thunk))
        yield thunk


def _parse_launch(text: str) -> Launch | None:
    match = _LAUNCH.search(text)
    if match is None:
        return None
    return Launch(
        name=match["name"],
        grid=_three(match["grid"]),
        threads=_three(match["threads"]),
        shared_bytes=int(match["shared"]),
    )


def _three(text: str) -> tuple[int, int, int]:
    x, y, z = map(int, text.split(","))
    return x, y, z
