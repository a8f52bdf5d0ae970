"""The measured tables of ``docs/memory.md``: what the host decides about pages, counted while the real scheduler runs.

No model runs. The clock is the step: how long one takes is another question, and a device's.
"""
