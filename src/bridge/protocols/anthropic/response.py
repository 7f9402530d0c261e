"""Canonical message -> Messages response."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from bridge.canonical.content import RedactedThinking, ServerBlock, Text, Thinking, ToolUse

if TYPE_CHECKING:
    from bridge.canonical.events import Usage
    from bridge.canonical.fold import AnswerBlock, Message
    from bridge.canonical.json import JsonObject


def render_response(message: Message, message_id: str, model: str) -> JsonObject:
    """The whole answer as Anthropic gives it."""
    return render_envelope(message_id, model) | {
        "content": [render_block(block) for block in message.content],
        "stop_reason": message.end.reason,
        "stop_sequence": message.end.sequence,
        "usage": render_usage(message.end.usage),
    }


def render_envelope(message_id: str, model: str) -> JsonObject:
    """A message in which nothing has been said yet."""
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def render_block(block: AnswerBlock) -> JsonObject:
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case ToolUse(tool_id, name, arguments):
            return {"type": "tool_use", "id": tool_id, "name": name, "input": arguments}
        case Thinking(thinking, signature):
            return {"type": "thinking", "thinking": thinking, "signature": signature}
        case RedactedThinking(data):
            return {"type": "redacted_thinking", "data": data}
        case ServerBlock(_, raw):
            return raw
        case _:
            assert_never(block)


def render_usage(usage: Usage) -> JsonObject:
    return {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
    }
