"""The HTTP surface as an ASGI app: one request in, one answer or stream out, errors in the client's own terms."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson

from bridge.errors import BridgeError, ErrorKind
from bridge.exchange import Answer, Record
from bridge.protocols.registry import error_renderer
from bridge.state.tally import count_for
from handler.auth import identify, refuse_other_sites
from handler.endpoints import JSON, PUBLIC, STREAMING, dialect_of, find_endpoint
from handler.late import late_answer
from handler.redaction import MAX_LOGGED_BYTES
from handler.request import HttpRequest, read_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from bridge.providers import ProtocolName
    from handler.asgi import Receive, Scope, Send
    from handler.auth import Identity
    from handler.endpoints import Edge, Endpoint
    from handler.live_edge import EdgeSource

_CRASH = BridgeError(ErrorKind.API, "the bridge failed on this request; its log has the cause under the request id")


class App:
    """One ASGI app for Lambda, uvicorn and whatever else speaks ASGI."""

    def __init__(self, source: EdgeSource) -> None:
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._lifespan(scope, receive, send)
            return
        request, edge = HttpRequest.of(scope), self._source.current()
        response = _Response(edge, request, send)
        if request.method == "OPTIONS":
            await response.whole(Answer(204, {}, b""))
            return
        record = Record()
        count_for(record)
        with edge.observer.exchange(request, record, response):
            try:
                endpoint = find_endpoint(request)
                if endpoint not in PUBLIC:
                    if not edge.tokens:
                        refuse_other_sites(request, edge.allow_origins)
                    edge, request.identity = await self._identified(edge, request)
                    record.principal = request.identity.principal
                await read_request(request, receive, edge.max_body_bytes)
            except BridgeError as error:
                await response.whole(_refused(error, request, record))
                return
            await _until_client_leaves(self._serve(edge, endpoint, request, record, response), receive)
            await self._settle(edge, request, record)

    async def _settle(self, edge: Edge, request: HttpRequest, record: Record) -> None:
        """Count what was used, after the last byte."""
        try:
            await edge.accounts.settle(record)
        except Exception:  # noqa: BLE001  (the answer is out: only the log can tell)
            edge.observer.crashed(request)

    async def _identified(self, edge: Edge, request: HttpRequest) -> tuple[Edge, Identity]:
        """Who asks, and the edge that knows them: a token that is not known may be newer than the present edge."""
        try:
            return edge, identify(request.headers, edge.tokens)
        except BridgeError:
            newer = await self._source.newer()
            if newer is None:
                raise
            return newer, identify(request.headers, newer.tokens)

    async def _serve(
        self, edge: Edge, endpoint: Endpoint, request: HttpRequest, record: Record, response: _Response
    ) -> None:
        """Answer, or keep the connection alive until there is an answer."""
        answering = asyncio.ensure_future(self._answer(edge, endpoint, request, record))
        try:
            done, _ = await asyncio.wait({answering}, timeout=edge.heartbeat_seconds)
            if not done and endpoint in STREAMING and (model := _streaming_model(request)) is not None:
                answer = late_answer(answering, dialect_of(request), model)
            else:
                answer = await answering
            if isinstance(answer.body, bytes):
                await response.whole(answer)
            else:
                await self._stream(edge, request, record, response, answer)
        finally:
            answering.cancel()

    async def _stream(
        self, edge: Edge, request: HttpRequest, record: Record, response: _Response, answer: Answer
    ) -> None:
        try:
            await response.streamed(answer)
        except Exception:  # noqa: BLE001  (the stream has said so already; here it is only logged)
            edge.observer.crashed(request)
            record.error_kind = "CRASH"
            await response.finish()

    async def _answer(self, edge: Edge, endpoint: Endpoint, request: HttpRequest, record: Record) -> Answer:
        """Whatever happens, an answer."""
        try:
            return await self._answer_with_newest(edge, endpoint, request, record)
        except BridgeError as error:
            return _refused(error, request, record)
        except Exception:  # noqa: BLE001  (whatever it is, the client gets an answer and the log the cause)
            edge.observer.crashed(request)
            record.error_kind = "CRASH"
            return _error_answer(_CRASH, dialect_of(request), request.id)

    async def _answer_with_newest(self, edge: Edge, endpoint: Endpoint, request: HttpRequest, record: Record) -> Answer:
        """A provider that refuses the bridge's key may have been given a new one, which the edge does not know yet."""
        try:
            return await endpoint(edge, request, record)
        except BridgeError as error:
            newer = await self._source.newer() if error.kind is ErrorKind.AUTHENTICATION else None
            if newer is None:
                raise
            return await endpoint(newer, request, record)

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            raise RuntimeError(f"{scope['type']} connections are not served")
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self._source.edge.bridge.caller.upstream.aclose()
                await self._source.edge.store.aclose()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return


