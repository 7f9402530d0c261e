"""What a rendered request could not say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True)
class Losses:
    """What could not be said, each once, in the order in which it was met."""

    said: dict[str, None] = field(default_factory=dict)

    def add(self, loss: str) -> None:
        self.said[loss] = None

    def __iter__(self) -> Iterator[str]:
        return iter(self.said)
