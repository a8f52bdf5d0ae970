"""What a format of tool calls is, as data: the reader is the same for all of them.

A reader sees an answer as *coded* text: each marker is one character of it. In most vocabularies a marker is a token
without a text of its own, and then the same characters, written as text, are no marker; so what is a marker is settled
once, where tokens are still known (``markers``). The characters for it are halves of surrogate pairs: no text that was
decoded from UTF-8 has them, whatever a model writes.
"""

import re
from dataclasses import dataclass

CODES = "\udc00\udc01\udc02\udc03"  # the first marker of a format is the first of these, and so on
CODE_CLASS = "[\udc00-\udc03]"
MAX_SPACE = 64  # characters of space in one place of a head; more are no call, so that little is ever held


@dataclass(frozen=True)
class ToolCallFormat:
    """One family's form of calls: a marker, a head, a JSON value, and what closes it. Patterns are for coded text.

    Attributes:
        name: for people.
        markers: spellings of the tokens that structure an answer. The first begins a call.
        head: from behind the marker to the JSON value, at whose first character it ends. Its group ``name``, where it
            took part, says that the value is the arguments of that function, with the id in the group ``id``; else the
            value is a call, or a list of calls.
        head_so_far: matches every beginning of a head, and nothing else.
        closing: what belongs to a call behind its value.
        filler: what between and behind calls is no text.
        keys: those that a call has, where another key means that it is none; None: other keys do not matter.
        is_bare: a call may lack the first marker where an answer begins, and behind another call. It must have
            arguments then.
        thought: of the codes, those between which a model thinks before it answers; no call begins there.
    """

    name: str
    markers: tuple[str, ...]
    head: re.Pattern[str]
    head_so_far: re.Pattern[str]
    closing: re.Pattern[str]
    filler: re.Pattern[str]
    keys: frozenset[str] | None = None
    is_bare: bool = False
    thought: tuple[str, str] | None = None
