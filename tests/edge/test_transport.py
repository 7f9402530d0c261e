"""The transport under the HTTP client behaves as httpx2's own, on real sockets; some rules are its alone."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import threading
import time
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_server import RawServer, Then, raw_server, split

from bridge.ports import UpstreamCall
from bridge.upstream.client import HttpUpstream
from bridge.upstream.connecting import ForbiddenAddressError, UntrustedCertificateError
from bridge.upstream.outgoing import outgoing_of
from bridge.upstream.proxies import Proxies
from bridge.upstream.transport import HttpTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from raw_server import Step

TRANSPORTS: dict[str, Callable[[], httpx2.AsyncBaseTransport]] = {
    "httpx2": httpx2.AsyncHTTPTransport,
    "ours": HttpTransport,
}
pytestmark = pytest.mark.req("C12")
both = pytest.mark.parametrize("make", TRANSPORTS.values(), ids=TRANSPORTS.keys())

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
ENDLESS = [CHUNKED + b"5\r\nfirst\r\n", Then.HANG]


@asynccontextmanager
async def client(transport: httpx2.AsyncBaseTransport) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(transport=transport, timeout=5) as opened:
        yield opened


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await test

    asyncio.run(bounded())


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# name: method, the answer on the wire, status, body, whether the connection serves another request
ANSWERS: dict[str, tuple[str, bytes, int, bytes, bool]] = {
    "of known length": ("POST", OK, 200, b"hi", True),
    "empty": ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b"", True),
    "chunked": ("POST", CHUNKED + b"2\r\nhi\r\n3\r\n ho\r\n0\r\n\r\n", 200, b"hi ho", True),
    "chunked with extensions and trailers": (
        "POST",
        CHUNKED + b"2;a=b\r\nhi\r\n0\r\nx-sum: 1\r\n\r\n",
        200,
        b"hi",
        True,
    ),
    "to be closed": ("GET", b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi", 200, b"hi", False),
    "after 100": ("POST", b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, b"hi", True),
    "after 103 and 102": (
        "POST",
        b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + OK,
        200,
        b"hi",
        True,
    ),
    "to HEAD": ("HEAD", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", 200, b"", True),
    "204": ("POST", b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "304": ("GET", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", 304, b"", True),
    "without a reason": ("GET", b"HTTP/1.1 529 \r\ncontent-length: 2\r\n\r\nhi", 529, b"hi", True),
    "with an empty header": ("GET", b"HTTP/1.1 200 OK\r\nx-empty:\r\ncontent-length: 2\r\n\r\nhi", 200, b"hi", True),
}
CLOSED_ANSWERS = {
    "until the end": ("GET", b"HTTP/1.1 200 OK\r\n\r\nhi", 200, b"hi", False),
    "of HTTP/1.0": ("GET", b"HTTP/1.0 200 OK\r\n\r\nhi", 200, b"hi", False),
}


@both
@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("case", [*ANSWERS, *CLOSED_ANSWERS])
def test_an_answer_is_read_however_it_is_split(make: Any, case: str, size: int) -> None:
    method, wire, status, body, reusable = (ANSWERS | CLOSED_ANSWERS)[case]
    end: list[Step] = [] if reusable else [Then.CLOSE]

    async def test() -> None:
        async with raw_server([*split(wire, size), *end], [OK]) as server, client(make()) as http:
            answer = await http.request(method, server.url)
            assert (answer.status_code, answer.content) == (status, body)
            again = await http.get(server.url)
            assert (again.status_code, again.content) == (200, b"hi")
            assert server.accepted == (1 if reusable else 2)

    run(test())


@both
def test_head_and_body_of_a_request_arrive_as_they_are(make: Any) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"one"
        yield b""
        yield b"two" * 40_000

    async def test() -> None:
        async with raw_server([OK]) as server, client(make()) as http:
            whole = b"x" * 300_000
            await http.post(f"{server.url}/a%20b?c=d", content=whole, headers={"X-Case": "Kept ü".encode()})
            head, _, sent = server.requests[0].partition(b"\r\n\r\n")
            assert head.startswith(b"POST /a%20b?c=d HTTP/1.1\r\n")
            assert b"\r\nX-Case: Kept \xc3\xbc" in head
            assert sent == whole
        async with raw_server([0.1, OK, Then.CLOSE]) as server, client(make()) as http:
            assert (await http.post(server.url, content=body())).status_code == 200
            assert b"transfer-encoding: chunked" in server.requests[0].lower()

    run(test())


@both
@pytest.mark.parametrize(
    "headers",
    [{"x-evil": "a\r\nset: b"}, {"x-evil": "a\nb"}, {"x-evil": "a\x00b"}, {"x evil": "a"}, {"x-evil\r\ny": "a"}],
    ids=["crlf", "lf", "nul", "space in the name", "crlf in the name"],
)
def test_a_header_cannot_begin_another(make: Any, headers: dict[str, str]) -> None:
    async def test() -> None:
        async with raw_server([OK]) as server, client(make()) as http:
            with pytest.raises(httpx2.LocalProtocolError):
                await http.get(server.url, headers=headers)
            assert server.requests == []

    run(test())


BROKEN: dict[str, list[Step]] = {
    "nothing at all": [Then.CLOSE],
    "another protocol": [b"SSH-2.0-OpenSSH_9.6\r\n", Then.CLOSE],
    "TLS": [b"\x15\x03\x01\x00\x02\x02\x16", Then.CLOSE],
    "half a head": [b"HTTP/1.1 200 OK\r\ncontent-le", Then.CLOSE],
    "a body that is too short": [b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi", Then.CLOSE],
    "chunks without an end": [CHUNKED + b"2\r\nhi\r\n", Then.CLOSE],
    "half a chunk": [CHUNKED + b"20\r\nhi", Then.CLOSE],
    "a chunk of no size": [CHUNKED + b"zz\r\nhi\r\n", Then.HANG],
    "a length that is none": [b"HTTP/1.1 200 OK\r\ncontent-length: two\r\n\r\nhi", Then.HANG],
    "a head without end": [b"HTTP/1.1 200 OK\r\n" + b"x-long: " + b"a" * 400_000, Then.HANG],
    "NUL in a header": [b"HTTP/1.1 200 OK\r\nx: \x00\r\n\r\n", Then.HANG],
}


@both
@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_answer_is_an_error_and_never_a_hang(make: Any, case: str) -> None:
    async def test() -> None:
        async with raw_server(BROKEN[case]) as server, client(make()) as http:
            with pytest.raises(httpx2.RemoteProtocolError):
                await http.get(server.url)

    run(test())


@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 300 + b"\r\n",
        CHUNKED + b"2\r\nhi\r\n0\r\nx-long: " + b"a" * 300_000,
        CHUNKED + b"2;" + b"a" * 300_000,
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    ],
    ids=["too many headers", "long trailer", "long extension", "upgrade", "HTTP/2", "two lengths"],
)
def test_what_only_an_attacker_sends_is_refused(wire: bytes) -> None:
    async def test() -> None:
        async with raw_server([wire, Then.HANG]) as server, client(HttpTransport()) as http:
            with pytest.raises(httpx2.RemoteProtocolError):
                await http.get(server.url)

    run(test())


@both
@pytest.mark.parametrize("begun", [b"", CHUNKED + b"2\r\nhi\r\n"], ids=["before the answer", "within the answer"])
def test_a_reset_is_a_read_error(make: Any, begun: bytes) -> None:
    async def test() -> None:
        async with raw_server([begun, 0.05, Then.RESET]) as server, client(make()) as http:
            with pytest.raises(httpx2.ReadError):
                await http.get(server.url)

    run(test())


@both
def test_what_arrived_before_a_break_is_handed_on(make: Any) -> None:
    async def test() -> None:
        seen: list[bytes] = []
        async with (
            raw_server([CHUNKED + b"2\r\nhi\r\n", 0.05, Then.CLOSE]) as server,
            client(make()) as http,
            http.stream("GET", server.url) as answer,
        ):
            with pytest.raises(httpx2.RemoteProtocolError):  # noqa: PT012
                async for data in answer.aiter_raw():
                    seen.append(data)
        assert seen == [b"hi"]

    run(test())


@settings(max_examples=60, deadline=None)
@given(
    pieces=st.lists(st.binary(min_size=1, max_size=40), max_size=8),
    cuts=st.lists(st.integers(0, 400), max_size=12),
    chunked=st.booleans(),
)
def test_any_split_gives_the_same_body(pieces: list[bytes], cuts: list[int], chunked: bool) -> None:
    body = b"".join(pieces)
    if chunked:
        wire = CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    else:
        wire = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    edges = sorted({0, *(cut for cut in cuts if cut < len(wire)), len(wire)})
    steps: list[Step] = []
    for start, end in pairwise(edges):
        steps += [wire[start:end], 0.0]

    async def test() -> None:
        for make in TRANSPORTS.values():
            async with raw_server(steps) as server, client(make()) as http:
                assert (await http.post(server.url, content=b"{}")).content == body
                assert (await http.post(server.url, content=b"{}")).content == body
                assert server.accepted == 1

    run(test())


@settings(max_examples=150, deadline=None)
@given(prefix=st.sampled_from([b"", b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\n", CHUNKED]), noise=st.binary(max_size=80))
def test_noise_ends_in_an_answer_or_an_error(prefix: bytes, noise: bytes) -> None:
    async def test() -> None:
        async with raw_server([prefix + noise, 0.0, Then.CLOSE]) as server, client(HttpTransport()) as http:
            try:
                answer = await http.get(server.url)
            except (httpx2.RemoteProtocolError, httpx2.ReadError):
                return
            assert answer.status_code >= 200

    run(test())


# Connections and their end


@both
def test_a_kept_connection_that_ended_is_not_used(make: Any) -> None:
    async def test() -> None:
        async with raw_server([OK, Then.CLOSE], [OK]) as server, client(make()) as http:
            assert (await http.post(server.url, content=b"{}")).content == b"hi"
            await asyncio.sleep(0.05)
            assert (await http.post(server.url, content=b"{}")).content == b"hi"
            assert server.accepted == 2

    run(test())


@pytest.mark.parametrize("end", [Then.CLOSE, Then.RESET])
def test_a_kept_connection_that_dies_under_a_request_is_replaced_once(end: Then) -> None:
    async def test() -> None:
        async with raw_server([OK], [end], [OK]) as server, client(HttpTransport()) as http:
            assert (await http.post(server.url, content=b"1")).content == b"hi"
            assert (await http.post(server.url, content=b"2")).content == b"hi"
            assert [request[-1:] for request in server.requests] == [b"1", b"2", b"2"]
        async with raw_server([OK], [end]) as server, client(HttpTransport()) as http:
            await http.post(server.url, content=b"1")
            with pytest.raises(httpx2.TransportError):
                await http.post(server.url, content=b"2")
            assert len(server.requests) == 3

    run(test())


def test_a_request_that_was_answered_in_part_is_not_sent_again() -> None:
    async def test() -> None:
        async with raw_server([OK], [b"HTTP/1.1 2", Then.CLOSE]) as server, client(HttpTransport()) as http:
            await http.post(server.url, content=b"1")
            with pytest.raises(httpx2.RemoteProtocolError):
                await http.post(server.url, content=b"2")
            assert len(server.requests) == 2

    run(test())


def test_an_answer_nobody_asked_for_never_becomes_the_answer_to_the_next() -> None:
    evil = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"

    async def test() -> None:
        for extra in ([OK + evil], [OK, 0.02, evil], [OK + b"HTTP/1.1 204 No Content\r\n\r\n"]):
            async with raw_server(extra, [OK]) as server, client(HttpTransport()) as http:
                assert (await http.get(server.url)).content == b"hi"
                await asyncio.sleep(0.06)
                assert (await http.get(server.url)).content == b"hi"
                assert server.accepted == 2

    run(test())


def test_what_arrived_unseen_on_an_idle_connection_costs_only_the_connection() -> None:
    evil = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        first, _ = listener.accept()
        with first:
            first.recv(65536)
            first.sendall(OK)
            time.sleep(0.1)
            first.sendall(evil)  # while the client's loop stands still, as in a frozen function
            second, _ = listener.accept()
            with second:
                second.recv(65536)
                second.sendall(OK)

    async def test() -> None:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with client(HttpTransport()) as http:
            assert (await http.get(url)).content == b"hi"
            time.sleep(0.3)  # noqa: ASYNC251
            assert (await http.get(url)).content == b"hi"

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        run(test())
    finally:
        thread.join()
        listener.close()


def test_idle_connections_are_bounded_and_expire() -> None:
    async def test() -> None:
        transport = HttpTransport(idle_seconds=0.2, max_idle=2)
        async with raw_server([0.05, OK]) as server, client(transport) as http:
            await asyncio.gather(*[http.get(server.url) for _ in range(5)])
            await asyncio.sleep(0.05)
            assert len(server.open) == 2
            await asyncio.sleep(0.5)
            assert len(server.open) == 0

    run(test())


@both
def test_connections_are_used_again_and_none_is_left_open(make: Any) -> None:
    async def test() -> None:
        async with raw_server([OK]) as server:
            async with client(make()) as http:
                await http.get(server.url)
                before = open_files()
                for _ in range(30):
                    await http.get(server.url)
                assert server.accepted == 1
                assert open_files() == before
            await asyncio.sleep(0.02)
            assert len(server.open) == 0

    run(test())


@both
def test_an_answer_that_is_closed_early_takes_its_connection_with_it(make: Any) -> None:
    async def test() -> None:
        async with raw_server(ENDLESS) as server, client(make()) as http:
            before = open_files()
            for _ in range(10):
                async with http.stream("GET", server.url) as answer:
                    assert await anext(answer.aiter_raw()) == b"first"
            await asyncio.sleep(0.05)
            assert len(server.open) == 0
            assert open_files() == before

    run(test())


@both
@pytest.mark.parametrize("begun", [False, True], ids=["before the answer", "within the answer"])
def test_cancelling_closes_the_connection(make: Any, begun: bool) -> None:
    async def test() -> None:
        async with raw_server(ENDLESS if begun else [Then.HANG]) as server, client(make()) as http:
            before = open_files()
            tasks = [asyncio.create_task(http.get(server.url)) for _ in range(8)]
            await asyncio.sleep(0.1)
            assert len(server.open) == 8
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in ended)
            await asyncio.sleep(0.05)
            assert len(server.open) == 0
            assert open_files() == before

    run(test())


@both
def test_streams_at_once_do_not_mix(make: Any) -> None:
    def stream(number: int) -> list[Step]:
        piece = b"%03d" % number
        return [CHUNKED, *([b"3\r\n" + piece + b"\r\n", 0.001] * 40), b"0\r\n\r\n"]

    async def test() -> None:
        async with raw_server(*[stream(number) for number in range(32)]) as server, client(make()) as http:
            answers = await asyncio.gather(*[http.get(server.url) for _ in range(32)])
            assert sorted(answer.content for answer in answers) == [b"%03d" % number * 40 for number in range(32)]
            assert server.accepted == 32
            await http.get(server.url)
            assert server.accepted == 32

    run(test())


@both
def test_a_slow_reader_slows_the_server_down(make: Any) -> None:
    total = 64 * 1024 * 1024
    piece = b"x" * (1024 * 1024)

    async def test() -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total
        async with (
            raw_server([head, *[piece] * 64]) as server,
            client(make()) as http,
            http.stream("GET", server.url) as answer,
        ):
            body = answer.aiter_raw()
            size = len(await anext(body))
            await asyncio.sleep(0.3)
            assert server.written < total / 2
            async for data in body:
                size += len(data)
        assert size == total

    run(test())


def test_an_answer_that_comes_before_the_request_is_out_is_seen() -> None:
    refused = b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno"

    async def test() -> None:
        async with (
            raw_server([refused, 0.2, Then.HANG], [OK], reads_body=False) as server,
            client(HttpTransport()) as http,
        ):
            answer = await http.post(server.url, content=b"x" * 30_000_000)
            assert (answer.status_code, answer.content) == (413, b"no")
            assert (await http.get(server.url)).content == b"hi"
            assert server.accepted == 2

    run(test())


def test_a_connection_with_half_a_request_on_it_is_not_used_again() -> None:
    refused = b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno"

    async def body() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * 10_000_000

    async def test() -> None:
        async with (
            raw_server([refused, Then.HANG], [OK], reads_body=False) as server,
            client(HttpTransport()) as http,
        ):
            async with http.stream("POST", server.url, content=body()) as answer:
                await asyncio.sleep(0.3)  # what was written so far is taken meanwhile
                assert await answer.aread() == b"no"
            assert (await http.get(server.url)).content == b"hi"
            assert server.accepted == 2

    run(test())


# Limits of time


@both
def test_silence_is_a_read_timeout(make: Any) -> None:
    async def test() -> None:
        for answer in ([Then.HANG], ENDLESS):
            async with raw_server(answer) as server, client(make()) as http:
                with pytest.raises(httpx2.ReadTimeout):
                    await http.get(server.url, timeout=httpx2.Timeout(5, read=0.1))
                await asyncio.sleep(0.02)
                assert len(server.open) == 0

    run(test())


@both
def test_a_request_that_nobody_takes_is_a_write_timeout(make: Any) -> None:
    async def test() -> None:
        async with raw_server([30.0], reads_body=False) as server, client(make()) as http:
            with pytest.raises(httpx2.WriteTimeout):
                await http.post(server.url, content=b"x" * 30_000_000, timeout=httpx2.Timeout(5, write=0.2))

    run(test())


@asynccontextmanager
async def full_listener(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[int]:
    """A port on which connections are neither accepted nor refused."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        await asyncio.sleep(0.05)
        try:
            yield listener.getsockname()[1]
        finally:
            for one in waiting:
                one.close()


