"""Turns -> messages, in an order that Anthropic accepts.

A history is cut into rounds: one assistant message, then one user message that answers every call first, in the order
of the calls, and goes on with what the user and system turns say. The first message is the user's; no id of a call
comes twice; no text is blank. What makes a tool known or unknown stays a system message.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from bridge.canonical import content as canonical
from bridge.canonical.rounds import rounds
from bridge.canonical.words import NO_RESULT
from bridge.errors import invalid_request
from bridge.protocols.anthropic.render_blocks import (
    is_blank,
    marked,
    render_document,
    render_image,
    render_result,
    render_text,
)
from bridge.protocols.anthropic.replayed_thinking import with_thinking
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.canonical.losses import Losses
    from bridge.canonical.renaming import Renaming
    from bridge.canonical.request import Turn
    from bridge.canonical.rounds import Round
    from bridge.errors import BridgeError
    from bridge.protocols.anthropic.render_tools import ToolRenderer

EARLIER = "(Earlier messages are not shown.)"
_THINKING = ("thinking", "redacted_thinking")


@dataclass(slots=True)
class Message:
    """One message on its way."""

    role: str
    content: list[JsonObject]

    @property
    def holds_thinking(self) -> bool:
        return any(block["type"] in _THINKING for block in self.content)

    @property
    def answers_calls(self) -> bool:
        return any(block["type"] == "tool_result" for block in self.content)

    def rendered(self) -> JsonValue:
        return {"role": self.role, "content": list(self.content)}


@dataclass(frozen=True, slots=True)
class MessageRenderer:
    """Renders the messages of one request."""

    tools: ToolRenderer
    ids: Renaming
    losses: Losses
    _used_ids: set[str] = field(default_factory=set)

    def render(self, turns: Iterable[Turn]) -> list[Message]:
        messages: list[Message] = []
        for one_round in rounds(turns):
            self._round(one_round, messages)
        if not any(message.role != "system" for message in messages):
            raise invalid_request("messages: there is nothing in them to answer")
        if next(message.role for message in messages if message.role != "system") == "assistant":
            messages.insert(0, Message("user", [render_text(EARLIER)]))
        return messages

    def _round(self, one_round: Round, messages: list[Message]) -> None:
        wire_ids = {call.id: self._wire_id(call.id) for call in one_round.calls}
        _say(messages, "assistant", self._assistant(one_round.assistant, wire_ids))
        _say(messages, "user", [self._result(one_round, call, wire_ids[call.id]) for call in one_round.calls])
        for turn in one_round.followers:
            self._follower(turn, messages)

    def _wire_id(self, call_id: str) -> str:
        """An id that no earlier round used: Anthropic wants them unique in the whole request."""
        unique = call_id
        while unique in self._used_ids:
            unique += "#"
        self._used_ids.add(unique)
        return self.ids(unique)

    def _assistant(self, blocks: Sequence[canonical.Block], wire_ids: dict[str, str]) -> list[JsonObject]:
        said = [block for block in blocks if not self._is_left_out(block)]
        content = [self._assistant_block(block, wire_ids) for block in with_thinking(said)]
        while content and content[-1]["type"] in _THINKING:
            self.losses.add("thinking: nothing that it led to follows")
            content.pop()
        return content

    def _assistant_block(self, block: canonical.Block, wire_ids: dict[str, str]) -> JsonObject:
        match block:
            case canonical.Text(text, cache, citations):
                if citations:
                    self.losses.add("citations: only the text that they belong to")
                return render_text(text, cache)
            case canonical.ToolUse(call_id, name, arguments, cache):
                said: JsonObject = {"type": "tool_use", "id": wire_ids[call_id], "name": self.tools.name(name)}
                return marked(said | {"input": arguments}, cache)
            case canonical.Thinking(thinking, signature):
                return {"type": "thinking", "thinking": thinking, "signature": signature}
            case canonical.RedactedThinking(data):
                return {"type": "redacted_thinking", "data": data}
            case canonical.ServerBlock(_, raw):
                return dict(raw)
            case canonical.Image() | canonical.Document():
                return _shown(block)
            case _:
                raise _misplaced(block, "an assistant turn")

    def _is_left_out(self, block: canonical.Block) -> bool:
        if isinstance(block, canonical.Thinking) and not block.signature:
            self.losses.add("thinking: without a signature of Claude it is not taken back")
            return True
        return self._is_blank(block)

    def _is_blank(self, block: canonical.Block) -> bool:
        if not is_blank(block):
            return False
        if isinstance(block, canonical.Text) and block.text:
            self.losses.add("text: Anthropic takes none that is only white space")
        return True

    def _result(self, one_round: Round, call: canonical.ToolUse, wire_id: str) -> JsonObject:
        given = one_round.results[call.id]
        if not given:
            self.losses.add("tool_use without a result: a neutral result stands in")
            given = [canonical.ToolResult(call.id, (canonical.Text(NO_RESULT),))]
        whole = canonical.ToolResult(
            call.id,
            tuple(part for result in given for part in result.content),
            any(result.is_error for result in given),
            next((result.cache for result in given if result.cache), None),
        )
        return render_result(whole, wire_id, self.tools.name)

    def _follower(self, turn: Turn, messages: list[Message]) -> None:
        blocks = [block for block in turn.content if not self._is_blank(block)]
        if turn.role == "system":
            changes = [self._change(block) for block in blocks if isinstance(block, canonical.ToolChange)]
            _say(messages, "system", changes)
            texts = [block for block in blocks if isinstance(block, canonical.Text)]
            _say(messages, "user", [_system_words(texts)] if texts else [])
            blocks = [block for block in blocks if not isinstance(block, canonical.ToolChange | canonical.Text)]
        results = canonical.ToolResult  # these stand first, where their calls are answered
        _say(messages, "user", [self._user_block(block) for block in blocks if not isinstance(block, results)])

    def _user_block(self, block: canonical.Block) -> JsonObject:
        match block:
            case canonical.Text(text, cache):
                return render_text(text, cache)
            case canonical.Image() | canonical.Document():
                return _shown(block)
            case canonical.ServerBlock(_, raw):
                return dict(raw)
            case _:
                raise _misplaced(block, "a user turn")

    def _change(self, change: canonical.ToolChange) -> JsonObject:
        kind = "tool_removal" if change.action == "remove" else "tool_addition"
        if change.definition is None:
            return {"type": kind, "tool": {"type": "tool_reference", "name": self.tools.name(change.tool_name)}}
        definition = self.tools.render_tool(change.definition)
        return {"type": kind, "tool": {"type": "tool_definition", "definition": definition}}


def is_prefill(messages: Sequence[Message]) -> bool:
    """True if the last message is the beginning of the answer; one that ends in a server's block is a paused turn."""
    return messages[-1].role == "assistant" and messages[-1].content[-1]["type"] == "text"


