"""Turns -> chat messages, in an order that providers accept.

A history is cut into rounds: one assistant message, then everything until the next. Within a round every call
is answered first, in the order of the calls; what the results show (images, files) follows in a user message;
then the user's own words and system turns, as they came. Neighbours of the same role become one message.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.canonical import content as canonical
from bridge.canonical.json import dumps
from bridge.errors import invalid_request
from bridge.protocols.openai_chat.content import document_parts, image_part, joined, server_block_text, text_part
from bridge.protocols.openai_chat.replay import GEMINI_BYPASS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.canonical.request import Request, Turn
    from bridge.errors import BridgeError
    from bridge.protocols.openai_chat.content import Losses
    from bridge.protocols.openai_chat.naming import Renaming
    from bridge.traits import Traits

TOOL_ERROR = "[tool error] "
NO_RESULT = "[no result was recorded for this call]"
SHOWN_BELOW = "[shown in the next message]"
_BILLING_HEADER = "x-anthropic-billing-header:"


@dataclass(slots=True)
class _Round:
    assistant: list[canonical.Block] = field(default_factory=list)
    followers: list[Turn] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MessageRenderer:
    """Renders the messages of one request."""

    traits: Traits
    names: Renaming
    ids: Renaming
    losses: Losses

    def render(self, request: Request) -> list[JsonValue]:
        messages = self._system(request.system)
        for one_round in _rounds(request.turns):
            messages += self._round(one_round)
        messages = _merged(messages)
        if not any(message["role"] != "system" for message in messages):
            raise invalid_request("messages: there is nothing in them to answer")
        self._mark_prefill(messages)
        return list(messages)

    def _system(self, blocks: Iterable[canonical.Text]) -> list[JsonObject]:
        kept = [canonical.Text(text, block.cache) for block in blocks if (text := _without_billing(block.text))]
        parts = [text_part(block.text, block.cache, self.traits, self.losses) for block in kept]
        return [{"role": "system", "content": joined(parts)}] if parts else []

    def _round(self, one_round: _Round) -> list[JsonObject]:
        messages = self._assistant(one_round.assistant)
        results, shown = self._results(one_round)
        messages += results
        followers = [*shown, *(message for turn in one_round.followers for message in self._follower(turn))]
        if results and followers and self.traits.user_after_tool == "assistant":
            messages.append({"role": "assistant", "content": "OK."})
        return messages + followers

    def _assistant(self, blocks: Iterable[canonical.Block]) -> list[JsonObject]:
        texts: list[str] = []
        calls: list[JsonValue] = []
        replayed: JsonObject = {}
        seen: dict[str, int] = {}
        for block in blocks:
            match block:
                case canonical.Text(text, replay=replay):
                    texts.append(text)
                    if replay and replay.turn:
                        replayed |= replay.turn
                case canonical.ToolUse():
                    calls.append(self._call(block, self._wire_id(block, seen), first=not calls))
                    if block.replay and block.replay.turn:
                        replayed |= block.replay.turn
                case canonical.Thinking() | canonical.RedactedThinking():
                    self.losses.add("thinking: only the provider that made it can read it")
                case canonical.ServerBlock():
                    texts.append(server_block_text(block))
                    self.losses.add(f"{block.type}: told in words")
                case _:
                    raise _misplaced(block, "an assistant turn")
        text = "\n\n".join(piece for piece in texts if piece)
        if not text and not calls:
            return []
        message: JsonObject = {"role": "assistant", "content": text or None}
        if not calls:
            return [message | replayed]
        if self.traits.reasoning == "deepseek":  # refuses tool calls without the reasoning, be it empty
            replayed.setdefault("reasoning_content", "")
        return [message | {"tool_calls": calls} | replayed]

    def _wire_id(self, call: canonical.ToolUse, seen: dict[str, int]) -> str:
        """The id of a call; one that repeats within a turn gets an id of its own."""
        seen[call.id] = seen.get(call.id, 0) + 1
        return self.ids(call.id if seen[call.id] == 1 else f"{call.id}#{seen[call.id]}")

    def _call(self, block: canonical.ToolUse, wire_id: str, *, first: bool) -> JsonValue:
        function: JsonObject = {"name": self.names(block.name), "arguments": dumps(block.input).decode()}
        call: JsonObject = {"id": wire_id, "type": "function", "function": function}
        if block.replay and block.replay.call:
            return call | block.replay.call
        return call | GEMINI_BYPASS if first and self.traits.signs_calls else call

    def _results(self, one_round: _Round) -> tuple[list[JsonObject], list[JsonObject]]:
        """One tool message per call, and user messages with what they show."""
        found: dict[str, list[canonical.ToolResult]] = {}
        for turn in one_round.followers:
            for block in turn.content:
                if isinstance(block, canonical.ToolResult):
                    found.setdefault(block.tool_use_id, []).append(block)
        shown: list[JsonObject] = []
        calls = [block for block in one_round.assistant if isinstance(block, canonical.ToolUse)]
        repeats = Counter(call.id for call in calls)
        seen: dict[str, int] = {}
        messages: list[JsonObject] = []
        for call in calls:
            wire_id = self._wire_id(call, seen)
            given = found.get(call.id, [])
            if seen[call.id] < repeats[call.id]:  # the same id again later: one result each
                given = given[:1]
            found[call.id] = found.get(call.id, [])[len(given) :]
            messages.append(self._tool_message(call, wire_id, given, shown))
        for tool_use_id in found.keys() - repeats.keys():
            raise invalid_request(
                f"messages: tool_result for {tool_use_id!r}: the turn before it has no tool_use with this id"
            )
        return messages, shown

    def _tool_message(
        self, call: canonical.ToolUse, wire_id: str, results: list[canonical.ToolResult], shown: list[JsonObject]
    ) -> JsonObject:
        if not results:
            self.losses.add("tool_use without a result: a neutral result stands in")
        texts = [self._result_text(call, result, shown) for result in results] or [NO_RESULT]
        cache = next((result.cache for result in results if result.cache), None)
        part = text_part("\n".join(texts), cache, self.traits, self.losses)
        return {"role": "tool", "tool_call_id": wire_id, "content": joined([part])}

    def _result_text(self, call: canonical.ToolUse, result: canonical.ToolResult, shown: list[JsonObject]) -> str:
        texts: list[str] = []
        for part in result.content:
            match part:
                case canonical.Text(text):
                    texts.append(text)
                case canonical.ToolReference(tool_name):
                    texts.append(f"The tool {self.names(tool_name)} is now available.")
                case canonical.Image() | canonical.Document():
                    texts.append(self._show(call, part, shown))
        text = "\n".join(texts)
        return TOOL_ERROR + (text or "no details") if result.is_error else text

    def _show(
        self, call: canonical.ToolUse, part: canonical.Image | canonical.Document, shown: list[JsonObject]
    ) -> str:
        """Tool messages hold only text: text stays in the result, everything else follows in a user message."""
        parts = (
            document_parts(part, self.traits)
            if isinstance(part, canonical.Document)
            else [image_part(part, self.traits)]
        )
        if all(piece["type"] == "text" for piece in parts):
            return "\n".join(str(piece["text"]) for piece in parts)
        label: JsonObject = {
            "type": "text",
            "text": f"From the result of {self.names(call.name)} ({self.ids(call.id)}):",
        }
        shown.append({"role": "user", "content": [label, *parts]})
        return SHOWN_BELOW

    def _follower(self, turn: Turn) -> list[JsonObject]:
        parts = [part for block in turn.content for part in self._parts(block)]
        if not parts:
            return []
        if turn.role == "system":
            return [self._system_turn(joined(parts))]
        return [{"role": "user", "content": list(parts)}]

    def _system_turn(self, content: JsonValue) -> JsonObject:
        if self.traits.system_turns == "system":
            return {"role": "system", "content": content}
        return {"role": "user", "content": [{"type": "text", "text": f"<system>\n{content}\n</system>"}]}

    def _parts(self, block: canonical.Block) -> list[JsonObject]:
        match block:
            case canonical.Text(text, cache):
                return [text_part(text, cache, self.traits, self.losses)] if text else []
            case canonical.Image():
                return [image_part(block, self.traits)]
            case canonical.Document():
                return document_parts(block, self.traits)
            case canonical.ServerBlock():
                self.losses.add(f"{block.type}: told in words")
                return [{"type": "text", "text": text}] if (text := server_block_text(block)) else []
            case canonical.ToolResult() | canonical.ToolChange():
                return []
            case _:
                raise _misplaced(block, "a user turn")

    def _mark_prefill(self, messages: list[JsonObject]) -> None:
        last = messages[-1]
        if last["role"] == "assistant" and self.traits.prefill_flag and "tool_calls" not in last:
            last[self.traits.prefill_flag] = True


def _rounds(turns: Iterable[Turn]) -> list[_Round]:
    rounds = [_Round()]
    for turn in turns:
        if turn.role != "assistant":
            rounds[-1].followers.append(turn)
            continue
        if rounds[-1].followers:
            rounds.append(_Round())
        rounds[-1].assistant += turn.content
    return rounds


def _merged(messages: list[JsonObject]) -> list[JsonObject]:
    """Neighbouring user messages as one; text alone becomes a string."""
    merged: list[JsonObject] = []
    for message in messages:
        before = merged[-1] if merged else None
        if before is not None and message["role"] == before["role"] == "user":
            before["content"] = [*before["content"], *message["content"]]  # type: ignore[misc]
        else:
            merged.append(message)
    for message in merged:
        if isinstance(message["content"], list):
            message["content"] = joined(message["content"])  # type: ignore[arg-type]
    return merged


def _without_billing(text: str) -> str:
    """The client's billing line changes with every request and would defeat the provider's prompt cache (R2)."""
    if not text.startswith(_BILLING_HEADER):
        return text
    return text.partition("\n")[2].lstrip("\n")


def _misplaced(block: object, place: str) -> BridgeError:
    return invalid_request(f"messages: a block of the kind {block.__class__.__name__} cannot stand in {place}")
