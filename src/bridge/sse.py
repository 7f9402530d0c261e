"""Server-sent events, sans I/O: bytes cut anywhere in, whole events out (the WHATWG event stream format).

Lines end in LF, CR LF or CR; an empty line ends an event; several `data` lines join with LF; lines
that begin with a colon are comments. A CR at the end of a read may be half of a CR LF, so it waits.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_EVENT_BYTES = 16 * 1024 * 1024


class EventTooLargeError(ValueError):
    """An event passed the size that is kept in memory."""


class ServerSentEvent(NamedTuple):
    data: bytes
    event: bytes = b""


class SseParser:
    """`feed` bytes as they arrive; `close` when there are no more."""

    __slots__ = ("_buffer", "_limit", "_started")

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._buffer = b""
        self._limit = limit
        self._started = False

    @property
    def is_between_events(self) -> bool:
        """True if nothing of an event has been fed yet that is not whole."""
        return not self._buffer

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        if self._started and not self._buffer and _is_one_line(data):
            return [ServerSentEvent(data[6:-2])]
        buffer = self._buffer + data if self._buffer else data
        if not self._started:
            if len(buffer) < 3 and b"\xef\xbb\xbf".startswith(buffer):
                self._buffer = buffer
                return []
            self._started = True
            buffer = buffer.removeprefix(b"\xef\xbb\xbf")
        if b"\r" in buffer:
            buffer = _with_line_feeds(buffer)
        end = buffer.rfind(b"\n\n")
        if end < 0:
            self._keep(buffer)
            return []
        rest = buffer[end + 2 :]
        if rest:
            self._keep(rest)
        else:
            self._buffer = b""
        return [event for block in buffer[:end].split(b"\n\n") if (event := _parse_event(block))]

    def close(self) -> list[ServerSentEvent]:
        """The event that only lacked its empty line, as some servers end; half a line is no event."""
        rest, self._buffer = _with_line_feeds(self._buffer + b"\n"), b""
        complete = rest[: rest.rfind(b"\n", 0, -1) + 1].strip(b"\n")
        event = _parse_event(complete) if complete else None
        return [event] if event else []

    def _keep(self, rest: bytes) -> None:
        if len(rest) > self._limit:
            raise EventTooLargeError(f"an event of the stream is larger than {self._limit} bytes")
        self._buffer = rest


def _is_one_line(data: bytes) -> bool:
    """True for a read that is one whole event of one line, as most are."""
    return data.startswith(b"data: ") and data.find(b"\n") == len(data) - 2 and data[-1] == 10 and b"\r" not in data


def _with_line_feeds(buffer: bytes) -> bytes:
    held = b"\r" if buffer.endswith(b"\r") else b""
    return buffer.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n") + held


def _parse_event(block: bytes) -> ServerSentEvent | None:
    if block.startswith(b"data: ") and b"\n" not in block:  # what nearly every event looks like
        return ServerSentEvent(block[6:])
    name, data = b"", []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return ServerSentEvent(b"\n".join(data), name) if data else None


def encode_event(event: bytes, data: bytes) -> bytes:
    """One named event. `data` is JSON on one line."""
    return b"event: %b\ndata: %b\n\n" % (event, data)
