"""A rendered request, and what a decoder has to know of it to read the answer."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.canonical.json import JsonObject


@dataclass(frozen=True, slots=True)
class Reading:
    provider: str
    tool_names: Mapping[str, str] = field(default_factory=dict)
    """Names as the provider knows them -> names as the client declared them, where these differ."""
    reasoning_tags: str | None = None
    """The tag that this model wraps its reasoning in, inside its text."""
    replays_reasoning_text: bool = False
    """The provider wants its reasoning text back with the tool calls that followed it."""
    stop_sequences: tuple[str, ...] = ()
    estimated_input_tokens: int = 0

    def of_input(self, estimated_tokens: int) -> Reading:
        """The same, for a request of about so many tokens."""
        return Reading(
            self.provider,
            self.tool_names,
            self.reasoning_tags,
            self.replays_reasoning_text,
            self.stop_sequences,
            estimated_tokens,
        )


@dataclass(frozen=True, slots=True)
class Rendered:
    """A request as a provider wants it, what could not be said in it, and how to read the answer."""

    body: JsonObject
    losses: tuple[str, ...]
    reading: Reading
