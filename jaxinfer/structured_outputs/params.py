"""What form a caller asks an answer to have; names as in vLLM."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from jaxinfer.value_checks import check_bool, checked_items, shown


@dataclass(frozen=True, kw_only=True)
class StructuredOutputsParams:
    """The form of an answer: exactly one of these. What it says is checked when the request is made.

    Attributes:
        json: a JSON schema, as a dict or as text; the answer is a value that validates.
        json_object: True: any JSON object.
        regex: a regular expression that the whole answer matches, in the syntax of Rust's ``regex`` without lookaround.
        choice: the answer is one of these texts.
        grammar: a context-free grammar in the form of Lark, with the start rule ``start``.

    Raises:
        ValueError: none or several are given, or one is of another type; the message names it.
    """

    json: str | Mapping[str, Any] | None = field(default=None, hash=False)
    json_object: bool = False
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None

    def __post_init__(self) -> None:
        check_bool("json_object", self.json_object)
        names = [field.name for field in fields(self)]
        given = [name for name in names if getattr(self, name) is not None and getattr(self, name) is not False]
        if len(given) != 1:
            allowed = f"exactly one of {', '.join(names)}"
            raise ValueError(f"structured_outputs has {given or 'nothing'}; it must have {allowed}")
        if not isinstance(self.json, str | Mapping | None):
            raise ValueError(f"json is {shown(self.json)}; it must be a JSON schema, as a dict or as text")
        for name in ("regex", "grammar"):
            if not isinstance(getattr(self, name), str | None):
                raise ValueError(f"{name} is {shown(getattr(self, name))}; it must be text")
        if self.choice is not None:
            choices = checked_items("choice", self.choice, "a list of texts")
            if not choices or not all(isinstance(text, str) and text for text in choices):
                raise ValueError(f"choice is {shown(self.choice)}; it must be a list of texts, none empty")
            object.__setattr__(self, "choice", choices)

    @property
    def kind(self) -> str:
        """The name of the one that is given."""
        return next(field.name for field in fields(self) if getattr(self, field.name) not in (None, False))
