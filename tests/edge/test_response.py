"""One answer on its way out: signs of life come in silence, between events, and never after the end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from bridge.exchange import Answer
from handler.response import Response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from bridge.exchange import Write

pytestmark = pytest.mark.req("C12")
INTERVAL = 0.03
PING = b": ping\n\n"


class Client:
    """What a client has been sent; `gate` holds its writes up while it does not read."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def send(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        await self.gate.wait()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


def response_to(client: Client) -> Response:
    observer = SimpleNamespace(samples_bodies=lambda: False)
    edge: Any = SimpleNamespace(observer=observer, heartbeat_seconds=INTERVAL, allow_origins=())
    request: Any = SimpleNamespace(id="req_1", headers={}, method="POST")
    return Response(edge, request, client.send)


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await test

    asyncio.run(bounded())


async def until(met: Callable[[], bool]) -> None:
    for _ in range(1000):
        if met():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to that")


def streaming(body: Callable[[Write], Awaitable[None]], heartbeat: bytes = PING) -> Answer:
    return Answer(200, {"content-type": "text/event-stream"}, body, heartbeat)


@pytest.mark.parametrize("is_watched", [True, False], ids=["watched before", "of an endpoint that is not watched"])
def test_a_silent_stream_is_heard_of(is_watched: bool) -> None:
    async def test() -> None:
        client = Client()
        response = response_to(client)
        if is_watched:
            response.watch(lambda: None)
            await asyncio.sleep(INTERVAL * 3)  # it could not begin early, and is not forgotten for that

        async def body(write: Write) -> None:
            await write(b"data: 1\n\n")
            await until(lambda: client.body.count(PING) == 3)
            await write(b"data: 2\n\n")

        await response.streamed(streaming(body))
        assert client.body.replace(PING, b"") == b"data: 1\n\ndata: 2\n\n"

    run(test())


def test_nothing_is_said_within_an_event() -> None:
    async def test() -> None:
        client = Client()
        response = response_to(client)

        async def body(write: Write) -> None:
            await write(b"data: {")
            await asyncio.sleep(INTERVAL * 4)
            await write(b"}\n\n")

        await response.streamed(streaming(body))
        assert client.body == b"data: {}\n\n"

    run(test())


def test_a_read_that_comes_in_the_timers_moment_goes_first() -> None:
    """The timer finds silence between two events; before its word is out, half an event is."""

    async def test() -> None:
        client, response = Client(), None
        response = response_to(client)
        look, arrived = response._look, asyncio.get_running_loop().create_future()

        def look_as_data_arrives() -> None:
            if not arrived.done():
                arrived.set_result(None)
            look()

        response._look = look_as_data_arrives  # type: ignore[method-assign]

        async def body(write: Write) -> None:
            await write(b"data: 1\n\n")
            await arrived
            await write(b'data: {"b":')
            await asyncio.sleep(INTERVAL * 3)
            await write(b"2}\n\n")

        await response.streamed(streaming(body))
        assert client.body.replace(PING, b"") == b'data: 1\n\ndata: {"b":2}\n\n'
        assert b'"b":2' in client.body

    run(test())


def test_an_answer_that_is_late_finds_its_stream_begun() -> None:
    async def test() -> None:
        client = Client()
        response = response_to(client)
        response.watch(lambda: Answer(200, {"content-type": "text/event-stream"}, b"", PING))
        await until(lambda: client.body.count(PING) == 2)
        assert response.began_early

        async def body(write: Write) -> None:
            await write(b"data: 1\n\n")

        await response.streamed(streaming(body))
        starts = [message for message in client.messages if message["type"] == "http.response.start"]
        assert len(starts) == 1
        assert client.messages[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
        assert client.body.endswith(PING + b"data: 1\n\n")

    run(test())


@pytest.mark.parametrize("ends", ["whole", "streamed"])
def test_after_the_end_nothing_is_said(ends: str) -> None:
    async def test() -> None:
        client = Client()
        response = response_to(client)
        response.watch(lambda: Answer(200, {}, b"", PING))

        async def body(write: Write) -> None:
            await write(b"data: 1\n\n")

        if ends == "whole":
            await response.whole(Answer(200, {}, b"{}"))
        else:
            await response.streamed(streaming(body))
        said = len(client.messages)
        await asyncio.sleep(INTERVAL * 4)
        assert len(client.messages) == said

    run(test())


def test_a_client_that_does_not_read_is_not_spoken_to_again_and_again() -> None:
    async def test() -> None:
        client = Client()
        response = response_to(client)

        async def body(write: Write) -> None:
            await write(b"data: 1\n\n")
            client.gate.clear()
            await until(lambda: client.body.endswith(PING))
            await asyncio.sleep(INTERVAL * 5)
            assert client.body == b"data: 1\n\n" + PING
            client.gate.set()

        await response.streamed(streaming(body))

    run(test())


def test_a_word_that_waits_for_the_client_is_not_overtaken() -> None:
    """The client reads again in the moment in which the next bytes come: they go after what was waiting."""

    class Deaf(Client):
        async def send(self, message: dict[str, Any]) -> None:
            await self.gate.wait()
            self.messages.append(message)

    async def test() -> None:
        client = Deaf()
        response = response_to(client)

        async def body(write: Write) -> None:
            await write(b"data: 1\n\n")
            client.gate.clear()
            await asyncio.sleep(INTERVAL * 3)  # a sign of life waits now
            client.gate.set()
            await write(b"data: {")
            await write(b"}\n\n")

        await response.streamed(streaming(body))
        assert client.body == b"data: 1\n\n" + PING + b"data: {}\n\n"

    run(test())


@pytest.mark.parametrize(
    "pieces",
    [(b"data: 1\r\n\r\n",), (b"data: 1\r\r",), (b"data: 1\n", b"\n"), (b"data: 1\n\n", b"")],
    ids=["CR LF", "CR", "in two reads", "and nothing"],
)
def test_the_end_of_an_event_is_known_however_it_is_written(pieces: tuple[bytes, ...]) -> None:
    async def test() -> None:
        client = Client()

        async def body(write: Write) -> None:
            for piece in pieces:
                await write(piece)
            await until(lambda: PING in client.body)

        await response_to(client).streamed(streaming(body))

    run(test())


def test_a_body_is_closed_although_its_head_never_got_out() -> None:
    """The client of a kept-alive connection has not read the answer before, and leaves."""

    async def test() -> None:
        client, closed = Client(), []
        client.gate.clear()

        async def body(write: Write) -> None:
            try:
                await write(b"data: 1\n\n")
                await asyncio.Event().wait()
            finally:
                closed.append(True)

        speaking = asyncio.create_task(response_to(client).streamed(streaming(body)))
        await asyncio.sleep(0.01)
        speaking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await speaking
        assert closed == [True]

    run(test())


def test_a_body_is_closed_although_its_early_beginning_never_got_out() -> None:
    async def test() -> None:
        client, closed = Client(), []
        client.gate.clear()
        response = response_to(client)
        response.watch(lambda: Answer(200, {}, b"", PING))
        await until(lambda: response.began_early)

        async def body(write: Write) -> None:
            try:
                await write(b"data: 1\n\n")
            finally:
                closed.append(True)

        speaking = asyncio.create_task(response.streamed(streaming(body)))
        await asyncio.sleep(0.01)
        speaking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await speaking
        response.rest()
        assert closed == [True]

    run(test())
