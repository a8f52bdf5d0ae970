"""Mistral's calls, of all versions of its tokenizers.

Up to v7 a list, ``[TOOL_CALLS] [{"name": "f", "arguments": {...}, "id": "..."}, ...]``; from v11 on each call by
itself, ``[TOOL_CALLS]f[ARGS]{...}``, in v11 with ``[CALL_ID]...`` before the arguments. What comes after the marker
tells which it is.
"""

import re

from jaxinfer.tool_calls.formats import CODE_CLASS, CODES, MAX_SPACE, ToolCallFormat

_SPACE = rf"\s{{0,{MAX_SPACE}}}"
_NAME = rf"(?:(?!{CODE_CLASS})[^\s\[\]{{}}\"])"
_ID = rf"(?:(?!{CODE_CLASS})[^\s\[\]{{}}])"
_ARGS, _CALL_ID = CODES[1], CODES[2]

MISTRAL = ToolCallFormat(
    name="mistral",
    markers=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    head=re.compile(
        rf"{_SPACE}(?:(?=[\[{{])|(?P<name>{_NAME}{{1,256}}){_SPACE}(?:{_CALL_ID}{_SPACE}(?P<id>{_ID}{{0,64}}){_SPACE})?"
        rf"(?:{_ARGS}{_SPACE})?(?=\{{))"
    ),
    head_so_far=re.compile(
        rf"{_SPACE}(?:{_NAME}{{1,256}}{_SPACE}(?:{_CALL_ID}{_SPACE}{_ID}{{0,64}}{_SPACE})?(?:{_ARGS}{_SPACE})?)?"
    ),
    closing=re.compile(""),
    filler=re.compile(r"\s*+"),
)
