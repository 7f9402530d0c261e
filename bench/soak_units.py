"""What one DynamoDB operation costs in request units, by AWS's rules for on-demand tables.

A write is one unit per KB of the item, rounded up, also where its condition fails, and one more where the item enters
the index of conversations. A consistent read is one unit per 4 KB, each item of a batch rounded up by itself, an item
that is not there included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

WRITE_UNIT_BYTES = 1024
READ_UNIT_BYTES = 4096
READS = frozenset({"BatchGetItem", "GetItem", "Query"})


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation that DynamoDB carried out."""

    name: str
    read_units: int
    write_units: int
    largest_item_bytes: int
    request_bytes: int
    condition_failed: bool

    @property
    def is_read(self) -> bool:
        return self.name in READS


def measure_operation(name: str, request_body: bytes, status: int, answer_body: bytes) -> Operation:
    """An operation from its request and its answer."""
    request, answer = orjson.loads(request_body), orjson.loads(answer_body)
    condition_failed = status == 400 and "ConditionalCheckFailed" in answer.get("__type", "")
    if name in READS:
        sizes = [item_bytes(item) for item in _items_read(answer)]
        units = [max(1, math.ceil(size / READ_UNIT_BYTES)) for size in sizes]
        absent = max(0, _keys_asked(request) - len(sizes))
        return Operation(name, sum(units) + absent, 0, max(sizes, default=0), len(request_body), condition_failed)
    sizes = [item_bytes(item) for item in _items_written(request, answer)]
    units = [max(1, math.ceil(size / WRITE_UNIT_BYTES)) for size in sizes] or [1]
    indexed = not condition_failed and "owner_hash" in request.get("Item", {})
    return Operation(name, 0, sum(units) + indexed, max(sizes, default=0), len(request_body), condition_failed)


def item_bytes(item: Mapping[str, Mapping[str, Any]]) -> int:
    """The size that DynamoDB counts: names and values; a number is about half its digits."""
    return sum(len(name.encode()) + _value_bytes(*next(iter(value.items()))) for name, value in item.items())


def _value_bytes(kind: str, value: object) -> int:
    match kind:
        case "N":
            return math.ceil(len(str(value)) / 2) + 1
        case "BOOL" | "NULL":
            return 1
        case _:
            return len(str(value).encode())


def _items_read(answer: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    if "Responses" in answer:
        return [item for items in answer["Responses"].values() for item in items]
    return answer["Items"] if "Items" in answer else [answer["Item"]] if "Item" in answer else []


def _keys_asked(request: Mapping[str, Any]) -> int:
    asked = request.get("RequestItems")
    return sum(len(table["Keys"]) for table in asked.values()) if asked else 1


def _items_written(request: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    if "RequestItems" in request:
        writes = [write for table in request["RequestItems"].values() for write in table]
        return [write["PutRequest"]["Item"] if "PutRequest" in write else {} for write in writes]
    found = request.get("Item") or answer.get("Attributes")
    return [found] if found else []