@both
def test_a_host_that_does_not_answer_is_a_connect_timeout(make: Any) -> None:
    async def test() -> None:
        before = open_files()
        async with full_listener() as port, client(make()) as http:
            with pytest.raises(httpx2.ConnectTimeout):
                await http.get(f"http://127.0.0.1:{port}", timeout=httpx2.Timeout(5, connect=0.2))
        assert open_files() == before

    run(test())


# Addresses


@both
@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://name.invalid"])
def test_a_host_that_is_not_there_is_a_connect_error(make: Any, url: str) -> None:
    async def test() -> None:
        async with client(make()) as http:
            with pytest.raises(httpx2.ConnectError):
                await http.get(url)

    run(test())


@both
def test_only_http_is_spoken(make: Any) -> None:
    async def test() -> None:
        async with client(make()) as http:
            with pytest.raises(httpx2.UnsupportedProtocol):
                await http.get("ftp://127.0.0.1/")

    run(test())


@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "2852039166", "0xa9fea9fe", "[::ffff:169.254.169.254]", "[fe80::1]", "[fd00:ec2::254]"],
)
def test_metadata_addresses_are_refused_however_they_are_spelt(host: str) -> None:
    async def test() -> None:
        async with client(HttpTransport()) as http:
            with pytest.raises(ForbiddenAddressError):
                await http.get(f"http://{host}/latest/meta-data/")

    run(test())


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Names lead to these addresses: no resolver that could be asked is at hand."""

    def getaddrinfo(host: str, port: int, *_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def test_a_name_that_leads_to_one_forbidden_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with raw_server([OK]) as server, client(HttpTransport()) as http:
            resolving(monkeypatch, "127.0.0.1")
            assert (await http.get(f"http://a.test:{server.port}")).content == b"hi"
            resolving(monkeypatch, "127.0.0.1", "169.254.169.254")
            with pytest.raises(ForbiddenAddressError):
                await http.get(f"http://b.test:{server.port}")

    run(test())


def test_the_rule_for_addresses_can_be_stricter() -> None:
    async def test() -> None:
        transport = HttpTransport(refuses=lambda address: address.is_private)
        async with raw_server([OK]) as server, client(transport) as http:
            with pytest.raises(ForbiddenAddressError):
                await http.get(server.url)
            assert server.accepted == 0

    run(test())


def test_another_address_is_tried_when_one_refuses_or_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        resolving(monkeypatch, "127.0.0.2", "127.0.0.1")
        before = open_files()
        async with raw_server([OK]) as server:
            async with client(HttpTransport()) as http:
                assert (await http.get(f"http://a.test:{server.port}")).content == b"hi"
            async with full_listener("127.0.0.2", server.port), client(HttpTransport()) as http:
                started = time.perf_counter()
                assert (await http.get(f"http://a.test:{server.port}")).content == b"hi"
                assert time.perf_counter() - started < 3
        assert open_files() == before

    run(test())


# TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a CA, and a certificate of it for localhost and 127.0.0.1."""
    folder: Path = tmp_path_factory.mktemp("authority")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    sign = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"]
    for command in (
        ["req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=Test CA"],
        ["req", *new_key, "-keyout", "host.key", "-out", "host.csr", "-subj", "/CN=localhost"],
        ["x509", "-req", "-in", "host.csr", *sign, "-out", "host.pem"],
    ):
        subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def tls(authority: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "host.pem", authority / "host.key")
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


