"""What a caller asks for as one grammar in Lark's form, which ``llguidance`` reads, whatever he wrote it in."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llguidance import LLMatcher

from jaxinfer.structured_outputs.params import StructuredOutputsParams
from jaxinfer.structured_outputs.schema_checks import check_schema
from jaxinfer.tokenizers.texts import checked_text

MAX_SOURCE = 2**17
"""Characters of a grammar. What it takes to read one grows with their square at worst, and with them its stack."""

_JSON_SETTINGS = {
    "item_separator": ", ?",
    "key_separator": ": ?",
    "whitespace_flexible": False,
    "json_allowed_escapes": 'nrbtf\\"',
}
"""One space after a comma or a colon, or none. JSON allows any white space in any place, where a small model may go on
with spaces for ever; with none at all it cannot write what it has seen most (``json.dumps`` writes these spaces).
And no ``\\u``: the library takes a key that is spelled with it for another one than it is."""

_ANY_SPELLING = '\n%llguidance {"no_forcing": true}\n'
"""Where only one text can follow, let the model spell it in the tokens that it likes."""


def lark_source(params: StructuredOutputsParams) -> str:
    """The grammar of ``params``.

    Raises:
        ValueError: a JSON schema is no JSON or says what would not be held, a text has a lone surrogate, or the grammar
            is too long.
    """
    source = _source(params)
    if len(source) > MAX_SOURCE:
        raise ValueError(f"it takes {len(source)} characters; {MAX_SOURCE} are allowed")
    return source + _ANY_SPELLING


def _source(params: StructuredOutputsParams) -> str:
    if params.json is not None:
        return _of_schema(_read_schema(params.json))
    if params.json_object:
        return _of_schema({"type": "object"})
    if params.regex is not None:
        return str(json.loads(LLMatcher.grammar_from_regex(checked_text(params.regex)))["grammars"][0]["lark_grammar"])
    if params.choice is not None:
        return _of_choice(params.choice)
    assert params.grammar is not None, "one of them is given"
    return checked_text(params.grammar)


def _read_schema(schema: str | Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        read = json.loads(schema) if isinstance(schema, str) else schema
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if read is True:
        return {}
    if not isinstance(read, Mapping):
        raise ValueError("it is no JSON object, and allows nothing if it is false")
    return read


def _of_schema(schema: Mapping[str, Any]) -> str:
    """The settings take the place of any that the schema brings: some of those make the library ignore keywords."""
    try:
        text = json.dumps({**schema, "x-guidance": _JSON_SETTINGS}, allow_nan=False, default=_as_dict)
        check_schema(schema)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except TypeError as error:
        raise ValueError(f"it is no JSON: {error}") from error
    return f"start: %json {text}"


def _as_dict(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"it has a {type(value).__name__}")


def _of_choice(texts: Sequence[str]) -> str:
    """One terminal, of which a great many texts cost little; rules would be tried one by one."""
    literals = (json.dumps(checked_text(text)) for text in texts)
    return f"start: CHOICE\nCHOICE: {' | '.join(literals)}"
