"""``response_format`` of a chat: the form of the answer, as OpenAI's API says it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from jaxinfer.structured_outputs.params import StructuredOutputsParams


class TextFormat(BaseModel):
    """Any text, as without it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text"]

    @property
    def form(self) -> StructuredOutputsParams | None:
        """What the answer is held to: nothing."""
        return None


class JsonObjectFormat(BaseModel):
    """Any JSON object."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["json_object"]

    @property
    def form(self) -> StructuredOutputsParams | None:
        """What the answer is held to."""
        return StructuredOutputsParams(json_object=True)


class NamedSchema(BaseModel):
    """A JSON schema. Its name and its description are for people: the model is not shown them, nor the schema.

    ``strict`` changes nothing: an answer always validates.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(pattern="^[a-zA-Z0-9_-]{1,64}$")
    json_schema: dict[str, Any] = Field(alias="schema")  # pydantic has a `schema` of its own
    description: str | None = None
    strict: bool | None = None


class JsonSchemaFormat(BaseModel):
    """JSON that validates against a schema."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["json_schema"]
    json_schema: NamedSchema

    @property
    def form(self) -> StructuredOutputsParams | None:
        """What the answer is held to; whether that is possible is found out when the request is made."""
        return StructuredOutputsParams(json=self.json_schema.json_schema)


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]
