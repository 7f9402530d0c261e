"""Which conversation a request belongs to, from what real clients send."""

from __future__ import annotations

import re
import secrets
from hashlib import sha256
from typing import TYPE_CHECKING

from bridge.canonical.content import ToolResult, ToolUse
from bridge.errors import invalid_request
from bridge.state.claims import conversation_of, conversation_token, new_conversation, read_claim
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.canonical.request import Request

_SESSION_HEADERS = (
    "x-claude-code-session-id",
    "session_id",
    "session-id",
    "x-session-id",
    "conversation_id",
)
_SESSION_IN_USER_ID = re.compile(r'"session_id"\s*:\s*"([A-Za-z0-9_.:@-]{1,128})"|_session_([0-9a-f-]{36})$')
_LEGAL = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.:@-]{1,128}")  # a path to `..` leads elsewhere


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation by its id."""

    id: str
    known_token: str | None = None
    is_new: bool = False

    @property
    def token(self) -> str:
        """Stands for it in tool ids and keys. Most answers call no tool, so it is made when it is asked for."""
        return self.known_token or conversation_token(self.id)


def conversation(headers: Mapping[str, str], request: Request) -> Conversation:
    """The header first, then the session that clients tell of, then the newest minted tool id; else a new one."""
    named = _by_header(headers) or _by_session(headers, request)
    if named is not None:
        return Conversation(named)
    token = _newest_token(request)
    if token is not None:
        return Conversation(conversation_of(token), token)
    return Conversation(new_conversation(secrets.token_hex(15)), is_new=True)


def legal_conversation_id(conversation_id: str) -> str:
    """The id, if it is one; BridgeError if it holds what an id may not."""
    if not _LEGAL.fullmatch(conversation_id):
        raise invalid_request("conversation id: 1 to 128 letters, digits or any of _ . : @ -")
    return conversation_id


def cache_key(principal: str, conversation_id: str) -> str:
    """Names a conversation to a provider's prompt cache, without saying whose it is."""
    return sha256(f"cache {len(principal)}:{principal}{conversation_id}".encode()).hexdigest()[:32]


def _by_header(headers: Mapping[str, str]) -> str | None:
    given = headers.get("x-conversation-id")
    return legal_conversation_id(given) if given else None


def _by_session(headers: Mapping[str, str], request: Request) -> str | None:
    for name in _SESSION_HEADERS:
        value = headers.get(name)
        if value and _LEGAL.fullmatch(value):
            return value
    found = _SESSION_IN_USER_ID.search(request.user_id) if request.user_id else None
    if found:
        return found[1] or found[2]
    key = request.extras.get("prompt_cache_key")
    return key if isinstance(key, str) and _LEGAL.fullmatch(key) else None


def _newest_token(request: Request) -> str | None:
    if request.kinds.isdisjoint((ToolUse, ToolResult)):
        return None
    for turn in reversed(request.turns):
        for block in reversed(turn.content):
            if isinstance(block, ToolUse | ToolResult):
                claim = read_claim(block.id if isinstance(block, ToolUse) else block.tool_use_id)
                if claim is not None:
                    return claim.token
    return None
