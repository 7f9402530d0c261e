"""A request as the upstream received it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import orjson


# Without slots, so that the body is parsed once at most.
@dataclass(frozen=True)
class Received:
    """One request; `path` with its query, header names in lower case, `received_at` monotonic."""

    method: str
    path: str
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    received_at: float

    @cached_property
    def json(self) -> Any:
        """The parsed body; raises when it is not JSON."""
        return orjson.loads(self.body)

    @cached_property
    def request(self) -> dict[str, Any]:
        """The body as a JSON object, empty when it is anything else."""
        try:
            return self.json if isinstance(self.json, dict) else {}
        except orjson.JSONDecodeError:
            return {}

    @property
    def route(self) -> str:
        """The path without its query."""
        return self.path.partition("?")[0]
