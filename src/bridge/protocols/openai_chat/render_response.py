"""Canonical message -> chat completion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.content import Text, Thinking, ToolUse
from bridge.canonical.json import dumps
from bridge.protocols.openai_chat.custom_tools import custom_names, from_arguments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.canonical.content import Citation
    from bridge.canonical.events import StopReason, Usage
    from bridge.canonical.fold import Message
    from bridge.canonical.head import AnswerHead
    from bridge.canonical.json import JsonObject, JsonValue

_FINISH_REASONS: dict[StopReason, str] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


def render_response(message: Message, head: AnswerHead) -> JsonObject:
    """The whole answer as OpenAI gives it."""
    choice: JsonObject = {
        "index": 0,
        "message": _message(message, head.echo),
        "logprobs": None,
        "finish_reason": finish_reason(message.end.reason, head.echo),
    }
    return {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [choice],
        "usage": render_usage(message.end.usage),
        "system_fingerprint": None,
    }


def render_content(message: Message) -> JsonValue:
    """The assistant's message, as the next request carries it."""
    return _message(message, {})


def _message(message: Message, echo: JsonObject) -> JsonObject:
    content = "".join(block.text for block in message.content if isinstance(block, Text))
    calls = [block for block in message.content if isinstance(block, ToolUse)]
    said: JsonObject = {"role": "assistant", "content": content if content or not calls else None, "refusal": None}
    annotations = _annotations(message)
    if annotations:
        said["annotations"] = annotations
    thinking = "".join(block.thinking for block in message.content if isinstance(block, Thinking))
    if thinking and not echo.get("exclude_reasoning"):
        said["reasoning_content"] = thinking
    if calls and echo.get("legacy_functions"):
        first = calls.pop(0)
        said["function_call"] = {"name": first.name, "arguments": dumps(first.input).decode()}
    if calls:
        custom = custom_names(echo)
        said["tool_calls"] = [_custom_call(call) if call.name in custom else _tool_call(call) for call in calls]
    return said


def _tool_call(call: ToolUse) -> JsonObject:
    function: JsonObject = {"name": call.name, "arguments": dumps(call.input).decode()}
    return {"id": call.id, "type": "function", "function": function}


def _custom_call(call: ToolUse) -> JsonObject:
    return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": from_arguments(call.input)}}


def _annotations(message: Message) -> list[JsonValue]:
    annotations: list[JsonValue] = []
    start = 0
    for block in message.content:
        if isinstance(block, Text):
            annotations += render_citations(block.citations, start, start + len(block.text))
            start += len(block.text)
    return annotations


def render_citations(citations: Iterable[Citation], start: int, end: int) -> list[JsonObject]:
    """Citations of the text between two positions of the content."""
    return [{"type": "url_citation", "url_citation": _url_citation(citation, start, end)} for citation in citations]


def _url_citation(citation: Citation, start: int, end: int) -> JsonObject:
    said: JsonObject = {"url": citation.url, "title": citation.title or "", "start_index": start, "end_index": end}
    return said | {"content": citation.cited_text} if citation.cited_text else said


def finish_reason(reason: StopReason, echo: JsonObject) -> str:
    """OpenAI's word for why an answer ended."""
    if reason == "tool_use" and echo.get("legacy_functions"):
        return "function_call"
    return _FINISH_REASONS[reason]


def render_usage(usage: Usage) -> JsonObject:
    """OpenAI counts what was read from and written to a cache inside `prompt_tokens`."""
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output_tokens,
        "total_tokens": prompt + usage.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
