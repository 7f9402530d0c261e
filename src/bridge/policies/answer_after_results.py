"""Wants words, not another tool call, once results are there (R3, strict)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.canonical.declared import declared_tools
from bridge.canonical.request import ToolChoice
from bridge.policies.result_text import holds_result

if TYPE_CHECKING:
    from bridge.canonical.request import Request


def answer_after_results(request: Request) -> Request:
    """The request with `tool_choice` none if its latest turn holds a tool result; the tools stay declared."""
    latest = next((turn for turn in reversed(request.turns) if turn.role != "system"), None)
    if latest is None or not holds_result(latest) or not declared_tools(request):
        return request
    choice = request.tool_choice or ToolChoice("auto")
    if choice.mode == "none":
        return request
    return replace(request, tool_choice=replace(choice, mode="none", name=None))
