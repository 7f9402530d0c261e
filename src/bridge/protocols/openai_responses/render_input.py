"""Turns -> input items, in an order that the API accepts.

A history is cut into rounds: what the assistant said, item by item, the output of every call in the order of the
calls, then the user's own words and system turns, as they came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical import content as canonical
from bridge.canonical.json import dumps
from bridge.canonical.rounds import rounds
from bridge.canonical.words import NO_RESULT, TOOL_ERROR, server_block_text
from bridge.errors import invalid_request
from bridge.protocols.openai_responses.render_content import document_parts, image_part, text_part
from bridge.protocols.openai_responses.replay import replayed
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.canonical.losses import Losses
    from bridge.canonical.renaming import Renaming
    from bridge.canonical.request import Turn
    from bridge.canonical.rounds import Round
    from bridge.errors import BridgeError

CACHE_LOSS = "cache_control: this upstream caches by itself or not at all"


@dataclass(frozen=True, slots=True)
class InputRenderer:
    """Renders the input of one request."""

    names: Renaming
    ids: Renaming
    losses: Losses

    def render(self, turns: Iterable[Turn]) -> list[JsonValue]:
        items = [item for one_round in rounds(turns) for item in self._round(one_round)]
        if all(item.get("role") == "developer" for item in items):
            raise invalid_request("messages: there is nothing in them to answer")
        return list(items)

    def _round(self, one_round: Round) -> list[JsonObject]:
        items = self._assistant(one_round.assistant)
        items += [self._output(call, one_round.results[call.id]) for call in one_round.calls]
        return items + [item for turn in one_round.followers for item in self._follower(turn)]

    def _assistant(self, blocks: Iterable[canonical.Block]) -> list[JsonObject]:
        items: list[JsonObject] = []
        texts: list[str] = []
        for block in blocks:
            match block:
                case canonical.Text(text):
                    texts += [text] if text else []
                    self._note_cache(block.cache)
                case canonical.ToolUse():
                    items += self._call(block, texts)
                    texts = []
                case canonical.Thinking() | canonical.RedactedThinking():
                    self.losses.add("thinking: only the provider that made it can read it")
                case canonical.ServerBlock():
                    texts += self._told(block)
                case _:
                    raise _misplaced(block, "an assistant turn")
        return items + [_assistant_message(text) for text in texts]

    def _call(self, block: canonical.ToolUse, texts: list[str]) -> list[JsonObject]:
        """The call with the text since the call before it, and the reasoning that the provider wants back."""
        self._note_cache(block.cache)
        kept = replayed(block.replay.call if block.replay else None)
        known: list[JsonObject] = kept.messages if len(kept.messages) == len(texts) else [{} for _ in texts]
        messages = [_assistant_message(text, **said) for text, said in zip(texts, known, strict=True)]
        call: JsonObject = {
            "type": "function_call",
            "call_id": self.ids(block.id),
            "name": self.names(block.name),
            "arguments": dumps(block.input).decode(),
        }
        return [*kept.before_text, *messages, *kept.after_text, call]

    def _output(self, call: canonical.ToolUse, results: list[canonical.ToolResult]) -> JsonObject:
        if not results:
            self.losses.add("tool_use without a result: a neutral result stands in")
        parts = [part for result in results for part in self._result(result)]
        output: JsonValue = list(parts)
        if all(part["type"] == "input_text" for part in parts):
            output = "\n".join(str(part["text"]) for part in parts) if results else NO_RESULT
        return {"type": "function_call_output", "call_id": self.ids(call.id), "output": output}

    def _result(self, result: canonical.ToolResult) -> list[JsonObject]:
        self._note_cache(result.cache)
        parts: list[JsonObject] = []
        for part in result.content:
            match part:
                case canonical.ToolReference(tool_name):
                    parts.append(text_part(f"The tool {self.names(tool_name)} is now available."))
                case canonical.Text(text):
                    parts.append(text_part(text))
                case canonical.Image() | canonical.Document():
                    parts += self._media(part)
        return _marked_as_error(parts) if result.is_error else parts

    def _media(self, block: canonical.Image | canonical.Document) -> list[JsonObject]:
        self._note_cache(block.cache)
        return document_parts(block) if isinstance(block, canonical.Document) else [image_part(block)]

    def _follower(self, turn: Turn) -> list[JsonObject]:
        parts: list[JsonValue] = [part for block in turn.content for part in self._parts(block)]
        if not parts:
            return []
        return [{"type": "message", "role": "developer" if turn.role == "system" else "user", "content": parts}]

    def _parts(self, block: canonical.Block) -> list[JsonObject]:
        match block:
            case canonical.Text(text, cache):
                self._note_cache(cache)
                return [text_part(text)] if text else []
            case canonical.Image() | canonical.Document():
                return self._media(block)
            case canonical.ServerBlock():
                return [text_part(text) for text in self._told(block)]
            case canonical.ToolResult() | canonical.ToolChange():
                return []
            case _:
                raise _misplaced(block, "a user turn")

    def _told(self, block: canonical.ServerBlock) -> list[str]:
        self.losses.add(f"{block.type}: told in words")
        return [text] if (text := server_block_text(block)) else []

    def _note_cache(self, cache: canonical.CacheMark | None) -> None:
        if cache is not None:
            self.losses.add(CACHE_LOSS)


def _assistant_message(text: str, **said: JsonValue) -> JsonObject:
    """What the model said: as an item of its own making where its id is known, else in the plain form."""
    if "id" not in said:
        return {"type": "message", "role": "assistant", "content": text, **said}
    part: JsonObject = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "status": "completed", "content": [part], **said}


def _marked_as_error(parts: list[JsonObject]) -> list[JsonObject]:
    if not parts:
        return [text_part(f"{TOOL_ERROR}no details")]
    first, *others = parts
    if first["type"] == "input_text":
        return [text_part(f"{TOOL_ERROR}{first['text'] or 'no details'}"), *others]
    return [text_part(TOOL_ERROR.strip()), *parts]


def _misplaced(block: object, place: str) -> BridgeError:
    return invalid_request(f"messages: a block of the kind {block.__class__.__name__} cannot stand in {place}")
