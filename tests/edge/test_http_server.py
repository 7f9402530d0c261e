"""The HTTP server under `bridge serve` behaves as uvicorn does, on real sockets; some rules are its alone."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st

from handler.asgi import CLIENT_GONE
from handler.http1.connection import Connection, Limits
from handler.http1.exchange import MAX_DRAINED_BYTES, Exchange
from handler.http1.request_head import MAX_HEAD_BYTES, MAX_HEADERS
from handler.http1.server import HttpServer, StartError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from handler.asgi import ASGIApp, Message, Receive, Scope, Send

pytestmark = pytest.mark.req("C12")
both = pytest.mark.parametrize("kind", ["uvicorn", "ours"])

HOST = b"host: h\r\n"
GET = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
HI = [(b"content-length", b"2")]


class Uvicorn:
    """uvicorn under the interface of ours."""

    def __init__(self, app: ASGIApp, *, grace_seconds: float = 2.0, lifespan: bool = True) -> None:
        config = uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            lifespan="on" if lifespan else "off",
            timeout_graceful_shutdown=grace_seconds,  # type: ignore[arg-type]
        )
        self._server = uvicorn.Server(config)

    async def serve(self, listener: socket.socket) -> None:
        await self._server.serve(sockets=[listener])

    def stop(self) -> None:
        self._server.should_exit = True


SERVERS: dict[str, Any] = {"uvicorn": Uvicorn, "ours": HttpServer}


def listening(family: socket.AddressFamily = socket.AF_INET) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("::1" if family is socket.AF_INET6 else "127.0.0.1", 0))
    listener.listen(128)
    return listener


@asynccontextmanager
async def serving(kind: str, app: ASGIApp, **options: Any) -> AsyncIterator[int]:
    """A server with this app; yields its port. It has ended when this ends."""
    server = SERVERS[kind](app, **{"lifespan": False} | options)
    with listening() as listener:
        task = asyncio.create_task(server.serve(listener))
        try:
            yield listener.getsockname()[1]
        finally:
            server.stop()
            await asyncio.wait_for(task, 10)


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await test

    asyncio.run(bounded())


async def until(met: Callable[[], bool]) -> None:
    for _ in range(1000):
        if met():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came to that")


def alive() -> int:
    """How many connections and exchanges there are on this loop: other tests' bridges have loops of their own."""
    loop = asyncio.get_running_loop()
    things = [thing for thing in gc.get_objects() if isinstance(thing, Connection | Exchange)]
    connections = [thing if isinstance(thing, Connection) else thing._connection for thing in things]
    return sum(connection.loop is loop for connection in connections)


# --- a client that sees every byte ------------------------------------------------------------------


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    is_whole: bool = True


class Client:
    """A connection; reads answers as they stand on the wire."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.interim: list[int] = []

    async def send(self, wire: bytes, size: int = 1 << 20) -> None:
        for start in range(0, len(wire), size):
            self.writer.write(wire[start : start + size])
            await asyncio.sleep(0)

    async def answer(self, method: str = "GET") -> Answer:
        status, headers = await self.head()
        while status < 200:
            self.interim.append(status)
            status, headers = await self.head()
        if method == "HEAD" or status in (204, 304):
            return Answer(status, headers, b"")
        try:
            return Answer(status, headers, await self._body(headers))
        except asyncio.IncompleteReadError as cut:
            return Answer(status, headers, cut.partial, is_whole=False)

    async def head(self) -> tuple[int, dict[str, str]]:
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")[:-4].split("\r\n")
        pairs = [line.split(": ", 1) for line in lines]
        assert len({name for name, _ in pairs}) == len(pairs), "a header came twice"
        assert first.startswith("HTTP/1.1 ")
        return int(first.split(" ")[1]), dict(pairs)

    async def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            assert "content-length" not in headers
            pieces = []
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                pieces.append(await self.reader.readexactly(size))
                assert await self.reader.readexactly(2) == b"\r\n"
            assert await self.reader.readexactly(2) == b"\r\n"
            return b"".join(pieces)
        if "content-length" in headers:
            return await self.reader.readexactly(int(headers["content-length"]))
        return await self.reader.read()

    async def ask(self, wire: bytes = GET, method: str = "GET") -> Answer:
        await self.send(wire)
        return await self.answer(method)

    async def is_closed(self) -> bool:
        """True if the server closes this connection, and says nothing more before."""
        try:
            return await asyncio.wait_for(self.reader.read(1), 5) == b""
        except ConnectionError:
            return True

    async def is_open(self) -> bool:
        answer = await self.ask()
        return answer.status > 0


@asynccontextmanager
async def connected(port: int, limit: int = 1 << 20) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


# --- apps -------------------------------------------------------------------------------------------


def start(status: int = 200, headers: Sequence[tuple[bytes, bytes]] = ()) -> Message:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def piece(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def read_body(receive: Receive) -> bytes:
    pieces, more = [], True
    while more:
        message = await receive()
        assert message["type"] == "http.request", "the client left"
        pieces.append(message["body"])
        more = message["more_body"]
    return b"".join(pieces)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with what was asked."""
    body = await read_body(receive)
    told = {
        "method": scope["method"],
        "path": scope["path"],
        "raw_path": scope["raw_path"].decode(),
        "query": scope["query_string"].decode(),
        "version": scope["http_version"],
        "headers": [[name.decode(), value.decode("latin-1")] for name, value in scope["headers"]],
        "body": body.decode("latin-1"),
    }
    data = json.dumps(told).encode()
    await send(start(headers=[(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data))]))
    await send(piece(data))


