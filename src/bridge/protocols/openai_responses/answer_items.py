"""Blocks of an answer -> output items.

Texts that follow each other are one message; a web search is one item with its result; what other server tools
did is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never

from bridge.canonical.content import RedactedThinking, ServerBlock, Text, Thinking, ToolUse
from bridge.canonical.json import dumps
from bridge.protocols.openai_responses.call_forms import form_of
from bridge.protocols.openai_responses.custom_input import raw_input
from bridge.protocols.openai_responses.sealed_reasoning import seal
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bridge.canonical.content import Citation
    from bridge.canonical.fold import AnswerBlock
    from bridge.canonical.head import AnswerHead
    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.protocols.openai_responses.call_forms import CallForm

ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]
CALL_PREFIXES = {"function": "fc", "custom": "ctc", "local_shell": "lsh", "tool_search": "tsc"}


@dataclass(frozen=True, slots=True)
class AnswerShape:
    """How the items of one answer are to look: what the client asked for, and what their ids are made of."""

    id_base: str | None = None
    calls: JsonValue = None
    seals_reasoning: bool = True
    names_sources: bool = False

    @classmethod
    def of(cls, head: AnswerHead) -> AnswerShape:
        echo = head.echo
        return cls(
            head.id.removeprefix("resp_"),
            echo.get("calls"),
            echo.get("seals_reasoning") is True,
            echo.get("names_sources") is True,
        )

    def item_id(self, prefix: str, index: int) -> str:
        return f"{prefix}_{self.id_base}_{index}" if self.id_base is not None else ""


def answer_items(content: Iterable[AnswerBlock], shape: AnswerShape, last_status: ItemStatus) -> list[JsonObject]:
    """All items of a whole answer; the last one has its own status, because an answer may end in the middle of it."""
    runs = _runs(content)
    return [
        _without_empty_id(_item(run, shape, index, last_status if index == len(runs) - 1 else "completed"))
        for index, run in enumerate(runs)
    ]


def is_search(block: AnswerBlock) -> bool:
    match block:
        case ServerBlock("server_tool_use", {"name": "web_search"}):
            return True
    return False


def is_result_of(block: AnswerBlock, search: AnswerBlock) -> bool:
    match block, search:
        case ServerBlock("web_search_tool_result", result), ServerBlock(_, raw) if is_search(search):
            return result.get("tool_use_id") == raw.get("id")
    return False


def _runs(content: Iterable[AnswerBlock]) -> list[list[AnswerBlock]]:
    """The blocks of each item."""
    runs: list[list[AnswerBlock]] = []
    for block in content:
        last = runs[-1] if runs else None
        if last is not None and (
            (isinstance(block, Text) and isinstance(last[0], Text)) or (len(last) == 1 and is_result_of(block, last[0]))
        ):
            last.append(block)
        elif not isinstance(block, ServerBlock) or is_search(block):
            runs.append([block])
    return runs


def _item(run: Sequence[AnswerBlock], shape: AnswerShape, index: int, status: ItemStatus) -> JsonObject:
    first = run[0]
    match first:
        case Text():
            texts = [block for block in run if isinstance(block, Text)]
            said = "".join(text.text for text in texts)
            return message_item(shape.item_id("msg", index), status, said, _annotations(texts))
        case Thinking() | RedactedThinking():
            return reasoning_item(shape, index, first, status)
        case ToolUse(call_id, name, arguments):
            form = form_of(shape.calls, name)
            item_id = shape.item_id(CALL_PREFIXES[form.kind], index)
            return call_item(form, item_id, call_id, dumps(arguments).decode(), arguments, status)
        case ServerBlock(_, raw):
            result = run[1].raw if len(run) > 1 and isinstance(run[1], ServerBlock) else None
            return search_item(shape, index, raw, result, status)
        case _:
            assert_never(first)


def message_item(item_id: str, status: ItemStatus, text: str | None, annotations: list[JsonValue]) -> JsonObject:
    """A message of the assistant; without text where none was said yet."""
    return {
        "id": item_id,
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": [] if text is None else [text_part(text, annotations)],
    }


def text_part(text: str, annotations: list[JsonValue]) -> JsonObject:
    return {"type": "output_text", "annotations": annotations, "logprobs": [], "text": text}


def _annotations(texts: Sequence[Text]) -> list[JsonValue]:
    said: list[JsonValue] = []
    at = 0
    for text in texts:
        end = at + len(text.text)
        said += [annotation(citation, at, end) for citation in text.citations]
        at = end
    return said


def annotation(citation: Citation, start: int, end: int) -> JsonObject:
    """A source of the text from `start` to `end`."""
    return {
        "type": "url_citation",
        "start_index": start,
        "end_index": end,
        "url": citation.url,
        "title": citation.title or "",
    }


def reasoning_item(
    shape: AnswerShape, index: int, block: Thinking | RedactedThinking, status: ItemStatus
) -> JsonObject:
    words = block.thinking if isinstance(block, Thinking) else ""
    item: JsonObject = {
        "id": shape.item_id("rs", index),
        "type": "reasoning",
        "status": status,
        "summary": [summary_part(words)] if words else [],
    }
    sealed = seal(block) if shape.seals_reasoning else None
    return item | {"encrypted_content": sealed} if sealed is not None else item


def summary_part(text: str) -> JsonObject:
    return {"type": "summary_text", "text": text}


def call_item(
    form: CallForm, item_id: str, call_id: str, arguments: str, parsed: JsonObject, status: ItemStatus
) -> JsonObject:
    """A call in the form in which the client declared its tool."""
    item: JsonObject = {"id": item_id, "call_id": call_id, "status": status}
    named: JsonObject = {"name": form.name}
    if form.namespace is not None:
        named["namespace"] = form.namespace
    match form.kind:
        case "function":
            return {"type": "function_call", **item, **named, "arguments": arguments}
        case "custom":
            return {"type": "custom_tool_call", **item, **named, "input": raw_input(parsed)}
        case "local_shell":
            return {"type": "local_shell_call", **item, "action": _shell_action(parsed)}
        case "tool_search":
            return {"type": "tool_search_call", **item, "execution": "client", "arguments": parsed}
        case _:
            assert_never(form.kind)


def _shell_action(arguments: JsonObject) -> JsonObject:
    """The command as the local shell takes it; what a model put in another shape becomes text."""
    command, env = arguments.get("command"), arguments.get("env")
    words = command if isinstance(command, list) else [] if command is None else [command]
    action: JsonObject = {
        "type": "exec",
        "command": [_word(word) for word in words],
        "env": {name: _word(value) for name, value in env.items()} if isinstance(env, dict) else {},
    }
    for name, kind in (("timeout_ms", int), ("user", str), ("working_directory", str)):
        if isinstance(arguments.get(name), kind):
            action[name] = arguments[name]
    return action


def _word(value: JsonValue) -> str:
    return value if isinstance(value, str) else dumps(value).decode()


def search_item(
    shape: AnswerShape, index: int, raw: JsonObject, result: JsonObject | None, status: ItemStatus
) -> JsonObject:
    """A web search that the provider ran, with its sources where the client asked for them."""
    action: JsonObject = {"type": "search"}
    match raw:
        case {"input": {"query": str(query)}}:
            action["query"] = query
        case _:
            action["query"] = ""
    found = result.get("content") if result else None
    if shape.names_sources and isinstance(found, list):
        action["sources"] = [
            {"type": "url", "url": hit["url"]}
            for hit in found
            if isinstance(hit, dict) and isinstance(hit.get("url"), str)
        ]
    told = "failed" if isinstance(found, dict) else status
    return {"id": shape.item_id("ws", index), "type": "web_search_call", "status": told, "action": action}


def _without_empty_id(item: JsonObject) -> JsonObject:
    return item if item["id"] else {name: value for name, value in item.items() if name != "id"}
