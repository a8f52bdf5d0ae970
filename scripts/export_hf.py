"""Write a model in Hugging Face's layout, for engines that read no other one; or a preset with random weights.

    python scripts/export_hf.py MODEL FOLDER [--dtype float32|bfloat16] [--load-format auto|random] [--seed 0]

Weights that the model holds quantized are written as floats. The tokenizer is not written.
"""

import argparse
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from checkpoints.huggingface_writer import write_huggingface
from jaxinfer.loading import open_model


def main() -> None:
    """Read the arguments and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--load-format", choices=["auto", "random"], default="auto")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    model = open_model(given.model, load_format=given.load_format, seed=given.seed)
    weights = ((name, np.asarray(array)) for name, array in model.weights(np.dtype(jnp.dtype(given.dtype)), {}))
    write_huggingface(given.folder, model.config, weights, model.eos_token_ids)


if __name__ == "__main__":
    main()
