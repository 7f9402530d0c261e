"""The memory of tool calls: what a request lacks is recalled before it is sent, what an answer leaves is kept.

Names and arguments that the history holds cost no read. One read brings what is missing and what has to be replayed.
Calls are saved while the answer streams; the end of the message waits for the last save, for a bounded time.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import field, replace
from typing import TYPE_CHECKING

import orjson

from bridge.canonical.content import Replay, Text, ToolResult, ToolUse
from bridge.canonical.events import (
    BlockStop,
    InputDelta,
    MessageEnd,
    MessageStart,
    SignatureDelta,
    TextDelta,
    TextStart,
    ThinkingDelta,
    ToolUseStart,
)
from bridge.canonical.request import Turn
from bridge.errors import BridgeError, invalid_request
from bridge.state.claims import mint, read_claim, text_claim
from bridge.state.keys import owner_key, partition_key
from bridge.state.records import Found, Origin, ToolRecord
from bridge.state.repair import orphan_results, restore_calls
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.canonical.events import StreamEvent
    from bridge.canonical.request import Request
    from bridge.conversation import Conversation
    from bridge.exchange import Record
    from bridge.ports import ConversationStore
    from bridge.state.records import Liveness

SAVE_SECONDS = 5.0
_TOOL_BLOCKS = (ToolUse, ToolResult)
MAX_NOTED_NAME = 64
_WHY = {
    "unknown": "it is not known here",
    "expired": "its conversation expired after STATE_TTL_SECONDS without activity",
    "terminated": "its conversation was terminated",
}


@dataclass(frozen=True, slots=True)
class ToolMemory:
    """Tool calls of one principal with one provider family."""

    store: ConversationStore
    principal: str
    family: str
    record: Record
    _known: dict[str, Liveness] = field(default_factory=dict)

    @property
    def signs_texts(self) -> bool:
        """Gemini signs plain answers too; no id carries their claim, so they are known by what they say."""
        return self.family.startswith("gemini/")

    async def recall(self, request: Request, conversation: Conversation) -> Request:
        """The request with trimmed calls put back and provider data attached; BridgeError if a call is lost."""
        if not self.signs_texts and request.kinds.isdisjoint(_TOOL_BLOCKS):
            return request
        orphans = orphan_results(request)
        flagged = [call.id for call in _calls(request) if (claim := read_claim(call.id)) and claim.has_data]
        texts = [] if conversation.is_new or not self.signs_texts else signed_texts(request)
        found = await self._find(orphans, flagged, {conversation.token: texts} if texts else {})
        for tool_id in orphans:
            if tool_id not in found.records:
                why = _WHY[found.absent.get(tool_id, "unknown")]
                raise invalid_request(
                    f"messages: tool_result for {tool_id!r}: its tool_use is not in the history, and {why}"
                )
        self.record.repaired_calls += len(orphans)
        return self._with_replays(restore_calls(request, found.records), found.records)

    async def _find(self, orphans: list[str], flagged: list[str], texts: Mapping[str, list[str]]) -> Found:
        wanted = {partition_key(self.principal, token): list(ids) for token, ids in texts.items()}
        for tool_id in dict.fromkeys((*orphans, *flagged)):  # DynamoDB refuses a key that is asked for twice
            claim = read_claim(tool_id)
            if claim is not None:
                wanted.setdefault(partition_key(self.principal, claim.token), []).append(tool_id)
        if not wanted:
            return Found()
        self.record.store_reads += 1
        started = time.monotonic()
        try:
            found = await self.store.load(wanted)
        except BridgeError as error:
            if orphans:
                raise
            self.record.fail_state(error.message)  # only data to replay is missing: the provider can do without
            return Found()
        finally:
            self.record.store_read_ms += (time.monotonic() - started) * 1000
        self._known.update(found.alive)
        self._count_absent({*orphans, *flagged}, wanted, found)
        return found

    def _count_absent(self, tool_ids: set[str], wanted: Mapping[str, list[str]], found: Found) -> None:
        """Claims of texts are left out: that one is absent only says that the text was not signed."""
        absent = {tool_id: why for tool_id, why in found.absent.items() if tool_id in tool_ids}
        expired = {tool_id for tool_id, why in absent.items() if why == "expired"}
        self.record.store_misses += sum(why == "unknown" for why in absent.values())
        self.record.expired_reads += len(expired)
        self.record.conversations_expired += sum(not expired.isdisjoint(ids) for ids in wanted.values())

    def _with_replays(self, request: Request, records: Mapping[str, ToolRecord]) -> Request:
        replays = {
            tool_id: _replay(record.data)
            for tool_id, record in records.items()
            if record.data and record.family == self.family
        }
        if not replays:
            return request
        self.record.replayed_calls += len(replays)
        return _attach(request, replays)

    async def save(self, conversation: Conversation, records: list[ToolRecord]) -> None:
        """Keep calls of a conversation; what cannot be kept is counted, the answer goes on (FR5.4)."""
        partition = partition_key(self.principal, conversation.token)
        origin = Origin(owner_key(self.principal), conversation.id)
        self.record.store_writes += 1
        started = time.monotonic()
        try:
            self.record.conflicts += await self.store.save(partition, records, self._known.get(partition), origin)
        except BridgeError as error:
            self.record.fail_state(error.message)
        finally:
            self.record.store_write_ms += (time.monotonic() - started) * 1000

    def keeper(self, conversation: Conversation) -> ToolKeeper:
        """Keeps the calls of one answer."""
        return ToolKeeper(self, conversation, _UNWATCHED if self.signs_texts else _UNWATCHED_UNSIGNED)


def without_replays(request: Request) -> Request:
    """The request without any provider data, for a provider that refused it."""
    return _attach(request, dict.fromkeys([*(call.id for call in _calls(request)), *signed_texts(request)]))


_UNWATCHED: frozenset[type[StreamEvent]] = frozenset({MessageStart, TextStart, ThinkingDelta, SignatureDelta})
_UNWATCHED_UNSIGNED = _UNWATCHED | {TextDelta}


@dataclass(slots=True)
class ToolKeeper:
    """Gives the calls of one answer ids of the bridge's own and saves them as they become complete."""

    memory: ToolMemory
    conversation: Conversation
    unwatched: frozenset[type[StreamEvent]] = _UNWATCHED
    """Events that leave nothing behind."""
    _open: ToolRecord | None = None
    _pieces: list[str] = field(default_factory=list)
    _begins_turn: bool = False
    _waiting: ToolRecord | None = None
    _texts: list[str] = field(default_factory=list)
    _unsaved: list[ToolRecord] = field(default_factory=list)
    _saving: asyncio.Task[None] | None = None

    def observe(self, events: Iterable[StreamEvent]) -> list[StreamEvent]:
        """The events with minted ids; saves begin in the background."""
        unwatched = self.unwatched
        return [event if event.__class__ in unwatched else self._observe(event) for event in events]

    async def settle(self) -> None:
        """Wait for the saves under way, not for ever: an answer is worth more than its memory (FR5.4)."""
        if self._saving is not None:
            _, late = await asyncio.wait({self._saving}, timeout=SAVE_SECONDS)
            if late:
                self.memory.record.fail_state(f"the store has not answered within {SAVE_SECONDS:g} s")

    def _observe(self, event: StreamEvent) -> StreamEvent:
        match event:
            case InputDelta(piece):
                self._pieces.append(piece)
            case TextDelta(piece):
                self._texts.append(piece)
            case ToolUseStart():
                return self._start(event)
            case BlockStop() if self._open is not None:
                self._complete(replace(self._open, arguments="".join(self._pieces)))
            case MessageEnd():
                self._end(event)
        return event

    def _start(self, start: ToolUseStart) -> ToolUseStart:
        has_data = start.data is not None or start.begins_turn
        minted = mint(self.conversation.token, secrets.token_bytes(8), has_data=has_data)
        data = _stored(Replay(call=start.data)) if start.data else None
        self._open = ToolRecord(minted, start.name, "", self.memory.family, start.id, data)
        self._pieces, self._begins_turn = [], start.begins_turn
        self.memory.record.tool_call_count += 1
        self.memory.record.called_tools += (start.name[:MAX_NOTED_NAME],)
        return replace(start, id=minted)

    def _complete(self, record: ToolRecord) -> None:
        self._open = None
        if self._begins_turn:
            self._waiting = record  # what belongs to the whole turn is known at its end
        else:
            self._save(record)

    def _end(self, end: MessageEnd) -> None:
        if self._waiting is not None:
            call = _replay(self._waiting.data).call if self._waiting.data else None
            self._save(replace(self._waiting, data=_stored(Replay(call, end.turn_data))))
            self._waiting = None
        elif end.turn_data and self._texts:
            data = _stored(Replay(turn=end.turn_data))
            self._save(ToolRecord(text_claim("".join(self._texts)), "", "", self.memory.family, data=data))

    def _save(self, record: ToolRecord) -> None:
        self._unsaved.append(record)
        if self._saving is None or self._saving.done():
            self._saving = asyncio.ensure_future(self._save_all())

    async def _save_all(self) -> None:
        """Calls that become complete while others are being saved go together."""
        while self._unsaved:
            records, self._unsaved = self._unsaved, []
            await self.memory.save(self.conversation, records)


