"""Many streams at once, with slow readers and providers that die: everyone gets an end, nobody waits for another."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2
import psutil
import pytest
from raw_server import raw_server

from handler.http1.server import HttpServer, listen
from handler.settings import load_settings
from handler.wiring import build_app
from scripted.server import ScriptedUpstream
from support import PLAIN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

MESSAGES, CHAT = "/v1/messages", "/v1/chat/completions"
ENDS = {MESSAGES: b"event: message_stop\n", CHAT: b"data: [DONE]\n"}
ERRORS = {MESSAGES: b"event: error\n", CHAT: b'data: {"error":'}
LARGE, LARGE_EVENTS = "x" * 16_000, 250
SLOW_PIECES = 15
MEGABYTE = 1024 * 1024


def delta(text: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}


END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
TICKS = {"$repeat": 20, "item": delta("tick ")}


def answers(model: str, *items: Any, **sending: Any) -> dict[str, Any]:
    return {"when": {"model": model}, "reply": {"sse": list(items), **sending}}


SCRIPT = [
    answers("steady", *[TICKS] * 5, END, "[DONE]", chunk_delay_ms=1),
    answers("large", {"$repeat": LARGE_EVENTS, "item": delta(LARGE)}, END, "[DONE]"),
    answers("dying", TICKS, {"$cut": "reset"}, chunk_delay_ms=1),
    answers("hanging", TICKS, {"$hang_ms": 60_000}),
]


@asynccontextmanager
async def serving_bridge(folder: Path, upstream: str, **environment: str) -> AsyncIterator[str]:
    """The bridge on a socket, on this very loop, so that its tasks can be counted."""
    named = {"STATE_FILE": str(folder / "state.sqlite3"), "UPSTREAM_OPENAI_BASE_URL": upstream}
    app = build_app(load_settings(PLAIN | named | environment), as_json=False)
    listener = listen("127.0.0.1", 0)
    server = HttpServer(app)
    running = asyncio.create_task(server.serve(listener))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.stop()
        await asyncio.wait_for(running, 10)
        listener.close()


def question(model: str) -> dict[str, Any]:
    said = [{"role": "user", "content": "Hi"}]
    return {"model": f"openai/{model}", "max_tokens": 9, "stream": True, "messages": said}


async def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0.02)


@dataclass
class Reader:
    """One client and what it has got so far. A slow one takes a little now and then, and the rest when it hurries."""

    path: str
    model: str
    slow: bool = False
    got: int = 0
    pieces: int = 0
    tail: bytes = b""

    async def read(self, url: str, hurry: asyncio.Event) -> None:
        async with (
            httpx2.AsyncClient(timeout=30) as client,
            client.stream("POST", url + self.path, json=question(self.model)) as answer,
        ):
            assert answer.status_code == 200
            async for piece in answer.aiter_raw():
                self.got += len(piece)
                self.pieces += 1
                self.tail = (self.tail + piece)[-500:]
                if self.slow and not hurry.is_set():
                    await (asyncio.sleep(0.02) if self.pieces < SLOW_PIECES else hurry.wait())

    @property
    def ended_well(self) -> bool:
        return ENDS[self.path] in self.tail and ERRORS[self.path] not in self.tail

    @property
    def ended_in_an_error(self) -> bool:
        return ERRORS[self.path] in self.tail and ENDS[self.path] not in self.tail


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test

    asyncio.run(bounded())


@pytest.mark.req("C12", "C11", "NFR3")
def test_slow_readers_and_dying_providers_harm_nobody_else(tmp_path: Path) -> None:
    def readers(model: str, each: int, slow: bool = False) -> list[Reader]:
        return [Reader(path, model, slow) for path in (MESSAGES, CHAT) for _ in range(each)]

    fast, slow = readers("steady", 8), readers("large", 4, slow=True)
    broken = readers("dying", 2) + readers("hanging", 2)

    async def load(url: str) -> None:
        hurry = asyncio.Event()
        waiting = [asyncio.create_task(one.read(url, hurry)) for one in slow]
        await asyncio.gather(*(one.read(url, hurry) for one in (*fast, *broken)))
        assert not any(task.done() for task in waiting), "the slow ones were waited for"
        assert all(one.got < LARGE_EVENTS * len(LARGE) for one in slow)
        hurry.set()
        await asyncio.gather(*waiting)

    async def test() -> None:
        async with (
            ScriptedUpstream(SCRIPT) as upstream,
            serving_bridge(tmp_path, upstream.url, UPSTREAM_IDLE_TIMEOUT_SECONDS="0.4") as url,
        ):
            await Reader(MESSAGES, "steady").read(url, asyncio.Event())  # what is made once is made
            before, memory = await resting(upstream), psutil.Process().memory_info().rss
            await load(url)
            assert all(one.ended_well for one in (*fast, *slow))
            assert all(one.got > LARGE_EVENTS * len(LARGE) for one in slow)
            assert all(one.ended_in_an_error for one in broken)
            assert len(upstream.received) == 33
            await wait_for(lambda: standing(upstream) == before)
            gc.collect()
            assert psutil.Process().memory_info().rss - memory < 100 * MEGABYTE

    run(test())


def standing(upstream: ScriptedUpstream) -> tuple[int, int]:
    """Tasks and file descriptors, without those of connections that the bridge keeps for its next calls."""
    kept = upstream.open_connections  # both ends are in this process, and one has a task
    return len(asyncio.all_tasks()) - kept, psutil.Process().num_fds() - 2 * kept


async def resting(upstream: ScriptedUpstream) -> tuple[int, int]:
    """How it stands when nothing goes on."""
    last = (0, 0)
    while last != (last := standing(upstream)):  # noqa: ASYNC110  (nobody tells)
        await asyncio.sleep(0.2)
    return last


@pytest.mark.req("C12")
@pytest.mark.parametrize("path", [MESSAGES, CHAT])
def test_nothing_is_left_of_streams_that_clients_left(tmp_path: Path, path: str) -> None:
    async def leave(url: str) -> None:
        async with (
            httpx2.AsyncClient(timeout=30) as client,
            client.stream("POST", url + path, json=question("hanging")) as answer,
        ):
            await anext(answer.aiter_raw())

    async def test() -> None:
        async with ScriptedUpstream(SCRIPT) as upstream, serving_bridge(tmp_path, upstream.url) as url:
            await Reader(path, "steady").read(url, asyncio.Event())
            before = await resting(upstream)
            await asyncio.gather(*(leave(url) for _ in range(32)))
            await wait_for(lambda: upstream.disconnects == 32)
            await wait_for(lambda: standing(upstream) == before)
            assert upstream.open_connections <= 1

    run(test())


# --- backpressure ------------------------------------------------------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b"data: " + json.dumps(delta(LARGE)).encode() + b"\n\n"
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
ALL_BYTES = 64 * MEGABYTE
MOST_BYTES = 24 * MEGABYTE
"""What the kernel holds on its way over two sockets, and a little that the bridge does; one that reads on takes all."""


@asynccontextmanager
async def deaf_client(url: str, path: str) -> AsyncIterator[None]:
    """A client that asks and does not read."""
    body = json.dumps(question("endless")).encode()
    host, port = url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    try:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, (host, int(port)))
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        await loop.sock_sendall(connection, head.encode() + body)
        yield
    finally:
        connection.close()


async def settled(value: Callable[[], int]) -> int:
    """The value, once it has not changed for a while."""
    last, unchanged = value(), 0
    while unchanged < 10 or not last:
        await asyncio.sleep(0.05)
        unchanged = unchanged + 1 if value() == last else 0
        last = value()
    return last


@pytest.mark.req("C12")
@pytest.mark.parametrize("path", [MESSAGES, CHAT])
def test_a_client_that_does_not_read_stops_the_provider(tmp_path: Path, path: str) -> None:
    endless = [HEAD, *[CHUNK] * (ALL_BYTES // len(CHUNK)), b"0\r\n\r\n"]

    async def test() -> None:
        async with raw_server(endless) as raw, serving_bridge(tmp_path, raw.url) as url:
            memory = psutil.Process().memory_info().rss
            async with deaf_client(url, path):
                assert await settled(lambda: raw.written) < MOST_BYTES
                assert psutil.Process().memory_info().rss - memory < MOST_BYTES
                assert raw.ended == 0
                async with asyncio.timeout(5), httpx2.AsyncClient() as client:  # others are served meanwhile
                    assert (await client.get(f"{url}/health")).status_code == 200
            await wait_for(lambda: raw.ended == 1)

    run(test())
