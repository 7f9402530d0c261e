"""The Lambda Runtime API as a client sees it: fetch an invocation, stream its response, report a failed start.

Minimal HTTP/1.1 by hand: the documented API needs no more, and an HTTP library would double the cold start.
"""

from __future__ import annotations

import asyncio
import base64
import enum
import math
import time
import traceback
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import orjson

from handler.function_url import CONTENT_TYPE, error_messages, prelude

if TYPE_CHECKING:
    from collections.abc import Callable

    from handler.asgi import Message

API = "/2018-06-01/runtime"

# Above the largest event (6 MB of payload, escaped), so that the reader does not pause within one.
_READ_LIMIT = 16 * 1024 * 1024
_ERROR_TYPE = "Lambda-Runtime-Function-Error-Type"
_ERROR_BODY = "Lambda-Runtime-Function-Error-Body"


class RuntimeApiError(Exception):
    """The Runtime API is gone, or does not answer as documented."""


class ResponseClosedError(ConnectionError):
    """The app sends, but the response is over."""


class Reply(NamedTuple):
    """An HTTP response of the Runtime API; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Invocation(NamedTuple):
    """One event to answer; `deadline` is in the loop's time."""

    request_id: str
    deadline: float
    trace_id: str | None
    event: bytes


class Failure(NamedTuple):
    """Why an invocation has no proper end: `text` is for the client, `cause` for the log."""

    status: int
    kind: str
    error_type: str
    text: str
    cause: BaseException | None = None


