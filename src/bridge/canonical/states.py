"""The states of a stream's decoder or encoder."""

from __future__ import annotations

from enum import Enum


class StreamState(Enum):
    """Hashed by identity: an Enum's own hash is computed in Python, and tables of states are looked up per event."""

    __hash__ = object.__hash__
