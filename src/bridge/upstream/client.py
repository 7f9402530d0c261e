"""Provider calls over httpx2. Every way a connection can fail is mapped here, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2

from bridge.errors import BridgeError, ErrorKind, broken_upstream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from bridge.ports import UpstreamCall, UpstreamReply

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 300.0

_FAILURES: tuple[tuple[type[Exception], ErrorKind, int, str], ...] = (
    (httpx2.ConnectTimeout, ErrorKind.TIMEOUT, 504, "no connection within {connect:.0f} s"),
    (httpx2.TimeoutException, ErrorKind.TIMEOUT, 504, "no answer for {silence:.0f} s"),
    (httpx2.ConnectError, ErrorKind.API, 502, "cannot be reached; check the base URL and that it is running"),
    (
        httpx2.RemoteProtocolError,
        ErrorKind.API,
        502,
        "the connection broke in the middle of the answer",
    ),
    (httpx2.TransportError, ErrorKind.API, 502, "the connection failed"),
    (httpx2.DecodingError, ErrorKind.API, 502, "the answer's compression is broken"),
    (httpx2.InvalidURL, ErrorKind.API, 502, "the base URL is not a valid URL"),
)


class HttpUpstream:
    """One connection pool for the life of the process."""

    def __init__(self, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self._transport = transport
        self._client: httpx2.AsyncClient | None = None

    async def send(self, call: UpstreamCall) -> UpstreamReply:
        client = self._client or self._connect()
        try:
            request = client.build_request(call.method, call.url, headers=dict(call.headers), content=call.body)
            response = await client.send(request, stream=True)
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise _mapped(error, call.provider) from error
        return HttpReply(response, call.provider)

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    def _connect(self) -> httpx2.AsyncClient:
        self._client = httpx2.AsyncClient(
            transport=self._transport,
            timeout=httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(max_keepalive_connections=64),
            headers={"accept-encoding": "identity", "user-agent": "toolbridge"},
        )
        return self._client


class HttpReply:
    """An open response."""

    __slots__ = ("_provider", "_response", "headers", "status")

    def __init__(self, response: httpx2.Response, provider: str) -> None:
        self._response = response
        self._provider = provider
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            compressed = "content-encoding" in self.headers  # although asked not to
            async for data in self._response.aiter_bytes() if compressed else self._response.aiter_raw():
                yield data
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise _mapped(error, self._provider) from error

    async def read(self, limit: int) -> bytes:
        pieces, size = [], 0
        async for data in self.chunks():
            size += len(data)
            if size > limit:
                raise broken_upstream(f"the answer is larger than {limit} bytes", self._provider)
            pieces.append(data)
        return b"".join(pieces)

    async def aclose(self) -> None:
        await self._response.aclose()


def _mapped(error: Exception, provider: str) -> BridgeError:
    for kind_of_failure, kind, status, text in _FAILURES:
        if isinstance(error, kind_of_failure):
            said = text.format(connect=CONNECT_SECONDS, silence=SILENCE_SECONDS)
            return BridgeError(kind, f"{provider}: {said}", status=status, provider=provider)
    raise error
