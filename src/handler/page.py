"""The page at `/`: one static file, the same for everybody.

It holds no data and needs no token, because a browser cannot send one when it opens an address. Whoever opens it types
the token; the page keeps it for the tab (sessionStorage, never a cookie, so that no other site can make a browser use
it) and shows what the API answers to it. The policy lets nothing run but the file's own script and style, by their
hashes, and lets the script talk to this origin alone.
"""

from __future__ import annotations

import re
from base64 import b64encode
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.errors import BridgeError, ErrorKind
from bridge.exchange import Answer

if TYPE_CHECKING:
    from bridge.exchange import Record
    from handler.endpoints import Edge
    from handler.request import HttpRequest

_POLICY = (
    "default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_OK = Answer(200, {"content-type": "application/json"}, b'{"status":"ok"}')


async def page(edge: Edge, request: HttpRequest, _record: Record) -> Answer:
    """The page; HEAD is answered in any case, clients use it to see whether the bridge is there."""
    if edge.serves_page:
        return load_page()
    if request.method == "HEAD":
        return _OK
    raise BridgeError(ErrorKind.NOT_FOUND, "there is no page here: the bridge runs with PAGE=off")


@lru_cache(maxsize=1)
def load_page() -> Answer:
    """The file with its headers, read with the first request for it."""
    body = Path(__file__).with_name("page.html").read_bytes()
    policy = _POLICY.format(script=_hash_of(body, "script"), style=_hash_of(body, "style"))
    headers = {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": policy,
        "cache-control": "no-cache",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
        "referrer-policy": "no-referrer",
        "x-frame-options": "DENY",
    }
    return Answer(200, headers, body)


def _hash_of(document: bytes, element: str) -> str:
    """The one script or style of the file, as a content security policy names it."""
    found = re.search(rb"<%b>(.*?)</%b>" % (element.encode(), element.encode()), document, re.DOTALL)
    content = found[1] if found else b""
    return f"'sha256-{b64encode(sha256(content).digest()).decode()}'"
