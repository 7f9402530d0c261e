"""What is kept of a tool call, and what a look for it finds."""

from __future__ import annotations

from dataclasses import field
from typing import Literal, TypeAlias

import orjson

from bridge.values import dataclass

CALLS_COUNTED = 500
"""How many calls of one conversation a list looks at."""

Absence: TypeAlias = Literal["unknown", "expired", "terminated"]


@dataclass(frozen=True, slots=True)
class ToolRecord:
    """One tool call: enough to rebuild it, and the data that only its provider family can read."""

    id: str
    name: str
    arguments: str
    family: str
    upstream_id: str = ""
    data: str | None = None

    def to_json(self) -> str:
        """Everything but the id, which is in the key; short names keep items small."""
        kept = {"n": self.name, "a": self.arguments, "f": self.family, "u": self.upstream_id, "d": self.data}
        return orjson.dumps({name: value for name, value in kept.items() if value}).decode()

    @classmethod
    def from_json(cls, tool_id: str, text: str) -> ToolRecord:
        kept = orjson.loads(text)
        return cls(tool_id, kept.get("n", ""), kept.get("a", ""), kept.get("f", ""), kept.get("u", ""), kept.get("d"))


@dataclass(frozen=True, slots=True)
class Liveness:
    """What META says of a conversation at a moment."""

    epoch: str | None
    state: Literal["alive", "unknown", "expired", "terminated"]
    expires_at: float = 0.0

    def absence(self, item_epoch: str | None) -> Absence | None:
        """Why an item of some epoch does not count; None if it does."""
        if self.state != "alive":
            return self.state
        if item_epoch is None:
            return "unknown"
        return None if item_epoch == self.epoch else "expired"


@dataclass(frozen=True, slots=True)
class Found:
    """What a look into the store brought: records by id, and for the others why there is none."""

    records: dict[str, ToolRecord] = field(default_factory=dict)
    absent: dict[str, Absence] = field(default_factory=dict)
    alive: dict[str, Liveness] = field(default_factory=dict)
    """META of the partitions that were looked into and are alive: who saves next need not ask for it again."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose a conversation is and what it is called: kept when it begins, so that its owner can list it."""

    owner: str
    conversation_id: str


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A living conversation as a list shows it: nothing of what was said in it."""

    id: str
    started_at: float
    expires_at: float
    calls: dict[str, int]
    """How often each tool was called."""
    more_calls: bool = False
    """There are calls beyond those that were counted."""


@dataclass(frozen=True, slots=True)
class Recent:
    """An owner's conversations, newest first; `has_more` if older ones were left out or not looked at."""

    conversations: list[ConversationSummary]
    has_more: bool = False
