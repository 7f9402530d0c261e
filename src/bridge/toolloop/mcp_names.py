"""Names of MCP tools towards the model: `mcp__server__tool`, legal everywhere and mapped back by a table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bridge.canonical.renaming import short_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def tool_name(server: str, tool: str) -> str:
    """The usual name of a server's tool."""
    name = f"mcp__{server}__{tool}"
    return name if _LEGAL.fullmatch(name) else short_name(name)


def unique_names(tools: Iterable[tuple[str, str]], taken: Collection[str]) -> dict[tuple[str, str], str]:
    """A name for each (server, tool); the same for the same tools in the same order, and none that is taken."""
    names: dict[tuple[str, str], str] = {}
    used = set(taken)
    for server, tool in tools:
        name, salt = tool_name(server, tool), f"mcp__{server}__{tool}#{len(server)}"
        while name in used:
            name, salt = short_name(salt), f"{salt}#"
        names[server, tool] = name
        used.add(name)
    return names
