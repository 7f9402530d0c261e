"""A Lambda Runtime API on loopback that records what arrives, HTTP chunk by HTTP chunk.

Events are handed out in the order they are pushed. For each, an `Exchange` holds the response as far as
it has arrived, and lets a test wait for the n-th chunk or the end.
"""

from __future__ import annotations

import json
import queue
import socket
import socketserver
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 30.0
PRELUDE_END = bytes(8)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One HTTP chunk and when it had arrived (monotonic)."""

    data: bytes
    at: float


@dataclass(frozen=True, slots=True)
class InitError:
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Exchange:
    """One invocation: what is handed out, how the response is treated, and what came back."""

    request_id: str
    event: bytes
    deadline_seconds: float | None = 30.0
    trace_id: str | None = None
    chunked: bool = False
    hang_up: bool = False
    cut_after: int | None = None
    ack_status: int = 202
    reading: threading.Event = field(default_factory=threading.Event)

    method_and_path: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[Chunk] = field(default_factory=list)
    trailers: dict[str, str] = field(default_factory=dict)
    finished: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    def chunk(self, number: int) -> bytes:
        """Wait for the n-th chunk; the prelude is number 0."""
        self._wait(lambda: len(self.chunks) > number, f"chunk {number}")
        return self.chunks[number].data

    def done(self) -> Exchange:
        """Wait for the end of the response."""
        self._wait(lambda: self.finished, "the end")
        return self

    @property
    def prelude(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self._parts()[0])
        return content

    @property
    def payload(self) -> bytes:
        return self._parts()[1]

    def record(self, chunk: bytes) -> None:
        with self.changed:
            self.chunks.append(Chunk(chunk, time.monotonic()))
            self.changed.notify_all()

    def finish(self, trailers: dict[str, str]) -> None:
        with self.changed:
            self.trailers = trailers
            self.finished = True
            self.changed.notify_all()

    def _parts(self) -> tuple[bytes, bytes]:
        head, end, payload = b"".join(chunk.data for chunk in self.chunks).partition(PRELUDE_END)
        assert end == PRELUDE_END
        return head, payload

    def _wait(self, condition: Any, what: str) -> None:
        with self.changed:
            arrived = self.changed.wait_for(condition, PATIENCE)
        assert arrived, f"{what} did not arrive; so far: {self.chunks}, {self.trailers}"


class RuntimeApi:
    """What the tests see of the server."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Exchange | None] = queue.SimpleQueue()
        self._by_id: dict[str, Exchange] = {}
        self._ids = count(1)
        self._connections: set[socket.socket] = set()
        self.init_errors: queue.SimpleQueue[InitError] = queue.SimpleQueue()
        self.connections_seen = 0
        self.address = ""

    def push(self, event: object, *, reading: bool = True, **options: Any) -> Exchange:
        """Queue an event (bytes go out as they are)."""
        payload = event if isinstance(event, bytes) else json.dumps(event).encode()
        exchange = Exchange(f"request-{next(self._ids)}", payload, **options)
        if reading:
            exchange.reading.set()
        self._by_id[exchange.request_id] = exchange
        self._waiting.put(exchange)
        return exchange

    def vanish(self) -> None:
        """Close the connection that waits for an event."""
        self._waiting.put(None)

    def close(self) -> None:
        """Let every handler thread end."""
        for exchange in self._by_id.values():
            exchange.reading.set()
        for connection in list(self._connections):
            shut_down(connection)
        self._waiting.put(None)

    def handle(self, connection: socket.socket, rfile: Any, wfile: Any) -> None:
        """Serve one connection."""
        self.connections_seen += 1
        self._connections.add(connection)
        try:
            while self._request(rfile, wfile):
                pass
        except OSError:
            pass  # the other side is gone, which a test may have wanted
        finally:
            self._connections.discard(connection)

    def _request(self, rfile: BinaryIO, wfile: Any) -> bool:
        line = rfile.readline().decode()
        if not line:
            return False
        headers = read_fields(rfile)
        method, path, _ = line.split(" ")
        match method, path.removeprefix("/2018-06-01/runtime").split("/")[1:]:
            case "GET", ["invocation", "next"]:
                return self._next(wfile)
            case "POST", ["invocation", request_id, "response"]:
                exchange = self._by_id[request_id]
                exchange.method_and_path, exchange.headers = f"{method} {path}", headers
                return self._response(exchange, rfile, wfile)
            case "POST", ["init", "error"]:
                body = json.loads(rfile.read(int(headers["content-length"])))
                self.init_errors.put(InitError(headers, body))
                return answer(wfile, 202)
            case _:
                return answer(wfile, 404)

    def _next(self, wfile: Any) -> bool:
        exchange = self._waiting.get()
        if exchange is None:
            return False
        fields = {"Lambda-Runtime-Aws-Request-Id": exchange.request_id}
        if exchange.deadline_seconds is not None:
            milliseconds = int((time.time() + exchange.deadline_seconds) * 1000)
            fields["Lambda-Runtime-Deadline-Ms"] = str(milliseconds)
        if exchange.trace_id is not None:
            fields["Lambda-Runtime-Trace-Id"] = exchange.trace_id
        if exchange.hang_up:
            fields["Connection"] = "close"
        answer(wfile, 200, fields, exchange.event, chunked=exchange.chunked)
        return not exchange.hang_up

    def _response(self, exchange: Exchange, rfile: BinaryIO, wfile: Any) -> bool:
        assert exchange.headers["transfer-encoding"] == "chunked"
        while size := int(rfile.readline(), 16):
            exchange.record(rfile.read(size))
            assert rfile.readline() == b"\r\n"
            if len(exchange.chunks) == exchange.cut_after:
                return False
            exchange.reading.wait(PATIENCE)
        trailers = read_fields(rfile)
        answer(wfile, exchange.ack_status)
        exchange.finish(trailers)
        return True


def read_fields(rfile: BinaryIO) -> dict[str, str]:
    """Header or trailer fields up to the empty line; names in lower case."""
    fields = {}
    while line := rfile.readline().decode("latin-1").rstrip("\r\n"):
        name, _, value = line.partition(":")
        fields[name.lower()] = value.strip()
    return fields


def answer(
    wfile: Any,
    status: int,
    fields: dict[str, str] | None = None,
    body: bytes = b'{"status":"OK"}\n',
    *,
    chunked: bool = False,
) -> bool:
    """Answer, in the transfer encoding that is asked for."""
    framing = {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(len(body))}
    lines = [f"{name}: {value}" for name, value in {**(fields or {}), **framing}.items()]
    wfile.write("\r\n".join([f"HTTP/1.1 {status} Text", *lines, "", ""]).encode())
    if chunked:
        step = max(1, len(body) // 7)
        for start in range(0, len(body), step):
            piece = body[start : start + step]
            wfile.write(b"%X;extension=1\r\n%b\r\n" % (len(piece), piece))
        wfile.write(b"0\r\nChecked: no\r\n\r\n")
    else:
        wfile.write(body)
    wfile.flush()
    return True


def shut_down(connection: socket.socket) -> None:
    """End a connection that another thread reads."""
    with suppress(OSError):  # it may have ended by itself
        connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def runtime_api() -> Iterator[RuntimeApi]:
    """The server, on a free port."""
    api = RuntimeApi()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            api.handle(self.connection, self.rfile, self.wfile)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        api.address = f"127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield api
        finally:
            api.close()
            server.shutdown()
            thread.join()
