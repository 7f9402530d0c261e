"""What stands at the head of every answer."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from bridge.values import dataclass

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """The answer's own id, the model by the name the client gave it, and when it was made."""

    id: str
    model: str
    created: int = 0
    echo: JsonObject = field(default_factory=dict)
    """`Request.echo` of the request that is answered."""
