"""The fields that completions and chats have in common: how to draw, when to stop, how to answer."""

import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from jaxinfer.openai_api.errors import invalid
from jaxinfer.openai_api.field_errors import CheckedBody, ListOf, allowed
from jaxinfer.sampling_params import SamplingParams, bias_of_json
from jaxinfer.structured_outputs.params import StructuredOutputsParams


def _limited(**limits: float) -> Any:
    """A field with what the OpenAPI document says of its values; ``SamplingParams`` looks at them."""
    return Field(default=None, json_schema_extra=dict(limits))


class StreamOptions(BaseModel):
    """Attributes: ``include_usage``, whether a last chunk without choices counts the tokens."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class SamplingFields(CheckedBody):
    """Fields of a body; None is as if the field were not there.

    Names and meanings are OpenAI's, and for the second group those of ``SamplingParams``, which are vLLM's. The third
    changes nothing here.
    """

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = _limited(minimum=1)
    temperature: float | None = _limited(minimum=0)
    top_p: float | None = _limited(exclusiveMinimum=0, maximum=1)
    presence_penalty: float | None = _limited(minimum=-2, maximum=2)
    frequency_penalty: float | None = _limited(minimum=-2, maximum=2)
    logit_bias: dict[str, float] | None = None
    seed: int | None = _limited(minimum=-(2**63), maximum=2**64 - 1)
    stop: Annotated[str | ListOf[str] | None, allowed("text or a list of texts")] = None

    top_k: int | None = _limited(minimum=-1)
    min_p: float | None = _limited(minimum=0, maximum=1)
    repetition_penalty: float | None = _limited(minimum=0.01, maximum=100)
    min_tokens: int | None = _limited(minimum=0)
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    stop_token_ids: ListOf[int] | None = None
    bad_words: ListOf[str] | None = None
    allowed_token_ids: ListOf[int] | None = None
    structured_outputs: dict[str, Any] | None = None
    cache_salt: str | None = None

    user: str | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = Field(default=None, description="Pages are shared without one.")

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk that counts the tokens."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def checked_params(self, **more: Any) -> SamplingParams:
        """The parameters of the call, with ``more`` arguments of ``SamplingParams``, as they are, that its kind has.

        Raises:
            ApiError: 400, a value is out of range; names it and what is allowed.
        """
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options goes with stream: true", "stream_options")
        given = {name: getattr(self, name) for name in _SAME_NAMES if getattr(self, name) is not None} | more
        if -(2**63) <= given.get("seed", 0) < 0:  # OpenAI's have 63 bits and a sign
            given["seed"] = given["seed"] % 2**64
        try:
            if self.logit_bias is not None:
                given["logit_bias"] = bias_of_json(self.logit_bias)
            if self.structured_outputs is not None:
                given["structured_outputs"] = StructuredOutputsParams(**self.structured_outputs)
            return SamplingParams(**given)
        except TypeError as error:
            names = ", ".join(StructuredOutputsParams.__dataclass_fields__)
            raise invalid(f"structured_outputs has other fields than {names}", "structured_outputs") from error
        except ValueError as error:
            raise invalid(str(error), self._named_in(str(error))) from error

    def _named_in(self, message: str) -> str | None:
        """The field that an error of ``SamplingParams`` begins with."""
        name = re.match(r"(?:a key of )?(\w+)", message)
        return name[1] if name and name[1] in type(self).model_fields else None


_SAME_NAMES = (
    "n",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "top_k",
    "min_p",
    "repetition_penalty",
    "min_tokens",
    "ignore_eos",
    "include_stop_str_in_output",
    "stop_token_ids",
    "bad_words",
    "allowed_token_ids",
)
