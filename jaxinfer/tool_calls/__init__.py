"""Calls of tools in what a model writes: each family has a form of its own for them, learnt in training.

A format says by data and two functions how such a call begins in a growing answer and how a whole one is read
(``formats``, one file each); ``choice`` finds the format of a model, and ``detokenizer`` keeps calls out of the text.
What a model writes may be anything: no function here raises for it, and none takes more than linear time.
"""

from jaxinfer.tool_calls.choice import find_format
from jaxinfer.tool_calls.detokenizer import ToolCallDetokenizer
from jaxinfer.tool_calls.formats import ToolCallFormat
from jaxinfer.tool_calls.tools import check_tools

__all__ = ["ToolCallDetokenizer", "ToolCallFormat", "check_tools", "find_format"]
