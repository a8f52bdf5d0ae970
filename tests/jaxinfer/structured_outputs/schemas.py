"""Random JSON schemas: valid ones of what a form can say, each of which some value satisfies."""

import random
from collections.abc import Callable
from typing import Any

type Schema = dict[str, Any]

WORDS = ("name", "age", "city", "tags", "size", "note", "é", 'a "b"', "x/y", "id\n", "kind", "on")
PATTERNS = (
    "^[a-z]{1,6}$",
    "^[A-Z][a-z]+( [A-Z][a-z]+)?$",
    r"^\d{3}-\d{4}$",
    "^(red|green|blue)$",
    "^#[0-9a-f]{6}$",
    "ab",
)
VALUES = (None, True, False, 0, -17, 2.5, "", "yes", "no", 'say "é"\n', "\U0001f600", [1, "a"], {"k": [None]}, 10**9)


def random_schema(seed: int, depth: int = 3) -> Schema:
    """One schema; the same seed gives the same."""
    rng = random.Random(seed)
    return _object(rng, depth) if rng.random() < 0.7 else _any(rng, depth)


def _any(rng: random.Random, depth: int) -> Schema:
    leaves: list[Callable[[random.Random], Schema]] = [_string, _integer, _number, _enum, _const, _boolean, _null]
    nested: list[Callable[[random.Random, int], Schema]] = [_object, _array, _any_of]
    if depth > 0 and rng.random() < 0.45:
        return rng.choice(nested)(rng, depth - 1)
    return rng.choice(leaves)(rng)


def _object(rng: random.Random, depth: int) -> Schema:
    names = rng.sample(WORDS, rng.randint(0, 4))
    schema: Schema = {"type": "object", "properties": {name: _any(rng, depth) for name in names}}
    required = [name for name in names if rng.random() < 0.6]
    if required or rng.random() < 0.2:
        schema["required"] = required
    match rng.randint(0, 5):
        case 0:
            schema["additionalProperties"] = _any(rng, 0)
        case 1:
            pass  # any other properties
        case _:
            schema["additionalProperties"] = False
    return schema


def _array(rng: random.Random, depth: int) -> Schema:
    fewest = rng.randint(0, 2)
    schema: Schema = {"type": "array", "items": _any(rng, depth), "maxItems": fewest + rng.randint(0, 3)}
    if fewest:
        schema["minItems"] = fewest
    if rng.random() < 0.2:
        schema["prefixItems"] = [_any(rng, 0)]
    return schema


def _any_of(rng: random.Random, depth: int) -> Schema:
    return {"anyOf": [_any(rng, depth) for _ in range(rng.randint(1, 3))]}


def _string(rng: random.Random) -> Schema:
    match rng.randint(0, 3):
        case 0:
            return {"type": "string", "pattern": rng.choice(PATTERNS)}
        case 1:
            return {"type": "string"}
        case 2:
            return {"type": "string", "minLength": rng.randint(0, 3), "maxLength": rng.randint(3, 12)}
        case _:
            return {"type": "string", "maxLength": rng.randint(0, 30)}


def _integer(rng: random.Random) -> Schema:
    low = rng.randint(-1000, 1000)
    schema: Schema = {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 5000)}
    match rng.randint(0, 3):
        case 0:
            del schema["maximum"]
        case 1:
            schema["exclusiveMinimum"] = schema.pop("minimum") - 1
        case 2:
            schema |= {"multipleOf": 3, "maximum": low + 5000}
    return schema


def _number(rng: random.Random) -> Schema:
    low = round(rng.uniform(-100, 100), 2)
    return rng.choice([{"type": "number"}, {"type": "number", "minimum": low, "exclusiveMaximum": round(low + 10, 2)}])


def _enum(rng: random.Random) -> Schema:
    return {"enum": rng.sample(VALUES, rng.randint(1, 4))}


def _const(rng: random.Random) -> Schema:
    return {"const": rng.choice(VALUES)}


def _boolean(rng: random.Random) -> Schema:
    return {"type": rng.choice(["boolean", ["boolean", "null"]])}


def _null(rng: random.Random) -> Schema:
    return {"type": "null"}
