"""The floor: an ASGI app that forwards bytes through the bridge's own HTTP client and reads none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.ports import UpstreamCall
from bridge.upstream.client import HttpUpstream

if TYPE_CHECKING:
    from handler.asgi import Receive, Scope, Send

UPSTREAM = "UPSTREAM_OPENAI_BASE_URL"


class Relay:
    """Sends every request to one upstream, under the same path."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        self._upstream = HttpUpstream()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {"content-type": "application/json"}
        url = self._base_url + scope["path"]
        call = UpstreamCall("floor", scope["method"], url, headers, await _read(receive))
        reply = await self._upstream.send(call)
        try:
            content_type = reply.headers["content-type"].encode()
            start = {"type": "http.response.start", "status": reply.status}
            await send({**start, "headers": [(b"content-type", content_type)]})
            async for data in reply.chunks():
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await reply.aclose()


async def _read(receive: Receive) -> bytes:
    pieces: list[bytes] = []
    more = True
    while more:
        message = await receive()
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(pieces)
