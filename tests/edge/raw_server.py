"""A server that sends exactly the bytes it is told to, split where it is told to."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Sequence


class Then(Enum):
    """What happens besides writing."""

    CLOSE = auto()
    RESET = auto()
    HANG = auto()


Step = bytes | float | Then


@dataclass
class RawServer:
    """Answers the requests it gets, over all connections, with the answers it holds, the last one again and again."""

    answers: Sequence[Sequence[Step]]
    reads_body: bool = True
    port: int = 0
    accepted: int = 0
    requests: list[bytes] = field(default_factory=list)
    written: int = 0
    ended: int = 0
    open: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self.open.add(task)
        self.accepted += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.ended += 1
            self.open.discard(task)
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        body = await reader.readexactly(int(length[1])) if length and self.reads_body else b""
        self.requests.append(head + body)
        steps = self.answers[min(len(self.requests), len(self.answers)) - 1]
        return all([await self._step(step, reader, writer) for step in steps])

    async def _step(self, step: Step, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        match step:
            case bytes():
                writer.write(step)
                await writer.drain()
                self.written += len(step)
            case float() | int():
                await asyncio.sleep(step)
            case Then.HANG:
                await reader.read()  # until the other side ends it
                return False
            case Then.CLOSE | Then.RESET:
                if step is Then.RESET:
                    linger = struct.pack("ii", 1, 0)
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    writer.transport.abort()
                writer.close()
                await writer.wait_closed()
                return False
        return True


@asynccontextmanager
async def raw_server(
    *answers: Sequence[Step], tls: ssl.SSLContext | None = None, reads_body: bool = True, host: str = "127.0.0.1"
) -> AsyncIterator[RawServer]:
    raw = RawServer(answers, reads_body)
    server = await asyncio.start_server(raw.serve, host, 0, ssl=tls)
    raw.port = server.sockets[0].getsockname()[1]
    try:
        yield raw
    finally:
        server.close()
        ending = list(raw.open)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await server.wait_closed()
        await asyncio.sleep(0.01)  # sockets close in the next turns of the loop


def split(wire: bytes, size: int) -> list[Step]:
    """The bytes in writes of a few each, which the other side sees one by one as far as the kernel lets it."""
    steps: list[Step] = []
    for start in range(0, len(wire), size):
        steps += [wire[start : start + size], 0.0]
    return steps
