"""What a decoder has to know of the request whose answer it reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Reading:
    provider: str
    tool_names: Mapping[str, str] = field(default_factory=dict)
    """Names as the provider knows them -> names as the client declared them, where these differ."""
    reasoning_tags: str | None = None
    """The tag that this model wraps its reasoning in, inside its text."""
    stop_sequences: tuple[str, ...] = ()
    estimated_input_tokens: int = 0
