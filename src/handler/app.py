"""The HTTP surface as an ASGI app: one request in, one answer or stream out, errors in the client's own terms."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Self

import orjson

from bridge.errors import BridgeError, ErrorKind
from bridge.exchange import Answer, Record
from bridge.protocols.registry import error_renderer
from bridge.state.tally import count_for
from handler.auth import identify, refuse_other_sites
from handler.endpoints import JSON, PUBLIC, STREAMING, dialect_of, find_endpoint
from handler.late import beginning, continued
from handler.request import HttpRequest, read_request
from handler.response import Response

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from bridge.providers import ProtocolName
    from handler.asgi import Receive, Scope, Send, TellOfLeaving
    from handler.auth import Identity
    from handler.endpoints import Edge, Endpoint
    from handler.live_edge import EdgeSource

_MEANS_TRUE = frozenset({True, "1", "true", "True", "yes", "on"})  # parsers are as lenient
_CRASH = BridgeError(ErrorKind.API, "the bridge failed on this request; its log has the cause under the request id")


class App:
    """One ASGI app for Lambda, `bridge serve` and whatever else speaks ASGI."""

    def __init__(self, source: EdgeSource) -> None:
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._lifespan(scope, receive, send)
            return
        request, edge = HttpRequest.of(scope), self._source.current()
        response = Response(edge, request, send)
        if request.method == "OPTIONS":
            await response.whole(Answer(204, {}, b""))
            return
        record, started = Record(input_shape={} if edge.observer.is_detailed else None), time.monotonic()
        count_for(record)
        try:
            await self._exchange(edge, request, record, response, receive)
        finally:
            edge.observer.ended(request, record, response, started)

    async def _exchange(
        self, edge: Edge, request: HttpRequest, record: Record, response: Response, receive: Receive
    ) -> None:
        """Admit, answer and account for one request."""
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
        with _ClientWatch(request, receive) as watch:
            await self._serve(edge, endpoint, request, record, response)
        record.client_gone = watch.has_left
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
        self, edge: Edge, endpoint: Endpoint, request: HttpRequest, record: Record, response: Response
    ) -> None:
        """Answer; whoever waits for a stream hears from the bridge in the meantime."""
        if endpoint in STREAMING:
            response.watch(lambda: None if _streaming_model(request) is None else beginning(dialect_of(request)))
        try:
            answer = await self._answer(edge, endpoint, request, record)
            if response.began_early:
                answer = continued(answer, dialect_of(request), _streaming_model(request) or "")
            if isinstance(answer.body, bytes):
                await response.whole(answer)
            else:
                await self._stream(edge, request, record, response, answer)
        finally:
            response.rest()

    async def _stream(
        self, edge: Edge, request: HttpRequest, record: Record, response: Response, answer: Answer
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
                await self._close(self._source.edge)
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    async def _close(self, edge: Edge) -> None:
        """Whatever one of them says, the others are closed too."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(edge.store.aclose)
            stack.push_async_callback(edge.accounts.aclose)
            stack.push_async_callback(edge.bridge.caller.upstream.aclose)


def _refused(error: BridgeError, request: HttpRequest, record: Record) -> Answer:
    record.fail(error)
    return _error_answer(error, dialect_of(request), request.id)


def _streaming_model(request: HttpRequest) -> str | None:
    """The model of a request for a stream. Asked only when an answer is late, so the body may be read for it."""
    try:
        asked = orjson.loads(request.body)
        return str(asked.get("model")) if asked.get("stream") in _MEANS_TRUE else None
    except (AttributeError, TypeError, ValueError):
        return None


def _error_answer(error: BridgeError, protocol: ProtocolName, request_id: str) -> Answer:
    status, body = error_renderer(protocol)(error)
    headers = {"content-type": JSON, **error.headers}
    if error.retry_after:
        headers["retry-after"] = error.retry_after
    if not error.retryable:
        headers["x-should-retry"] = "false"
    return Answer(status, headers, orjson.dumps(body | {"request_id": request_id}))


class _ClientWatch:
    """Surrounds the work for a client; one that goes away ends it, and with it the provider's work.

    A server that knows how calls back; for others a task waits for the word of it.
    """

    def __init__(self, request: HttpRequest, receive: Receive) -> None:
        self._tell = request.on_client_gone or _by_task(receive)
        self._worker: asyncio.Task[object] | None = None
        self._is_cancelled = False
        self.has_left = False

    def __enter__(self) -> Self:
        self._worker = asyncio.current_task()
        self._tell(self._leave)
        if self.has_left:  # before the work began
            self._cancel()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> bool:
        worker, self._worker = self._worker, None
        self._tell(None)
        ended = self._is_cancelled and worker is not None and worker.uncancel() == 0
        return ended and kind is asyncio.CancelledError

    def _leave(self) -> None:
        self.has_left = True
        if asyncio.current_task() is not self._worker:  # else its own writing found out
            self._cancel()

    def _cancel(self) -> None:
        if self._worker is not None:
            self._is_cancelled = True
            self._worker.cancel()


def _by_task(receive: Receive) -> TellOfLeaving:
    """Tells of a client's leaving by ASGI's own means."""
    waiting: list[asyncio.Task[None]] = []

    def tell(callback: Callable[[], None] | None) -> None:
        if callback is None:
            waiting.pop().cancel()
            return
        task = asyncio.create_task(_disconnect(receive))
        task.add_done_callback(lambda task: None if task.cancelled() else callback())
        waiting.append(task)

    return tell


async def _disconnect(receive: Receive) -> None:
    with suppress(Exception):  # a server that cannot tell has lost its client too
        while (await receive())["type"] != "http.disconnect":
            pass
