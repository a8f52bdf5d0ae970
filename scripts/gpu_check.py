"""Check and time the GPU kernels and the engine on a machine with a GPU, in under eight minutes.

    python scripts/gpu_check.py --out DIR [--parts NAMES] [--seconds 450] [--lengths CSV] [--tiny]

The parts are in ``scripts/on_gpu``. It needs a checkout and jax; the package need not be installed.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from scripts.on_gpu.check import main

    sys.exit(main())
