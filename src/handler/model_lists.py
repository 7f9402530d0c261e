"""What providers say when they are asked for their models: for the greeting and for `bridge doctor`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bridge.catalog import MAX_LIST_BYTES, list_call, rows_of
from bridge.errors import BridgeError
from bridge.providers import DEFAULT_BASE_URLS, api_root
from bridge.upstream.client import HttpUpstream
from bridge.upstream.failures import NoAnswerError
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bridge.providers import Provider


@dataclass(frozen=True, slots=True)
class Listing:
    """One provider's answer: its status, or the problem that there was none; None where it listed no models."""

    provider: Provider
    status: int = 0
    problem: str = ""
    models: tuple[str, ...] | None = None

    @property
    def url(self) -> str:
        return self.provider.url("/models")


async def ask_for_models(providers: Iterable[Provider], seconds: float) -> list[Listing]:
    """Ask every provider at once; none of them may take longer than so many seconds."""
    upstream = HttpUpstream()
    try:
        return list(await asyncio.gather(*(_ask(provider, upstream, seconds) for provider in providers)))
    finally:
        await upstream.aclose()


def is_public(provider: Provider) -> bool:
    """True if the provider is asked at its own public address, not at a server of the operator's."""
    return any(provider.name == name and provider.api_root == api_root(url) for name, url in DEFAULT_BASE_URLS.items())


def names_model(models: Sequence[str], wanted: str) -> bool:
    """True if a list has the model: also under its date, as Ollama's latest, or without OpenRouter's variant."""
    names = {wanted, f"{wanted}:latest", wanted.rpartition(":")[0]}
    return any(model in names or model.startswith(f"{wanted}-20") for model in models)


async def _ask(provider: Provider, upstream: HttpUpstream, seconds: float) -> Listing:
    call = list_call(provider, provider.keys[0] if provider.keys else None)
    try:
        async with asyncio.timeout(seconds):
            reply = await upstream.send(call)
            try:
                body = await reply.read(MAX_LIST_BYTES)
            finally:
                await reply.aclose()
    except NoAnswerError as error:
        public = f"{provider.name}: cannot be reached; check the network"
        return Listing(provider, problem=public if is_public(provider) else error.message)
    except BridgeError as error:
        return Listing(provider, problem=error.message)
    except TimeoutError:
        return Listing(provider, problem=f"no answer within {seconds:.0f} s")
    return Listing(provider, reply.status, models=_names(body) if reply.status == 200 else None)


def _names(body: bytes) -> tuple[str, ...] | None:
    """The ids of a list; Gemini says `models/` before each."""
    rows = rows_of(body)
    if rows is None:
        return None
    ids = (row.get("id") for row in rows)
    return tuple(name.removeprefix("models/") for name in ids if isinstance(name, str) and name.isprintable())
