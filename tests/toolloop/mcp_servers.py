"""Real MCP servers on loopback, by the official SDK, under uvicorn: one with each transport."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import uvicorn
from mcp.server.mcpserver import Image, MCPServer
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.types import ASGIApp, Receive, Scope, Send

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 16


@dataclass
class Served:
    """A running server, and what came to it."""

    url: str = ""
    token: str | None = None
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    counted: int = 0
    met: int = 0
    started: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def listings(self) -> int:
        return sum(b'"tools/list"' in body for body in self.bodies)


def build(served: Served) -> MCPServer:
    server = MCPServer("test", log_level="CRITICAL")
    together = asyncio.Condition()

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    @server.tool()
    def count() -> str:
        """Counts how often it ran."""
        served.counted += 1
        return f"counted {served.counted}"

    @server.tool()
    async def meet(parties: int) -> str:
        """Returns when as many calls are here as were asked for."""
        async with together:
            served.met += 1
            together.notify_all()
            await together.wait_for(lambda: served.met >= parties)
        return "met"

    @server.tool()
    async def slow() -> str:
        """Never returns by itself."""
        served.started.set()
        try:
            await asyncio.sleep(3600)
        finally:
            served.cancelled.set()
        return "late"

    @server.tool()
    def fail() -> str:
        """Fails."""
        raise ValueError("it broke")

    @server.tool()
    def picture() -> Image:
        """Shows a picture."""
        return Image(data=PNG, format="png")

    @server.tool()
    def everything() -> CallToolResult:
        """Gives content of every kind."""
        resource = TextResourceContents(uri="file:///a.txt", text="inside", mime_type="text/plain")
        pdf = BlobResourceContents(uri="file:///a.pdf", blob="JVBERi0=", mime_type="application/pdf")
        blob = BlobResourceContents(uri="file:///a.bin", blob="AAAA")
        return CallToolResult(
            content=[
                TextContent(text="text"),
                AudioContent(data="AAAA", mime_type="audio/wav"),
                EmbeddedResource(resource=resource),
                EmbeddedResource(resource=pdf),
                EmbeddedResource(resource=blob),
                ResourceLink(uri="https://a.test/x", name="x", description="the x"),
            ]
        )

    @server.tool()
    def echo_token() -> str:
        """Says the token that it was called with."""
        return f"you came with {served.token}"

    return server


class _Recording:
    """Notes what comes in, and lets in only who has the token."""

    def __init__(self, app: ASGIApp, served: Served) -> None:
        self._app, self._served = app, served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self._served.requests.append((scope["method"], scope["path"], headers))
        if self._served.token and headers.get("authorization") != f"Bearer {self._served.token}":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"who are you"})
            return

        async def noted() -> dict[str, object]:
            message = await receive()
            self._served.bodies.append(message.get("body", b""))
            return message  # type: ignore[return-value]

        await self._app(scope, noted, send)  # type: ignore[arg-type]


@contextmanager
def serving_mcp(transport: str, token: str | None = None, tls: tuple[Path, Path] | None = None) -> Iterator[Served]:
    """`tls` has the paths of a certificate and its key; the server then answers to any name."""
    served = Served(token=token)
    server = build(served)
    app = server.sse_app() if transport == "sse" else server.streamable_http_app(host="0.0.0.0" if tls else "127.0.0.1")
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    config = uvicorn.Config(
        _Recording(app, served),
        log_level="critical",
        lifespan="on",
        timeout_graceful_shutdown=1,
        ssl_certfile=str(tls[0]) if tls else None,
        ssl_keyfile=str(tls[1]) if tls else None,
    )
    running = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(running.serve(sockets=[listener])), daemon=True)
    thread.start()
    path = "/sse" if transport == "sse" else "/mcp"
    served.url = f"http://127.0.0.1:{listener.getsockname()[1]}{path}"
    try:
        yield served
    finally:
        running.should_exit = True
        thread.join(timeout=15)
        listener.close()
