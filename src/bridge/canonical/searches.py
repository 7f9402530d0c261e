"""A web search as Anthropic shows it."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from bridge.canonical.content import ServerBlock

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject


def search_use(seed: str, query: str) -> ServerBlock:
    """One search; its id is made of the seed."""
    raw: JsonObject = {
        "type": "server_tool_use",
        "id": f"srvtoolu_{sha256(seed.encode('utf-8', 'replace')).hexdigest()[:24]}",
        "name": "web_search",
        "input": {"query": query},
    }
    return ServerBlock("server_tool_use", raw)