def trim_prefill(messages: list[Message]) -> None:
    """White space at the end of a prefill is refused."""
    last = messages[-1].content[-1]
    last["text"] = str(last["text"]).rstrip()


def loops_without_thinking(messages: Sequence[Message]) -> bool:
    """True if the history ends in results of calls, and Claude's thinking that led to these calls is not in it."""
    if not messages[-1].answers_calls:
        return False
    for message in reversed(messages[:-1]):
        if message.role == "assistant" and message.holds_thinking:
            return False
        if message.role == "user" and not message.answers_calls:
            return True
    return True


def _say(messages: list[Message], role: str, blocks: list[JsonObject]) -> None:
    """Neighbours of the same role are one message."""
    if not blocks:
        return
    if messages and messages[-1].role == role:
        messages[-1].content += blocks
    else:
        messages.append(Message(role, blocks))


def _shown(block: canonical.Image | canonical.Document) -> JsonObject:
    return render_image(block) if isinstance(block, canonical.Image) else render_document(block)


def _system_words(texts: Sequence[canonical.Text]) -> JsonObject:
    """A system turn in the middle, which not every model takes, as words of the user's that say what they are."""
    said = "\n\n".join(block.text for block in texts)
    cache = next((block.cache for block in reversed(texts) if block.cache), None)
    return render_text(f"<system>\n{said}\n</system>", cache)


def _misplaced(block: object, place: str) -> BridgeError:
    return invalid_request(f"messages: a block of the kind {block.__class__.__name__} cannot stand in {place}")
