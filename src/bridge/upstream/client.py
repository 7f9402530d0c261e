"""Provider calls over HTTP: one pool of connections for the life of the process, with its limits and its breakers.

Requests go to the transport directly. What httpx2's client would add (redirects, cookies, authentication, hooks) is not
wanted here, and took a tenth of a short request's time; its requests and responses took another twentieth.
"""

from __future__ import annotations

import math
import time
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import httpx2

from bridge.errors import BridgeError, ErrorKind, broken_upstream
from bridge.upstream.breaker import Breaker, BreakerRule
from bridge.upstream.failures import NoAnswerError, failure_before_answer, failure_within_answer
from bridge.upstream.incoming import Limits, exchange_by
from bridge.upstream.timeouts import Patience, Timeouts
from bridge.upstream.transport import HttpTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Mapping

    from bridge.ports import UpstreamCall, UpstreamReply
    from bridge.upstream.incoming import Incoming

_DEFAULT_TIMEOUTS = Timeouts()
_DEFAULT_RULE = BreakerRule()


class HttpUpstream:
    """One connection pool for the life of the process, and one breaker per provider and host."""

    def __init__(
        self,
        transport: httpx2.AsyncBaseTransport | None = None,
        *,
        timeouts: Timeouts = _DEFAULT_TIMEOUTS,
        breaker: BreakerRule | None = _DEFAULT_RULE,
    ) -> None:
        self._transport = transport
        self._timeouts = timeouts
        self._limits = Limits(connect=timeouts.connect)
        self._rule = breaker
        self._breakers: dict[tuple[str, str], Breaker] = {}

    async def send(self, call: UpstreamCall) -> UpstreamReply:
        breaker = self._admitting_breaker(call)
        try:
            reply = await self._send(call)
        except NoAnswerError:
            breaker.failed()
            raise
        except BaseException:
            breaker.abandoned()
            raise
        if reply.status >= 500:
            breaker.failed()
        else:
            breaker.succeeded()
        return reply

    async def aclose(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()

    async def _send(self, call: UpstreamCall) -> HttpReply:
        patience = Patience(self._timeouts, call.provider)
        try:
            with patience:
                answer = await self._exchange(call)
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            patience.close()
            raise failure_before_answer(error, call.provider, self._timeouts) from error
        except BaseException:
            patience.close()
            raise
        reply = HttpReply(answer, call.provider, patience)
        encoding = reply.headers.get("content-encoding", "").lower()
        if not _READABLE.issuperset(part.strip() for part in encoding.split(",")):
            await reply.aclose()
            raise broken_upstream(f"the answer is encoded as {encoding[:32]!r}, which was not asked for", call.provider)
        return reply

    def _exchange(self, call: UpstreamCall) -> Awaitable[Incoming]:
        transport, url = self._transport, _parse_url(call.url)
        if transport is None:
            transport = self._transport = HttpTransport()
        exchange = transport.exchange if isinstance(transport, HttpTransport) else partial(exchange_by, transport)
        return exchange(call.method, url, _headers(call, url), call.body or b"", self._limits)

    def _admitting_breaker(self, call: UpstreamCall) -> Breaker:
        """The breaker of the call's host; BridgeError while it is open."""
        host = call.url.partition("://")[2].partition("/")[0]
        key = (call.provider, host)
        breaker = self._breakers.get(key)
        if breaker is None:
            rule = self._rule or BreakerRule(failures=0)
            breaker = self._breakers[key] = Breaker(rule, time.monotonic)
        seconds = math.ceil(breaker.admit())
        if seconds:
            raise BridgeError(
                ErrorKind.OVERLOADED,
                f"{call.provider}: {host} failed again and again and is left alone for another {seconds} s",
                provider=call.provider,
                retry_after=str(seconds),
            )
        return breaker


_parse_url = lru_cache(maxsize=256)(httpx2.URL)
_READABLE = frozenset({"", "identity", "gzip", "deflate"})
_SAID_ALWAYS = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "toolbridge"}


def _headers(call: UpstreamCall, url: httpx2.URL) -> list[tuple[str, str]]:
    headers = {"host": url.netloc.decode("ascii"), **_SAID_ALWAYS}
    for name, value in call.headers.items():
        headers[name.lower()] = value
    if call.body is not None or call.method == "POST":
        headers["content-length"] = str(len(call.body or b""))
    return list(headers.items())


class HttpReply:
    """An open response."""

    __slots__ = ("_answer", "_has_begun", "_patience", "_pieces", "_provider", "headers", "status")

    def __init__(self, answer: Incoming, provider: str, patience: Patience) -> None:
        self._answer = answer
        self._provider = provider
        self._patience = patience
        self._has_begun = False
        self.status = answer.status
        self.headers: Mapping[str, str] = _named(answer.headers)
        compressed = "content-encoding" in self.headers  # although asked not to
        self._pieces = _inflated(answer) if compressed else aiter(answer)

    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            with self._patience:
                data = await anext(self._pieces)
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise failure_within_answer(error, self._provider) from error
        if not self._has_begun:
            self._has_begun = True
            self._patience.answer_began()
        return data

    async def read(self, limit: int) -> bytes:
        pieces, size = [], 0
        async for data in self.chunks():
            size += len(data)
            if size > limit:
                raise broken_upstream(f"the answer is larger than {limit} bytes", self._provider)
            pieces.append(data)
        return b"".join(pieces)

    async def aclose(self) -> None:
        self._patience.close()
        await self._answer.aclose()


def _inflated(answer: Incoming) -> AsyncIterator[bytes]:
    return httpx2.Response(answer.status, headers=answer.headers, stream=answer).aiter_bytes()


def _named(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by their names in lower case; the values of one that comes several times are joined."""
    named: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        named[name] = f"{named[name]}, {value}" if name in named else value
    return named
