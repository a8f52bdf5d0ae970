"""Greedy continuation by transformers, with how near each choice was to falling otherwise."""

import numpy as np
import torch

from reference.fixture import require


@torch.inference_mode()
def greedy(model: torch.nn.Module, prompt_ids: list[int], num_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """The most likely continuation of ``prompt_ids``; it does not stop at EOS.

    Tokens are chosen one by one over the model's cache, and one pass over the whole text must choose the same.

    Returns:
        ids, int32 [num_tokens]; and float32 [num_tokens], by how much the chosen logit is above the second.
    """
    ids = list(prompt_ids)
    step = model(torch.tensor([ids]), use_cache=True)
    for _ in range(num_tokens):
        ids.append(int(step.logits[0, -1].argmax()))
        step = model(torch.tensor([ids[-1:]]), cache=step.cache, use_cache=True)
    logits = model(torch.tensor([ids[:-1]])).logits[0, len(prompt_ids) - 1 :]
    best = logits.topk(2)
    chosen = ids[len(prompt_ids) :]
    require(best.indices[:, 0].tolist() == chosen, "a pass over the whole text chooses the tokens of the decode steps")
    return np.array(chosen, np.int32), (best.values[:, 0] - best.values[:, 1]).numpy()
