"""Random weights whose model is worth comparing: zero-mean, attention that chooses, logits that spread.

The initialisation of transformers (std 0.02) gives nearly uniform attention and logits near zero, with which a wrong
window or a wrong head passes any tolerance. Values come from NumPy, so that they do not depend on torch's version.
"""

import numpy as np
import torch

_GAINS = {"q_proj": 1.5, "k_proj": 1.5, "lm_head": 2.0}
"""Standard deviation of a product's outputs for inputs of variance 1, where it is not 1."""


def fill_with_random_weights(model: torch.nn.Module, seed: int, embedding_std: float = 1.0) -> None:
    """Set every parameter of ``model`` in place, in the order of their names.

    Matrices [out, in] are normal with std gain / sqrt(in), the embedding is normal with ``embedding_std``, biases are
    normal with std 0.5, and norms are 1 with a spread of 0.1, so that one left out or taken from another layer shows.
    """
    random = np.random.default_rng(seed)
    for name, parameter in sorted(model.named_parameters()):
        values = random.standard_normal(parameter.shape)
        if "norm" in name:
            values = 1 + 0.1 * values
        elif name.endswith("bias"):
            values *= 0.5
        elif "embed_tokens" in name:
            values *= embedding_std
        else:
            values *= _GAINS.get(name.split(".")[-2], 1.0) / np.sqrt(parameter.shape[-1])
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(values))
