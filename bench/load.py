"""The load generator: plain sockets and one selector, so that it is not what is measured.

While the clock runs it only receives and looks for the first token and the end; what arrived is
parsed and counted afterwards. Every answer must be complete, or the run fails.
"""

from __future__ import annotations

import selectors
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

READ_BYTES = 1 << 18
SILENCE_SECONDS = 20.0
LAST_CHUNK = b"\r\n0\r\n\r\n"


class LoadError(RuntimeError):
    """An answer that was not what it should be: its time would mean nothing."""


@dataclass(frozen=True, slots=True)
class Request:
    """Where to send what, the bytes that mark a token in the answer, and how many tokens it has."""

    port: int
    data: bytes
    marker: bytes
    tokens: int


@dataclass(frozen=True, slots=True)
class Answer:
    """When the first token and the end came, and everything that arrived."""

    first_seconds: float
    total_seconds: float
    raw: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run gave."""

    answers: int
    tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


def post(port: int, path: str, token: str, body: bytes) -> bytes:
    """An HTTP request as bytes."""
    lines = (
        f"POST {path} HTTP/1.1",
        f"host: 127.0.0.1:{port}",
        "content-type: application/json",
        "anthropic-version: 2023-06-01",
        f"x-api-key: {token}",
        f"content-length: {len(body)}",
        "",
        "",
    )
    return "\r\n".join(lines).encode() + body


class Connection:
    """One kept-alive connection that asks the same thing again and again."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._pieces: list[bytes] = []
        self._asked_at = self._first_at = 0.0
        self.socket = socket.create_connection(("127.0.0.1", request.port), SILENCE_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def ask(self) -> None:
        """Send the request."""
        self._pieces = []
        self._first_at = 0.0
        self._asked_at = time.perf_counter()
        self.socket.sendall(self._request.data)

    def receive(self) -> Answer | None:
        """Take what is there; the answer if that was the last of it."""
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise LoadError(f"the connection ended after {b''.join(self._pieces)[-600:]!r}")
        pieces = self._pieces
        pieces.append(data)
        if not self._first_at:
            self._look_for_token()
        end = data if len(data) >= len(LAST_CHUNK) else b"".join(pieces[-len(LAST_CHUNK) :])
        if not end.endswith(LAST_CHUNK):
            return None
        asked = self._asked_at
        return Answer(self._first_at - asked, time.perf_counter() - asked, b"".join(pieces))

    def exchange(self) -> Answer:
        """Ask, and wait for the whole answer."""
        self.ask()
        answer = None
        while answer is None:
            answer = self.receive()
        check(answer, self._request)
        return answer

    def _look_for_token(self) -> None:
        so_far = b"".join(self._pieces)
        if not so_far.startswith(b"HTTP/1.1 200 "[: len(so_far)]):
            raise LoadError(f"not an answer: {so_far[:600]!r}")
        if self._request.marker in so_far:
            self._first_at = time.perf_counter()


def run(request: Request, streams: int, total: int, seconds: float) -> Outcome:
    """Ask `total` times over so many connections; nothing new after so many seconds."""
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for _ in range(streams):
            connection = stack.enter_context(Connection(request))
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        started = time.perf_counter()
        answers = _drive(selector, total, started + seconds)
        elapsed = time.perf_counter() - started
    tokens = sum(check(answer, request) for answer in answers)
    return Outcome(len(answers), tokens, elapsed)


def _drive(selector: selectors.BaseSelector, total: int, deadline: float) -> list[Answer]:
    connections: list[Connection] = [key.data for key in selector.get_map().values()]
    for connection in connections:
        connection.ask()
    asked = len(connections)
    answers: list[Answer] = []
    while len(answers) < asked:
        ready = selector.select(SILENCE_SECONDS)
        if not ready or time.perf_counter() > deadline + SILENCE_SECONDS:
            raise LoadError(f"{asked - len(answers)} of {asked} answers did not come")
        for key, _ in ready:
            answer = key.data.receive()
            if answer is None:
                continue
            answers.append(answer)
            if asked < total and time.perf_counter() < deadline:
                key.data.ask()
                asked += 1
    return answers


def check(answer: Answer, request: Request) -> int:
    """How many tokens an answer has; it must be all of them."""
    found = payload(answer.raw).count(request.marker)
    if found != request.tokens:
        raise LoadError(f"{found} of {request.tokens} tokens came: {answer.raw[-300:]!r}")
    return found


def payload(raw: bytes) -> bytes:
    """The body of a chunked response: a token may be cut by the framing."""
    pieces: list[bytes] = []
    position = raw.index(b"\r\n\r\n") + 4
    while True:
        line_end = raw.index(b"\r\n", position)
        size = int(raw[position:line_end], 16)
        if size == 0:
            return b"".join(pieces)
        begin = line_end + 2
        pieces.append(raw[begin : begin + size])
        position = begin + size + 2
