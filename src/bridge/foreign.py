"""What the bridge itself put into a history and no provider can read: taken out of requests that pass through.

A conversation may go on with another model. On translated routes such data is left out anyway; a request that passes
through as it is would carry it to a provider that refuses it. Every other byte stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.json import dumps
from bridge.canonical.seal import SEAL

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.providers import ProtocolName

_HINTS: dict[ProtocolName, tuple[bytes, ...]] = {
    "anthropic": (b'"signature":""', b'"signature": ""', b'"encrypted_content":""', b'"encrypted_content": ""'),
    "openai_responses": (b'"tb1.',),
}


def without_own_data(protocol: ProtocolName, body: bytes, document: JsonObject) -> bytes:
    """The body without thinking that nobody signed, searches that nobody sealed, and the bridge's own seals."""
    if not any(hint in body for hint in _HINTS.get(protocol, ())):
        return body
    if protocol == "openai_responses":
        items = document.get("input")
        kept = [item for item in items if not _is_sealed_here(item)] if isinstance(items, list) else items
        return dumps(document | {"input": kept})
    messages = document.get("messages")
    cleaned = [_cleaned(message) for message in messages] if isinstance(messages, list) else messages
    return dumps(document | {"messages": cleaned})


def _is_sealed_here(item: JsonValue) -> bool:
    match item:
        case {"type": "reasoning", "encrypted_content": str(content)}:
            return content.startswith(SEAL)
    return False


def _cleaned(message: JsonValue) -> JsonValue:
    blocks = message.get("content") if isinstance(message, dict) and message.get("role") == "assistant" else None
    if not isinstance(message, dict) or not isinstance(blocks, list):
        return message
    unsealed = {_use_of(block) for block in blocks if _is_unsealed_result(block)}
    kept = [_uncited(block) for block in blocks if not _is_own(block, unsealed)]
    return message | {"content": kept or [{"type": "text", "text": "(no words)"}]}


def _is_own(block: JsonValue, unsealed: set[str]) -> bool:
    match block:
        case {"type": "thinking", **rest}:
            return not rest.get("signature")
        case {"type": "web_search_tool_result"}:
            return _use_of(block) in unsealed
        case {"type": "server_tool_use", "id": str(use)}:
            return use in unsealed
    return False


def _is_unsealed_result(block: JsonValue) -> bool:
    match block:
        case {"type": "web_search_tool_result", "content": [*results]}:
            return all(isinstance(result, dict) and not result.get("encrypted_content") for result in results)
    return False


def _use_of(block: JsonValue) -> str:
    return str(block.get("tool_use_id")) if isinstance(block, dict) else ""


def _uncited(block: JsonValue) -> JsonValue:
    citations = block.get("citations") if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(citations, list):
        return block
    sealed = [one for one in citations if not (isinstance(one, dict) and one.get("encrypted_index") == "")]
    rest: JsonObject = {name: value for name, value in block.items() if name != "citations"}
    return rest | {"citations": sealed} if sealed else rest
