"""Gemini's signatures for clients that speak its own protocol and drop them.

Their requests pass through as they are. Only a history whose calls lack their signature is mended, because Gemini
refuses it: with what was kept when the calls passed by, else with the value that Google documents for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

import orjson

from bridge.canonical.json import dumps
from bridge.errors import BridgeError
from bridge.protocols.openai_chat.replay import GEMINI_BYPASS
from bridge.sse import EventTooLargeError, SseParser

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject, JsonValue, WireObject
    from bridge.exchange import ClientCall
    from bridge.ports import DocumentStore

_SIGNS = (b'"tool_calls"', b"thought_signature")


async def with_signatures(store: DocumentStore, call: ClientCall, body: bytes) -> bytes:
    """The body with the signatures of its calls; the same bytes where none is missing."""
    bare = _unsigned_calls(call.document or {})
    if not bare:
        return body
    document = orjson.loads(body)
    keys = {_key(call.principal, *told): told for told in bare}
    try:
        found = await store.get(list(keys))
        call.record.store_reads += 1
    except BridgeError as error:
        call.record.fail_state(error.message)
        found = {}
    kept = {told: orjson.loads(found[key]) for key, told in keys.items() if key in found}
    call.record.replayed_calls += len(kept)
    for message in document["messages"]:
        calls = _calls_of(message)
        if any(one.get("extra_content") for one in calls):
            continue
        for position, one in enumerate(calls):
            signature = kept.get(_told(one)) or (GEMINI_BYPASS if position == 0 else None)
            if signature:
                one |= signature
    return dumps(document)


@dataclass(slots=True)
class SignatureWatch:
    """Reads the signatures of calls that pass by, and keeps them at the end."""

    store: DocumentStore
    principal: str
    _sse: SseParser | None = field(default_factory=SseParser)
    _calls: dict[int, WireObject] = field(default_factory=dict)

    def feed(self, data: bytes) -> None:
        """A piece of a stream."""
        try:
            for event in self._sse.feed(data) if self._sse else ():
                if any(sign in event.data for sign in _SIGNS):
                    self.document(event.data)
        except EventTooLargeError:
            self._sse = None

    def document(self, data: bytes) -> None:
        """A chunk, or a whole completion; what cannot be read is none of its business."""
        try:
            choice = orjson.loads(data)["choices"][0]
            for position, call in enumerate((choice.get("delta") or choice.get("message"))["tool_calls"]):
                self._add(call.get("index", position), call)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return

    def _add(self, index: int, call: WireObject) -> None:
        known = self._calls.setdefault(index, {"id": "", "name": "", "arguments": "", "extra": None})
        function = call.get("function") or {}
        known["id"] = known["id"] or call.get("id") or ""
        known["name"] = known["name"] or function.get("name") or ""
        known["arguments"] += function.get("arguments") or ""
        known["extra"] = known["extra"] or call.get("extra_content")

    async def keep(self) -> int:
        """Store what was seen; how many signatures could not be."""
        failures = 0
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            if not call["extra"]:
                continue
            key = _key(self.principal, call["id"], call["name"], call["arguments"])
            try:
                await self.store.put(key, dumps({"extra_content": call["extra"]}))
            except BridgeError:
                failures += 1
        return failures


def _unsigned_calls(document: JsonObject) -> list[tuple[str, str, str]]:
    """Calls of messages in which no call is signed: Gemini signs the first of several."""
    messages = document.get("messages")
    found: list[tuple[str, str, str]] = []
    for message in messages if isinstance(messages, list) else ():
        calls = _calls_of(message)
        if not any(call.get("extra_content") for call in calls):
            found += [_told(call) for call in calls]
    return found


def _calls_of(message: JsonValue) -> list[WireObject]:
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _told(call: WireObject) -> tuple[str, str, str]:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    return str(call.get("id")), str(function.get("name")), str(function.get("arguments"))


def _key(principal: str, call_id: str, name: str, arguments: str) -> str:
    """Providers repeat their ids, so a call is known by what it says too."""
    said = dumps([principal, call_id, name, arguments])
    return f"sign#{sha256(said).hexdigest()[:40]}"
