"""What `bridge doctor` looks at: each configured provider's list of models, and the store."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.errors import BridgeError
from bridge.ports import UpstreamCall
from bridge.upstream.client import HttpUpstream
from handler.wiring import make_stores

if TYPE_CHECKING:
    from bridge.ports import ConversationStore
    from bridge.providers import Provider
    from handler.settings import Settings

PATIENCE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Finding:
    subject: str
    good: bool
    text: str


async def examine(settings: Settings) -> list[Finding]:
    """Try everything that is configured, at once."""
    configured = [provider for provider in settings.providers().values() if provider.configured]
    upstream = HttpUpstream()
    try:
        checks = [_check_provider(provider, upstream) for provider in configured]
        findings = await asyncio.gather(*checks, _check_store(make_stores(settings).tools))
    finally:
        await upstream.aclose()
    if not configured:
        findings.insert(
            0, Finding("providers", good=False, text="none: set a key such as OPENAI_API_KEY, or a base URL")
        )
    return findings


async def _check_provider(provider: Provider, upstream: HttpUpstream) -> Finding:
    url = provider.url("/models")
    key = provider.keys[0] if provider.keys else None
    call = UpstreamCall(provider.name, "GET", url, provider.call_headers(key, {}), None)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            reply = await upstream.send(call)
            await reply.aclose()
    except BridgeError as error:
        return Finding(provider.name, good=False, text=f"{url}: {error.message}")
    except TimeoutError:
        return Finding(provider.name, good=False, text=f"{url}: no answer within {PATIENCE_SECONDS:.0f} s")
    hint = "; check the key" if reply.status in (401, 403) else ""
    return Finding(provider.name, good=reply.status < 400, text=f"{url} answered {reply.status}{hint}")


async def _check_store(store: ConversationStore) -> Finding:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return Finding("store", good=True, text=await store.check())
    except BridgeError as error:
        return Finding("store", good=False, text=error.message)
    except TimeoutError:
        return Finding("store", good=False, text=f"no answer within {PATIENCE_SECONDS:.0f} s")
