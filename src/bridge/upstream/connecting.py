"""Opens connections: the name is resolved once, every address is checked, and what was checked is called."""

from __future__ import annotations

import asyncio
import socket
import sys
from ipaddress import ip_address
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeVar

import httpx2

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from bridge.upstream.addresses import Address

P = TypeVar("P", bound=asyncio.BaseProtocol)
Endpoint = tuple[str, int]

STAGGER_SECONDS = 0.25


class ForbiddenAddressError(httpx2.ConnectError):
    """The name resolves to an address that is not to be called."""


class UntrustedCertificateError(httpx2.ConnectError):
    """The server's certificate is not one to trust, or belongs to another name."""


async def connect(
    host: str,
    port: int,
    make: Callable[[], P],
    refuses: Callable[[Address], bool],
    context: ssl.SSLContext | None,
    seconds: float | None,
) -> P:
    """A connection to one of the host's addresses, with TLS where there is a context."""
    try:
        async with asyncio.timeout(seconds):
            return await _connect(host, port, make, refuses, context)
    except TimeoutError:
        raise httpx2.ConnectTimeout(f"no connection to {host}:{port} in time") from None
    except (OSError, UnicodeError) as error:
        raise _connect_error(error) from error


async def _connect(
    host: str, port: int, make: Callable[[], P], refuses: Callable[[Address], bool], context: ssl.SSLContext | None
) -> P:
    addresses = await _resolve(host, port)
    if any(refuses(ip_address(address.partition("%")[0])) for address, _ in addresses):
        raise ForbiddenAddressError(f"{host} resolves to an address that is not to be called")
    connected = await _first_of(_by_turns(addresses))
    try:
        _, protocol = await asyncio.get_running_loop().create_connection(
            make, sock=connected, ssl=context, server_hostname=host if context else None
        )
    except BaseException:
        connected.close()
        raise
    return protocol


def _connect_error(error: Exception) -> httpx2.ConnectError:
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return UntrustedCertificateError(error.verify_message)
    return httpx2.ConnectError(str(error))


async def _resolve(host: str, port: int) -> list[Endpoint]:
    try:
        return [(str(ip_address(host)), port)]
    except ValueError:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(str(address[0]), port) for _, _, _, _, address in found]


def _by_turns(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """IPv6 and IPv4 by turns, in the resolver's order, so that one that does not work holds nothing up."""
    first_is_v6 = ":" in endpoints[0][0]
    first = [endpoint for endpoint in endpoints if (":" in endpoint[0]) is first_is_v6]
    second = [endpoint for endpoint in endpoints if (":" in endpoint[0]) is not first_is_v6]
    return [endpoint for pair in zip_longest(first, second) for endpoint in pair if endpoint]


async def _first_of(endpoints: Sequence[Endpoint]) -> socket.socket:
    """The first to be connected; each further one starts when those before have failed or taken a while."""
    if len(endpoints) == 1:
        return await _open(endpoints[0])
    waiting = list(endpoints)
    running: set[asyncio.Task[socket.socket]] = set()
    error: OSError | None = None
    try:
        while waiting or running:
            if waiting:
                running.add(asyncio.create_task(_open(waiting.pop(0))))
            patience = STAGGER_SECONDS if waiting else None
            done, running = await asyncio.wait(running, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            opened = [task.result() for task in done if task.exception() is None]
            for spare in opened[1:]:
                spare.close()
            if opened:
                return opened[0]
            error = next((found for task in done if isinstance(found := task.exception(), OSError)), error)
    finally:
        _abandon(running)
    raise error or OSError("no address")


def _abandon(running: set[asyncio.Task[socket.socket]]) -> None:
    for task in running:
        task.add_done_callback(_close_result)
        task.cancel()


def _close_result(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def _open(endpoint: Endpoint) -> socket.socket:
    family = socket.AF_INET6 if ":" in endpoint[0] else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        await asyncio.get_running_loop().sock_connect(opened, endpoint)
    except BaseException:
        opened.close()
        raise
    return opened


def default_context() -> ssl.SSLContext:
    """What httpx2 trusts. Where the system's store is a file, without the 15 ms of importing its network stack."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if sys.platform == "linux":
        context.load_default_certs()
    if not context.cert_store_stats()["x509_ca"]:
        context = httpx2.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
