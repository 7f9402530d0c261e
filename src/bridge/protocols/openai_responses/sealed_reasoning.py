"""Signed thinking as `encrypted_content`: an opaque text that clients carry from one request to the next."""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from typing import TypeAlias

import orjson

from bridge.canonical.content import RedactedThinking, Thinking
from bridge.canonical.json import dumps
from bridge.canonical.seal import SEAL

MAX_SEALED_CHARACTERS = 8 * 1024 * 1024

Reasoned: TypeAlias = Thinking | RedactedThinking


def seal(block: Reasoned) -> str | None:
    """The block as one opaque text; None where there is nothing that only its maker could read."""
    match block:
        case Thinking(signature=""):
            return None
        case Thinking(thinking, signature):
            said = {"thinking": thinking, "signature": signature}
        case RedactedThinking(data):
            said = {"redacted": data}
    return SEAL + urlsafe_b64encode(dumps(said)).decode().rstrip("=")


def unseal(text: str) -> Reasoned | None:
    """The block inside; None if the text is another maker's, or was damaged."""
    if not text.startswith(SEAL) or len(text) > MAX_SEALED_CHARACTERS:
        return None
    encoded = text[len(SEAL) :]
    try:
        said = orjson.loads(b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True))
    except ValueError:
        return None
    match said:
        case {"thinking": str(thinking), "signature": str(signature)} if len(said) == 2 and signature:
            return Thinking(thinking, signature)
        case {"redacted": str(data)} if len(said) == 1:
            return RedactedThinking(data)
    return None
