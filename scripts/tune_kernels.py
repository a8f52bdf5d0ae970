"""Find the fastest tile sizes of the GPU kernels on this machine's GPU, and write them into the tables of the package.

    python scripts/tune_kernels.py [--operations NAMES] [--models NAMES] [--rows ROWS] [--seconds 500] [--out DIR]

A second run goes on where the first one ended. It runs from a checkout, and the project need not be installed: it needs
jax, NumPy and jaxtyping, and flax to know the rows of an engine's programs, unless ``--rows`` says which.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from scripts.on_gpu.signals import end_at_once

    end_at_once("interrupted; the tables have what was tuned until now")  # importing jax takes seconds already
    from scripts.on_gpu.tune import main

    sys.exit(main())
