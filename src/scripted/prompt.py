"""Reading what was asked out of a request, in either dialect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def messages_of(request: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The messages of a chat, Messages or Responses request."""
    match request:
        case {"messages": list(messages)} | {"input": list(messages)}:
            return [message for message in messages if isinstance(message, Mapping)]
        case {"input": str(text)}:
            return [{"role": "user", "content": text}]
        case _:
            return []


def text_of(content: object) -> str:
    """The text of a message's content: a string, or parts of which some are text."""
    match content:
        case str():
            return content
        case list():
            return "\n".join(filter(None, map(_part_text, content)))
        case _:
            return ""


def newest_user_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """The text of the newest user message that has any."""
    texts = (text_of(message.get("content")) for message in reversed(messages) if message.get("role") == "user")
    return next(filter(None, texts), "")


def last_role(messages: Sequence[Mapping[str, Any]]) -> str:
    """The role of the last message; "tool" for one that carries tool results."""
    if not messages:
        return ""
    match messages[-1]:
        case {"role": "user", "content": list(parts)} if any(map(_is_tool_result, parts)):
            return "tool"
        case {"type": "function_call_output"}:
            return "tool"
        case message:
            return str(message.get("role", ""))


def _part_text(part: object) -> str:
    match part:
        case {"type": "text" | "input_text", "text": str(text)}:
            return text
        case _:
            return ""


def _is_tool_result(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "tool_result"
