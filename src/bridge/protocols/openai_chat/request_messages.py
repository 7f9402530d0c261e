"""Chat messages -> instructions and turns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, assert_never

from bridge.canonical import content as canonical
from bridge.canonical.fold import are_whole, parse_arguments
from bridge.canonical.request import Turn
from bridge.errors import invalid_request
from bridge.protocols.openai_chat.custom_tools import to_arguments
from bridge.protocols.openai_chat.request_content import blocks_of, cache_of, result_of, texts_of, tool_result
from bridge.protocols.openai_chat.request_parts import ToolResultBlock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.canonical.json import JsonObject
    from bridge.canonical.request import Role
    from bridge.protocols.openai_chat import request_wire as wire
    from bridge.protocols.openai_chat.request_parts import Part


@dataclass(slots=True)
class MessageReader:
    """Reads the messages of one request in their order: `system` holds those that lead it."""

    system: list[canonical.Text] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    _results: list[canonical.Block] = field(default_factory=list)
    _unanswered: list[tuple[str, str]] = field(default_factory=list)
    """Ids and names of legacy calls, which carry no ids of their own."""
    _legacy_calls: int = 0
    cut_off: bool = False
    """The arguments of some call end in the middle, as an answer that was cut off left them."""

    def read(self, messages: Iterable[wire.Message]) -> None:
        for index, message in enumerate(messages):
            self._read(message, f"messages.{index}")
        self._close_results()

    def _read(self, message: wire.Message, path: str) -> None:
        _check_home(message, path)
        match message.role:
            case "tool":
                self._results += _tool_results(message, path)
            case "function":
                self._results.append(self._function_result(message, path))
            case "system" | "developer":
                self._instructions(message, path)
            case "user":
                self._add("user", blocks_of(_required(message, path), "user", f"{path}.content"), message)
            case "assistant":
                self._add("assistant", self._assistant(message, path), message)
            case _:
                assert_never(message.role)

    def _add(self, role: Role, blocks: list[canonical.Block], message: wire.Message) -> None:
        self._close_results()
        turn = Turn(role, tuple(_marked(blocks, cache_of(message))))
        if self.turns and role == "assistant" and _waits_for_results(self.turns[-1]):
            self.turns[-1] = _with_words_first(self.turns[-1], turn)  # some clients say the call first, then the words
        else:
            self.turns.append(turn)

    def _close_results(self) -> None:
        """Results of tools that stand one after another are one turn of the user."""
        if self._results:
            self.turns.append(Turn("user", tuple(self._results)))
            self._results = []

    def _instructions(self, message: wire.Message, path: str) -> None:
        texts = texts_of(_required(message, path), f"{path}.content")
        if self.turns or self._results:
            self._add("system", list(texts), message)
        elif texts:
            texts[-1] = replace(texts[-1], cache=texts[-1].cache or cache_of(message))
            self.system += texts

    def _assistant(self, message: wire.Message, path: str) -> list[canonical.Block]:
        if message.audio is not None:
            raise invalid_request(f"{path}.audio: an answer that was spoken cannot be given back; send its text")
        if message.content is None and not (message.tool_calls or message.function_call or message.refusal):
            raise invalid_request(f"{path}.content: Field required")
        said = blocks_of(message.content, "assistant", f"{path}.content")
        blocks = [block for block in said if block != canonical.Text("")]
        if message.refusal:
            blocks.append(canonical.Text(message.refusal))
        known = {block.id for block in blocks if isinstance(block, canonical.ToolUse)}
        calls = [_tool_use(call, f"{path}.tool_calls.{at}") for at, call in enumerate(message.tool_calls or ())]
        blocks += [call for call in calls if call.id not in known]
        self.cut_off |= any(_is_cut_off(call) for call in message.tool_calls or ())
        if message.function_call is not None:
            blocks.append(self._legacy_call(message.function_call, f"{path}.function_call"))
        return blocks

    def _legacy_call(self, call: wire.FunctionCall, path: str) -> canonical.ToolUse:
        tool_id = f"call_legacy_{self._legacy_calls}"
        self._legacy_calls += 1
        self._unanswered.append((tool_id, call.name))
        return canonical.ToolUse(tool_id, call.name, _arguments(call, path))

    def _function_result(self, message: wire.Message, path: str) -> canonical.ToolResult:
        answered = next((call for call in self._unanswered if call[1] == message.name), None)
        if answered is None:
            raise invalid_request(f"{path}.name: no function_call before it waits for a result of {message.name!r}")
        self._unanswered.remove(answered)
        return result_of(answered[0], message.content or (), f"{path}.content", cache=cache_of(message))


def _waits_for_results(turn: Turn) -> bool:
    return turn.role == "assistant" and any(isinstance(block, canonical.ToolUse) for block in turn.content)


def _with_words_first(before: Turn, after: Turn) -> Turn:
    """Two messages of the assistant as one turn: nothing may stand between a call and its result."""
    blocks = (*before.content, *after.content)
    words = tuple(block for block in blocks if not isinstance(block, canonical.ToolUse))
    return Turn("assistant", words + tuple(block for block in blocks if isinstance(block, canonical.ToolUse)))


def _required(message: wire.Message, path: str) -> list[Part]:
    if message.content is None:
        raise invalid_request(f"{path}.content: Field required")
    return message.content


def _check_home(message: wire.Message, path: str) -> None:
    if message.role == "assistant":
        return
    for name in ("tool_calls", "function_call"):
        if getattr(message, name):
            raise invalid_request(f"{path}.{name}: only assistant messages make calls")


def _tool_results(message: wire.Message, path: str) -> list[canonical.ToolResult]:
    """What a tool message holds: the result of its call, and results as blocks that name their own."""
    parts = message.content or []
    results = [
        tool_result(part, f"{path}.content.{at}") for at, part in enumerate(parts) if isinstance(part, ToolResultBlock)
    ]
    if results and len(results) == len(parts):
        return results
    if not message.tool_call_id:
        raise invalid_request(f"{path}.tool_call_id: Field required")
    return [result_of(message.tool_call_id, parts, f"{path}.content", cache=cache_of(message))]


def _tool_use(call: wire.ToolCall, path: str) -> canonical.ToolUse:
    if call.type == "custom":
        if call.custom is None:
            raise invalid_request(f"{path}.custom: Field required")
        return canonical.ToolUse(call.id, call.custom.name, to_arguments(call.custom.input), cache_of(call))
    if call.function is None:
        raise invalid_request(f"{path}.function: Field required")
    return canonical.ToolUse(call.id, call.function.name, _arguments(call.function, f"{path}.function"), cache_of(call))


def _is_cut_off(call: wire.ToolCall) -> bool:
    text = call.function.arguments if call.function else None
    return isinstance(text, str) and not are_whole(text)


def _arguments(call: wire.FunctionCall, path: str) -> JsonObject:
    if not isinstance(call.arguments, str):
        return call.arguments or {}
    try:
        return parse_arguments(call.arguments)  # what an answer that was cut off left behind comes back cut off
    except ValueError:
        raise invalid_request(f"{path}.arguments: must be a JSON object as text") from None


def _marked(blocks: list[canonical.Block], mark: canonical.CacheMark | None) -> list[canonical.Block]:
    """The blocks, with a message's own mark on the last of them that can carry one."""
    for at in reversed(range(len(blocks) if mark else 0)):
        block = blocks[at]
        if isinstance(
            block, canonical.Text | canonical.Image | canonical.Document | canonical.ToolUse | canonical.ToolResult
        ):
            blocks[at] = replace(block, cache=block.cache or mark)
            break
    return blocks
