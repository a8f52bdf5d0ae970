"""Check and time the GPU kernels and the engine on a machine with a GPU, in under eight minutes.

    python scripts/gpu_check.py --out DIR [--parts NAMES] [--seconds 470] [--lengths CSV] [--tiny]

The parts are in ``scripts/on_gpu``. It runs from a checkout, and the project need not be installed, but what it imports
must be there. Correctness and speed of the kernels need jax, NumPy and jaxtyping alone; ``selftest``, ``model`` and
``pytorch`` need all that the project depends on (flax, gguf, safetensors, tokenizers and so on, see
``pyproject.toml``), and without it fail with the name of what is missing.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from scripts.on_gpu.check import main

    sys.exit(main())
