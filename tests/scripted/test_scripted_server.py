"""The server on its sockets: HTTP, records, counts, life cycle."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from contextlib import closing

import httpx2
import pytest

from scripted.server import ScriptedUpstream, serving

HELLO = [{"reply": {"json": {"hello": "world"}}}]
SLOW = [{"reply": {"sse": [{"n": 1}, {"$hang_ms": 5000}, {"n": 2}]}}]


def test_records_what_it_received(upstream, post):
    upstream.script = HELLO
    before = time.monotonic()
    post({"model": "m"}, path="/v1/messages?beta=true", headers={"X-Api-Key": "k", "Accept": "a"})
    received = upstream.received[0]
    assert (received.method, received.path, received.route) == (
        "POST",
        "/v1/messages?beta=true",
        "/v1/messages",
    )
    assert received.headers["x-api-key"] == "k"
    assert received.json == {"model": "m"}
    assert before <= received.received_at <= time.monotonic()


def test_keeps_the_connection(upstream):
    upstream.script = HELLO
    with closing(http.client.HTTPConnection("127.0.0.1", upstream.port, timeout=5)) as connection:
        for _ in range(3):
            connection.request("POST", "/a", "{}")
            assert json.loads(connection.getresponse().read()) == {"hello": "world"}
    assert upstream.accepted_connections == 1
    assert len(upstream.received) == 3


def test_reads_a_chunked_body(upstream):
    upstream.script = HELLO
    parts = [b'{"model": ', b'"in ', b'pieces"}']
    with httpx2.Client() as client:
        client.post(f"{upstream.url}/a", content=iter(parts))
    assert upstream.received[0].headers["transfer-encoding"] == "chunked"
    assert upstream.received[0].json == {"model": "in pieces"}


def test_reads_a_large_body(upstream, post):
    upstream.script = HELLO
    post({"text": "x" * 3_000_000})
    assert len(upstream.received[0].json["text"]) == 3_000_000


def test_answers_pipelined_requests_in_order(upstream):
    upstream.script = [
        {"when": {"path": "/slow"}, "reply": {"json": 1, "delay_ms": 50}},
        {"reply": {"json": 2, "headers": {"connection": "close"}}},
    ]
    with socket.create_connection(("127.0.0.1", upstream.port), timeout=5) as connection:
        connection.sendall(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\nGET /fast HTTP/1.1\r\nhost: x\r\n\r\n")
        answers = connection.makefile("rb").read()
    assert [part[:1] for part in answers.split(b"\r\n\r\n")[1:]] == [b"1", b"2"]


@pytest.mark.parametrize(
    ("asked", "headers"),
    [(b"connection: close\r\n", {}), (b"", {"Connection": "close"})],
    ids=["client", "script"],
)
def test_closes_when_asked(upstream, asked, headers):
    upstream.script = [{"reply": {"json": {}, "headers": headers}}]
    with socket.create_connection(("127.0.0.1", upstream.port), timeout=5) as connection:
        connection.sendall(b"GET /a HTTP/1.1\r\nhost: x\r\n" + asked + b"\r\n")
        assert connection.makefile("rb").read().endswith(b"\r\n\r\n{}")


def test_continues_an_expecting_client(upstream):
    upstream.script = HELLO
    with socket.create_connection(("127.0.0.1", upstream.port), timeout=5) as connection:
        connection.sendall(b"POST /a HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK")


def test_refuses_what_is_not_http(upstream):
    with socket.create_connection(("127.0.0.1", upstream.port), timeout=5) as connection:
        connection.sendall(b"\x16\x03\x01 this is TLS\r\n\r\n")
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 400 Bad Request")
    assert upstream.received == []


def test_replaces_the_script_and_clears_the_record(upstream, post):
    upstream.script = [{"reply": {"json": 1}}]
    assert post().json == 1
    upstream.script = [{"reply": {"json": 2}}]
    upstream.received.clear()
    assert post().json == 2
    assert len(upstream.received) == 1


def test_a_function_that_fails_is_a_500(upstream, post):
    def fail(_received: object) -> dict[str, object]:
        raise KeyError("oops")

    upstream.script = [{"reply": fail}]
    answer = post()
    assert answer.status == 500
    assert "KeyError('oops')" in answer.json["error"]["message"]


def test_counts_a_client_that_leaves_amid_a_response(upstream, eventually):
    upstream.script = SLOW
    with socket.create_connection(("127.0.0.1", upstream.port), timeout=5) as connection:
        connection.sendall(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n")
        connection.recv(1000)
        assert upstream.open_connections == 1
        assert upstream.disconnects == 0
    eventually(lambda: upstream.disconnects == 1)
    assert upstream.open_connections == 0


def test_counts_a_client_that_leaves_amid_a_flood(upstream, eventually):
    upstream.script = [{"reply": {"sse": [{"$repeat": 20_000, "item": {"text": "x" * 1000}}]}}]
    with socket.create_connection(("127.0.0.1", upstream.port), timeout=5) as connection:
        connection.sendall(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n")
        connection.recv(1000)
    eventually(lambda: upstream.disconnects == 1)


def test_does_not_count_a_client_that_leaves_after_a_response(upstream, post, eventually):
    upstream.script = HELLO
    post()
    eventually(lambda: upstream.open_connections == 0)
    assert upstream.disconnects == 0


def test_does_not_count_a_connection_that_the_script_cuts(upstream, raw, eventually):
    upstream.script = [{"reply": {"sse": [{"n": 1}, {"$cut": "close"}]}}]
    raw()
    eventually(lambda: upstream.open_connections == 0)
    assert upstream.disconnects == 0


def test_serves_connections_side_by_side(upstream, post):
    upstream.script = [{"reply": {"json": {}, "delay_ms": 150}}]
    threads = [threading.Thread(target=post) for _ in range(8)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - started < 0.6
    assert upstream.accepted_connections == 8


def test_ends_open_responses_when_it_stops():
    with serving(SLOW) as upstream:
        connection = socket.create_connection(("127.0.0.1", upstream.port), timeout=5)
        connection.sendall(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n")
        connection.recv(1000)
    with connection:
        assert connection.recv(1000) == b""
    assert upstream.open_connections == 0
    assert upstream.disconnects == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", upstream.port), timeout=5)


def test_leaves_nothing_behind_of_a_connection_just_made():
    for _ in range(20):
        with serving([]) as upstream:
            connection = socket.create_connection(("127.0.0.1", upstream.port), timeout=5)
        connection.close()
        assert upstream.open_connections == 0


def test_works_inside_a_running_loop():
    async def ask() -> object:
        async with ScriptedUpstream(HELLO) as upstream, httpx2.AsyncClient() as client:
            return (await client.get(f"{upstream.url}/a")).json()

    assert asyncio.run(ask()) == {"hello": "world"}


def test_a_taken_port_is_an_error(upstream):
    with pytest.raises(OSError, match="in use"), serving([], port=upstream.port):
        pass


@pytest.mark.parametrize(("keep", "kept"), [(2, ["/3", "/4"]), (0, []), (9, ["/1", "/2", "/3", "/4"])])
def test_keeps_only_the_newest_requests(keep, kept):
    async def ask() -> list[str]:
        async with ScriptedUpstream(HELLO, keep=keep) as upstream, httpx2.AsyncClient() as client:
            for number in range(1, 5):
                await client.get(f"{upstream.url}/{number}")
            return [received.path for received in upstream.received]

    assert asyncio.run(ask()) == kept


@pytest.mark.parametrize("path", ["/_received", "/_script"])
def test_cannot_be_controlled_over_http_unless_allowed(upstream, post, path):
    assert post(path=path, method="GET").status == 404