@both
def test_tls_with_a_trusted_authority(
    make: Any, tls: ssl.SSLContext, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
    seen: list[str | None] = []
    tls.sni_callback = lambda _object, name, _context: seen.append(name)
    stream: list[Step] = [CHUNKED, *([b"3\r\nabc\r\n", 0.001] * 30), b"186a0\r\n" + b"x" * 100_000 + b"\r\n0\r\n\r\n"]

    async def test() -> None:
        async with raw_server(stream, tls=tls) as server, client(make()) as http:
            for _ in range(3):
                answer = await http.post(f"https://localhost:{server.port}/", content=b"y" * 200_000)
                assert answer.content == b"abc" * 30 + b"x" * 100_000
            assert server.accepted == 1
            assert server.requests[-1].endswith(b"y" * 200_000)

    run(test())
    assert seen == ["localhost"]


@both
@pytest.mark.parametrize("steps", [[CHUNKED + b"5\r\nfirst\r\n", Then.CLOSE], BROKEN["a body that is too short"]])
def test_an_answer_cut_short_is_noticed_under_tls(
    make: Any, steps: list[Step], tls: ssl.SSLContext, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))

    async def test() -> None:
        async with raw_server(steps, tls=tls) as server, client(make()) as http:
            with pytest.raises(httpx2.RemoteProtocolError):
                await http.get(f"https://localhost:{server.port}/")

    run(test())


