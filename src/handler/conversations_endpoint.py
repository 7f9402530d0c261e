"""GET /v1/conversations: one's own living conversations, newest first; ids, tool names and times, never contents."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import orjson

from bridge.errors import invalid_request
from bridge.exchange import Answer
from bridge.state.keys import owner_key

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject
    from bridge.exchange import Record
    from bridge.state.records import ConversationSummary
    from handler.endpoints import Edge
    from handler.request import HttpRequest

DEFAULT_LIMIT = 20
MOST = 100


async def show_conversations(edge: Edge, request: HttpRequest, _record: Record) -> Answer:
    """The conversations of the caller and of nobody else, administrator or not."""
    limit = limit_of(request.query)
    recent = await edge.store.recent(owner_key(request.identity.principal), limit)
    body = {
        "object": "list",
        "data": [conversation_to_json(one) for one in recent.conversations],
        "has_more": recent.has_more,
    }
    return Answer(200, {"content-type": "application/json", "cache-control": "no-store"}, orjson.dumps(body))


def limit_of(query: str) -> int:
    """How many a request asks for."""
    named = dict(parse_qsl(query, keep_blank_values=True))
    for name in named:
        if name != "limit":
            raise invalid_request(f"{name[:64]}: not a parameter; /v1/conversations takes limit")
    text = named.get("limit", str(DEFAULT_LIMIT))
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MOST)) and 1 <= int(text) <= MOST):
        raise invalid_request(f"limit: takes a whole number from 1 to {MOST}")
    return int(text)


def conversation_to_json(conversation: ConversationSummary) -> JsonObject:
    """A conversation with its tools, the most called first."""
    by_calls = sorted(conversation.calls.items(), key=lambda item: (-item[1], item[0]))
    return {
        "id": conversation.id,
        "object": "conversation",
        "tools": [{"name": name, "calls": calls} for name, calls in by_calls],
        "calls": sum(conversation.calls.values()),
        "more_calls": conversation.more_calls,
        "started_at": _moment(conversation.started_at),
        "expires_at": _moment(conversation.expires_at),
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
