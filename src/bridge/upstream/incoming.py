"""What a transport hands back: an answer whose head is here and whose body is still to come."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import httpx2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


class Limits(NamedTuple):
    """How long each step may take, in seconds; None is no limit."""

    connect: float | None = None
    read: float | None = None
    write: float | None = None


class Incoming(httpx2.AsyncByteStream):
    """Iterating gives the body as it arrives; closing gives the connection back, or drops it if there is more."""

    status: int
    headers: list[tuple[bytes, bytes]]


async def exchange_by(
    transport: httpx2.AsyncBaseTransport,
    method: str,
    url: httpx2.URL,
    headers: Sequence[tuple[str, str]],
    body: bytes,
    limits: Limits,
) -> Incoming:
    """One exchange over any of httpx2's transports: that of a proxy, one that a test brings."""
    timeout = httpx2.Timeout(None, connect=limits.connect, read=limits.read, write=limits.write).as_dict()
    stream = httpx2.ByteStream(body)
    request = httpx2.Request(method, url, headers=list(headers), stream=stream, extensions={"timeout": timeout})
    return _Foreign(await transport.handle_async_request(request))


class _Foreign(Incoming):
    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self.status, self.headers = response.status_code, response.headers.raw

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._response.stream)  # type: ignore[arg-type]

    async def aclose(self) -> None:
        await self._response.aclose()
