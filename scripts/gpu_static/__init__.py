"""The tables of ``docs/gpu-static.md``: what the GPU programs need, by compiling them for GPUs that are not there.

``make gpu-static`` writes them; the tests in ``tests/gpu_compile`` hold the same programs to their limits.
"""
