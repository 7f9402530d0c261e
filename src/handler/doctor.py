"""What `bridge doctor` looks at: each configured provider's list of models, the settings beside it, and the store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from bridge.errors import BridgeError
from bridge.values import dataclass
from handler.greeting import example_model
from handler.model_lists import ask_for_models
from handler.setting_warnings import warnings_of
from handler.wiring import make_stores

if TYPE_CHECKING:
    from bridge.ports import ConversationStore
    from handler.model_lists import Listing
    from handler.settings import Settings

PATIENCE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; a warning is not a failure."""

    level: Literal["ok", "WARN", "FAIL"]
    text: str


async def examine(settings: Settings) -> list[Finding]:
    """Try everything that is configured, at once."""
    configured = [provider for provider in settings.providers().values() if provider.configured]
    listings, store = await asyncio.gather(
        ask_for_models(configured, PATIENCE_SECONDS), _check_store(make_stores(settings).tools)
    )
    lists = {listing.provider.name: listing.models for listing in listings if listing.models is not None}
    example = example_model([provider.name for provider in configured], lists)
    warnings = [Finding("WARN", text) for text in warnings_of(settings, lists, example)]
    providers = [_provider_finding(listing) for listing in listings]
    nothing = Finding("FAIL", "providers: none: set a key such as OPENAI_API_KEY, or a base URL")
    return [*(providers or [nothing]), store, *warnings]


def _provider_finding(listing: Listing) -> Finding:
    name = listing.provider.name
    if not listing.status:
        return Finding("FAIL", f"{name}: {listing.url}: {listing.problem}")
    hint = "; check the key" if listing.status in (401, 403) else ""
    return Finding("ok" if listing.status < 400 else "FAIL", f"{name}: {listing.url} answered {listing.status}{hint}")


async def _check_store(store: ConversationStore) -> Finding:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return Finding("ok", f"store: {await store.check()}")
    except BridgeError as error:
        return Finding("FAIL", f"store: {error.message}")
    except TimeoutError:
        return Finding("FAIL", f"store: no answer within {PATIENCE_SECONDS:.0f} s")
