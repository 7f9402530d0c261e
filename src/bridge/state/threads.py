"""Message threads: the client sends only what is new, the bridge keeps the rest (T1).

    msg_t <thread, 22> <random, 11>          the id of an answer names its thread, as a minted tool id its conversation

A thread is a line of turns, each kept on its own, compressed: what was sent and what was answered. Its head names the
newest answer. Who continues takes the head by condition, for a time: a lease that any failure gives back. So of two
continuations of the same answer one wins, and the other is told so in Anthropic's own codes.
"""

from __future__ import annotations

import re
import secrets
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson
from pydantic_core import from_json

from bridge.canonical.fold import fold
from bridge.canonical.json import dumps
from bridge.errors import BridgeError, ErrorKind, invalid_request
from bridge.state.claims import random_token
from bridge.state.keys import thread_key

if TYPE_CHECKING:
    from bridge.canonical.events import StreamEvent
    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.ports import ThreadStore
    from bridge.state.keeper import Rendering

KEPT_FIELDS = ("system", "tools")
MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
_ANSWER_ID = re.compile(r"msg_t([0-9A-Za-z]{22})[0-9A-Za-z]{11}")

_ERRORS = {
    "thread_not_found": (ErrorKind.NOT_FOUND, "this thread is not known here, or it expired (THREAD_TTL_SECONDS)"),
    "thread_already_continued": (ErrorKind.INVALID_REQUEST, "this message has been continued already"),
    "thread_continue_in_flight": (ErrorKind.INVALID_REQUEST, "this message is being continued by another request"),
    "thread_fingerprint_mismatch": (ErrorKind.INVALID_REQUEST, "a thread keeps its own; these differ from it"),
    "thread_unsupported_request": (ErrorKind.INVALID_REQUEST, "threads are switched off here (THREADS)"),
}


def thread_error(code: str, detail: str = "") -> BridgeError:
    """One of Anthropic's thread errors; SDKs act on its code."""
    kind, text = _ERRORS[code]
    return BridgeError(kind, f"thread: {detail}{': ' if detail else ''}{text}", code=code, retryable=False)


@dataclass(slots=True)
class ThreadTurn:
    """One turn of a thread on its way: the whole request that it amounts to, and how to keep or give up the turn."""

    store: ThreadStore
    partition: str
    answer_id: str
    body: bytes
    sent: JsonObject
    number: int = 0
    lease: str | None = None
    _events: list[StreamEvent] = field(default_factory=list)
    _kept: bool = False

    def observe(self, events: list[StreamEvent]) -> None:
        self._events += events

    async def keep(self, rendering: Rendering) -> None:
        """Store the turn with its answer, and pass the head on to it."""
        answer: JsonObject = {"role": "assistant", "content": rendering.content(fold(self._events))}
        payload = zlib.compress(dumps(self.sent | {"answer": answer}), 1)
        if self.lease is None:
            await self.store.begin(self.partition, self.answer_id, payload)
        else:
            await self.store.extend(self.partition, self.lease, self.answer_id, self.number, payload)
        self._kept = True

    async def give_up(self) -> None:
        """Let another request continue the thread, unless this turn was kept."""
        if self.lease is not None and not self._kept:
            await self.store.release(self.partition, self.lease)


async def open_turn(store: ThreadStore, principal: str, body: bytes) -> ThreadTurn:
    """Begin or continue the thread that a request names; BridgeError with Anthropic's code if that cannot be."""
    request = from_json(body)
    match request.pop("thread", None):
        case {"type": "create"}:
            token = random_token(secrets.token_bytes(16))
            kept = {name: request[name] for name in KEPT_FIELDS if name in request}
            sent = kept | {"messages": request.get("messages", [])}
            return ThreadTurn(store, thread_key(principal, token), _answer_id(token), dumps(request), sent)
        case {"type": "continue", "previous_message_id": str(previous)}:
            return await _continued(store, principal, request, previous)
    raise invalid_request("thread: takes {type: create} or {type: continue, previous_message_id}")


async def _continued(store: ThreadStore, principal: str, request: JsonObject, previous: str) -> ThreadTurn:
    named = _ANSWER_ID.fullmatch(previous)
    if named is None:
        raise thread_error("thread_not_found")
    partition, lease = thread_key(principal, named[1]), secrets.token_hex(8)
    turns = [orjson.loads(_inflated(payload)) for payload in await store.claim(partition, previous, lease)]
    sent: JsonObject = {"messages": request.get("messages", [])}
    turn = ThreadTurn(store, partition, _answer_id(named[1]), b"", sent, len(turns), lease)
    try:
        turn.body = dumps(_whole_request(request, turns))
    except BaseException:
        await turn.give_up()
        raise
    return turn


def _whole_request(request: JsonObject, turns: list[JsonObject]) -> JsonObject:
    first = turns[0]
    changed = [name for name in KEPT_FIELDS if name in request and request[name] != first.get(name)]
    if changed:
        raise thread_error("thread_fingerprint_mismatch", " and ".join(changed))
    messages: list[JsonValue] = []
    for turn in turns:
        messages += [*_messages(turn), turn["answer"]]
    kept = {name: first[name] for name in KEPT_FIELDS if name in first}
    return request | kept | {"messages": [*messages, *_messages(request)]}


def _messages(holder: JsonObject) -> list[JsonValue]:
    messages = holder.get("messages")
    if not isinstance(messages, list):
        raise invalid_request("messages: Input should be a valid list")
    return messages


def _answer_id(token: str) -> str:
    return f"msg_t{token}{random_token(secrets.token_bytes(8))[-11:]}"


def _inflated(payload: bytes) -> bytes:
    return zlib.decompressobj().decompress(payload, MAX_PAYLOAD_BYTES)
