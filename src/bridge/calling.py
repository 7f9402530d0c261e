"""Calls to providers: with whose key, and what happens when one is refused."""

from __future__ import annotations

import asyncio
import random
from dataclasses import field
from typing import TYPE_CHECKING

from bridge.errors import BridgeError, ErrorKind
from bridge.headers import trace_context
from bridge.ports import UpstreamCall
from bridge.upstream.retry import RetryPolicy, send_with_retries
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.exchange import ClientCall
    from bridge.ports import Upstream, UpstreamReply
    from bridge.providers import Provider

MAX_KEYS_TRIED = 2
MAX_ERROR_BYTES = 64 * 1024
MAX_ANSWER_BYTES = 64 * 1024 * 1024
REFUSAL_SECONDS = 3.0
BYTES_PER_TOKEN = 4
"""A rule of thumb, where nobody has counted."""
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Caller:
    """Sends what the pipeline wants sent."""

    upstream: Upstream
    retries: RetryPolicy = field(default_factory=RetryPolicy)

    async def send(
        self,
        call: ClientCall,
        provider: Provider,
        path: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
    ) -> UpstreamReply:
        """Send a body; where the bridge holds several keys, one that is refused or used up is followed by another.

        What may go better a moment later is tried again: nothing of the answer has been handed on yet.
        """
        keys = _keys(provider, call.credential)

        async def attempt() -> UpstreamReply:
            for key in keys:
                said = {"content-type": JSON, **trace_context(call.headers), **(headers or {})}
                said |= provider.call_headers(key, call.headers)
                sent = UpstreamCall(provider.name, call.method, provider.url(path), said, body or None)
                reply = await self.upstream.send(sent)
                call.record.upstream_status = reply.status
                if reply.status not in (401, 429) or key is keys[-1]:
                    break
                await reply.aclose()
            return reply

        return await send_with_retries(attempt, self.retries, call.deadline, on_retry=call.record.count_retry)


def _keys(provider: Provider, credential: str | None) -> list[str | None]:
    """The bridge's own keys in random order, else the client's: unless it was evidently made for somebody else."""
    if len(provider.keys) == 1:
        return [*provider.keys]
    if provider.keys:
        return random.sample(provider.keys, min(len(provider.keys), MAX_KEYS_TRIED))
    if credential and provider.may_see(credential):
        return [credential]
    if not provider.configured:
        variable = f"{provider.name.upper()}_API_KEY"
        raise BridgeError(
            ErrorKind.AUTHENTICATION,
            f"there is no key for {provider.name}: set {variable} on the bridge, or send a key of {provider.name} "
            "as x-api-key or Authorization: Bearer",
            retryable=False,
        )
    return [None]  # a server of the operator's own that wants none


async def read_and_close(reply: UpstreamReply, limit: int) -> bytes:
    try:
        return await reply.read(limit)
    finally:
        await reply.aclose()


async def read_refusal(reply: UpstreamReply, limit: int) -> bytes:
    """What a refusal says, as far as it comes soon: one that never ends must not hold up who could answer instead."""
    pieces: list[bytes] = []
    try:
        async with asyncio.timeout(REFUSAL_SECONDS):
            async for data in reply.chunks():
                pieces.append(data)
                if sum(map(len, pieces)) >= limit:
                    break
    except (TimeoutError, BridgeError):
        pass
    finally:
        await reply.aclose()
    return b"".join(pieces)[:limit]


def masked(error: BridgeError, provider: Provider, credential: str | None) -> BridgeError:
    """The error without the key that a provider quotes in it."""
    for key in (*provider.keys, credential):
        if key and key in error.message:
            error.message = error.message.replace(key, "***")
            error.args = (error.message,)
        if key and error.provider_details is not None and key in str(error.provider_details):
            error.provider_details = None
    return error


def without_keys(body: bytes, provider: Provider, credential: str | None) -> bytes:
    """A provider's refusal without the key that it quotes, as some do."""
    for key in (*provider.keys, credential):
        if key:
            body = body.replace(key.encode(), b"***")
    return body
