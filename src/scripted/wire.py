"""What a response is on the wire: bytes to write, pauses, and ways to break off."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

JSON = "application/json"
EVENT_STREAM = "text/event-stream; charset=utf-8"
LAST_CHUNK = b"0\r\n\r\n"
PHRASES = {status.value: status.phrase for status in HTTPStatus}
BAD_CHUNK = b"zz\r\nno chunk has this size\r\n"


@dataclass(frozen=True, slots=True)
class Pause:
    """Write nothing for a while."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Cut:
    """End the connection here: with a RST, or with a FIN."""

    reset: bool


Step = bytes | Pause | Cut


@dataclass(frozen=True, slots=True)
class Response:
    """All that happens on the connection for one request; each bytes step is one write."""

    steps: tuple[Step, ...]
    close: bool = False


def chunk(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def head(status: int, headers: Mapping[str, str]) -> bytes:
    """Status line and headers."""
    phrase = PHRASES.get(status, "Unknown")
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {phrase}\r\n{lines}\r\n".encode("latin-1")


def whole(body: bytes, content_type: str = JSON, status: int = 200) -> Response:
    """A response of known length."""
    headers = {"content-type": content_type, "content-length": str(len(body))}
    return Response((head(status, headers) + body,))


def chunked(steps: Iterable[Step], *, burst: bool = False) -> tuple[Step, ...]:
    """Steps ended by the last chunk, unless the connection is cut; as one write when `burst`."""
    ended = list(steps)
    if not any(isinstance(step, Cut) for step in ended):
        if ended and isinstance(ended[-1], bytes):
            ended[-1] += LAST_CHUNK
        else:
            ended.append(LAST_CHUNK)
    return tuple(_merged(ended) if burst else ended)


def after_head(head: bytes, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The head, written together with what follows at once."""
    match steps:
        case (bytes() as first, *rest):
            return (head + first, *rest)
        case _:
            return (head, *steps)


def spaced(steps: Iterable[Step], seconds: float) -> Iterable[Step]:
    """Steps with a pause between each two writes."""
    started = False
    for step in steps:
        if isinstance(step, bytes) and started:
            yield Pause(seconds)
        started = started or isinstance(step, bytes)
        yield step


def _merged(steps: Iterable[Step]) -> Iterable[Step]:
    for written, group in groupby(steps, lambda step: isinstance(step, bytes)):
        if written:
            yield b"".join(step for step in group if isinstance(step, bytes))
        else:
            yield from group
