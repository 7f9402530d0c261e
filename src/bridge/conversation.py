"""Which conversation a request belongs to, from what real clients send."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEADERS = ("x-conversation-id", "x-claude-code-session-id", "session_id", "conversation_id")
_SESSION_IN_USER_ID = re.compile(rb'\\"session_id\\"\s*:\s*\\"([A-Za-z0-9_.:@-]{1,128})\\"')
_LEGAL = re.compile(r"[A-Za-z0-9_.:@-]{1,128}")


def known_conversation(headers: Mapping[str, str], body: bytes) -> str | None:
    """The conversation that the client names: by header, else by the session inside `metadata.user_id`."""
    for name in _HEADERS:
        value = headers.get(name)
        if value and _LEGAL.fullmatch(value):
            return value
    found = _SESSION_IN_USER_ID.search(body)
    return found[1].decode() if found else None


def cache_key(principal: str, conversation: str) -> str:
    """Names a conversation to a provider's prompt cache, without saying whose it is."""
    return sha256(f"cache {len(principal)}:{principal}{conversation}".encode()).hexdigest()[:32]
