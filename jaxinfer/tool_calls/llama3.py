"""The calls of Llama 3.1 and later: ``{"name": "f", "parameters": {...}}``, several with ``;`` between them.

They come after ``<|python_tag|>``, or as the beginning of an answer. An object there with other keys than a call's is
the JSON that the user asked for, and what else comes after the tag is Python; both are text.
"""

import re

from jaxinfer.tool_calls.formats import MAX_SPACE, ToolCallFormat

LLAMA3 = ToolCallFormat(
    name="llama3",
    markers=("<|python_tag|>",),
    head=re.compile(rf"\s{{0,{MAX_SPACE}}}+(?=\{{)"),
    head_so_far=re.compile(rf"\s{{0,{MAX_SPACE}}}"),
    closing=re.compile(""),
    filler=re.compile(r"[\s;]*+"),
    keys=frozenset(("type", "name", "parameters", "arguments", "id")),
    is_bare=True,
)
