"""Log-probabilities of real text in windows, as the guide of transformers to the perplexity of models of fixed length.

https://huggingface.co/docs/transformers/perplexity: each window is a text of its own, and the model's loss is that of
the tokens which no window before has scored. Kept are the log-probabilities of all tokens, so that a test sees where
it differs, once their mean in each window is the loss that transformers computes itself.
"""

from collections.abc import Iterator

import numpy as np
import sentencepiece
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from reference.fixture import Array, Sources, require, write_reference
from reference.smollm2_tokenizer import load_tokenizer

NUM_TOKENS = 2048
WINDOW = 512
STRIDES = (512, 256)
_NOT_SCORED = -100  # what transformers leaves out of its loss


def make(sources: Sources) -> None:
    """Write both models' ids of the first 2,048 tokens of WikiText-2's test text and, per stride, their scores."""
    text = sources.in_data("wikitext2_test.txt").read_text(encoding="utf-8")
    arrays = {}
    for name, (model, token_ids) in {"smollm2": _smollm2(sources, text), "stories": _stories(sources, text)}.items():
        ids = token_ids[:NUM_TOKENS]
        arrays[f"{name}_token_ids"] = Array(np.array(ids, np.int32), "T = 2,048, the first tokens of the text")
        for stride in STRIDES:
            meaning = f"[T], log-probability of each token; NaN where no window scores it; a window every {stride}"
            arrays[f"{name}_{stride}"] = Array(windowed(model, ids, WINDOW, stride), meaning)
    write_reference(
        sources.fixtures / "perplexity",
        arrays,
        "SmolLM2-135M-Instruct (its GGUF) and stories260K-hf in float32 on wikitext2_test.txt, in windows.",
        window=WINDOW,
    )


def _smollm2(sources: Sources, text: str) -> tuple[PreTrainedModel, list[int]]:
    path = sources.require_smollm2()
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    return model, load_tokenizer(path).encode(text)


def _stories(sources: Sources, text: str) -> tuple[PreTrainedModel, list[int]]:
    path = sources.in_data("stories260K-hf")
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(path / "tokenizer.model"))
    return model, [tokenizer.bos_id(), *tokenizer.encode(text)]


def windowed(model: PreTrainedModel, token_ids: list[int], window: int, stride: int) -> np.ndarray:
    """float32 [T]: the log-probability of each token in the first window that holds it; NaN if it is first there."""
    scores = np.full(len(token_ids), np.nan, np.float32)
    for begin, first_new, end in windows(len(token_ids), window, stride):
        scores[first_new:end] = score(model, token_ids[begin:end], first_new - begin)
    return scores


def windows(num_tokens: int, window: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """(begin, first token that no window before held, end) of each."""
    previous_end = 0
    for begin in range(0, num_tokens, stride):
        end = min(begin + window, num_tokens)
        yield begin, previous_end, end
        previous_end = end
        if end == num_tokens:
            return


@torch.inference_mode()
def score(model: PreTrainedModel, token_ids: list[int], num_seen: int) -> np.ndarray:
    """Log-probabilities of the tokens from ``num_seen`` on; NaN for the first of all."""
    ids = torch.tensor([token_ids])
    labels = ids.clone()
    labels[:, :num_seen] = _NOT_SCORED
    output = model(ids, labels=labels, use_cache=False)
    # In float32 the sum over the vocabulary moves each of them by some 1e-5 to the same side, and so the loss too.
    log_probs = output.logits[0].double().log_softmax(dim=1)[:-1].gather(1, ids[0, 1:, None])[:, 0]
    scores = np.concatenate([[np.nan], log_probs.numpy()])[num_seen:]
    if not np.isnan(scores).all():
        require(abs(np.nanmean(scores) + output.loss.item()) < 1e-4, "the mean of the scores is the model's loss")
    return scores
