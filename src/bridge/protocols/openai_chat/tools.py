"""Function tools as chat completions say them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.protocols.openai_chat.content import cache_mark
from bridge.protocols.openai_tools import ToolRenderer

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject
    from bridge.canonical.request import Tool


class ChatToolRenderer(ToolRenderer):
    """The function stands inside the tool."""

    def _function(self, name: str, tool: Tool, parameters: JsonObject, *, strict: bool) -> JsonObject:
        function: JsonObject = {"name": name}
        if tool.description:
            function["description"] = tool.description
        function["parameters"] = parameters
        if strict:
            function["strict"] = True
        said: JsonObject = {"type": "function", "function": function}
        if tool.cache is not None and self.traits.cache_control:
            said["cache_control"] = cache_mark(tool.cache)
        return said

    def _chosen(self, name: str) -> JsonObject:
        return {"type": "function", "function": {"name": name}}