def sending(*messages: Message) -> ASGIApp:
    """Read the request and send these."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        for message in messages:
            await send(dict(message))

    return app


hello = sending(start(headers=HI), piece(b"hi"))


# --- requests ---------------------------------------------------------------------------------------


def post(body: bytes, *lines: bytes, target: bytes = b"/") -> bytes:
    head = [b"POST " + target + b" HTTP/1.1", b"host: h", *lines, b"content-length: %d" % len(body)]
    return b"\r\n".join([*head, b"", body])


def chunked(*framed: bytes, lines: Sequence[bytes] = ()) -> bytes:
    head = [b"POST / HTTP/1.1", b"host: h", *lines, b"transfer-encoding: chunked"]
    return b"\r\n".join([*head, b"", b"".join(framed)])


TRAILED = chunked(b"3;x=y\r\nabc\r\n", b"0\r\nx-sum: 1\r\n\r\n")

# name: what is on the wire, and what the app is told of it
REQUESTS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "plain": (GET, {"method": "GET", "path": "/", "query": "", "body": "", "headers": [["host", "h"]]}),
    "with a query": (b"GET /a/b?c=d&e HTTP/1.1\r\n" + HOST + b"\r\n", {"path": "/a/b", "query": "c=d&e"}),
    "quoted": (b"GET /a%20b%2Fc HTTP/1.1\r\n" + HOST + b"\r\n", {"path": "/a b/c", "raw_path": "/a%20b%2Fc"}),
    "with a fragment": (b"GET /a?b#c HTTP/1.1\r\n" + HOST + b"\r\n", {"path": "/a", "query": "b"}),
    "absolute": (b"GET http://h/a?b HTTP/1.1\r\n" + HOST + b"\r\n", {"path": "/a", "query": "b"}),
    "of the server": (b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", {"method": "OPTIONS", "path": "*"}),
    "with a body": (post(b"abc", b"X-Case: Kept"), {"method": "POST", "body": "abc"}),
    "with odd headers": (
        b"GET / HTTP/1.1\r\nHOST:h\r\nX-Empty:\r\nX-Two: 1\r\nX-Two: 2\r\nx-latin: \xfc\r\n\r\n",
        {"headers": [["host", "h"], ["x-empty", ""], ["x-two", "1"], ["x-two", "2"], ["x-latin", "ü"]]},
    ),
    "chunked": (chunked(b"2\r\nab\r\n", b"1\r\nc\r\n", b"0\r\n\r\n"), {"body": "abc"}),
    "chunked with extensions and trailers": (TRAILED, {"body": "abc"}),
    "after empty lines": (b"\r\n\r\n" + GET, {"method": "GET", "path": "/"}),
    "with an upgrade without a body": (
        b"GET /a HTTP/1.1\r\n" + HOST + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n",
        {"method": "GET", "path": "/a", "body": ""},
    ),
}


@both
@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("case", REQUESTS)
def test_a_request_is_read_however_it_is_split(kind: str, case: str, size: int) -> None:
    wire, expected = REQUESTS[case]

    async def test() -> None:
        async with serving(kind, echo) as port, connected(port) as client:
            for _ in range(2):
                await client.send(wire, size)
                answer = await client.answer()
                assert answer.status == 200
                told = json.loads(answer.body)
                assert {name: told[name] for name in expected} == expected

    run(test())


@given(st.lists(st.integers(1, 400), max_size=12), st.lists(st.sampled_from(list(REQUESTS)), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_any_split_of_any_requests_in_a_row_gives_the_same(cuts: list[int], cases: list[str]) -> None:
    async def test() -> None:
        async with serving("ours", echo) as port, connected(port) as client:
            rest = b"".join(REQUESTS[case][0] for case in cases)
            for cut in cuts:
                await client.send(rest[:cut])
                rest = rest[cut:]
            await client.send(rest)
            for case in cases:
                told = json.loads((await client.answer()).body)
                expected = REQUESTS[case][1]
                assert {name: told[name] for name in expected} == expected

    run(test())


@both
def test_the_scope_says_who_is_connected(kind: str) -> None:
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await hello(scope, receive, send)

    async def test() -> None:
        async with serving(kind, app) as port, connected(port) as client:
            await client.ask()
            assert scopes[0]["client"] == client.writer.get_extra_info("sockname")
            assert scopes[0]["server"] == ("127.0.0.1", port)
        told = {name: scopes[0][name] for name in ("type", "scheme", "root_path", "http_version")}
        assert told == {"type": "http", "scheme": "http", "root_path": "", "http_version": "1.1"}
        assert scopes[0]["asgi"]["version"] == "3.0"

    run(test())


def test_trailers_are_not_headers() -> None:
    async def test() -> None:
        async with serving("ours", echo) as port, connected(port) as client:
            for size in (1, 10_000):
                await client.send(TRAILED + GET, size)
                headers = [json.loads((await client.answer()).body)["headers"] for _ in range(2)]
                assert headers == [[["host", "h"], ["transfer-encoding", "chunked"]], [["host", "h"]]]

    run(test())


def test_an_upgrade_with_a_body_is_served_as_if_it_were_not_asked_for() -> None:
    asks = (b"connection: upgrade, http2-settings", b"upgrade: h2c", b"http2-settings: AAMAAABk")
    sized = post(b"abc", *asks)
    wire = sized + sized + chunked(b"3\r\ndef\r\n0\r\n\r\n", lines=asks) + GET

    async def test(size: int) -> None:
        async with serving("ours", echo) as port, connected(port) as client:
            await client.send(wire, size)
            bodies = [json.loads((await client.answer()).body)["body"] for _ in range(4)]
            assert bodies == ["abc", "abc", "def", ""]

    for size in (1, 50, 10_000):
        run(test(size))


def test_a_listener_of_ipv6() -> None:
    async def test() -> None:
        server, addresses = HttpServer(app, lifespan=False), []  # type: HttpServer, list[Any]
        with listening(socket.AF_INET6) as listener:
            task = asyncio.create_task(server.serve(listener))
            reader, writer = await asyncio.open_connection("::1", listener.getsockname()[1])
            assert (await Client(reader, writer).ask()).body == b"hi"
            addresses += SEEN
            writer.close()
            server.stop()
            await task
        assert addresses[0][0] == "::1"
        assert len(addresses[0]) == 2

    SEEN: list[Any] = []  # noqa: N806

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        SEEN.append(scope["client"])
        await hello(scope, receive, send)

    run(test())


# --- answers ----------------------------------------------------------------------------------------

# name: method, what the app sends, status, body, headers of the framing
ANSWERS: dict[str, tuple[str, list[Message], int, bytes, dict[str, str]]] = {
    "of known length": ("GET", [start(headers=HI), piece(b"hi")], 200, b"hi", {"content-length": "2"}),
    "in pieces": (
        "POST",
        [start(), piece(b"one", more=True), piece(b"", more=True), piece(b"two", more=True), piece(b"")],
        200,
        b"onetwo",
        {"transfer-encoding": "chunked"},
    ),
    "with a last piece": ("GET", [start(), piece(b"a", more=True), piece(b"b")], 200, b"ab", {}),
    "empty": ("GET", [start(headers=[(b"content-length", b"0")]), piece(b"")], 200, b"", {"content-length": "0"}),
    "empty and chunked": ("GET", [start(), piece(b"")], 200, b"", {"transfer-encoding": "chunked"}),
    "with a body left out": ("GET", [start(), {"type": "http.response.body"}], 200, b"", {}),
    "to HEAD": ("HEAD", [start(headers=HI), piece(b"hi")], 200, b"", {"content-length": "2"}),
    "to HEAD without a length": ("HEAD", [start(), piece(b"hi", more=True), piece(b"")], 200, b"", {}),
    "204": ("POST", [start(204), piece(b"")], 204, b"", {}),
    "304": ("GET", [start(304), piece(b"")], 304, b"", {}),
    "of a status without a name": ("GET", [start(599, HI), piece(b"hi")], 599, b"hi", {}),
    "with a name in upper case": ("GET", [start(headers=[(b"Content-Length", b"2")]), piece(b"hi")], 200, b"hi", {}),
    "sized, in pieces": ("GET", [start(headers=HI), piece(b"h", more=True), piece(b"i")], 200, b"hi", {}),
}
FRAMING = {"content-length", "transfer-encoding"}


@both
@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_is_framed_and_the_connection_serves_another(kind: str, case: str) -> None:
    method, messages, status, body, framing = ANSWERS[case]

    async def test() -> None:
        async with serving(kind, sending(*messages)) as port, connected(port) as client:
            for _ in range(2):
                answer = await client.ask(method.encode() + b" / HTTP/1.1\r\n" + HOST + b"\r\n", method)
                assert (answer.status, answer.body, answer.is_whole) == (status, body, True)
                assert framing.items() <= answer.headers.items()
                assert "connection" not in answer.headers
                if method == "HEAD" or status in (204, 304):
                    assert {name for name in answer.headers if name in FRAMING} == set(framing)
                sent = time.strptime(answer.headers["date"], "%a, %d %b %Y %H:%M:%S GMT")
                assert abs(time.mktime(sent) - time.mktime(time.gmtime())) < 5

    run(test())


@both
def test_headers_leave_in_their_order(kind: str) -> None:
    pairs = [(b"x-b", b"1"), (b"content-length", b"2"), (b"x-a", b"\xfc,  d")]

    async def test() -> None:
        async with serving(kind, sending(start(headers=pairs), piece(b"hi"))) as port, connected(port) as client:
            answer = await client.ask()
            own = [(name, value) for name, value in answer.headers.items() if name != "date"]
            assert own == [("x-b", "1"), ("content-length", "2"), ("x-a", "ü,  d")]

    run(test())


@both
@pytest.mark.parametrize(
    "headers",
    [
        [(b"x-evil", b"a\r\nset: b")],
        [(b"x-evil", b"a\nb")],
        [(b"x-evil", b"a\rb")],
        [(b"x-evil", b"a\x00b")],
        [(b"x evil", b"a")],
        [(b"x-evil\r\ny", b"a")],
        [(b"x-evil:", b"a")],
        [(b"x-good", b"a\r\nset: b"), (b"x-good", b"b")],
    ],
)
def test_a_header_cannot_begin_another(kind: str, headers: list[tuple[bytes, bytes]]) -> None:
    caught: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send(start(headers=headers))
        except RuntimeError as error:
            caught.append(str(error))
            raise

    async def test() -> None:
        async with serving(kind, app) as port, connected(port) as client:
            if kind == "ours":
                assert (await client.ask()).status == 500
            else:  # it counts as begun
                await client.send(GET)
            assert await client.is_closed()
        assert len(caught) == 1

    run(test())


@pytest.mark.parametrize("status", [100, 101, 199, 99, 1000])
def test_a_status_that_ends_nothing_is_refused(status: int) -> None:
    async def test() -> None:
        async with serving("ours", sending(start(status), piece(b""))) as port, connected(port) as client:
            assert (await client.ask()).status == 500

    run(test())


@both
def test_an_app_may_close_the_connection(kind: str) -> None:
    async def test() -> None:
        app = sending(start(headers=[*HI, (b"connection", b"close")]), piece(b"hi"))
        async with serving(kind, app) as port, connected(port) as client:
            answer = await client.ask()
            assert (answer.body, answer.headers["connection"]) == (b"hi", "close")
            assert await client.is_closed()

    run(test())


def test_framing_is_the_servers_business() -> None:
    headers = [(b"transfer-encoding", b"gzip"), (b"Connection", b"keep-alive"), (b"date", b"then"), (b"x-a", b"b")]

    async def test() -> None:
        async with serving("ours", sending(start(headers=headers), piece(b"hi"))) as port, connected(port) as client:
            answer = await client.ask()
            assert answer.headers == {"transfer-encoding": "chunked", "date": "then", "x-a": "b"}
            assert answer.body == b"hi"
            answer = await client.ask(b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
            assert answer.headers["connection"] == "close"

    run(test())


@both
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_client_that_wants_the_end_gets_it(kind: str, version: str) -> None:
    async def test() -> None:
        async with serving(kind, hello) as port, connected(port) as client:
            answer = await client.ask(f"GET / HTTP/{version}\r\nhost: h\r\nconnection: close\r\n\r\n".encode() + GET)
            assert (answer.body, answer.headers["connection"]) == (b"hi", "close")
            assert await client.is_closed()

    run(test())


@pytest.mark.parametrize("lines", [b"", b"connection: keep-alive\r\n"])
def test_an_old_client_is_sent_no_chunks(lines: bytes) -> None:
    async def test() -> None:
        app = sending(start(), piece(b"one", more=True), piece(b"two"))
        async with serving("ours", app) as port, connected(port) as client:
            answer = await client.ask(b"GET / HTTP/1.0\r\n" + lines + b"\r\n" + GET)
            assert answer.body == b"onetwo"
            assert "transfer-encoding" not in answer.headers
            assert answer.headers["connection"] == "close"

    run(test())


def test_an_old_client_notices_an_answer_that_is_cut() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start())
        await send(piece(b"one", more=True))
        await receive()
        raise ValueError("broken")

    async def test() -> None:
        async with serving("ours", app) as port, connected(port) as client:
            await client.send(b"GET / HTTP/1.0\r\n\r\n")
            with pytest.raises(ConnectionResetError):
                await client.reader.read()

    run(test())


def test_head_and_first_piece_leave_in_one_write() -> None:
    """Loopback delivers at once, so the app can see what its client has."""
    seen: list[bytes] = []

    def arrived(client: socket.socket) -> bytes:
        try:
            return client.recv(65536, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""

    async def test() -> None:
        with socket.socket() as client:

            async def app(scope: Scope, receive: Receive, send: Send) -> None:
                await send(start())
                seen.append(arrived(client))
                await send(piece(b"", more=True))
                seen.append(arrived(client))
                await send(piece(b"first", more=True))
                seen.append(arrived(client))
                await send(piece(b"last"))
                seen.append(arrived(client))

            async with serving("ours", app) as port:
                client.connect(("127.0.0.1", port))
                client.sendall(GET)
                await until(lambda: len(seen) == 4)
        assert seen[:2] == [b"", b""]
        assert seen[2].startswith(b"HTTP/1.1 200 OK\r\n")
        assert seen[2].endswith(b"\r\n\r\n5\r\nfirst\r\n")
        assert seen[3].endswith(b"5\r\nfirst\r\n4\r\nlast\r\n0\r\n\r\n")

    run(test())


@both
def test_a_head_does_not_wait_for_a_body_that_is_late(kind: str) -> None:
    async def test() -> None:
        go_on = asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await send(start())
            await go_on.wait()
            await send(piece(b"late"))

        async with serving(kind, app) as port, connected(port) as client:
            await client.send(GET)
            status, headers = await client.head()
            assert status == 200
            go_on.set()
            assert await client._body(headers) == b"late"

    run(test())


# --- apps that fail -----------------------------------------------------------------------------------


async def fails_at_once(scope: Scope, receive: Receive, send: Send) -> None:
    raise ValueError("broken")


async def says_nothing(scope: Scope, receive: Receive, send: Send) -> None:
    await read_body(receive)


async def sends_a_body_only(scope: Scope, receive: Receive, send: Send) -> None:
    await send(piece(b"hi"))


FAILURES = {"raises": fails_at_once, "says nothing": says_nothing, "sends a body without a head": sends_a_body_only}


@both
@pytest.mark.parametrize("case", FAILURES)
def test_an_app_that_fails_before_its_answer_is_a_500(kind: str, case: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with serving(kind, FAILURES[case]) as port, connected(port) as client:
            answer = await client.ask()
            assert (answer.status, answer.body) == (500, b"Internal Server Error")
            assert answer.headers["content-type"].startswith("text/plain")
            assert answer.headers["connection"] == "close"
            assert await client.is_closed()

    run(test())
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.name for record in errors] == ["toolbridge" if kind == "ours" else "uvicorn.error"]


CUT: dict[str, list[Message | None]] = {
    "raises": [start(), piece(b"part", more=True), None],
    "returns too early": [start(), piece(b"part", more=True)],
    "sends less than it said": [start(headers=[(b"content-length", b"9")]), piece(b"part")],
    "sends more than it said": [start(headers=[(b"content-length", b"5")]), piece(b"part", more=True), piece(b"more")],
    "begins twice": [start(), piece(b"part", more=True), start()],
}


@both
@pytest.mark.parametrize("case", CUT)
def test_an_answer_that_breaks_off_is_noticed(kind: str, case: str, caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in CUT[case]:
            if message is None:
                raise ValueError("broken")
            await send(dict(message))
            await asyncio.sleep(0)

    async def test() -> None:
        async with serving(kind, app) as port, connected(port) as client:
            answer = await client.ask()
            assert not answer.is_whole
            assert await client.is_closed()

    run(test())
    assert [record.levelname for record in caplog.records if record.levelno >= logging.ERROR] == ["ERROR"]


def test_an_app_that_fails_in_the_turn_of_its_head_is_a_500() -> None:
    async def test() -> None:
        app = sending(start(headers=HI), piece(b"too long"))
        async with serving("ours", app) as port, connected(port) as client:
            assert (await client.ask()).status == 500

    run(test())


@both
def test_nothing_follows_a_complete_answer(kind: str) -> None:
    refused: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await hello(scope, receive, send)
        try:
            await send(piece(b"more"))
        except RuntimeError as error:
            refused.append(str(error))

    async def test() -> None:
        async with serving(kind, app) as port, connected(port) as client:
            assert (await client.ask()).body == b"hi"
            assert (await client.ask()).body == b"hi"
        assert len(refused) == 2

    run(test())


def test_a_body_where_there_is_none_is_refused() -> None:
    async def test() -> None:
        async with serving("ours", sending(start(204), piece(b"hi"))) as port, connected(port) as client:
            assert (await client.ask()).status == 500

    run(test())


# --- bodies of requests -------------------------------------------------------------------------------


@both
def test_a_body_is_handed_over_as_it_arrives(kind: str) -> None:
    async def test() -> None:
        pieces: asyncio.Queue[Message] = asyncio.Queue()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            message: Message = {"more_body": True}
            while message["more_body"]:
                message = await receive()
                pieces.put_nowait(message)
            await send(start(headers=HI))
            await send(piece(b"hi"))

        async with serving(kind, app) as port, connected(port) as client:
            await client.send(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 6\r\n\r\n")
            told = b""
            for part in (b"ab", b"cd", b"ef"):
                await client.send(part)
                while len(told) < 6 and not told.endswith(part):
                    message = await pieces.get()
                    told += message["body"]
                assert message["more_body"] is (part != b"ef")
            assert told == b"abcdef"
            assert (await client.answer()).body == b"hi"

    run(test())


@both
def test_a_body_that_nobody_takes_is_not_read_on(kind: str) -> None:
    total = 16 << 20

    async def test() -> None:
        go_on, taken = asyncio.Event(), []  # type: asyncio.Event, list[int]

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await go_on.wait()
            taken.append(len((await receive())["body"]))
            taken.append(len(await read_body(receive)))
            await send(start(headers=HI))
            await send(piece(b"hi"))

        async with serving(kind, app) as port, connected(port) as client:
            client.writer.write(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % total + bytes(total))
            left = -1
            for _ in range(200):  # until it moves no more
                await asyncio.sleep(0.02)
                left, before = client.writer.transport.get_write_buffer_size(), left
                if left == before:
                    break
            assert left > 0, "all of it was taken"
            go_on.set()
            assert (await client.answer()).body == b"hi"
            assert sum(taken) == total
            assert taken[0] < 1 << 20

    run(test())


@both
@pytest.mark.parametrize("size", [0, 1, 65_536, 5_000_000])
def test_large_bodies_go_both_ways(kind: str, size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        data = await read_body(receive)
        await send(start())
        for begin in range(0, len(data), 300_000):
            await send(piece(data[begin : begin + 300_000], more=True))
        await send(piece(b""))

    async def test() -> None:
        framed = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:7], body[7:]) if part)
        async with serving(kind, app) as port, connected(port) as client:
            for wire in (post(body), chunked(framed, b"0\r\n\r\n")):
                sending_it = asyncio.create_task(client.send(wire))
                assert (await client.answer()).body == body
                await sending_it

    run(test())


@both
def test_a_client_that_waits_for_leave_gets_it_when_the_app_reads(kind: str) -> None:
    async def test() -> None:
        async with serving(kind, echo) as port, connected(port) as client:
            head = b"POST / HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n"
            for _ in range(2):
                await client.send(head)
                assert (await client.head())[0] == 100
                await client.send(b"abc")
                assert json.loads((await client.answer()).body)["body"] == "abc"

    run(test())


def test_a_client_that_waits_for_leave_and_gets_an_answer_is_closed() -> None:
    async def test() -> None:
        app = partial_read(0)
        async with serving("ours", app) as port, connected(port) as client:
            await client.send(b"POST / HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n")
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"], client.interim) == (413, "close", [])
            assert await client.is_closed()
        async with serving("ours", echo) as port, connected(port) as client:  # it did not wait after all
            answer = await client.ask(post(b"abc", b"expect: 100-continue") + GET)
            assert (answer.status, client.interim) == (200, [])

    run(test())


def partial_read(times: int) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET":
            await hello(scope, receive, send)
            return
        for _ in range(times):
            await receive()
        await send(start(413, HI))
        await send(piece(b"no"))

    return app


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n"


@pytest.mark.parametrize("times", [0, 1])
@pytest.mark.parametrize("is_late", [True, False])
def test_what_is_left_of_a_body_is_never_a_request(times: int, is_late: bool) -> None:
    body = SMUGGLED * 20

    async def test() -> None:
        async with serving("ours", partial_read(times)) as port, connected(port) as client:
            head, _, _ = post(body).partition(b"\r\n\r\n")
            await client.send(head + b"\r\n\r\n" + (body[:5] if is_late else body))
            answer = await client.answer()
            assert answer.status == 413
            assert "connection" not in answer.headers  # little is left: it is read and thrown away
            if is_late:
                await client.send(body[5:])
            assert (await client.ask()).body == b"hi"

    run(test())


def test_a_body_above_the_mark_that_is_not_wanted_does_not_block_the_connection() -> None:
    """It was not read any further, and what is left of it is little enough to be thrown away."""
    body, early = bytes(130_000), 80_000

    async def test() -> None:
        go_on = asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await go_on.wait()
            await partial_read(0)(scope, receive, send)

        async with serving("ours", app) as port, connected(port) as client:
            wire = post(body)
            await client.send(wire[:early], 20_000)
            await asyncio.sleep(0.02)
            go_on.set()
            answer = await client.answer()
            assert (answer.status, "connection" in answer.headers) == (413, False)
            await client.send(wire[early:], 10_000)
            assert (await client.ask()).body == b"hi"

    run(test())


@pytest.mark.parametrize(
    "wire", [post(bytes(20_000_000)), b"GET / HTTP/1.1\r\nx: " + b"a" * 20_000_000], ids=["body", "head"]
)
def test_a_client_that_reads_when_all_is_sent_finds_its_answer(wire: bytes) -> None:
    def ask(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(wire)
            return client.recv(100)

    async def test() -> None:
        async with serving("ours", partial_read(0)) as port:
            said = await asyncio.to_thread(ask, port)
            assert said.startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 431 "))

    run(test())


def test_a_client_that_is_refused_sees_the_end_before_the_server_stops_listening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("handler.http1.connection.LINGER_SECONDS", 60.0)

    async def test() -> None:
        async with serving("ours", echo) as port, connected(port) as client:
            assert (await client.ask(b"BAD\r\n\r\n")).status == 400
            assert await client.is_closed()

    run(test())


@pytest.mark.parametrize("is_chunked", [True, False])
def test_a_long_body_that_is_not_wanted_ends_the_connection_after_the_answer(is_chunked: bool) -> None:
    body = SMUGGLED * 100_000
    assert len(body) > MAX_DRAINED_BYTES

    async def test() -> None:
        async with serving("ours", partial_read(0)) as port, connected(port) as client:
            wire = chunked(b"%x\r\n" % len(body), body) if is_chunked else post(body)
            sending_it = asyncio.create_task(client.send(wire, 100_000))
            answer = await client.answer()
            assert (answer.status, answer.body, answer.headers["connection"]) == (413, b"no", "close")
            assert await client.is_closed()
            await sending_it

    run(test())


# --- a connection's life --------------------------------------------------------------------------------


@both
def test_requests_in_a_row_are_answered_in_order(kind: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        await asyncio.sleep(0.01 if scope["path"] == "/0" else 0)
        await send(start())
        await send(piece(scope["path"].encode() + b" " + body))

    async def test() -> None:
        wire = b"".join(post(b"%d" % number * 100, target=b"/%d" % number) for number in range(30))
        async with serving(kind, app) as port, connected(port) as client:
            await client.send(wire)
            for number in range(30):
                assert (await client.answer()).body == b"/%d " % number + b"%d" % number * 100

    run(test())


def test_requests_that_wait_for_their_turn_are_bounded() -> None:
    async def test() -> None:
        go_on, served = asyncio.Event(), []  # type: asyncio.Event, list[str]

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            served.append(scope["path"])
            await go_on.wait()
            await hello(scope, receive, send)

        async with serving("ours", app) as port, connected(port) as client:
            count = 200_000
            client.writer.write(GET * count)
            left = -1
            for _ in range(200):
                await asyncio.sleep(0.02)
                left, before = client.writer.transport.get_write_buffer_size(), left
                if left == before:
                    break
            assert left > 0, "all of it was taken"
            assert served == ["/"]
            go_on.set()
            for _ in range(5000):
                assert (await client.answer()).body == b"hi"

    run(test())


def test_a_bad_request_behind_a_good_one_is_answered_after_it() -> None:
    async def test() -> None:
        go_on = asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await go_on.wait()
            await hello(scope, receive, send)

        for wire in (GET + GET + b"BAD\r\n\r\n", GET + GET + chunked(b"zz\r\n")):
            go_on.clear()
            async with serving("ours", app) as port, connected(port) as client:
                await client.send(wire)
                await asyncio.sleep(0.02)
                go_on.set()
                assert [(await client.answer()).status for _ in range(3)] == [200, 200, 400]
                assert await client.is_closed()

    run(test())


@both
def test_a_client_that_leaves_is_told_to_the_app(kind: str) -> None:
    async def test() -> None:
        messages: list[Any] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await read_body(receive)
            await send(start())
            await send(piece(b"first", more=True))
            messages.append((await receive())["type"])
            messages.append((await receive())["type"])
            for _ in range(20):  # goes nowhere, and hurts nobody
                await send(piece(b"more" * 100_000, more=True))
            await send(piece(b""))
            messages.append("end")

        for leave in ("close", "reset", "half close"):
            messages.clear()
            async with serving(kind, app) as port, connected(port) as client:
                await client.send(post(b"abc"))
                await client.head()
                await leaving(client, leave)
                await until(lambda: len(messages) == 3)
            assert messages == ["http.disconnect", "http.disconnect", "end"]

    run(test())


async def leaving(client: Client, how: str) -> None:
    if how == "half close":
        client.writer.write_eof()
        return
    if how == "reset":
        linger = struct.pack("ii", 1, 0)
        client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    client.writer.close()
    with suppress(ConnectionError):
        await client.writer.wait_closed()


@both
def test_a_client_that_leaves_before_its_body_is_complete(kind: str) -> None:
    async def test() -> None:
        kinds: list[str] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            message = await receive()
            kinds.append(message["type"])
            while message["type"] != "http.disconnect":
                message = await receive()
            kinds.append(message["type"])

        async with serving(kind, app) as port:
            async with connected(port) as client:
                await client.send(post(b"abc")[:-1])
                await until(lambda: len(kinds) == 1)
            await until(lambda: len(kinds) == 2)
        assert kinds == ["http.request", "http.disconnect"]

    run(test())


@both
def test_the_end_of_an_answer_is_a_disconnect_too(kind: str) -> None:
    async def test() -> None:
        messages: list[str] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await read_body(receive)
            waiting = asyncio.create_task(receive())  # type: ignore[arg-type]
            await asyncio.sleep(0)
            await send(start(headers=HI))
            await send(piece(b"hi"))
            messages.append((await waiting)["type"])
            messages.append((await receive())["type"])

        async with serving(kind, app) as port, connected(port) as client:
            assert (await client.ask()).body == b"hi"
            await until(lambda: len(messages) == 2)
        assert messages == ["http.disconnect"] * 2

    run(test())


@pytest.mark.parametrize("leave", ["close", "reset", "half close", "stay", "take back", "too late"])
def test_a_callback_tells_of_a_client_that_leaves(leave: str) -> None:
    async def test() -> None:
        called: list[str] = []
        go_on, ended = asyncio.Event(), asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            register = scope["extensions"][CLIENT_GONE]
            if leave == "too late":
                await receive()
                assert (await receive())["type"] == "http.disconnect"
                register(partial(called.append, "at once"))
                assert called == ["at once"]
                ended.set()
                return
            register(partial(called.append, "gone"))
            await send(start())
            if leave == "take back":
                register(None)
            await go_on.wait()
            await send(piece(b"hi"))
            register(partial(called.append, "after the end"))
            ended.set()

        async with serving("ours", app) as port:
            async with connected(port) as client:
                await client.send(GET)
                if leave == "stay":
                    go_on.set()
                    assert (await client.answer()).body == b"hi"
                elif leave != "too late":
                    await client.head()
                    await leaving(client, leave)
            if leave not in ("stay", "take back", "too late"):
                await until(lambda: called != [])
            await asyncio.sleep(0.02)
            go_on.set()
            await ended.wait()
        expected = {"stay": [], "take back": ["after the end"], "too late": ["at once"]}
        assert called == expected.get(leave, ["gone", "after the end"])

    run(test())


@both
def test_sending_waits_for_a_client_that_does_not_read(kind: str) -> None:
    part, count = b"x" * 65_536, 400

    async def test() -> None:
        sent: list[int] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await send(start())
            for number in range(count):
                await send(piece(part, more=True))
                sent.append(number)
            await send(piece(b""))

        async with serving(kind, app) as port, connected(port, limit=65_536) as client:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await client.send(GET)
            before = -1
            for _ in range(200):
                await asyncio.sleep(0.02)
                if sent and before == len(sent):
                    break
                before = len(sent)
            assert 0 < len(sent) < count, "it did not wait"
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]
            assert len((await client.answer()).body) == len(part) * count

    run(test())


@both
def test_a_client_that_leaves_without_reading_frees_the_sender(kind: str) -> None:
    async def test() -> None:
        ended = asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await send(start())
            for _ in range(400):
                await send(piece(b"x" * 65_536, more=True))
            await send(piece(b""))
            ended.set()

        async with serving(kind, app) as port:
            async with connected(port, limit=1024) as client:
                await client.send(GET)
                await client.head()
                client.writer.transport.pause_reading()  # type: ignore[attr-defined]
                await asyncio.sleep(0.05)
                assert not ended.is_set()
            await asyncio.wait_for(ended.wait(), 5)

    run(test())


def test_several_tasks_of_an_app_may_wait_and_one_may_be_cancelled() -> None:
    async def test() -> None:
        done: list[str] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await send(start())
            big = piece(b"x" * 8_000_000, more=True)
            first, second = (asyncio.create_task(send(dict(big))) for _ in range(2))  # type: ignore[arg-type]
            await asyncio.sleep(0.02)
            assert not first.done()
            first.cancel()
            await second
            done.append("second")
            await send(piece(b""))

        async with serving("ours", app) as port, connected(port) as client:
            await client.send(GET)
            await asyncio.sleep(0.05)
            assert done == []
            assert len((await client.answer()).body) == 16_000_000

    run(test())


# --- what is refused ------------------------------------------------------------------------------------

NOT_VALID: dict[str, bytes] = {
    "no request": b"hello there\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a method that is none": b"FOO / HTTP/1.1\r\nhost: h\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nhost: h\n\n",
    "a space before the colon": b"GET / HTTP/1.1\r\nhost : h\r\n\r\n",
    "a folded header": b"GET / HTTP/1.1\r\nhost: h\r\nx: a\r\n b\r\n\r\n",
    "NUL in a header": b"GET / HTTP/1.1\r\nhost: h\r\nx: a\x00b\r\n\r\n",
    "CR in a header": b"GET / HTTP/1.1\r\nhost: h\r\nx: a\rb: c\r\n\r\n",
    "a path that is not ASCII": b"GET /\xc3\xbc HTTP/1.1\r\nhost: h\r\n\r\n",
    "length and chunked": b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\nabc",
    "chunked and length": b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\nabc",
    "two lengths that differ": b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
    "two lengths that agree": b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc",
    "a list of lengths": b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3, 3\r\n\r\nabc",
    "a signed length": b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: +3\r\n\r\nabc",
    "a length in hex": b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 0x3\r\n\r\nabc",
    "no length at all": b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length:\r\n\r\nabc",
    "a length beyond counting": b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 99999999999999999999999\r\n\r\nabc",
    "a version that is none": b"GET / HTTP/3.1\r\nhost: h\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    **{
        f"the encoding {said!r}": b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: " + said + b"\r\n\r\n0\r\n\r\n"
        for said in (b"gzip", b"gzip, chunked", b"chunked, gzip", b"chunked, chunked", b"xchunked", b"identity", b"")
    },
    "two encodings": b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: gzip\r\n"
    b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "an encoding on HTTP/1.0": b"POST / HTTP/1.0\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
    "an upgrade without a host": b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
}
BAD_CHUNKS = {
    "no size": chunked(b"\r\nabc\r\n"),
    "a size that is none": chunked(b"zz\r\nabc\r\n"),
    "a size beyond counting": chunked(b"fffffffffffffffff\r\nabc\r\n"),
    "a space after the size": chunked(b"3 \r\nabc\r\n"),
    "data longer than the size": chunked(b"3\r\nabcd\r\n0\r\n\r\n"),
    "a length among the trailers": chunked(b"0\r\ncontent-length: 3\r\n\r\n"),
}
TOO_LONG = {
    "a path": b"GET /" + b"a" * (MAX_HEAD_BYTES + 10) + b" HTTP/1.1\r\nhost: h\r\n\r\n",
    "a header": b"GET / HTTP/1.1\r\nhost: h\r\nx: " + b"a" * (MAX_HEAD_BYTES + 10) + b"\r\n\r\n",
    "a name": b"GET / HTTP/1.1\r\nhost: h\r\n" + b"a" * (MAX_HEAD_BYTES + 10) + b": x\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\nhost: h\r\n" + b"x: a\r\n" * (MAX_HEADERS + 1) + b"\r\n",
    "many headers of different names": b"GET / HTTP/1.1\r\nhost: h\r\n"
    + b"".join(b"x%d: a\r\n" % number for number in range(MAX_HEADERS))
    + b"\r\n",
    "a head without an end": b"GET / HTTP/1.1\r\nhost: h\r\n" + b"x-some: header\r\n" * 100_000,
}
OTHERS = {
    "CONNECT": (b"CONNECT h:80 HTTP/1.1\r\nhost: h\r\n\r\n", 501),
    "HTTP/2": (b"GET / HTTP/2.0\r\nhost: h\r\n\r\n", 505),
    "HTTP/0.9": (b"GET /\r\n\r\n", 505),
}
REFUSED = {
    **{name: (wire, 400) for name, wire in (NOT_VALID | BAD_CHUNKS).items()},
    **{f"{name} that is too long": (wire, 431) for name, wire in TOO_LONG.items()},
    **OTHERS,
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_request_is_refused_and_nothing_after_it_is_read(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    wire, status = REFUSED[case]
    paths: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        paths.append(scope["path"])
        with suppress(AssertionError):
            await echo(scope, receive, send)

    async def test(size: int) -> None:
        async with serving("ours", app) as port, connected(port) as client:
            await client.send(wire + SMUGGLED, size)
            answer = await client.answer()
            assert answer.status == status
            assert answer.headers["content-type"] == "text/plain; charset=utf-8"
            assert answer.headers["connection"] == "close"
            assert 0 < len(answer.body) < 100
            assert await client.is_closed()
        assert "/smuggled" not in paths
        assert paths == [] or case in BAD_CHUNKS

    for size in (10_000, 7) if len(wire) < 1000 else (10_000,):
        run(test(size))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("framed", [b"3;" + b"x" * 200_000, b"0\r\n" + b"x: y\r\n" * 40_000])
def test_chunk_extensions_and_trailers_are_bounded(framed: bytes) -> None:
    async def test() -> None:
        async with serving("ours", partial_read(99)) as port, connected(port) as client:
            await client.send(chunked(framed), 20_000)
            assert (await client.answer()).status in (400, 431)
            assert await client.is_closed()

    run(test())


def test_a_head_just_below_the_bound_is_taken() -> None:
    async def test() -> None:
        async with serving("ours", echo) as port, connected(port) as client:
            value = b"a" * (MAX_HEAD_BYTES - 200)
            wire = b"POST / HTTP/1.1\r\nhost: h\r\nx: " + value + b"\r\ncontent-length: 100000\r\n\r\n" + b"b" * 100_000
            for _ in range(2):
                assert (await client.ask(wire)).status == 200

    run(test())


@given(st.binary(max_size=300), st.integers(0, 200))
@settings(max_examples=60, deadline=None)
def test_garbage_hurts_nobody(garbage: bytes, place: int) -> None:
    """Whatever comes, the server goes on; what it says is HTTP."""
    wire = post(b"abc", b"x-some: header")
    broken = wire[: min(place, len(wire))] + garbage

    async def test() -> None:
        async with serving("ours", echo) as port:
            async with connected(port) as client:
                await client.send(broken)
                client.writer.write_eof()
                said = await client.reader.read()
                assert said == b"" or said.startswith(b"HTTP/1.1 ")
            async with connected(port) as client:
                assert (await client.ask()).status == 200

    run(test())


# --- time -----------------------------------------------------------------------------------------------

SHORT = Limits(idle_seconds=0.15, head_seconds=0.15, body_seconds=0.15)
LONG = 30.0


@pytest.mark.parametrize(
    ("wire", "limits", "status"),
    [
        (b"", Limits(0.1, LONG, LONG), None),
        (GET, Limits(0.1, LONG, LONG), 200),
        (GET[:-2], Limits(LONG, 0.1, LONG), 408),
        (b"\r\n", Limits(LONG, 0.1, LONG), 408),
        (post(b"abc")[:-1], Limits(LONG, LONG, 0.1), 408),
    ],
    ids=["new", "idle", "head", "empty line", "body"],
)
def test_a_client_that_takes_too_long_is_closed(wire: bytes, limits: Limits, status: int | None) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(AssertionError):
            await echo(scope, receive, send)

    async def test() -> None:
        async with serving("ours", app, limits=limits) as port, connected(port) as client:
            await client.send(wire)
            if status is not None:
                assert (await client.answer()).status == status
            assert await client.is_closed()

    run(test())


def test_a_rest_of_a_body_that_never_comes_ends_the_connection_without_a_word() -> None:
    async def test() -> None:
        limits = Limits(LONG, LONG, 0.1)
        async with serving("ours", partial_read(0), limits=limits) as port, connected(port) as client:
            assert (await client.ask(post(b"abc")[:-1])).status == 413
            assert await client.is_closed()

    run(test())


def test_a_head_that_trickles_in_is_given_its_time_as_a_whole() -> None:
    wire = GET[:-2] + b"x-long: " + b"x" * 300

    async def test() -> None:
        async with serving("ours", echo, limits=Limits(LONG, 0.15, LONG)) as port, connected(port) as client:
            answering = asyncio.create_task(client.answer())
            sent = 0
            while sent < len(wire) and not answering.done():
                client.writer.write(wire[sent : sent + 1])
                sent += 1
                await asyncio.sleep(0.01)
            assert (await answering).status == 408
            assert sent < len(wire), "every byte won it more time"

    run(test())


def test_a_client_that_waits_for_us_is_given_all_the_time() -> None:
    async def test() -> None:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await asyncio.sleep(0.5)
            await echo(scope, receive, send)

        async with serving("ours", app, limits=SHORT) as port:
            async with connected(port) as client:
                assert (await client.ask()).status == 200
            async with connected(port) as client:
                await client.send(b"POST / HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n")
                assert (await client.head())[0] == 100
                await client.send(b"abc")
                assert (await client.answer()).status == 200
            async with connected(port) as client:  # more than is read before the app asks for it
                body = bytes(8_000_000)
                sending_it = asyncio.create_task(client.send(post(body)))
                assert (await client.answer()).status == 200
                await sending_it

    run(test())


# --- start and end ----------------------------------------------------------------------------------------


def with_lifespan(app: ASGIApp, events: list[str]) -> ASGIApp:
    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await app(scope, receive, send)
            return
        while "shutdown" not in events:
            events.append((await receive())["type"].removeprefix("lifespan."))
            await send({"type": f"lifespan.{events[-1]}.complete"})

    return wrapped


@both
def test_the_app_is_told_of_start_and_end(kind: str) -> None:
    events: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        events.append("request")
        await hello(scope, receive, send)

    async def test() -> None:
        async with serving(kind, with_lifespan(app, events), lifespan=True) as port, connected(port) as client:
            assert (await client.ask()).body == b"hi"
        assert events == ["startup", "request", "shutdown"]

    run(test())


async def refuses_to_start(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "lifespan.startup.failed", "message": "no store"})


async def cannot_start(scope: Scope, receive: Receive, send: Send) -> None:
    raise ValueError("no store")


@pytest.mark.parametrize("app", [refuses_to_start, cannot_start])
def test_an_app_that_does_not_start_is_not_served(app: ASGIApp) -> None:
    async def test() -> None:
        with listening() as listener, pytest.raises(StartError, match="no store"):
            await HttpServer(app).serve(listener)

    run(test())


@both
def test_an_answer_under_way_is_finished_at_the_end(kind: str) -> None:
    async def test() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"] == "/slow":
                begun.set()
                await go_on.wait()
            await hello(scope, receive, send)

        server = SERVERS[kind](app, lifespan=False)
        with listening() as listener:
            port = listener.getsockname()[1]
            task = asyncio.create_task(server.serve(listener))
            async with connected(port) as idle, connected(port) as slow:
                assert (await idle.ask()).body == b"hi"
                await slow.send(b"GET /slow HTTP/1.1\r\nhost: h\r\n\r\n")
                await begun.wait()
                server.stop()
                assert await idle.is_closed()
                with pytest.raises(OSError, match=r".*"):
                    await asyncio.open_connection("127.0.0.1", port)
                assert not task.done()
                go_on.set()
                answer = await slow.answer()
                assert (answer.body, answer.headers["connection"]) == (b"hi", "close")
                assert await slow.is_closed()
            await asyncio.wait_for(task, 5)

    run(test())


@pytest.mark.parametrize("has_begun", [True, False])
def test_what_does_not_end_in_time_is_ended(has_begun: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        begun, told = asyncio.Event(), []  # type: asyncio.Event, list[str]

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if has_begun:
                await send(start())
                await send(piece(b"part", more=True))
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                told.append("cancelled")

        server = HttpServer(with_lifespan(app, told), grace_seconds=0.05)
        with listening() as listener:
            task = asyncio.create_task(server.serve(listener))
            async with connected(listener.getsockname()[1]) as client:
                await client.send(GET)
                await begun.wait()
                server.stop()
                answer = await client.answer()
                assert (answer.status, answer.is_whole) == ((200, False) if has_begun else (503, True))
                assert await client.is_closed()
            await asyncio.wait_for(task, 5)
        assert told == ["startup", "cancelled", "shutdown"]

    run(test())
    assert caplog.records == []


def test_a_client_that_does_not_read_does_not_hold_up_the_end() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start())
        while True:
            await send(piece(b"x" * 65_536, more=True))

    async def test() -> None:
        server = HttpServer(app, lifespan=False, grace_seconds=0.05)
        with listening() as listener:
            task = asyncio.create_task(server.serve(listener))
            async with connected(listener.getsockname()[1], limit=1024) as client:
                await client.send(GET)
                await client.head()
                client.writer.transport.pause_reading()  # type: ignore[attr-defined]
                server.stop()
                await asyncio.wait_for(task, 5)
                await until(lambda: alive() == 0)

    gc.collect()
    run(test())


def test_being_told_twice_ends_it_at_once() -> None:
    async def test() -> None:
        begun = asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            begun.set()
            await asyncio.Event().wait()

        server = HttpServer(app, lifespan=False, grace_seconds=LONG)
        with listening() as listener:
            task = asyncio.create_task(server.serve(listener))
            async with connected(listener.getsockname()[1]) as client:
                await client.send(GET)
                await begun.wait()
                server.stop()
                await asyncio.sleep(0.05)
                assert not task.done()
                server.stop()
                await asyncio.wait_for(task, 5)

    run(test())


def test_a_server_in_another_thread_is_stopped_from_here() -> None:
    server = HttpServer(hello, lifespan=False)
    with listening() as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(listener)), daemon=True)
        thread.start()
        assert httpx2.get(f"http://127.0.0.1:{port}/").text == "hi"
        server.stop()
        thread.join(5)
        assert not thread.is_alive()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_goes_on_to_whoever_had_it_before(number: signal.Signals) -> None:
    caught: list[int] = []
    before = signal.signal(number, lambda caught_number, _frame: caught.append(caught_number))
    ours = signal.getsignal(number)

    async def test() -> None:
        server = HttpServer(hello, lifespan=False)
        with listening() as listener:
            task = asyncio.create_task(server.serve(listener))
            async with connected(listener.getsockname()[1]) as client:
                assert (await client.ask()).body == b"hi"
                os.kill(os.getpid(), number)
                assert await client.is_closed()
            await asyncio.wait_for(task, 5)

    try:
        run(test())
        assert caught == [number]
        assert signal.getsignal(number) is ours
    finally:
        signal.signal(number, before)


PROGRAM = """
    import asyncio, signal, socket
    from handler.http1.server import HttpServer

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            while True:
                event = (await receive())["type"]
                print(event, flush=True)
                await send({"type": event + ".complete"})
        print("request", flush=True)
        await asyncio.Event().wait()

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have had it ignored
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    try:
        asyncio.run(HttpServer(app, grace_seconds=60).serve(listener))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.parametrize(
    ("signals", "is_busy", "code", "said"),
    [
        ([signal.SIGTERM], False, -signal.SIGTERM, ["lifespan.shutdown"]),
        ([signal.SIGINT], False, 0, ["lifespan.shutdown", "interrupted"]),
        ([signal.SIGINT, signal.SIGINT], True, 0, ["request", "interrupted"]),
    ],
)
def test_signals_end_a_process(signals: list[int], is_busy: bool, code: int, said: list[str]) -> None:
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        port = int(process.stdout.readline())
        assert process.stdout.readline() == "lifespan.startup\n"
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            if is_busy:
                client.sendall(GET)
                assert process.stdout.readline() == "request\n"
                said = said[1:]
            for number in signals:
                process.send_signal(number)
                time.sleep(0.1)
            rest, errors = process.communicate(timeout=10)
    assert (process.returncode, rest.split(), errors) == (code, said, "")


