"""Marks a prompt for caching where the client's own protocol has no way to ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bridge.canonical.json import JsonObject
    from bridge.protocols.anthropic.render_messages import Message

_UNMARKABLE = frozenset({"thinking", "redacted_thinking"})


def mark_prompt(tools: Sequence[JsonObject], system: Sequence[JsonObject], messages: Sequence[Message]) -> None:
    """Anthropic takes four marks: the tools, the system prompt, and the two newest user messages get one each."""
    if _is_marked([*tools, *system, *(block for message in messages for block in message.content)]):
        return
    _mark_last([tool for tool in tools if not tool.get("defer_loading")])
    _mark_last(system)
    for message in [message for message in messages if message.role == "user"][-2:]:
        _mark_last([block for block in message.content if block["type"] not in _UNMARKABLE])


def _is_marked(blocks: Iterable[JsonObject]) -> bool:
    for block in blocks:
        if block.get("cache_control"):
            return True
        content = block.get("content")
        if isinstance(content, list) and any(isinstance(part, dict) and part.get("cache_control") for part in content):
            return True
    return False


def _mark_last(blocks: Sequence[JsonObject]) -> None:
    if blocks:
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
