"""Function tools as the Responses API says them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.protocols.openai_tools import ToolRenderer

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject
    from bridge.canonical.losses import Losses
    from bridge.canonical.request import Tool, WebSearch


class ResponsesToolRenderer(ToolRenderer):
    """The tool is the function; whether its schema is enforced has to be said, as the API takes silence for a yes."""

    def _function(self, name: str, tool: Tool, parameters: JsonObject, *, strict: bool) -> JsonObject:
        said: JsonObject = {"type": "function", "name": name}
        if tool.description:
            said["description"] = tool.description
        return said | {"parameters": parameters, "strict": strict}

    def _chosen(self, name: str) -> JsonObject:
        return {"type": "function", "name": name}


def add_search(wish: WebSearch, body: JsonObject, losses: Losses) -> None:
    """The provider's own search as one more tool; its sources come back only if they are asked for."""
    tool: JsonObject = {"type": "web_search"}
    domains = {"allowed_domains": wish.allowed_domains, "blocked_domains": wish.blocked_domains}
    filters: JsonObject = {name: list(given) for name, given in domains.items() if given}
    if filters:
        tool["filters"] = filters
    if wish.user_location:
        tool["user_location"] = {"type": "approximate", **wish.user_location}
    if wish.context_size:
        tool["search_context_size"] = wish.context_size
    if wish.max_uses is not None:
        losses.add("max_uses: this upstream decides how often it searches")
    tools, include = body.get("tools"), body.get("include")
    body["tools"] = [*(tools if isinstance(tools, list) else ()), tool]
    body["include"] = [*(include if isinstance(include, list) else ()), "web_search_call.action.sources"]
