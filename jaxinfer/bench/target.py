"""The server under load: any that speaks OpenAI's API, and how one of its endpoints is asked and answers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from jaxinfer.bench.workload import Ask
from jaxinfer.value_checks import shown

Endpoint = Literal["completions", "chat"]

_PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
_LONGEST_MESSAGE = 300
_FIELDS_OF_TEXT = ("content", "reasoning_content", "reasoning", "tool_calls")
"""Of a chat's delta; the second and third are what vLLM and others call the tokens before the answer."""


def api_root(base_url: str) -> str:
    """What the paths of requests follow: the server's address as users write it, with ``/v1`` or without.

    Raises:
        ValueError: it is no address of HTTP, or has a password in it, which reports would show.
    """
    root = base_url.rstrip("/").removesuffix("/v1")
    try:
        url = httpx.URL(root)
    except httpx.InvalidURL as error:
        raise ValueError(f"the address is {shown(base_url)}: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"the address is {shown(base_url)}; it must be http://HOST:PORT or https://HOST:PORT")
    if url.userinfo:
        raise ValueError("the address has a user or a password in it; a key is given with --api-key")
    return root


def checked_endpoint(name: str) -> Endpoint:
    """Raises ValueError unless there is such an endpoint."""
    if name not in _PATHS:
        raise ValueError(f"the endpoint is {shown(name)}; it must be {' or '.join(_PATHS)}")
    return name  # type: ignore[return-value]


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is asked, and how.

    Attributes:
        root: of ``api_root``.
        endpoint: which one.
        model: its name there.
        api_key: brought as a bearer token, or None.
        fields: more of each body, such as ``temperature``.
    """

    root: str
    endpoint: Endpoint
    model: str
    api_key: str | None = field(default=None, repr=False)
    fields: Mapping[str, Any] = field(default_factory=dict)

    def request(self, ask: Ask) -> httpx.Request:
        """The request, all of it made: at its time it is only sent."""
        body: dict[str, Any] = {"model": self.model, "stream": True, "stream_options": {"include_usage": True}}
        if self.endpoint == "chat":
            body |= {"messages": [{"role": "user", "content": ask.prompt}], "max_completion_tokens": ask.max_tokens}
        else:
            body |= {"prompt": ask.prompt, "max_tokens": ask.max_tokens}
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"} | bearer(self.api_key)
        content = json.dumps(body | dict(self.fields)).encode()
        return httpx.Request("POST", self.root + _PATHS[self.endpoint], headers=headers, content=content)

    def has_text(self, choice: Mapping[str, Any]) -> bool:
        """Whether a choice of an event brings a piece of the answer."""
        if self.endpoint == "completions":
            return bool(choice.get("text"))
        delta = choice.get("delta") or {}
        return any(delta.get(name) for name in _FIELDS_OF_TEXT)


def bearer(api_key: str | None) -> dict[str, str]:
    """The header that carries the key, if there is one."""
    return {} if api_key is None else {"Authorization": f"Bearer {api_key}"}


def error_of(body: bytes) -> str:
    """What an answer says of an error, cut short: OpenAI's message where it has one."""
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = body.decode(errors="replace")
    return str(message)[:_LONGEST_MESSAGE]
