"""Input items -> the system prompt and the turns of the conversation.

Items of the assistant that follow each other are one turn; so are results. Instructions at the beginning are the
system prompt, later ones are turns of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, assert_never

from bridge.canonical.content import Text, Thinking, ToolReference, ToolResult, ToolUse
from bridge.canonical.fold import are_whole, parse_arguments
from bridge.canonical.request import Turn
from bridge.errors import invalid_request
from bridge.protocols.openai_responses import request_wire as wire
from bridge.protocols.openai_responses.call_forms import CUSTOM_INPUT, LOCAL_SHELL, TOOL_SEARCH, flat_name
from bridge.protocols.openai_responses.parse_parts import parse_parts, parse_texts
from bridge.protocols.openai_responses.sealed_reasoning import unseal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.canonical.content import Block
    from bridge.canonical.json import JsonObject
    from bridge.protocols.openai_responses.parse_tools import Toolbox

_WITHOUT_LOSS_OF_WORDS = frozenset({"web_search_call"})
"""Items that tell of what a provider did on its way; the words that came of it stand in the messages."""
_REFUSALS = {
    "item_reference": "stored items are not kept here: send the item itself",
    "compaction": "only the provider that made a compaction can read it",
    "compaction_trigger": "conversations are not compacted here: let the client do it",
}


@dataclass(slots=True)
class _Open:
    """A turn that items are still added to; a message of the user stays for itself."""

    role: Literal["user", "assistant", "system"]
    blocks: list[Block]
    takes_more: bool


@dataclass(slots=True)
class InputReader:
    """Reads the items of one request."""

    toolbox: Toolbox
    unread: dict[str, None]
    system: list[Text] = field(default_factory=list)
    _turns: list[_Open] = field(default_factory=list)

    @property
    def turns(self) -> tuple[Turn, ...]:
        return tuple(Turn(turn.role, tuple(turn.blocks)) for turn in self._turns)

    def read(self, items: Sequence[wire.InputItem]) -> None:
        for index, item in enumerate(items):
            self._item(item, f"input.{index}")

    def _item(self, item: wire.InputItem, path: str) -> None:
        match item:
            case wire.MessageItem():
                self._message(item, path)
            case wire.FunctionCallItem():
                self._function_call(item, path)
            case wire.CustomCallItem():
                name = flat_name(item.namespace, item.name)
                self._assistant(ToolUse(item.call_id, name, {CUSTOM_INPUT: item.input}))
            case wire.LocalShellCallItem():
                action = item.action.model_dump(exclude={"type"}, exclude_none=True)
                self._assistant(ToolUse(_call_id(item, path), LOCAL_SHELL, action))
            case wire.ToolSearchCallItem():
                self._tool_search(item, path)
            case wire.CallOutputItem():
                content = tuple(parse_parts(item.output, f"{path}.output", self.unread))
                self._add("user", ToolResult(_call_id(item, path), content), takes_more=True)
            case wire.ToolSearchOutputItem():
                self._found_tools(item, path)
            case wire.AdditionalToolsItem():
                self.toolbox.load(item.tools, f"{path}.tools")
            case wire.ReasoningItem():
                self._reasoning(item)
            case wire.OtherItem():
                self._other(item, path)
            case _:
                assert_never(item)
        if not isinstance(item, wire.OtherItem):
            extra = item.model_extra or {}
            kind = item.type or "message"
            self.unread |= dict.fromkeys(f"{kind}.{name}" for name, value in extra.items() if value is not None)

    def _function_call(self, item: wire.FunctionCallItem, path: str) -> None:
        if not are_whole(item.arguments):
            self.unread["function_call.arguments (cut off)"] = None
        name = flat_name(item.namespace, item.name)
        self._assistant(ToolUse(item.call_id, name, _arguments(item.arguments, f"{path}.arguments")))

    def _message(self, item: wire.MessageItem, path: str) -> None:
        content = f"{path}.content"
        match item.role:
            case "user":
                self._add("user", *parse_parts(item.content, content, self.unread), takes_more=False)
            case "assistant":
                self._assistant(*parse_texts(item.content, content, "a message of the assistant", self.unread))
            case "system" | "developer":
                texts = parse_texts(item.content, content, "instructions", self.unread)
                if self._turns:
                    self._add("system", *texts, takes_more=False)
                else:
                    self.system += texts

    def _assistant(self, *blocks: Block) -> None:
        self._add("assistant", *blocks, takes_more=True)

    def _add(self, role: Literal["user", "assistant", "system"], *blocks: Block, takes_more: bool) -> None:
        last = self._turns[-1] if self._turns else None
        if last is not None and last.role == role and last.takes_more and takes_more:
            last.blocks += blocks
        elif blocks:
            self._turns.append(_Open(role, list(blocks), takes_more))

    def _tool_search(self, item: wire.ToolSearchCallItem, path: str) -> None:
        if item.execution == "server" or not item.call_id:
            self.unread["tool_search_call"] = None
            return
        given = item.arguments
        if isinstance(given, str):
            given = _arguments(given, f"{path}.arguments")
        self._assistant(ToolUse(item.call_id, TOOL_SEARCH, given if isinstance(given, dict) else {}))

    def _found_tools(self, item: wire.ToolSearchOutputItem, path: str) -> None:
        names = self.toolbox.load(item.tools, f"{path}.tools")
        if item.execution == "server" or not item.call_id:
            return
        found = tuple(map(ToolReference, names)) if names else (Text("No tools were found."),)
        self._add("user", ToolResult(item.call_id, found), takes_more=True)

    def _reasoning(self, item: wire.ReasoningItem) -> None:
        """Thinking that the bridge sealed comes back whole; of another's only the words are left."""
        if item.encrypted_content:
            sealed = unseal(item.encrypted_content)
            if sealed is not None:
                self._assistant(sealed)
                return
            self.unread["reasoning.encrypted_content"] = None
        words = "\n\n".join(part.text for part in item.content or item.summary if part.text)
        if words:
            self._assistant(Thinking(words))

    def _other(self, item: wire.OtherItem, path: str) -> None:
        said = {name for name, value in (item.model_extra or {}).items() if value is not None}
        if item.type in _REFUSALS:
            raise invalid_request(f"{path}.type: {item.type!r}: {_REFUSALS[item.type]}")
        if said and item.type not in _WITHOUT_LOSS_OF_WORDS:
            raise invalid_request(f"{path}.type: {item.type!r} is not served here")
        self.unread[item.type] = None


def _call_id(item: wire.CallOutputItem | wire.LocalShellCallItem, path: str) -> str:
    is_shell = item.type in ("local_shell_call", "local_shell_call_output")
    call_id = item.call_id or (item.id if is_shell else None)
    if not call_id:
        raise invalid_request(f"{path}.call_id: Field required")
    return call_id


def _arguments(text: str, path: str) -> JsonObject:
    try:
        return parse_arguments(text)
    except ValueError:
        raise invalid_request(f"{path}: not a JSON object") from None
