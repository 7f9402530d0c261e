"""The HTTP surface as an ASGI app: routes, authentication, CORS, streams and their errors."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import orjson

from bridge.errors import BridgeError, ErrorKind
from bridge.exchange import Answer, ClientCall, Record
from bridge.protocols.registry import error_renderer
from handler.auth import identify
from handler.request import HttpRequest, read_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.exchange import StreamBody
    from bridge.pipeline import Bridge
    from bridge.ports import ConversationStore
    from bridge.providers import ProtocolName
    from handler.asgi import Receive, Scope, Send
    from handler.observability import Observer

JSON = "application/json"
_CONVERSATION_ID = re.compile(r"[A-Za-z0-9_.:@-]{1,128}")
_ALLOWED_HEADERS = (
    "authorization, content-type, x-api-key, x-worker-token, x-conversation-id, anthropic-version, anthropic-beta"
)


@dataclass(frozen=True, slots=True)
class Edge:
    """What the app serves with."""

    bridge: Bridge
    store: ConversationStore
    observer: Observer
    tokens: Mapping[str, str]
    allow_origins: tuple[str, ...] = ()
    max_body_bytes: int = 5 * 1024 * 1024


Endpoint: TypeAlias = "Callable[[Edge, HttpRequest, Record], Awaitable[Answer]]"


async def _health(_edge: Edge, _request: HttpRequest, _record: Record) -> Answer:
    return _json(200, {"status": "ok"})


async def _messages(edge: Edge, request: HttpRequest, record: Record) -> Answer:
    return await edge.bridge.answer(_client_call(edge, request, record, "anthropic"))


async def _chat_completions(edge: Edge, request: HttpRequest, record: Record) -> Answer:
    return await edge.bridge.answer(_client_call(edge, request, record, "openai_chat"))


async def _terminate(edge: Edge, request: HttpRequest, _record: Record) -> Answer:
    conversation_id = request.parameter
    if not _CONVERSATION_ID.fullmatch(conversation_id):
        raise BridgeError(ErrorKind.INVALID_REQUEST, "conversation id: 1 to 128 letters, digits or any of _ . : @ -")
    principal = identify(request.headers, edge.tokens).principal
    deleted = await edge.store.terminate(principal, conversation_id)
    return _json(200, {"id": conversation_id, "type": "conversation_terminated", "deleted_items": deleted})


def _client_call(edge: Edge, request: HttpRequest, record: Record, protocol: ProtocolName) -> ClientCall:
    identity = identify(request.headers, edge.tokens)
    return ClientCall(
        protocol, request.headers, request.body, identity.principal, identity.credential, request.deadline, record
    )


@dataclass(frozen=True, slots=True)
class _Route:
    methods: frozenset[str]
    pattern: re.Pattern[str]
    endpoint: Endpoint
    protocol: ProtocolName = "anthropic"
    public: bool = False


def _route(methods: str, pattern: str, endpoint: Endpoint, protocol: ProtocolName = "anthropic") -> _Route:
    return _Route(frozenset(methods.split()), re.compile(pattern), endpoint, protocol)


_ROUTES = (
    _route("POST", r"(?:/anthropic)?/v1/messages", _messages),
    _route("POST", r"(?:/v1)?/chat/completions", _chat_completions, "openai_chat"),
    _route("GET HEAD", r"/health|/api/hello", _health),
    _route("POST", r"/v1/conversations/(?P<parameter>[^/]+)/terminate", _terminate),
)


class App:
    """One ASGI app for Lambda, uvicorn and whatever else speaks ASGI."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._lifespan(scope, receive, send)
            return
        request = HttpRequest.of(scope)
        response = _Response(self._edge, request, send)
        if request.method == "OPTIONS":
            await response.whole(Answer(204, {}, b""))
            return
        record = Record()
        with self._edge.observer.exchange(request, record, response):
            try:
                answer = await self._answer(request, record, receive)
            except BridgeError as error:
                record.error_kind = error.kind.name
                answer = _error_answer(error, _dialect(request.path), request.id)
            if isinstance(answer.body, bytes):
                await response.whole(answer)
            else:
                await _until_client_leaves(response.streamed(answer, answer.body), receive)

    async def _answer(self, request: HttpRequest, record: Record, receive: Receive) -> Answer:
        route, parameter = _find_route(request)
        await read_request(request, receive, self._edge.max_body_bytes)
        request.parameter = parameter
        return await route.endpoint(self._edge, request, record)

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            raise RuntimeError(f"{scope['type']} connections are not served")
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self._edge.bridge.upstream.aclose()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return


