"""Keys of the state table. Partition = conversation of one principal; neither can be read back from the key."""

from __future__ import annotations

from hashlib import sha256


def partition_key(principal: str, conversation_id: str) -> str:
    """The partition of one conversation: another principal's conversation of the same name is another partition."""
    named = f"{len(principal)}:{principal}{conversation_id}".encode()
    return "conv#" + sha256(named).hexdigest()[:40]