# --- clients that others wrote ------------------------------------------------------------------------------


@both
def test_httpx2_and_the_standard_library_are_served(kind: str) -> None:
    body = os.urandom(300_000)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        data = await read_body(receive)
        await send(start(headers=[(b"x-method", scope["method"].encode())]))
        for begin in range(0, len(data), 100_000):
            await send(piece(data[begin : begin + 100_000], more=True))
            await asyncio.sleep(0)
        await send(piece(b""))

    def standard(port: int) -> list[Any]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        said: list[Any] = []
        for method, data in (("POST", body), ("HEAD", b""), ("PUT", iter([body[:10], body[10:]]))):
            connection.request(method, "/a", data, encode_chunked=True)  # type: ignore[arg-type]
            answer = connection.getresponse()
            said.append((answer.status, answer.getheader("x-method"), answer.read()))
        connection.close()
        return said

    async def parts() -> AsyncIterator[bytes]:
        yield body[:10]
        yield body[10:]

    async def test() -> None:
        async with serving(kind, app) as port:
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=5) as client:
                answers = await asyncio.gather(*(client.post("/", content=body) for _ in range(20)))
                assert all(answer.content == body for answer in answers)
                assert (await client.post("/", content=parts())).content == body
                assert (await client.head("/")).headers["x-method"] == "HEAD"
            said = await asyncio.to_thread(standard, port)
            assert said == [(200, "POST", body), (200, "HEAD", b""), (200, "PUT", body)]

    run(test())


