"""Writes a conversation as the text that a model was trained on, by the model's own jinja template.

A template is a program from a stranger's file, so it runs in jinja's immutable sandbox (no files, no imports, no
attributes that begin with an underscore, no changes to what it is given), knows only the filters, functions and methods
that models' templates use (``allowed``), and ends within bounds (``budget``):

- its source, which bounds what compiling it takes;
- time, asked for at every step: rounds of loops, items that a filter goes through, calls (recursive macros included),
  filters, operators, comparisons, outputs; the number of steps is not bounded, since it grows with the conversation;
- the weight of every value on the way: characters, and items through all levels of nesting, so that one that is small
  in memory but endless when written out cannot be made; digits of whole numbers; and the sum of all that is built.

Not bounded: time and memory of a single step. It is not interrupted, but what it works on has passed these bounds and
what may multiply it is checked before: it takes about a second at worst, and a few hundred megabytes. Nor is the
process protected from a fault in Python itself. Where Python says that memory or depth is out, that is an error of the
template like any other.
"""

from jaxinfer.chat_template.rendering import render_chat

__all__ = ["render_chat"]