@both
def test_a_certificate_of_an_unknown_authority_is_refused(make: Any, tls: ssl.SSLContext) -> None:
    async def test() -> None:
        before = open_files()
        async with raw_server([OK], tls=tls) as server, client(make()) as http:
            with pytest.raises(httpx2.ConnectError):
                await http.get(f"https://localhost:{server.port}/")
            assert server.requests == []
        assert open_files() == before

    run(test())


@both
def test_a_certificate_for_another_name_is_refused(
    make: Any, tls: ssl.SSLContext, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
    resolving(monkeypatch, "127.0.0.1")

    async def test() -> None:
        async with raw_server([OK], tls=tls) as server, client(make()) as http:
            with pytest.raises(httpx2.ConnectError):
                await http.get(f"https://other.test:{server.port}/")
            assert server.requests == []

    run(test())


def test_what_is_wrong_with_a_certificate_is_said(tls: ssl.SSLContext) -> None:
    async def test() -> None:
        async with raw_server([OK], tls=tls) as server, client(HttpTransport()) as http:
            with pytest.raises(UntrustedCertificateError, match=r"issuer|self-signed"):
                await http.get(f"https://127.0.0.1:{server.port}/")

    run(test())


def test_only_http11_is_offered(tls: ssl.SSLContext, authority: Path) -> None:
    chosen: list[str | None] = []

    class Watched(RawServer):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            chosen.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())
            await super().serve(reader, writer)

    async def test() -> None:
        raw = Watched([[OK]])
        server = await asyncio.start_server(raw.serve, "127.0.0.1", 0, ssl=tls)
        async with server, client(HttpTransport()) as http:
            port = server.sockets[0].getsockname()[1]
            assert (await http.get(f"https://127.0.0.1:{port}/")).content == b"hi"

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(authority / "ca.pem"))
        run(test())
    assert chosen == ["http/1.1"]


