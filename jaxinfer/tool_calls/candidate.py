"""What may be a call: from the marker on, until it is one or can be none."""

from collections.abc import Callable
from dataclasses import dataclass
from re import Match

from jaxinfer.outputs import ToolCall
from jaxinfer.tool_calls.formats import ToolCallFormat
from jaxinfer.tool_calls.json_calls import make_call, read_call
from jaxinfer.tool_calls.json_scan import JsonScan


@dataclass(frozen=True)
class Reading:
    """What a candidate turned out to be; ``written``, ``leftover`` and ``rest`` are coded text.

    Attributes:
        calls: those that are whole, in their order; maybe none.
        written: all that the candidate was made of up to the end of its last call.
        leftover: of ``written`` what is of no call, such as the broken items of a list.
        rest: what comes behind ``written``, to be searched anew.
    """

    calls: list[ToolCall]
    written: str
    leftover: str
    rest: str


class Candidate:
    """Takes coded text from behind the marker on. No character is looked at more than a few times."""

    def __init__(self, tool_format: ToolCallFormat, lead: str, *, is_marked: bool) -> None:
        """``lead``: what comes before and goes with it: a newline, the marker where ``is_marked``."""
        self.lead = lead
        self._is_marked = is_marked
        self._format = tool_format
        self._head_text = ""
        self._head: Match[str] | None = None
        self._scan = JsonScan(tool_format.keys)
        self._body: list[str] = []
        self._body_len = 0
        self._value_end: int | None = None

    def push(self, text: str) -> bool:
        """Whether it is decided with this text: it is over, or can be no call."""
        if self._head is not None:
            return self._push_body(text)
        self._head_text += text  # a head is short
        head = self._format.head.match(self._head_text)
        if head is None:
            return self._format.head_so_far.fullmatch(self._head_text) is None
        self._head, behind = head, self._head_text[head.end() :]
        self._head_text = head[0]
        return self._push_body(behind)

    def _push_body(self, text: str) -> bool:
        end = self._scan.push(text)
        if end is not None:
            self._value_end = self._body_len + end
        self._body.append(text)
        self._body_len += len(text)
        return end is not None or self._scan.has_failed

    def read(self, spelled: Callable[[str], str], taken_ids: set[str]) -> Reading:
        """What it is with the text that it has; ``spelled`` spells the markers inside of strings.

        ``taken_ids`` are those of earlier calls; the new ones are added.
        A list that is not whole has the calls that are; all else that is not whole has none.
        """
        body = "".join(self._body)
        if self._head is not None and self._head.groupdict().get("name"):
            return self._read_named(self._head, body, spelled, taken_ids)
        before = self.lead + self._head_text
        calls: list[ToolCall] = []
        leftover, end = [before], 0
        for start, stop in self._scan.objects if self._may_have_calls() else []:
            call = read_call(spelled(body[start:stop]), taken_ids)
            if call is not None:
                calls.append(call)
                leftover.append(body[end:start])
                end = stop
        if not calls:
            return self._no_call(body)
        if self._value_end is not None:
            leftover.append(body[end : self._value_end])
            end = self._value_end
        return Reading(calls, before + body[:end], "".join(leftover), body[end:])

    def _may_have_calls(self) -> bool:
        """Without the marker, an object with a name alone is more likely the JSON that a user asked for."""
        return self._is_marked or not {"arguments", "parameters"}.isdisjoint(self._scan.own_keys)

    def _read_named(self, head: Match[str], body: str, spelled: Callable[[str], str], taken_ids: set[str]) -> Reading:
        if self._value_end is None:
            return self._no_call(body)
        end = self._value_end
        call = make_call(head["name"], spelled(body[:end]), head["id"], taken_ids)
        if call is None:
            return self._no_call(body)
        return Reading([call], self.lead + self._head_text + body[:end], "", body[end:])

    def _no_call(self, body: str) -> Reading:
        return Reading([], self.lead, self.lead, self._head_text + body)
