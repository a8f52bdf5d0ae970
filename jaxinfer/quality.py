"""What a model in fewer bits has lost: its perplexity, and how far its distribution is from that of a reference.

Perplexity tells of the one token that came, and what is lost at one place may be won at another by chance. The
divergence looks at the whole distribution at each place, and is 0 only where nothing has changed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from checkpoints.quantization import num_bytes
from jaxinfer.loading import LoadedModel, open_model
from jaxinfer.model_pair import Member, ModelPair
from jaxinfer.scoring import perplexity_of
from jaxinfer.value_checks import check_token_ids, checked_items
from jaxinfer.weights import weight_shapes


@dataclass(frozen=True, kw_only=True)
class ModelQuality:
    """One of two models that are compared.

    Attributes:
        name: which weights these are.
        weight_bytes: bytes of its weights on the device, scales, offsets and padding included.
        bits_per_weight: those by the number of its weights.
        log_likelihood: the sum of the log-probabilities of the scored tokens.
        perplexity: exp of minus their mean.
    """

    name: str
    weight_bytes: int
    bits_per_weight: float
    log_likelihood: float
    perplexity: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A model against a reference on one text; divergences are KL(reference || model) of a token, in nats.

    Attributes:
        reference, model: what each is and how well it foretells the text.
        mean_kl: mean divergence of the scored tokens.
        median_kl, kl_99: the divergence that half of them, and 99 in 100, do not exceed.
        top1_agreement: the share of them before which both find the same token most likely.
        num_scored: tokens that are scored: all but the first of each window.
        num_tokens: tokens of the text.
        num_windows: windows that were read.
        window: tokens of a window.
    """

    reference: ModelQuality
    model: ModelQuality
    mean_kl: float
    median_kl: float
    kl_99: float
    top1_agreement: float
    num_scored: int
    num_tokens: int
    num_windows: int
    window: int

    @property
    def perplexity_change(self) -> float:
        """By what share the model's perplexity is above the reference's."""
        return self.model.perplexity / self.reference.perplexity - 1


def compare_quality(
    model: str | Path | LoadedModel,
    against: str | Path | LoadedModel,
    token_ids: Sequence[int],
    *,
    on_window: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Comparison:
    """Hold a model against a reference on a text: perplexities, divergence, agreement, and bytes of the weights.

    The text is read in windows, one after another, each a text of its own whose first token is not scored, as
    ``LLM.score`` reads it with a stride as long as the window. Both models are on the device at once.

    Args:
        model: as in ``LLM``.
        against: the reference, likewise. By itself the model is held as it is stored, and the reference as floats.
        token_ids: the text.
        on_window: called with (windows that are read, windows in all) after each.
        settings: of both models, as in ``ModelPair.load``.

    Raises:
        ValueError: there is no such model; the two differ in the size of their vocabulary or in the windows of their
            layers; an id is outside the vocabulary, or there are fewer than two; a setting is out of range, or the
            memory does not hold both.
        KernelSelfTestError: a GPU kernel computes wrong values on this device.
    """
    opened, reference = (each if isinstance(each, LoadedModel) else open_model(each) for each in (model, against))
    checked = _checked_ids(token_ids, opened.config.vocab_size)
    return compare_pair(ModelPair.load(opened, reference, **settings), checked, on_window)


def compare_pair(
    pair: ModelPair, token_ids: Sequence[int], on_window: Callable[[int, int], None] | None = None
) -> Comparison:
    """``compare_quality`` of models that are loaded, which may read several texts."""
    found, num_windows = pair.read(token_ids, on_window)
    kl = found.kl.astype(np.float64)
    median, high = np.quantile(kl, (0.5, 0.99)).tolist()
    return Comparison(
        reference=_quality(pair.reference, found.reference_logprobs),
        model=_quality(pair.model, found.logprobs),
        mean_kl=float(kl.mean()),
        median_kl=median,
        kl_99=high,
        top1_agreement=float(found.agrees.mean(dtype=np.float64)),
        num_scored=len(kl),
        num_tokens=len(token_ids),
        num_windows=num_windows,
        window=pair.window,
    )


def _quality(member: Member, logprobs: Float32[np.ndarray, "N"]) -> ModelQuality:
    weight_bytes = num_bytes(member.runner.programs.weights)
    num_weights = sum(prod(shape) for shape in weight_shapes(member.opened.config).values())
    log_likelihood = float(logprobs.sum(dtype=np.float64))
    return ModelQuality(
        name=member.opened.name,
        weight_bytes=weight_bytes,
        bits_per_weight=8 * weight_bytes / num_weights,
        log_likelihood=log_likelihood,
        perplexity=perplexity_of(log_likelihood, len(logprobs)),
    )


def _checked_ids(token_ids: object, vocab_size: int) -> list[int]:
    """As plain ints."""
    checked = checked_items("token_ids", token_ids, "a list of token ids")
    if len(checked) < 2:
        raise ValueError(f"the text has {len(checked)} tokens; at least 2 are needed")
    check_token_ids("token_ids", checked, vocab_size)
    return [*map(int, checked)]
