"""Tools that Anthropic runs itself, on requests that go elsewhere: which a request asks for, and who serves them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from bridge.canonical.declared import RUN_BY_CLIENTS
from bridge.routing import Route

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject
    from bridge.routing import RoutingTable

ServerToolsMode: TypeAlias = Literal["error", "enforceanthropic", "emulate"]
_NOT_TYPED = ("custom", "function", "namespace", "local_shell")


def server_tools_in(document: JsonObject) -> tuple[str, ...]:
    """The types of a request's tools that Anthropic would run, and `mcp_servers` where there are any."""
    tools = document.get("tools")
    types = [tool.get("type") for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    run = [str(name) for name in types if name and name not in _NOT_TYPED and not str(name).startswith(RUN_BY_CLIENTS)]
    return tuple(dict.fromkeys([*run, *(["mcp_servers"] if document.get("mcp_servers") else [])]))


def enforced_route(table: RoutingTable, model: str, replacement: str) -> Route:
    """To Anthropic, whole: under the model's own name if it is Claude's, else under the one that stands in."""
    bare = model.removeprefix("anthropic/")
    wire_model = bare if bare.startswith("claude") else replacement
    return Route(table.providers["anthropic"], wire_model, "server tools are Anthropic's (SERVER_TOOLS_MODE)")
