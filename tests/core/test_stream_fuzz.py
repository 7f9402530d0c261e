"""Mutated upstream streams, bounded in number: never a crash, never an illegal ending."""

from __future__ import annotations

import random

import pytest

from bridge.canonical.events import MessageEnd, StreamFailed
from bridge.canonical.head import AnswerHead
from bridge.canonical.reading import Reading
from bridge.protocols.anthropic.stream_encoder import MessagesStreamEncoder
from bridge.protocols.openai_chat.stream_decoder import ChatStreamDecoder
from support import FIXTURES

STREAMS = [path.read_bytes() for path in sorted((FIXTURES / "openai_chat").glob("*/stream.sse"))]
GARBAGE = [
    b"\x00",
    b"\xff\xfe",
    b"null",
    b"[]",
    b'""',
    b"data: ",
    b"\n\n",
    b"\r",
    b"{",
    b"}",
    b'"index":',
    b"-1",
    b"1e999",
]


def mutate(stream: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 4)):
        at, length = rng.randrange(len(stream) + 1), rng.randint(1, 60)
        match rng.randrange(5):
            case 0:
                stream = stream[:at] + stream[at + length :]
            case 1:
                stream = stream[:at] + rng.choice(GARBAGE) + stream[at:]
            case 2:
                stream = stream[:at] + stream[at : at + length] + stream[at:]
            case 3:
                stream = stream[:at] + bytes([rng.randrange(256)]) + stream[at + 1 :]
            case _:
                lines = stream.split(b"\n\n")
                rng.shuffle(lines)
                stream = b"\n\n".join(lines)
    return stream


@pytest.mark.req("C11", "C13", "G2")
@pytest.mark.parametrize("seed", range(40))
def test_whatever_arrives_the_stream_ends_legally(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        stream = mutate(rng.choice(STREAMS), rng)
        decoder = ChatStreamDecoder(Reading("acme", reasoning_tags=rng.choice([None, "think"])))
        cut = rng.randrange(len(stream) + 1)
        events = [*decoder.feed(stream[:cut]), *decoder.feed(stream[cut:]), *decoder.close(), *decoder.close()]
        endings = [event for event in events if isinstance(event, MessageEnd | StreamFailed)]
        assert len(endings) == 1, stream
        assert events[-1] is endings[0]
        encoded = MessagesStreamEncoder(AnswerHead("msg_1", "m")).encode(events)
        assert encoded.endswith(b"\n\n")
