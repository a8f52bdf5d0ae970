"""The arguments of one call of ``LLM``, which takes one prompt or many, with parameters for all or for each."""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jaxinfer.prompts import Prompt
from jaxinfer.sampling_params import SamplingParams


@dataclass(frozen=True)
class Call:
    """The arguments of one call: as many parameters as prompts, and whether the prompt was a single one."""

    prompts: Sequence[Prompt]
    params: Sequence[SamplingParams]
    single: bool

    @classmethod
    def of(
        cls,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
    ) -> "Call":
        """What a caller gave as ``prompts`` and ``sampling_params``. Raises ValueError unless they go together."""
        if isinstance(prompts, str | Mapping):
            return cls([prompts], _one_for_each(sampling_params, 1), single=True)
        check_list("prompts", prompts, "a prompt or a list of prompts")
        return cls(prompts, _one_for_each(sampling_params, len(prompts)), single=False)


def _one_for_each(
    sampling_params: SamplingParams | Sequence[SamplingParams] | None, num_prompts: int
) -> Sequence[SamplingParams]:
    if sampling_params is None or isinstance(sampling_params, SamplingParams):
        return [sampling_params or SamplingParams()] * num_prompts
    check_list("sampling_params", sampling_params, "a SamplingParams or a list of them")
    if len(sampling_params) != num_prompts:
        raise ValueError(
            f"there are {num_prompts} prompts and {len(sampling_params)} sampling_params; give one for each"
        )
    return sampling_params


def check_list(name: str, value: object, allowed: str) -> None:
    """Raises ValueError, which says that ``value`` must be ``allowed``, unless it is a list of some kind."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise ValueError(f"{name} is {reprlib.repr(value)}; it must be {allowed}")
