"""A transport for addresses that strangers choose: a name is resolved once, checked, and what was checked is called."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, TypeAlias

import httpx2

from bridge.upstream.addresses import is_public

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from bridge.upstream.addresses import Address

Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
MAX_ADDRESSES_TRIED = 3
MAX_KEPT = 8
KEPT_SECONDS = 4.0
"""Less than servers commonly wait: none shall close a connection just when it is used again."""


class ForbiddenAddressError(httpx2.ConnectError):
    """The name leads to an address that is not to be called."""


class TooLargeError(httpx2.ReadError):
    """The answer is larger than its limit."""


async def resolve_name(host: str, port: int) -> list[str]:
    """The addresses of a host, as the system's resolver gives them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for _, _, _, _, address in found))


class PinnedTransport(httpx2.AsyncBaseTransport):
    """Calls only addresses that `allows` lets pass; Host and certificate stay those of the name.

    Proxies are not used: behind one, it is not the bridge that resolves names. Connections are kept only where every
    request goes to the same name, because the pool knows them by their address, and two names may share one.
    """

    def __init__(
        self,
        *,
        allows: Callable[[Address], bool] = is_public,
        resolve: Resolve = resolve_name,
        context: ssl.SSLContext | None = None,
        max_bytes: int | None = None,
        keeps_connections: bool = False,
    ) -> None:
        self._allows, self._resolve, self._max_bytes = allows, resolve, max_bytes
        kept = MAX_KEPT if keeps_connections else 0
        limits = httpx2.Limits(max_keepalive_connections=kept, keepalive_expiry=KEPT_SECONDS)
        self._transport = httpx2.AsyncHTTPTransport(verify=context or True, trust_env=False, limits=limits)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host = request.url.raw_host.decode("ascii")
        for address in (addresses := await self._addresses(host, request.url)):
            try:
                response = await self._transport.handle_async_request(_pinned(request, host, address))
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if address == addresses[-1]:
                    raise
                continue
            return self._limited(response)
        raise httpx2.ConnectError(f"{host} has no address")

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def _addresses(self, host: str, url: httpx2.URL) -> list[str]:
        try:
            found = await self._resolve(host, url.port or (443 if url.scheme == "https" else 80))
        except (OSError, UnicodeError):
            raise httpx2.ConnectError(f"the name {host} cannot be resolved") from None
        if not all(self._allows(ip_address(address.partition("%")[0])) for address in found):
            raise ForbiddenAddressError(f"{host} leads to an address that is not to be called")
        return found[:MAX_ADDRESSES_TRIED]

    def _limited(self, response: httpx2.Response) -> httpx2.Response:
        if self._max_bytes is not None and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _Limited(response.stream, self._max_bytes)
        return response


def _pinned(request: httpx2.Request, host: str, address: str) -> httpx2.Request:
    """The same request, to an address instead of a name. Its headers are made already: Host says the name."""
    extensions = {**request.extensions, "sni_hostname": host} if request.url.scheme == "https" else request.extensions
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions=extensions,
    )


class _Limited(httpx2.AsyncByteStream):
    """A body that fails when it grows too large."""

    def __init__(self, stream: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self._stream, self._left = stream, max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._left -= len(piece)
            if self._left < 0:
                raise TooLargeError("the answer is too large")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
