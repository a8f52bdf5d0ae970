"""The chat page at ``/``: one file, which brings its own style and script and loads nothing from anywhere.

Its policy allows just these, by their hashes, and calls of this server: whatever a model writes, the browser neither
runs it nor fetches anything for it.
"""

import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

router = APIRouter()

_PAGE = files("jaxinfer.server").joinpath("chat_page", "index.html").read_text(encoding="utf-8")


def _sources(tag: str) -> str:
    """The hash of each inline ``tag`` of the page, as a policy names what may be there."""
    inline = re.findall(rf"<{tag}>(.*?)</{tag}>", _PAGE, re.DOTALL)
    return " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in inline)


_HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; script-src {_sources('script')}; style-src {_sources('style')}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@router.get("/", response_class=HTMLResponse, include_in_schema=False)
async def chat_page() -> HTMLResponse:
    """The page; it needs no key, and asks for it where calls do."""
    return HTMLResponse(_PAGE, headers=_HEADERS)
