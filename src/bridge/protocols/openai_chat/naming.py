"""Names and ids as each provider wants them."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING

from bridge.canonical.renaming import Renaming, short_id, short_name

if TYPE_CHECKING:
    from bridge.traits import Traits

_LEGAL_NAMES = {
    "openai": re.compile(r"[A-Za-z0-9_-]{1,64}"),
    "gemini": re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}"),
}
_LEGAL_IDS = {"openai": re.compile(r"[A-Za-z0-9_-]{1,40}"), "mistral": re.compile(r"[A-Za-z0-9]{9}")}


def tool_names(traits: Traits) -> Renaming:
    """Tool names: long ones keep a readable beginning and end in a digest."""
    return Renaming(_LEGAL_NAMES[traits.tool_names], short_name)


def tool_ids(traits: Traits) -> Renaming:
    """Tool call ids."""
    return Renaming(_LEGAL_IDS[traits.tool_ids], _mistral_id if traits.tool_ids == "mistral" else short_id)


def _mistral_id(tool_id: str) -> str:
    return sha256(tool_id.encode()).hexdigest()[:9]
