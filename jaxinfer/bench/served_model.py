"""Which model a server has, where the user does not say."""

from dataclasses import dataclass
from typing import Any

import httpx

from jaxinfer.bench.target import bearer, error_of
from jaxinfer.value_checks import shown, shown_error

_SECONDS_TO_ANSWER = 30.0


@dataclass(frozen=True)
class ServedModel:
    """Attributes: its name there, and the most tokens of prompt and output together, which not every server tells."""

    name: str
    max_model_len: int | None = None


def served_model(root: str, api_key: str | None, name: str | None) -> ServedModel:
    """The model called ``name``, or without a name the first that the server lists at ``/v1/models``.

    A server that lists none, as some do, may serve ``name`` all the same.

    Raises:
        ValueError: the server cannot be reached, or without a name: it refuses to tell, or lists none.
    """
    try:
        answer = httpx.get(f"{root}/v1/models", headers=bearer(api_key), timeout=_SECONDS_TO_ANSWER, trust_env=False)
    except httpx.HTTPError as error:
        raise ValueError(f"{root} cannot be reached: {shown_error(error)}") from error
    if name is None and answer.status_code != httpx.codes.OK:
        raise ValueError(f"{answer.url} answers {answer.status_code}: {error_of(answer.content)}")
    listed = _listed(answer)
    if name is not None:
        return next((model for model in listed if model.name == name), ServedModel(name))
    if not listed:
        raise ValueError(f"{answer.url} lists no model; give the name with --model")
    return listed[0]


def _listed(answer: httpx.Response) -> list[ServedModel]:
    try:
        return [_model(entry) for entry in answer.json()["data"]] if answer.status_code == httpx.codes.OK else []
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{answer.url} answers {shown(answer.text)}, which is no list of models") from error


def _model(entry: dict[str, Any]) -> ServedModel:
    return ServedModel(str(entry["id"]), entry.get("max_model_len"))
