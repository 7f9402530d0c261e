"""Turns -> chat messages, in an order that providers accept.

A history is cut into rounds: one assistant message, then everything until the next. Within a round every call
is answered first, in the order of the calls; what the results show (images, files) follows in a user message;
then the user's own words and system turns, as they came. Neighbours of the same role become one message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical import content as canonical
from bridge.canonical.json import dumps
from bridge.canonical.rounds import rounds
from bridge.canonical.words import NO_RESULT, TOOL_ERROR, server_block_text, without_billing
from bridge.errors import invalid_request
from bridge.protocols.openai_chat.content import document_parts, image_part, joined, text_part
from bridge.protocols.openai_chat.replay import GEMINI_BYPASS, call_data
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.canonical.losses import Losses
    from bridge.canonical.renaming import Renaming
    from bridge.canonical.request import Request, Turn
    from bridge.canonical.rounds import Round
    from bridge.errors import BridgeError
    from bridge.traits import Traits

SHOWN_BELOW = "[shown in the next message]"


@dataclass(frozen=True, slots=True)
class MessageRenderer:
    """Renders the messages of one request."""

    traits: Traits
    names: Renaming
    ids: Renaming
    losses: Losses

    def render(self, request: Request) -> list[JsonValue]:
        messages = self._system(request.system)
        for one_round in rounds(request.turns):
            messages += self._round(one_round)
        messages = _merged(messages)
        if {message["role"] for message in messages} <= {"system"}:
            raise invalid_request("messages: there is nothing in them to answer")
        self._mark_prefill(messages)
        return list(messages)

    def _system(self, blocks: Iterable[canonical.Text]) -> list[JsonObject]:
        told = [(without_billing(block.text), block.cache) for block in blocks]
        parts = [text_part(text, cache, self.traits, self.losses) for text, cache in told if text]
        return [{"role": "system", "content": joined(parts)}] if parts else []

    def _round(self, one_round: Round) -> list[JsonObject]:
        messages = self._assistant(one_round.assistant) if one_round.assistant else []
        results, shown = self._results(one_round) if one_round.results else ([], [])
        messages += results
        followers = [message for turn in one_round.followers for message in self._follower(turn)]
        if results and (shown or followers) and self.traits.user_after_tool == "assistant":
            messages.append({"role": "assistant", "content": "OK."})
        return messages + shown + followers

    def _assistant(self, blocks: Iterable[canonical.Block]) -> list[JsonObject]:
        texts: list[str] = []
        calls: list[JsonValue] = []
        replayed: JsonObject = {}
        for block in blocks:
            match block:
                case canonical.Text(text, replay=replay):
                    texts.append(text)
                    if replay and replay.turn:
                        replayed |= replay.turn
                case canonical.ToolUse():
                    calls.append(self._call(block, first=not calls))
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

    def _call(self, block: canonical.ToolUse, *, first: bool) -> JsonValue:
        function: JsonObject = {"name": self.names(block.name), "arguments": dumps(block.input).decode()}
        call: JsonObject = {"id": self.ids(block.id), "type": "function", "function": function}
        if block.replay and (signed := call_data(block.replay.call or {})):
            return call | signed
        return call | GEMINI_BYPASS if first and self.traits.signs_calls else call

    def _results(self, one_round: Round) -> tuple[list[JsonObject], list[JsonObject]]:
        """One tool message per call, and user messages with what they show."""
        shown: list[JsonObject] = []
        return [self._tool_message(call, one_round.results[call.id], shown) for call in one_round.calls], shown

    def _tool_message(
        self, call: canonical.ToolUse, results: list[canonical.ToolResult], shown: list[JsonObject]
    ) -> JsonObject:
        if not results:
            self.losses.add("tool_use without a result: a neutral result stands in")
        texts = [self._result_text(call, result, shown) for result in results] or [NO_RESULT]
        cache = next((result.cache for result in results if result.cache), None)
        part = text_part("\n".join(texts), cache, self.traits, self.losses)
        return {"role": "tool", "tool_call_id": self.ids(call.id), "content": joined([part])}

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


def _misplaced(block: object, place: str) -> BridgeError:
    return invalid_request(f"messages: a block of the kind {block.__class__.__name__} cannot stand in {place}")