def test_a_handshake_that_is_given_up_leaves_nothing_open() -> None:
    async def test() -> None:
        async with raw_server([OK]) as server, client(HttpTransport()) as http:
            url = f"https://127.0.0.1:{server.port}/"  # where nobody answers a TLS greeting
            before = open_files()
            with pytest.raises(httpx2.ConnectTimeout):
                await http.get(url, timeout=httpx2.Timeout(5, connect=0.2))
            task = asyncio.create_task(http.get(url))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0.05)
            assert (server.accepted, len(server.open)) == (2, 0)
            assert open_files() == before

    run(test())


# Proxies


@both
def test_a_proxy_of_the_environment_is_asked(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with raw_server([OK]) as proxy, raw_server([OK]) as origin:
            monkeypatch.setenv("HTTP_PROXY", proxy.url)
            monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
            transport = None if make is httpx2.AsyncHTTPTransport else make()
            async with httpx2.AsyncClient(transport=transport) as http:
                assert (await http.get("http://provider.test/v1/models")).content == b"hi"
                assert (await http.get(f"{origin.url}/direct")).content == b"hi"
            assert proxy.requests[0].startswith(b"GET http://provider.test/v1/models HTTP/1.1")
            assert len(proxy.requests) == 1
            assert origin.requests[0].startswith(b"GET /direct HTTP/1.1")

    run(test())


@pytest.mark.parametrize(("content", "framed"), [(b"ab", b"2\r\nab\r\n0\r\n\r\n"), (b"", b"0\r\n\r\n")])
def test_a_body_that_is_said_to_be_chunked_is(content: bytes, framed: bytes) -> None:
    headers = {"host": "h", "transfer-encoding": "chunked"}
    request = httpx2.Request("POST", "http://h/", headers=headers, stream=httpx2.ByteStream(content))
    (wire,) = outgoing_of(request).whole
    assert wire.partition(b"\r\n\r\n")[2] == framed


def test_a_call_of_the_bridge_goes_through_a_proxy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with raw_server([OK]) as proxy:
            monkeypatch.setenv("HTTP_PROXY", proxy.url)
            upstream = HttpUpstream()
            call = UpstreamCall("acme", "POST", "http://provider.test/v1/messages", {"x-api-key": "sk"}, b'{"a":1}')
            reply = await upstream.send(call)
            assert (reply.status, await reply.read(99)) == (200, b"hi")
            await reply.aclose()
            await upstream.aclose()
            (request,) = proxy.requests
            assert request.startswith(b"POST http://provider.test/v1/messages HTTP/1.1")
            assert b"x-api-key: sk\r\n" in request.lower()
            assert request.endswith(b'{"a":1}')

    run(test())


@pytest.mark.parametrize(
    ("url", "exempt", "proxied"),
    [
        ("https://api.example.com", "", True),
        ("http://api.example.com", "", False),
        ("https://api.example.com", "example.com", False),
        ("https://api.example.com", ".example.com", False),
        ("https://notexample.com", "example.com", True),
        ("https://api.example.com", "*", False),
        ("https://api.example.com:8443", "api.example.com:8443", False),
        ("https://api.example.com", "api.example.com:8443", True),
        ("https://[::1]:9", "localhost, ::1", False),
    ],
)
def test_which_calls_go_through_a_proxy(url: str, exempt: str, proxied: bool) -> None:
    proxies = Proxies({"https": "http://127.0.0.1:9", "no": exempt})
    assert (proxies.transport_for(httpx2.URL(url)) is not None) is proxied