def _refused(error: BridgeError, request: HttpRequest, record: Record) -> Answer:
    record.fail(error)
    return _error_answer(error, dialect_of(request), request.id)


def _streaming_model(request: HttpRequest) -> str | None:
    """The model of a request for a stream. Asked only when an answer is late, so the body may be read for it."""
    try:
        asked = orjson.loads(request.body)
        return str(asked.get("model")) if asked.get("stream") is True else None
    except (AttributeError, ValueError):
        return None


def _error_answer(error: BridgeError, protocol: ProtocolName, request_id: str) -> Answer:
    status, body = error_renderer(protocol)(error)
    headers = {"content-type": JSON, **error.headers}
    if error.retry_after:
        headers["retry-after"] = error.retry_after
    if not error.retryable:
        headers["x-should-retry"] = "false"
    return Answer(status, headers, orjson.dumps(body | {"request_id": request_id}))


class _Response:
    """Sends one answer, and knows how much of it is out."""

    def __init__(self, edge: Edge, request: HttpRequest, send: Send) -> None:
        self._edge = edge
        self._request = request
        self._send = send
        self.status = 0
        self.sent_bytes = 0
        self.first_byte_at: float | None = None
        self._time = asyncio.get_running_loop().time
        self.last_byte_at: float | None = None
        self._between_events = True
        self.copy = bytearray() if edge.observer.samples_bodies() else None

    async def whole(self, answer: Answer) -> None:
        body = answer.body if isinstance(answer.body, bytes) else b""
        await self._start(answer, {"content-length": str(len(body))} if answer.status != 204 else {})
        await self._body(b"" if self._request.method == "HEAD" else body, more=False)

    async def streamed(self, answer: Answer) -> None:
        body = answer.body
        if isinstance(body, bytes):
            raise TypeError("an answer that is not a stream")
        await self._start(answer, {"cache-control": "no-cache", "x-accel-buffering": "no"})
        beating = asyncio.ensure_future(self._beat(answer.heartbeat))
        try:
            await body(self._body)
        finally:
            beating.cancel()
        await self.finish()

    async def finish(self) -> None:
        await self._body(b"", more=False)

    async def _beat(self, heartbeat: bytes) -> None:
        """Speak up when the stream has been silent: whoever is in between must not think it dead."""
        loop, interval = asyncio.get_running_loop(), self._edge.heartbeat_seconds
        while heartbeat:
            silence = loop.time() - (self.last_byte_at or 0.0)
            if silence >= interval and self._between_events:
                await self._body(heartbeat)
            else:
                await asyncio.sleep(max(interval - silence, interval / 10))

    async def _start(self, answer: Answer, extra: Mapping[str, str]) -> None:
        self.status = answer.status
        self.first_byte_at = self.last_byte_at = self._time()
        headers = {"request-id": self._request.id, "x-content-type-options": "nosniff", "cache-control": "no-store"}
        headers |= {**answer.headers, **extra, **self._cors()}
        if headers["request-id"] != self._request.id:  # a provider's own, passed through
            headers["x-bridge-request-id"] = self._request.id
        pairs = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": answer.status, "headers": pairs})

    async def _body(self, data: bytes, more: bool = True) -> None:
        self.sent_bytes += len(data)
        self.last_byte_at = self._time()
        self._between_events = data.endswith(b"\n\n")
        if self.copy is not None and len(self.copy) < MAX_LOGGED_BYTES:
            self.copy += data
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    def _cors(self) -> dict[str, str]:
        origin = self._request.headers.get("origin", "")
        allowed = self._edge.allow_origins
        vary = {"vary": "origin"} if allowed else {}
        if not origin or not (origin in allowed or "*" in allowed):
            return vary
        return vary | {
            "access-control-allow-origin": origin,
            "access-control-allow-methods": "GET, POST, DELETE, OPTIONS",
            "access-control-allow-headers": self._request.headers.get("access-control-request-headers", "*"),
            "access-control-expose-headers": "request-id, x-conversation-id, x-bridge-losses, retry-after",
            "access-control-max-age": "600",
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
