"""What is measured on the day when there is a GPU: ``scripts/gpu_check.py`` and ``scripts/tune_kernels.py``.

A part is a generator of rows, in a module of its own. It runs in a process of its own, which gives back the device's
memory and whose crash or hang costs no more than itself; each row is on the disk before the next one is measured.
"""
