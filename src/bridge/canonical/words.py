"""What one protocol has a form for and another has not, in words that any model can read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from bridge.errors import invalid_request

if TYPE_CHECKING:
    from bridge.canonical.content import ServerBlock
    from bridge.canonical.json import JsonValue

TOOL_ERROR = "[tool error] "
NO_RESULT = "[no result was recorded for this call]"
MAX_SERVER_BLOCK_CHARACTERS = 20_000
_ENCRYPTED = frozenset({"encrypted_content", "encrypted_index", "encrypted_stdout", "signature"})
_BILLING_HEADER = "x-anthropic-billing-header:"


def server_block_text(block: ServerBlock) -> str:
    """What a provider's own tool did, in words that another model can read."""
    raw = block.raw
    if block.type in ("server_tool_use", "mcp_tool_use"):
        return f"[used {raw.get('name')}: {_compact(raw.get('input'))}]"
    if block.type in ("fallback", "mcp_tool_listing"):
        return ""
    if block.type == "compaction":
        return str(raw.get("content") or "")
    if block.type == "container_upload":
        raise invalid_request("container_upload: files in a container cannot be read by this upstream")
    return f"[{block.type.removesuffix('_tool_result')} result: {_compact(raw.get('content'))}]"


def _compact(value: JsonValue) -> str:
    return orjson.dumps(_readable(value)).decode()[:MAX_SERVER_BLOCK_CHARACTERS]


def _readable(value: JsonValue) -> JsonValue:
    """Without what only the provider that wrote it can read."""
    if isinstance(value, dict):
        return {key: _readable(inner) for key, inner in value.items() if key not in _ENCRYPTED}
    if isinstance(value, list):
        return [_readable(inner) for inner in value]
    return value


def without_billing(text: str) -> str:
    """The client's billing line changes with every request and would defeat the provider's prompt cache (R2)."""
    if not text.startswith(_BILLING_HEADER):
        return text
    return text.partition("\n")[2].lstrip("\n")