def _calls(request: Request) -> list[ToolUse]:
    return [block for turn in request.turns for block in turn.content if isinstance(block, ToolUse)]


def signed_texts(request: Request) -> list[str]:
    """Claims of the assistant's plain answers in a history: those that may have been signed."""
    texts = [block for turn in request.turns if turn.role == "assistant" for block in turn.content]
    return list(dict.fromkeys(text_claim(block.text) for block in texts if isinstance(block, Text) and block.text))


def _claim_of(block: ToolUse | Text, turn: Turn) -> str:
    if isinstance(block, ToolUse):
        return block.id
    return text_claim(block.text) if turn.role == "assistant" else ""


def _attach(request: Request, replays: Mapping[str, Replay | None]) -> Request:
    turns = tuple(
        Turn(
            turn.role,
            tuple(
                replace(block, replay=replays[claim])
                if isinstance(block, ToolUse | Text) and (claim := _claim_of(block, turn)) in replays
                else block
                for block in turn.content
            ),
        )
        for turn in request.turns
    )
    return replace(request, turns=turns)


def _stored(replay: Replay) -> str | None:
    kept = {name: value for name, value in (("call", replay.call), ("turn", replay.turn)) if value}
    return orjson.dumps(kept).decode() if kept else None


def _replay(stored: str) -> Replay:
    kept = orjson.loads(stored)
    return Replay(kept.get("call"), kept.get("turn"))
