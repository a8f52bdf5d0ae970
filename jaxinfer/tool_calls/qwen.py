"""The calls of Qwen2.5, Qwen3 and Hermes: ``<tool_call>``, ``{"name": "f", "arguments": {...}}``, ``</tool_call>``.

Each of the three stands on a line of its own, for every call anew. Text may come before the first and, against all
training, between calls and behind them; it stays text. The end marker is forgotten at times.
"""

import re

from jaxinfer.tool_calls.formats import CODES, MAX_SPACE, ToolCallFormat

QWEN = ToolCallFormat(
    name="qwen",
    markers=("<tool_call>", "</tool_call>", "<think>", "</think>"),
    head=re.compile(rf"\s{{0,{MAX_SPACE}}}+(?=\{{)"),
    head_so_far=re.compile(rf"\s{{0,{MAX_SPACE}}}"),
    closing=re.compile(rf"\s*+{CODES[1]}"),
    filler=re.compile(r"\s*+"),
    thought=(CODES[2], CODES[3]),
)
