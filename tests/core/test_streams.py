"""A provider's stream on its way to a client: what is kept is kept once, and what failed is told once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from bridge.asking import Asked
from bridge.canonical.events import MessageEnd, MessageStart, StreamFailed, TextDelta, TextStart, Usage
from bridge.canonical.head import AnswerHead
from bridge.canonical.reading import Reading
from bridge.errors import BridgeError, ErrorKind
from bridge.exchange import ClientCall, Record
from bridge.protocols import registry
from bridge.streams import Translation, streamed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from bridge.canonical.events import StreamEvent

CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class CountingKeeper:
    """Counts how often an answer is kept."""

    settled = 0
    unwatched: frozenset[type[StreamEvent]] = frozenset()

    def observe(self, events: list[StreamEvent]) -> list[StreamEvent]:
        return list(events)

    async def settle(self) -> None:
        self.settled += 1

    async def give_up(self) -> None:
        pass


class Reply:
    status = 200
    headers = {"content-type": "text/event-stream"}  # noqa: RUF012

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece

    async def aclose(self) -> None:
        pass


def asked(*pieces: bytes) -> Asked:
    reply: Any = Reply(pieces)
    return Asked(reply, registry.server("openai_chat"), Reading("acme"), Record(), lambda error: error)


def spoken(batches: AsyncIterator[list[StreamEvent]]) -> tuple[bytes, CountingKeeper, Record]:
    keeper, call = CountingKeeper(), ClientCall("anthropic", {}, b"", "ann")
    out: list[bytes] = []

    async def close() -> None:
        pass

    async def write(data: bytes) -> None:
        out.append(data)

    async def speak() -> None:
        encoder = registry.client("anthropic").stream_encoder(AnswerHead("msg_1", "m", 1))
        given: Any = keeper
        answer = await streamed(call, Translation(batches, close, encoder, given), dict)
        assert not isinstance(answer.body, bytes)
        await answer.body(write)

    asyncio.run(speak())
    return b"".join(out), keeper, call.record


@pytest.mark.req("C6.2")
@pytest.mark.parametrize("pieces", [(CHUNK, END), (CHUNK + END,), (CHUNK, END, b": bye\n\n")])
def test_an_answer_is_kept_once(pieces: tuple[bytes, ...]) -> None:
    said, keeper, record = spoken(asked(*pieces).events())
    assert said.endswith(b'data: {"type":"message_stop"}\n\n')
    assert (keeper.settled, record.error_kind) == (1, "")


def test_a_provider_that_says_nothing_more_makes_no_batch() -> None:
    async def read() -> list[list[StreamEvent]]:
        return [batch async for batch in asked(CHUNK, END).events()]

    assert [] not in asyncio.run(read())


@pytest.mark.req("C6.2")
@pytest.mark.parametrize("begins", [True, False], ids=["in the first batch", "in a later one"])
def test_a_failure_in_the_stream_is_on_record(begins: bool) -> None:
    failed = StreamFailed(BridgeError(ErrorKind.OVERLOADED, "busy"))

    async def batches() -> AsyncIterator[list[StreamEvent]]:
        start: list[StreamEvent] = [MessageStart(Usage()), TextStart(), TextDelta("Hi")]
        if begins:
            yield [*start, failed]
        else:
            yield start
            yield [failed]
        yield [MessageEnd("end_turn", Usage())]  # nobody asks for it any more

    said, keeper, record = spoken(batches())
    assert said.count(b"event: error") == 1
    assert said.endswith(b"\n\n")
    assert b"message_stop" not in said
    assert (record.error_kind, keeper.settled) == ("OVERLOADED", 0)
