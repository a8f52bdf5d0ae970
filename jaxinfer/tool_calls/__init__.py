"""Calls of tools in what a model writes: each family has a form of its own for them, learnt in training.

A format is data (``formats``, and a file for each family); ``choice`` finds the format of a model. ``markers`` says
what in an answer is a marker, ``reader`` finds calls between text and text between calls with one ``candidate`` at a
time, and ``detokenizer`` is what the engine has of all that.
What a model writes may be anything: no function here raises for it, and none takes more than linear time.
"""

from jaxinfer.tool_calls.choice import find_format
from jaxinfer.tool_calls.detokenizer import ToolCallDetokenizer
from jaxinfer.tool_calls.formats import ToolCallFormat
from jaxinfer.tool_calls.tools import check_tools

__all__ = ["ToolCallDetokenizer", "ToolCallFormat", "check_tools", "find_format"]
