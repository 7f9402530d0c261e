"""Stored responses: what `previous_response_id` continues, and what can be read and deleted by its id.

Each turn is kept once, compressed, under the id of its answer: what was sent, what was answered and the ids of all
answers before it. So a chain of any length is read in two round trips, and any answer can be continued more than once.
"""

from __future__ import annotations

import secrets
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson
from pydantic_core import from_json

from bridge.canonical.fold import fold
from bridge.canonical.json import dumps
from bridge.errors import BridgeError, ErrorKind, invalid_request
from bridge.state.keys import response_key

if TYPE_CHECKING:
    from bridge.canonical.events import StreamEvent
    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.ports import DocumentStore
    from bridge.state.keeper import Rendering

MAX_CHAIN = 1000
MAX_PAYLOAD_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class ResponseTurn:
    """One answer on its way: the whole request that it amounts to, and how to keep it."""

    store: DocumentStore
    principal: str
    answer_id: str
    body: bytes
    sent: list[JsonValue]
    before: list[str]
    is_stored: bool
    _events: list[StreamEvent] = field(default_factory=list)

    def observe(self, events: list[StreamEvent]) -> None:
        if self.is_stored:
            self._events += events

    async def keep(self, rendering: Rendering) -> None:
        if not self.is_stored:
            return
        message = fold(self._events)
        kept: JsonObject = {
            "input": self.sent,
            "output": rendering.content(message),
            "response": rendering.whole(message),
            "before": [*self.before],
        }
        await self.store.put(response_key(self.principal, self.answer_id), zlib.compress(dumps(kept), 1))

    async def give_up(self) -> None:
        """Nothing was taken that would have to be given back."""


async def open_response(store: DocumentStore, principal: str, body: bytes) -> ResponseTurn:
    """The request with everything that its `previous_response_id` stands for."""
    request = from_json(body)
    sent, previous = _items(request.get("input")), request.get("previous_response_id")
    is_stored = request.get("store") is not False
    answer_id = f"resp_{secrets.token_hex(24)}"
    if previous is None:
        return ResponseTurn(store, principal, answer_id, body, sent, [], is_stored)
    if not isinstance(previous, str):
        raise invalid_request("previous_response_id: Input should be a valid string")
    newest = (await _read(store, principal, [previous]))[0]
    before = [*_ids(newest["before"]), previous]
    if len(before) > MAX_CHAIN:
        raise invalid_request(f"previous_response_id: the chain is longer than {MAX_CHAIN} responses; start a new one")
    chain = await _read(store, principal, before[:-1])
    items = [item for turn in (*chain, newest) for part in ("input", "output") for item in _items(turn[part])]
    whole = dumps(request | {"input": [*items, *sent]})
    return ResponseTurn(store, principal, answer_id, whole, sent, before, is_stored)


async def show(store: DocumentStore, principal: str, response_id: str, part: str, *, delete: bool) -> JsonObject:
    """A stored response as the API shows it, or its deletion; BridgeError if there is none."""
    key = response_key(principal, response_id)
    if delete:
        if not await store.delete(key):
            raise not_found(response_id)
        return {"id": response_id, "object": "response.deleted", "deleted": True}
    found = await store.get([key])
    if key not in found:
        raise not_found(response_id)
    kept = _inflated(found[key])
    return _listed(_items(kept["input"])) if part == "input_items" else _object(kept["response"])


def not_found(response_id: str) -> BridgeError:
    """There is no such response, or it is somebody else's."""
    return BridgeError(ErrorKind.NOT_FOUND, f"Response with id {response_id!r} not found.", retryable=False)


async def _read(store: DocumentStore, principal: str, ids: list[str]) -> list[JsonObject]:
    keys = [response_key(principal, response_id) for response_id in ids]
    found = await store.get(keys) if keys else {}
    for response_id, key in zip(ids, keys, strict=True):
        if key not in found:
            raise BridgeError(
                ErrorKind.INVALID_REQUEST,
                f"previous_response_id: response {response_id[:80]!r} is not known here, was deleted, or expired "
                "(RESPONSE_TTL_SECONDS)",
                code="previous_response_not_found",
            )
    return [_inflated(found[key]) for key in keys]


def _listed(items: list[JsonValue]) -> JsonObject:
    ids = [str(item.get("id", "")) if isinstance(item, dict) else "" for item in items]
    first, last = (ids[0], ids[-1]) if ids else (None, None)
    return {"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": False}


def _items(given: JsonValue) -> list[JsonValue]:
    """Input as items; what is neither text nor a list is left to the parser to refuse."""
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return given if isinstance(given, list) else []


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _ids(value: JsonValue) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _inflated(payload: bytes) -> JsonObject:
    kept: JsonObject = orjson.loads(zlib.decompressobj().decompress(payload, MAX_PAYLOAD_BYTES))
    return kept
