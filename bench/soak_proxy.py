"""A proxy before DynamoDB Local that counts every operation and, when told to, does what a bad day does."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from bench.soak_units import Operation, measure_operation

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator

HEAD_LIMIT = 64 * 1024
LINGER_ZERO = struct.pack("ii", 1, 0)
THROTTLED = {
    "__type": "com.amazonaws.dynamodb.v20120810#ThrottlingException",
    "message": "Rate of requests exceeds the allowed throughput.",
}
FAILED = {"__type": "com.amazonaws.dynamodb.v20120810#InternalServerError", "message": "Internal server error."}


@dataclass(frozen=True, slots=True)
class Faults:
    """The share of operations that each kind of fault hits."""

    throttled: float = 0.0
    failed: float = 0.0
    reset: float = 0.0
    unprocessed: float = 0.0
    delayed: float = 0.0
    delay_ms: tuple[float, float] = (5.0, 80.0)

    def draw(self, dice: random.Random) -> str | None:
        """The fault of one operation, if any."""
        number = dice.random()
        for kind in ("throttled", "failed", "reset", "unprocessed", "delayed"):
            number -= getattr(self, kind)
            if number < 0:
                return kind
        return None


NO_FAULTS = Faults()
BAD_DAY = Faults(throttled=0.04, failed=0.03, reset=0.02, unprocessed=0.02, delayed=0.2)
# For few turns, of which a single one that fails would decide: five faults in a row are too many for any store.
MILD_DAY = Faults(throttled=0.015, failed=0.015, reset=0.01, unprocessed=0.02, delayed=0.2)


@dataclass(frozen=True, slots=True)
class Message:
    """One HTTP message."""

    head: bytes
    body: bytes

    @property
    def operation(self) -> str:
        return _header(self.head, b"x-amz-target").decode().rpartition(".")[2]

    @property
    def status(self) -> int:
        return int(self.head.split(b" ", 2)[1])


@dataclass(slots=True)
class FaultyProxy:
    """Where the bridges think DynamoDB is. `faults` may be set at any time."""

    target: int
    dice: random.Random
    faults: Faults = NO_FAULTS
    port: int = 0
    operations: list[Operation] = field(default_factory=list)
    injected: Counter[str] = field(default_factory=Counter)
    _connections: set[asyncio.Task[Any]] = field(default_factory=set)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Listen until the block ends."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=HEAD_LIMIT)
        try:
            yield
        finally:
            server.close()
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        # A client that was killed, or a proxy that is told to stop, is no error of this connection.
        with suppress(asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            await self._relay(reader, writer)
        self._connections.discard(task)
        writer.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.target, limit=HEAD_LIMIT)

        async def forward(request: Message) -> Message:
            there_writer.write(request.head + request.body)
            answer = await _read_message(there_reader)
            self.operations.append(measure_operation(request.operation, request.body, answer.status, answer.body))
            return answer

        try:
            while not reader.at_eof():
                answer = await self._answer(await _read_message(reader), forward)
                if answer is None:
                    _reset(writer)
                    return
                writer.write(answer)
                await writer.drain()
        finally:
            there_writer.close()

    async def _answer(self, request: Message, forward: Any) -> bytes | None:
        """The answer to one operation; None for a connection that breaks.

        Half of the failures and resets come after the operation took place, which the bridge cannot know.
        """
        fault = self.faults.draw(self.dice)
        if fault == "unprocessed" and request.operation != "BatchGetItem":
            fault = None
        if fault is not None:
            self.injected[fault] += 1
        if fault in ("failed", "reset") and self.dice.random() < 0.5:
            await forward(request)
        if fault == "throttled":
            return _response(400, THROTTLED)
        if fault == "failed":
            return _response(500, FAILED)
        if fault == "reset":
            return None
        if fault == "unprocessed":
            return _response(200, {"Responses": {}, "UnprocessedKeys": orjson.loads(request.body)["RequestItems"]})
        if fault == "delayed":
            await asyncio.sleep(self.dice.uniform(*self.faults.delay_ms) / 1000)
        answer: Message = await forward(request)
        return answer.head + answer.body


async def _read_message(reader: asyncio.StreamReader) -> Message:
    head = await reader.readuntil(b"\r\n\r\n")
    length = _header(head, b"content-length")
    return Message(head, await reader.readexactly(int(length)) if length else b"")


def _header(head: bytes, name: bytes) -> bytes:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip()
    return b""


def _response(status: int, content: object) -> bytes:
    body = orjson.dumps(content)
    lines = (f"HTTP/1.1 {status} Injected", "content-type: application/x-amz-json-1.0", f"content-length: {len(body)}")
    return "\r\n".join((*lines, "", "")).encode() + body


def _reset(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
    writer.transport.abort()
