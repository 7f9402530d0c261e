"""A reply whose beginning has been read already."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bridge.errors import BridgeError, broken_upstream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bridge.ports import UpstreamReply


class PeekedReply:
    """`seen` is the beginning of the body; reading starts with it."""

    __slots__ = ("_reply", "_rest", "headers", "seen", "status")

    def __init__(self, reply: UpstreamReply, seen: bytes, rest: AsyncIterator[bytes]) -> None:
        self._reply, self._rest = reply, rest
        self.status, self.headers, self.seen = reply.status, reply.headers, seen

    async def chunks(self) -> AsyncIterator[bytes]:
        if self.seen:
            yield self.seen
        async for data in self._rest:
            yield data

    async def read(self, limit: int) -> bytes:
        body = bytearray()
        async for data in self.chunks():
            body += data
            if len(body) > limit:
                raise broken_upstream(f"the answer is larger than {limit} bytes", "upstream")
        return bytes(body)

    async def aclose(self) -> None:
        await self._reply.aclose()


async def peek(reply: UpstreamReply, limit: int, seconds: float) -> PeekedReply:
    """Read the body as far as `limit` bytes and `seconds` reach; a body that breaks off ends there."""
    seen, rest = bytearray(), aiter(reply.chunks())
    try:
        async with asyncio.timeout(seconds):
            while len(seen) < limit:
                seen += await anext(rest)
    except (StopAsyncIteration, TimeoutError, BridgeError):
        pass
    return PeekedReply(reply, bytes(seen), rest)
