"""References and `allOf` of one schema, merged into the keywords beside them; work is bounded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bridge.schemas.keywords import ANNOTATIONS, READ
from bridge.schemas.shapes import (
    COMBINED,
    as_list,
    as_object,
    is_scalar,
    resolve,
    without_references,
)
from bridge.values import dataclass

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject, JsonValue

MAX_NODES: Final = 5_000
# How often one `$ref` may be inside itself: a tree and its children, then an open object.
MAX_UNROLL: Final = 2
# How many references may lead to one place.
MAX_REFS: Final = 256


@dataclass(frozen=True, slots=True)
class Place:
    """Where the walk is: how deep, and inside which references."""

    depth: int = 0
    refs: tuple[str, ...] = ()

    def below(self) -> Place:
        return replace(self, depth=self.depth + 1)


class Flattener:
    """Flattens the nodes of one schema; what gets lost is gathered."""

    def __init__(self, root: JsonObject) -> None:
        self.losses: set[str] = set()
        self._root = root
        self._nodes_left = MAX_NODES

    def flatten(self, schema: JsonObject, place: Place) -> tuple[JsonObject, Place]:
        """The schema with its references and `allOf` merged into the keywords beside them."""
        parts: list[JsonObject] = []
        waiting = [schema]
        for part in waiting:
            self._nodes_left -= 1
            if self._nodes_left < 0:
                parts.append(self.cut("schema too large: cut"))
                break
            parts.append(without_references(part))
            if "$ref" in part:
                target, place = self._target(part["$ref"], place)
                waiting.append(target)
            waiting += [branch for branch in as_list(part.get("allOf")) if isinstance(branch, dict)]
        return (parts[0] if len(parts) == 1 else self.merged(parts)), place

    def _target(self, ref: JsonValue, place: Place) -> tuple[JsonObject, Place]:
        target = resolve(self._root, ref)
        if not isinstance(ref, str) or not isinstance(target, dict | bool):
            self.losses.add("schema keyword '$ref' not resolved")
            return {}, place
        if place.refs.count(ref) >= MAX_UNROLL or len(place.refs) >= MAX_REFS:
            return self.cut("recursive schema cut"), place
        return as_object(target), replace(place, refs=(*place.refs, ref))

    def cut(self, loss: str) -> JsonObject:
        """What stands where the schema is cut off: an open object."""
        self.losses.add(loss)
        return {"type": "object"}

    def merged(self, parts: list[JsonObject]) -> JsonObject:
        """One schema that says what all the parts say."""
        by_keyword: dict[str, list[JsonValue]] = {}
        for part in parts:
            for keyword, value in part.items():
                by_keyword.setdefault(keyword, []).append(value)
        return {keyword: self._combined(keyword, values) for keyword, values in by_keyword.items()}

    def _combined(self, keyword: str, values: list[JsonValue]) -> JsonValue:
        """All values at once where that can be said, else the first: it is the one nearest to the tool."""
        if len(values) == 1:
            return values[0]
        combined = COMBINED[keyword](values) if keyword in COMBINED else None
        if combined in (None, []):
            self._report_conflict(keyword, values)
            return values[0]
        return combined

    def _report_conflict(self, keyword: str, values: list[JsonValue]) -> None:
        same = all(is_scalar(value) and value == values[0] for value in values)
        if keyword in READ - ANNOTATIONS.keys() and not same:
            self.losses.add(f"schema keyword '{keyword}' conflicts: first kept")