def _find_route(request: HttpRequest) -> tuple[_Route, str]:
    for route in _ROUTES:
        found = route.pattern.fullmatch(request.path)
        if found is None:
            continue
        if request.method not in route.methods:
            raise BridgeError(
                ErrorKind.METHOD_NOT_ALLOWED, f"{request.path} takes {' or '.join(sorted(route.methods))}"
            )
        return route, found.groupdict().get("parameter") or ""
    raise BridgeError(ErrorKind.NOT_FOUND, f"there is nothing at {request.path[:200]}")


def _dialect(path: str) -> ProtocolName:
    """Errors are told in the terms of the endpoint that was meant."""
    return "openai_chat" if path.endswith("/chat/completions") else "anthropic"


def _error_answer(error: BridgeError, protocol: ProtocolName, request_id: str) -> Answer:
    status, body = error_renderer(protocol)(error)
    headers = {"content-type": JSON}
    if error.retry_after:
        headers["retry-after"] = error.retry_after
    if not error.retryable:
        headers["x-should-retry"] = "false"
    return Answer(status, headers, orjson.dumps(body | {"request_id": request_id}))


def _json(status: int, body: object) -> Answer:
    return Answer(status, {"content-type": JSON}, orjson.dumps(body))


class _Response:
    """Sends one answer, and knows how much of it is out."""

    def __init__(self, edge: Edge, request: HttpRequest, send: Send) -> None:
        self._edge = edge
        self._request = request
        self._send = send
        self.status = 0
        self.sent_bytes = 0
        self.first_byte_at: float | None = None

    async def whole(self, answer: Answer) -> None:
        body = answer.body if isinstance(answer.body, bytes) else b""
        await self._start(answer, {"content-length": str(len(body))} if answer.status != 204 else {})
        await self._body(b"" if self._request.method == "HEAD" else body, more=False)

    async def streamed(self, answer: Answer, body: StreamBody) -> None:
        await self._start(answer, {"cache-control": "no-cache", "x-accel-buffering": "no"})
        await body(self._body)
        await self._body(b"", more=False)

    async def _start(self, answer: Answer, extra: Mapping[str, str]) -> None:
        self.status = answer.status
        self.first_byte_at = asyncio.get_running_loop().time()
        headers = {"request-id": self._request.id, "x-content-type-options": "nosniff"}
        headers |= {**answer.headers, **extra, **self._cors()}
        pairs = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": answer.status, "headers": pairs})

    async def _body(self, data: bytes, more: bool = True) -> None:
        self.sent_bytes += len(data)
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    def _cors(self) -> dict[str, str]:
        origin = self._request.headers.get("origin", "")
        allowed = self._edge.allow_origins
        if not origin or not (origin in allowed or "*" in allowed):
            return {}
        return {
            "access-control-allow-origin": origin,
            "access-control-allow-methods": "GET, POST, DELETE, OPTIONS",
            "access-control-allow-headers": _ALLOWED_HEADERS,
            "access-control-expose-headers": "request-id, x-conversation-id, retry-after",
            "access-control-max-age": "600",
            "vary": "origin",
        }


async def _until_client_leaves(streaming: Awaitable[None], receive: Receive) -> None:
    """Run a stream; a client that goes away ends it, and with it the provider's work."""
    stream = asyncio.ensure_future(streaming)
    gone = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait({stream, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not stream.done():
            stream.cancel()
            await asyncio.wait({stream})
            return
        stream.result()
    finally:
        gone.cancel()
        if not stream.done():
            stream.cancel()
            await asyncio.wait({stream})


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
