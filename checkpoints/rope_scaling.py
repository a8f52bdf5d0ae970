"""The rotary scalings that models are published with, as what a model is given: one divisor for each frequency.

Each of them blends two extremes: a frequency that turns often within the first training's context stays as it is, one
that hardly turns is divided by the whole factor. They differ in where they draw the lines. Configurations of all
layouts name the same few parameters, so the formulas are here and the names in the readers.
"""

import math
import reprlib
from dataclasses import dataclass

from jaxinfer.config import RopeScaling

_MAX_FACTOR = 1e6
_MAX_HEAD_DIM = 2**16
"""Far above any model's; a configuration that claims billions must not make a list of that length."""


@dataclass(frozen=True)
class Rope:
    """What a ``ModelConfig`` takes of the rotary angles.

    Attributes:
        theta: their base.
        scaling: what changes them; None: nothing.
        max_position_embeddings: the longest context, with the scaling.
    """

    theta: float
    scaling: RopeScaling | None
    max_position_embeddings: int


def linear(head_dim: int, factor: float) -> RopeScaling:
    """Position interpolation: every frequency divided by ``factor`` (Chen et al., 2023, arXiv:2306.15595).

    Raises:
        ValueError: the factor is out of range.
    """
    _require("head_dim", head_dim, 2, _MAX_HEAD_DIM)
    _require("factor", factor, 1, _MAX_FACTOR)
    return RopeScaling((float(factor),) * (head_dim // 2))


def llama3(
    head_dim: int,
    theta: float,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_position_embeddings: int,
) -> RopeScaling:
    """Llama 3.1's: what turns less than ``low_freq_factor`` times in the original context is divided by ``factor``.

    What turns more than ``high_freq_factor`` times is kept; between them the blend is linear in the number of turns
    (``apply_scaling`` in https://github.com/meta-llama/llama-models/blob/main/models/llama3/model.py).

    Args:
        head_dim: D, even.
        theta: base of the rotary angles.
        factor: at least 1.
        low_freq_factor, high_freq_factor: numbers of turns, the second above the first.
        original_max_position_embeddings: tokens of the context before scaling.

    Raises:
        ValueError: a number is out of range.
    """
    _require("head_dim", head_dim, 2, _MAX_HEAD_DIM)
    _require("rope_theta", theta, 1, 1e30)
    _require("factor", factor, 1, _MAX_FACTOR)
    _require("low_freq_factor", low_freq_factor, 1e-6, 1e6)
    _require("high_freq_factor", high_freq_factor, 1e-6, 1e6)
    _require("original_max_position_embeddings", original_max_position_embeddings, 1, 2**31 - 1)
    if high_freq_factor <= low_freq_factor:
        raise ValueError(f"high_freq_factor is {high_freq_factor}; it must be above low_freq_factor {low_freq_factor}")
    turns = (
        original_max_position_embeddings / (2 * math.pi * theta ** (2 * i / head_dim)) for i in range(head_dim // 2)
    )
    span = high_freq_factor - low_freq_factor
    return RopeScaling(tuple(_blend(factor, (turn - low_freq_factor) / span) for turn in turns))


def yarn(
    head_dim: int,
    theta: float,
    factor: float,
    original_max_position_embeddings: int,
    beta_fast: float = 32,
    beta_slow: float = 1,
    attention_factor: float | None = None,
    truncate: bool = True,
) -> RopeScaling:
    """YaRN, "NTK by parts" with a temperature (Peng et al., 2023, arXiv:2309.00071, sections 3.2 to 3.4).

    As in the authors' code, the blend is linear in the index of the frequency, not in the turns: from the index that
    turns ``beta_fast`` times in the original context (kept) to the one that turns ``beta_slow`` times (divided).

    Args:
        head_dim: D, even.
        theta: base of the rotary angles, above 1.
        factor: at least 1.
        original_max_position_embeddings: tokens of the context before scaling.
        beta_fast, beta_slow: numbers of turns.
        attention_factor: multiplies cosine and sine; None: what ``yarn_attention_factor(factor)`` says.
        truncate: whether the two indices are widened to whole numbers.

    Raises:
        ValueError: a number is out of range.
    """
    _require("head_dim", head_dim, 2, _MAX_HEAD_DIM)
    _require("rope_theta", theta, 1.001, 1e30)
    _require("factor", factor, 1, _MAX_FACTOR)
    _require("original_max_position_embeddings", original_max_position_embeddings, 1, 2**31 - 1)
    _require("beta_fast", beta_fast, 1e-6, 1e6)
    _require("beta_slow", beta_slow, 1e-6, 1e6)

    def index(turns: float) -> float:
        """The frequency, by its index, that turns so many times in the original context."""
        return head_dim * math.log(original_max_position_embeddings / (2 * math.pi * turns)) / (2 * math.log(theta))

    low, high = index(beta_fast), index(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    span = high - low or 0.001  # of the authors' code: a step instead of a division by zero
    divisors = tuple(_blend(factor, 1 - (i - low) / span) for i in range(head_dim // 2))
    return RopeScaling(divisors, yarn_attention_factor(factor) if attention_factor is None else attention_factor)


def yarn_attention_factor(factor: float, mscale: float = 1, mscale_all_dim: float = 0) -> float:
    """What YaRN multiplies cosine and sine by: 0.1 ln(factor) + 1 (section 3.4 of the paper, the root of 1 / t there).

    DeepSeek's configurations weight the logarithm with ``mscale`` and divide by the same with ``mscale_all_dim``.

    Raises:
        ValueError: a number is out of range.
    """
    _require("factor", factor, 1, _MAX_FACTOR)
    _require("mscale", mscale, 0, 1e3)
    _require("mscale_all_dim", mscale_all_dim, 0, 1e3)
    logarithm = 0.1 * math.log(factor)
    return (mscale * logarithm + 1) / (mscale_all_dim * logarithm + 1)


def _blend(factor: float, kept: float) -> float:
    """The divisor of a frequency of which the share ``kept``, cut to [0, 1], stays and the rest is divided."""
    share = min(max(kept, 0.0), 1.0)
    return 1 / (share + (1 - share) / factor)


def _require(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ValueError(f"{name} is {reprlib.repr(value)}; it must be in [{least:g}, {most:g}]")
