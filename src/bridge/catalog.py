"""Which models a client may ask for: what the configuration names and what the providers list.

1. Every id routes to the model it stands for; a model that no name leads to is not listed. Ids carry their
   provider (`openai/gpt-5`), except Claude models that their bare name reaches: Claude Code offers only ids
   that begin with `claude` or `anthropic`.
2. A provider that fails, is slow or talks nonsense is left out, and asked again after a short while.
3. A list that was read with the bridge's own key, or with none, is everybody's. One that was read with the
   caller's key is that caller's alone.
4. The caller's key goes to one provider at most: the only one for which the bridge holds no key. Where there
   are several nobody can tell which of them it was made for, and none is shown it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import field, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, TypeAlias

import orjson

from bridge.errors import BridgeError
from bridge.ports import UpstreamCall
from bridge.routing import route
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.ports import Upstream
    from bridge.providers import ProtocolName, Provider
    from bridge.routing import RoutingTable

TTL_SECONDS = 300.0
FAILURE_SECONDS = 30.0
# Claude Code waits 3 s for the whole list.
PATIENCE_SECONDS = 2.5
MAX_LIST_BYTES = 8 * 1024 * 1024
MAX_MODELS = 2000
MAX_TEXT = 256
MAX_SLOTS = 64

_LAST_SECOND = 253_402_300_799
# Anthropic gives 20 models unless asked for more; the others know no pages.
_LIST_PATHS: dict[ProtocolName, str] = {"anthropic": "/models?limit=1000"}
_DETAILS = ("lifecycle", "deprecated_at", "retires_at", "line", "max_input_tokens", "max_tokens", "capabilities")

_SlotKey: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model under the id that a client asks for; `details` is what only Anthropic says, in its own words."""

    id: str
    provider: str
    display_name: str
    created: int | None = None
    owned_by: str = ""
    details: Mapping[str, JsonValue] = field(default_factory=dict, hash=False)

    @property
    def created_at(self) -> str:
        """RFC 3339; the epoch where the date is unknown, as Anthropic's API defines it."""
        return datetime.fromtimestamp(self.created or 0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(slots=True)
class _Slot:
    """What one provider answered; None is a failure. Whoever holds the lock is the only one to ask."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    models: tuple[ModelEntry, ...] | None = None
    fresh_until: float = float("-inf")


class Catalog:
    """The models of one routing table, remembered for a while."""

    def __init__(
        self,
        table: RoutingTable,
        upstream: Upstream,
        clock: Callable[[], float] = time.monotonic,
        ttl: float = TTL_SECONDS,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._table = table
        self._upstream = upstream
        self._clock = clock
        self._ttl = ttl
        self._patience = patience
        self._sources = _sources(table)
        self._unmapped = replace(table, model_map=(), tiers={})
        self._configured = tuple(_configured(table, self._unmapped))
        self._slots: dict[_SlotKey, _Slot] = {}

    async def list(self, credential: str | None, principal: str) -> tuple[ModelEntry, ...]:
        """Every model: the configured ones, then each provider's, the newest first."""
        lists = await asyncio.gather(*(self._models(source, credential, principal) for source in self._sources))
        return tuple(_merged(self._configured, *(models or () for models in lists)).values())

    async def find(self, model_id: str, credential: str | None, principal: str) -> ModelEntry | None:
        """The entry for a name, listed or not.

        Providers serve more than they list (fine-tunes, dated names, OpenRouter's variants), so a name is not
        denied when the caller chose the provider or the operator mapped it, nor when the provider's list could
        not be read. What is left is a bare name that its provider does not list: most likely a slip.
        """
        target = route(self._table, model_id)
        asked = target.provider in self._sources
        models = await self._models(target.provider, credential, principal) if asked else None
        known = _merged(self._configured, models or ())
        if model_id in known:
            return known[model_id]
        mapped = target != route(self._unmapped, model_id)
        same = known.get(_name_of(self._table, target.provider, target.wire_model) or "")
        if same is not None and not mapped:
            return replace(same, id=model_id)
        if mapped or models is None or self._vouched_for(model_id):
            return _unlisted(self._table, model_id)
        return None

    def _vouched_for(self, model_id: str) -> bool:
        if self._table.demo is not None:  # it answers to every name
            return True
        provider, _, rest = model_id.partition("/")
        return model_id.startswith("or:") or (provider in self._table.providers and bool(rest))

    async def _models(
        self, provider: Provider, credential: str | None, principal: str
    ) -> tuple[ModelEntry, ...] | None:
        own = credential if credential and self._takes_callers_key(provider) and provider.may_see(credential) else None
        slot = self._slot(
            (provider.name, principal, sha256(own.encode()).hexdigest()) if own else (provider.name, "", "")
        )
        async with slot.lock:
            if self._clock() >= slot.fresh_until:
                slot.models = await self._fetch(provider, provider.keys[0] if provider.keys else own)
                slot.fresh_until = self._clock() + (FAILURE_SECONDS if slot.models is None else self._ttl)
            return slot.models

    def _takes_callers_key(self, provider: Provider) -> bool:
        return [source.name for source in self._sources if not source.keys] == [provider.name]

    def _slot(self, key: _SlotKey) -> _Slot:
        """The slot of a key; the one that was not used for longest makes room."""
        slot = self._slots.pop(key, None) or _Slot()
        self._slots[key] = slot
        if len(self._slots) > MAX_SLOTS:
            del self._slots[next(iter(self._slots))]
        return slot

    async def _fetch(self, provider: Provider, key: str | None) -> tuple[ModelEntry, ...] | None:
        call = list_call(provider, key)
        try:
            async with asyncio.timeout(self._patience):
                body = await self._read(call)
        except (BridgeError, TimeoutError):
            return None
        rows = None if body is None else rows_of(body)
        return None if rows is None else _listed(self._table, provider, rows)

    async def _read(self, call: UpstreamCall) -> bytes | None:
        reply = await self._upstream.send(call)
        try:
            return await reply.read(MAX_LIST_BYTES) if reply.status == 200 else None
        finally:
            await reply.aclose()


def _sources(table: RoutingTable) -> tuple[Provider, ...]:
    if table.demo is not None:
        return (table.demo,)
    return tuple(provider for provider in table.providers.values() if provider.configured)


def _configured(table: RoutingTable, unmapped: RoutingTable) -> Iterator[ModelEntry]:
    """The names that the operator gave to models, and the models that they stand for."""
    if table.demo is not None:
        return
    for tier in table.tiers:
        yield _unlisted(table, f"claude-{tier}")
    for pattern, _ in table.model_map:
        if not any(wildcard in pattern for wildcard in "*?["):
            yield _unlisted(table, pattern)
    for target in (*table.tiers.values(), *(target for _, target in table.model_map)):
        found = route(unmapped, target)
        name = _name_of(table, found.provider, found.wire_model)
        if name is not None:
            yield _unlisted(table, name)


def _unlisted(table: RoutingTable, model_id: str) -> ModelEntry:
    """What can be said of a name without any list."""
    found = route(table, model_id)
    provider, wire_model = found.provider, found.wire_model
    shown = wire_model
    if not model_id.endswith(wire_model):
        shown = f"{model_id} ({_name_of(table, provider, wire_model) or wire_model})"
    return ModelEntry(model_id, provider.name, shown, owned_by=provider.name)


def _name_of(table: RoutingTable, provider: Provider, wire_model: str) -> str | None:
    """The id that leads a client to a provider's model, if there is one."""
    names = [f"{provider.name}/{wire_model}"]
    if provider == table.demo or wire_model.startswith("claude"):
        names.insert(0, wire_model)
    for name in names:
        found = route(table, name)
        if (found.provider, found.wire_model) == (provider, wire_model):
            return name
    return None


def _merged(*lists: Iterable[ModelEntry]) -> dict[str, ModelEntry]:
    """By id; the first mention decides the place, the last, which knows more, what is said."""
    return {entry.id: entry for entries in lists for entry in entries}


def list_call(provider: Provider, key: str | None) -> UpstreamCall:
    """The question for a provider's models."""
    url = provider.url(_LIST_PATHS.get(provider.protocol, "/models"))
    return UpstreamCall(provider.name, "GET", url, provider.call_headers(key, {}), None)


def rows_of(body: bytes) -> Iterable[JsonObject] | None:
    """The models of either protocol's list, of which some servers send the bare array; None if it is no list."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    rows = parsed.get("data") if isinstance(parsed, dict) else parsed
    return [row for row in rows[:MAX_MODELS] if isinstance(row, dict)] if isinstance(rows, list) else None


def _listed(table: RoutingTable, provider: Provider, rows: Iterable[JsonObject]) -> tuple[ModelEntry, ...]:
    """Sorted, because a client that pages needs the same order when the list was read anew."""
    entries = _merged(entry for row in rows if (entry := _entry(table, provider, row)) is not None)
    return tuple(sorted(entries.values(), key=lambda entry: (-(entry.created or 0), entry.id)))


def _entry(table: RoutingTable, provider: Provider, row: JsonObject) -> ModelEntry | None:
    wire_model = _text(row.get("id"))
    if provider.name == "gemini":
        wire_model = wire_model.removeprefix("models/")
    name = _name_of(table, provider, wire_model) if wire_model else None
    if name is None:
        return None
    return ModelEntry(
        id=name,
        provider=provider.name,
        display_name=_text(row.get("display_name")) or _text(row.get("name")) or wire_model,
        created=_created(row),
        owned_by=_text(row.get("owned_by")) or provider.name,
        details=_details(row) if provider.protocol == "anthropic" else {},
    )


def _details(row: JsonObject) -> JsonObject:
    return {name: row[name] for name in _DETAILS if row.get(name) is not None}


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) and len(value) <= MAX_TEXT and value.isprintable() else ""


def _created(row: JsonObject) -> int | None:
    """Seconds since the epoch; None for what is no date, or one in milliseconds."""
    match row.get("created") or row.get("created_at"):
        case bool():
            return None
        case int() | float() as seconds if 0 < seconds <= _LAST_SECOND:
            return int(seconds)
        case str() as text:
            return _epoch(text)
        case _:
            return None


def _epoch(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    seconds = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    return seconds if 0 < seconds <= _LAST_SECOND else None
