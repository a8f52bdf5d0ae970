"""``response_format`` of a chat: the form of the answer, as OpenAI's API says it."""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from jaxinfer.structured_outputs.params import StructuredOutputsParams


class NamedSchema(BaseModel):
    """A JSON schema. Its name and its description are for people: the model is shown neither, nor the schema.

    ``strict`` changes nothing: an answer always validates.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(pattern="^[a-zA-Z0-9_-]{1,64}$")
    json_schema: dict[str, Any] = Field(alias="schema")  # pydantic's models have a `schema` of their own
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(BaseModel):
    """``text`` is as without it; ``json_object`` any JSON object; ``json_schema`` what validates against a schema."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None

    @model_validator(mode="after")
    def _check_schema(self) -> Self:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("it must have json_schema with the type 'json_schema', and with no other")
        return self

    @property
    def form(self) -> StructuredOutputsParams | None:
        """What the answer is held to; whether that is possible is found out when the request is made."""
        if self.json_schema is not None:
            return StructuredOutputsParams(json=self.json_schema.json_schema)
        return StructuredOutputsParams(json_object=True) if self.type == "json_object" else None
