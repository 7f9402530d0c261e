"""Canonical message -> Messages response."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from bridge.canonical.content import RedactedThinking, ServerBlock, Text, Thinking, ToolUse

if TYPE_CHECKING:
    from bridge.canonical.content import Citation
    from bridge.canonical.events import Usage
    from bridge.canonical.fold import AnswerBlock, Message
    from bridge.canonical.head import AnswerHead
    from bridge.canonical.json import JsonObject, JsonValue


def render_response(message: Message, head: AnswerHead) -> JsonObject:
    """The whole answer as Anthropic gives it."""
    return render_envelope(head) | {
        "content": render_content(message),
        "stop_reason": message.end.reason,
        "stop_sequence": message.end.sequence,
        "usage": render_usage(message.end.usage),
    }


def render_content(message: Message) -> JsonValue:
    """The blocks of an answer, as the next request carries them."""
    return [render_block(block) for block in message.content]


def render_envelope(head: AnswerHead) -> JsonObject:
    """A message in which nothing has been said yet."""
    return {
        "id": head.id,
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def render_block(block: AnswerBlock) -> JsonObject:
    match block:
        case Text(text, citations=()):
            return {"type": "text", "text": text}
        case Text(text, citations=citations):
            return {"type": "text", "text": text, "citations": [render_citation(citation) for citation in citations]}
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


def render_citation(citation: Citation) -> JsonObject:
    return {
        "type": "web_search_result_location",
        "url": citation.url,
        "title": citation.title,
        "cited_text": citation.cited_text,
        "encrypted_index": "",
    }


def render_usage(usage: Usage) -> JsonObject:
    """The full shape: some clients break on a usage that lacks what Anthropic always sends."""
    said: JsonObject = {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
    }
    if usage.reasoning_tokens:
        said["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    if usage.web_searches:
        said["server_tool_use"] = {"web_search_requests": usage.web_searches, "web_fetch_requests": 0}
    return said
