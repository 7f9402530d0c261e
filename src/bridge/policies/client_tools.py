"""Tools that clients declare by Anthropic's type alone and run themselves: said as functions with a schema.

Claude knows the input of `bash_20250124` and its like by heart; every other model has to be told. client_tools.json
holds the documented input of each version.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from bridge.canonical.content import CacheMark
from bridge.canonical.declared import RUN_BY_CLIENTS
from bridge.canonical.request import ServerTool, Tool
from bridge.errors import invalid_request

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.canonical.request import Request

_COMMON_OPTIONS = frozenset({"cache_control", "strict", "defer_loading"})


def declare_client_tools(request: Request) -> Request:
    """The request with its client-run typed tools as functions; options that cannot be said go to `unread`.

    Toolsets and versions that are not known stay as they are.
    """
    if not any(map(_is_known, request.tools)):
        return request
    tools = tuple(_declared(index, tool) for index, tool in enumerate(request.tools))
    unread = dict.fromkeys(f"tool.{name}" for tool in request.tools for name in _unsaid_options(tool))
    return replace(request, tools=tools, unread=tuple(dict.fromkeys((*request.unread, *unread))))


def _is_known(tool: Tool | ServerTool) -> bool:
    return isinstance(tool, ServerTool) and tool.type.startswith(RUN_BY_CLIENTS) and tool.type in _table()["types"]


def _declared(index: int, tool: Tool | ServerTool) -> Tool | ServerTool:
    if isinstance(tool, Tool) or not _is_known(tool):
        return tool
    if not tool.name:
        raise invalid_request(f"tools.{index}.name: Field required")
    said = _table()["tools"][_kind(tool)]
    strict = tool.options.get("strict")
    return Tool(
        name=tool.name,
        input_schema=said["input_schema"],
        description=f"{said['description']}{_particulars(index, tool)}",
        strict=strict if isinstance(strict, bool) else None,
        deferred=tool.options.get("defer_loading") is True,
        cache=_cache(tool.options.get("cache_control")),
    )


def _kind(tool: ServerTool) -> str:
    kind: str = _table()["types"][tool.type]
    can_zoom = "enable_zoom" in _own_options(tool.type) and tool.options.get("enable_zoom") is True
    return f"{kind}_with_zoom" if can_zoom else kind


def _particulars(index: int, tool: ServerTool) -> str:
    """What the options say about this tool, in words."""
    options = _own_options(tool.type)
    told = ""
    if "display_width_px" in options:
        width, height = (_pixels(index, tool.options, f"display_{side}_px") for side in ("width", "height"))
        told += f" The screen is {width} pixels wide and {height} pixels high."
    if "display_number" in options and tool.options.get("display_number") is not None:
        told += f" It is X11 display {tool.options['display_number']}."
    if "max_characters" in options and tool.options.get("max_characters") is not None:
        told += f" `view` shows at most {tool.options['max_characters']} characters of a file."
    return told


def _pixels(index: int, options: JsonObject, name: str) -> int:
    value = options.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise invalid_request(f"tools.{index}.{name}: a positive number of pixels is required")
    return value


def _cache(mark: JsonValue) -> CacheMark | None:
    if not isinstance(mark, dict):
        return None
    ttl = mark.get("ttl")
    return CacheMark(ttl if isinstance(ttl, str) else None)


def _unsaid_options(tool: Tool | ServerTool) -> list[str]:
    if isinstance(tool, Tool) or not _is_known(tool):
        return []
    said = _COMMON_OPTIONS | _own_options(tool.type)
    return [name for name, value in tool.options.items() if name not in said and not _says_nothing(name, value)]


def _says_nothing(name: str, value: JsonValue) -> bool:
    return value is None or (name == "allowed_callers" and value == ["direct"])


def _own_options(tool_type: str) -> frozenset[str]:
    return frozenset(_table()["options"].get(tool_type, ()))


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = orjson.loads(Path(__file__).with_name("client_tools.json").read_bytes())
    return table
