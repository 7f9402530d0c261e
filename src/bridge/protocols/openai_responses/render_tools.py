"""Function tools as the Responses API says them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.protocols.openai_tools import ToolRenderer

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject
    from bridge.canonical.request import Tool


class ResponsesToolRenderer(ToolRenderer):
    """The tool is the function; whether its schema is enforced has to be said, as the API takes silence for a yes."""

    def _function(self, name: str, tool: Tool, parameters: JsonObject, *, strict: bool) -> JsonObject:
        said: JsonObject = {"type": "function", "name": name}
        if tool.description:
            said["description"] = tool.description
        return said | {"parameters": parameters, "strict": strict}

    def _chosen(self, name: str) -> JsonObject:
        return {"type": "function", "name": name}