class RuntimeApi:
    """The Runtime API over one connection, which is opened when needed."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = address
        self._host = host.strip("[]")
        self._port = int(port)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Connect, unless a usable connection is there."""
        if self._reader and self._writer and not (self._reader.at_eof() or self._writer.is_closing()):
            return
        self.drop()
        try:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=_READ_LIMIT)
        except OSError as error:
            raise RuntimeApiError(f"cannot connect to {self._address}: {error}") from error

    def drop(self) -> None:
        """Close the connection: what is on it cannot be made sense of, or is no longer wanted."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    def head(self, method: str, path: str, *headers: str) -> bytes:
        """The head of a request."""
        lines = (f"{method} {API}{path} HTTP/1.1", f"Host: {self._address}", *headers, "", "")
        return "\r\n".join(lines).encode("ascii", "replace")

    async def write(self, data: bytes) -> None:
        """Send at once; wait while the other side does not read."""
        if self._writer is None:
            raise RuntimeApiError("not connected")
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise RuntimeApiError(f"the connection was lost: {error}") from error

    async def reply(self) -> Reply:
        """Read one response."""
        if self._reader is None:
            raise RuntimeApiError("not connected")
        try:
            reply = await _read_reply(self._reader)
        except (OSError, EOFError, ValueError, LookupError, asyncio.LimitOverrunError) as error:
            raise RuntimeApiError(f"no valid answer from {self._address}: {error}") from error
        if reply.headers.get("connection", "").lower() == "close":
            self.drop()
        return reply

    async def next(self) -> Invocation:
        """Wait, however long it takes, for the next invocation."""
        await self.open()
        await self.write(self.head("GET", "/invocation/next"))
        reply = await self.reply()
        match reply:
            case Reply(status=200, headers={"lambda-runtime-aws-request-id": request_id}):
                trace_id = reply.headers.get("lambda-runtime-trace-id")
                return Invocation(request_id, _deadline(reply.headers), trace_id, reply.body)
            case _:
                raise RuntimeApiError(f"unexpected answer to next: {reply.status} {reply.body[:200]!r}")

    async def report_init_error(self, error: BaseException) -> None:
        """Tell Lambda that the function cannot start."""
        name = type(error).__name__
        stack = [line.rstrip("\n") for line in traceback.format_tb(error.__traceback__)]
        body = orjson.dumps({"errorMessage": str(error), "errorType": name, "stackTrace": stack})
        headers = (
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            f"{_ERROR_TYPE}: Runtime.{name}",
        )
        await self.open()
        await self.write(self.head("POST", "/init/error", *headers) + body)
        await self.reply()


async def _read_reply(reader: asyncio.StreamReader) -> Reply:
    head = await reader.readuntil(b"\r\n\r\n")
    status_line, *lines = head[:-4].decode("latin-1").split("\r\n")
    status = int(status_line.split(" ", 2)[1])
    fields = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in fields}
    return Reply(status, headers, await _read_body(reader, status, headers))


async def _read_body(reader: asyncio.StreamReader, status: int, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _read_chunks(reader)
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    return b"" if status == 204 else await reader.read()


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    chunks: list[bytes] = []
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        chunks.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass  # trailers
    return b"".join(chunks)


def _deadline(headers: dict[str, str]) -> float:
    milliseconds = headers.get("lambda-runtime-deadline-ms", "")
    if not milliseconds.isdecimal():
        return math.inf
    return asyncio.get_running_loop().time() + int(milliseconds) / 1000 - time.time()


class State(enum.Enum):
    """How far a response is."""

    WAITING = "waiting for http.response.start"
    STREAMING = "waiting for http.response.body"
    DONE = "done"


class ResponseStream:
    """The ASGI `send` of one invocation, as a streamed POST to the Runtime API."""

    def __init__(self, api: RuntimeApi, request_id: str) -> None:
        self._api = api
        self._request_id = request_id
        self.state = State.WAITING
        self.lost: RuntimeApiError | None = None
        self.closed = asyncio.Event()
        self._on_client_gone: Callable[[], None] | None = None

    async def send(self, message: Message) -> None:
        """Pass one ASGI message on."""
        match self.state, message["type"]:
            case State.STREAMING, "http.response.body":
                await self._send_body(message.get("body", b""), message.get("more_body", False))
            case State.WAITING, "http.response.start":
                await self._start(_chunk(prelude(message)))
            case State.DONE, _:
                raise ResponseClosedError("the response is over")
            case state, kind:
                raise RuntimeError(f"ASGI message {kind!r} came while {state.value}")

    def on_client_gone(self, callback: Callable[[], None] | None) -> None:
        """Have it called when nobody takes the response any more; None takes it back."""
        self._on_client_gone = callback
        if self.lost is not None and callback is not None:
            callback()

    async def fail(self, failure: Failure) -> None:
        """End an unfinished response as what it is: failed."""
        match self.state:
            case State.WAITING:
                for message in error_messages(failure.status, failure.kind, failure.text):
                    await self.send(message)
            case State.STREAMING:
                self._close()
                await self._write(b"0\r\n" + _trailers(failure))
            case State.DONE:
                pass

    async def acknowledged(self) -> None:
        """Wait until Lambda has taken the response."""
        if self.lost is not None:
            raise self.lost
        reply = await self._api.reply()
        if reply.status >= 300:
            raise RuntimeApiError(f"the response was refused: {reply.status} {reply.body[:200]!r}")

    async def _start(self, first_chunk: bytes) -> None:
        head = self._api.head(
            "POST",
            f"/invocation/{quote(self._request_id, safe='')}/response",
            f"Content-Type: {CONTENT_TYPE}",
            "Lambda-Runtime-Function-Response-Mode: streaming",
            "Transfer-Encoding: chunked",
            f"Trailer: {_ERROR_TYPE}, {_ERROR_BODY}",
        )
        try:
            await self._api.open()
        except RuntimeApiError as error:
            self._lose(error)
            raise ResponseClosedError from error
        if self.state is not State.WAITING:  # ended while connecting: the connection is another's now
            raise ResponseClosedError("the response is over")
        self.state = State.STREAMING
        await self._write(head + first_chunk)

    async def _send_body(self, body: bytes, more: bool) -> None:
        data = _chunk(body) if body else b""  # an empty chunk would end the stream
        if not more:
            self._close()
            data += b"0\r\n\r\n"
        if data:
            await self._write(data)

    async def _write(self, data: bytes) -> None:
        try:
            await self._api.write(data)
        except RuntimeApiError as error:
            self._lose(error)
            raise ResponseClosedError from error

    def _lose(self, error: RuntimeApiError) -> None:
        self.lost = error
        self._close()
        if self._on_client_gone is not None:
            self._on_client_gone()

    def _close(self) -> None:
        self.state = State.DONE
        self.closed.set()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _trailers(failure: Failure) -> bytes:
    body = orjson.dumps({"errorMessage": failure.text, "errorType": failure.error_type})
    lines = (
        f"{_ERROR_TYPE}: {failure.error_type}",
        f"{_ERROR_BODY}: {base64.b64encode(body).decode('ascii')}",
        "",
        "",
    )
    return "\r\n".join(lines).encode("ascii", "replace")
