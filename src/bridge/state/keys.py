"""Keys of the state table. A partition is one conversation of one principal; neither can be read back from it."""

from __future__ import annotations

from hashlib import sha256

META = "META"
TOOL_PREFIX = "tool#"
HEAD = "HEAD"
TURN_PREFIX = "turn#"
PART_PREFIX = "part#"


def partition_key(principal: str, token: str) -> str:
    """The partition of a conversation: another principal's conversation of the same name is another partition."""
    return "conv#" + sha256(f"{len(principal)}:{principal}{token}".encode()).hexdigest()[:40]


def owner_key(principal: str) -> str:
    """Whose conversations are listed together: a principal, whose name cannot be read back from it."""
    return sha256(f"owner {principal}".encode()).hexdigest()[:40]


def tool_key(tool_id: str) -> str:
    return TOOL_PREFIX + tool_id


def thread_key(principal: str, token: str) -> str:
    """The partition of a message thread."""
    return "thread#" + sha256(f"{len(principal)}:{principal}{token}".encode()).hexdigest()[:40]


def turn_key(number: int) -> str:
    return f"{TURN_PREFIX}{number:06}"


def response_key(principal: str, response_id: str) -> str:
    """The partition of a stored response."""
    return "resp#" + sha256(f"{len(principal)}:{principal}{response_id}".encode()).hexdigest()[:40]


def part_key(number: int) -> str:
    return f"{PART_PREFIX}{number:03}"
