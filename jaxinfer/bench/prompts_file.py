"""The user's prompts, one on each line of a file."""

import json
from typing import Any

from jaxinfer.bench.workload import Ask, GivenPrompts
from jaxinfer.value_checks import check_int, shown


def prompts_of_file(text: str, name: str, max_tokens: int) -> GivenPrompts:
    """The prompts in the text of a file: its lines, or where its name ends in ``.jsonl`` one JSON object on each.

    An object has the text as ``prompt``, and may have ``max_tokens`` of its own. Blank lines are left out.

    Raises:
        ValueError: there is no prompt, or a line that has none; the message names the line.
    """
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise ValueError(f"the prompts file {name} has no prompt")
    if not name.endswith(".jsonl"):
        return GivenPrompts([Ask(line.removesuffix("\r"), max_tokens) for _, line in lines])
    return GivenPrompts([_ask(line, f"{name}, line {number}", max_tokens) for number, line in lines])


def _ask(line: str, where: str, max_tokens: int) -> Ask:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is {shown(line)}, which is no JSON: {error}") from error
    if not isinstance(value, dict) or not isinstance(value.get("prompt"), str):
        raise ValueError(f"{where} is {shown(value)}; it must be an object with a text called prompt")
    own = value.get("max_tokens", max_tokens)
    check_int(f"{where}: max_tokens", own, "a whole number >= 1", 1)
    return Ask(value["prompt"], own)