@pytest.mark.parametrize("target", ["http://[::1", "http://x:99999/", "http://@/", "http:///x"])
def test_a_target_that_no_url_is_gets_an_answer_and_costs_no_other_request(target: str) -> None:
    wrong = f"GET {target} HTTP/1.1\r\nhost: h\r\n\r\n".encode()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            await asyncio.sleep(0.05)
        await send(start())
        await send(piece(scope["path"].encode()))

    async def test() -> None:
        async with serving("ours", app) as port:
            async with connected(port) as client:
                assert (await client.ask(wrong)).status == 400
                assert await client.is_closed()
            async with connected(port) as client:
                paths = [b"/slow", b"/b1", b"/b2"]
                await client.send(b"".join([*(b"GET %b HTTP/1.1\r\nhost: h\r\n\r\n" % path for path in paths), wrong]))
                assert [(await client.answer()).body for _ in paths] == paths
                assert (await client.answer()).status == 400
                assert await client.is_closed()

    run(test())


def test_nothing_is_left_to_the_garbage_collector() -> None:
    """Connections and exchanges are gone with their last use, whatever happened on them."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"][CLIENT_GONE](lambda: None)
        with suppress(AssertionError):
            await echo(scope, receive, send)

    async def test() -> None:
        async with serving("ours", app) as port:
            for wire in (GET, post(b"abc")[:-1], b"BAD\r\n\r\n", GET * 5, b"", GET + post(b"abc")[:-1]):
                async with connected(port) as client:
                    await client.send(wire)
                    await until(lambda: alive() > 0)
                    await asyncio.sleep(0.01)
            await until(lambda: alive() == 0)

    gc.collect()
    gc.disable()
    try:
        run(test())
    finally:
        gc.enable()
