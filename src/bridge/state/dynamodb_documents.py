"""Documents in DynamoDB: each in as many items as it needs; the first is written last and deleted first."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from bridge.state.dynamodb_table import READ_BATCH, WRITE_BATCH, key_of, number, unless_condition_fails
from bridge.state.keys import PART_PREFIX, part_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bridge.state.dynamodb_table import DynamoDbTable

PART_BYTES = 350 * 1024


class DynamoDbDocuments:
    """The document store of a deployment."""

    def __init__(self, table: DynamoDbTable, ttl_seconds: int, clock: Callable[[], float] = time.time) -> None:
        self._table = table
        self._ttl = ttl_seconds
        self._clock = clock

    async def put(self, key: str, payload: bytes) -> None:
        await self._table.run(self._put, key, payload)

    async def put_new(self, key: str, payload: bytes) -> bool:
        return await self._table.run(self._put_new, key, payload)

    async def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        return await self._table.run(self._get, keys)

    async def delete(self, key: str) -> bool:
        return await self._table.run(self._delete, key)

    def _put_new(self, key: str, payload: bytes) -> bool:
        item = {
            "payload": {"B": payload},
            "parts": number(1),
            "expires_at": number(int(self._clock()) + self._ttl),
        }
        written = unless_condition_fails(
            self._table.client.put_item,
            TableName=self._table.name,
            Item=key_of(key, part_key(0)) | item,
            ConditionExpression="attribute_not_exists(pk) OR expires_at <= :now",
            ExpressionAttributeValues={":now": number(int(self._clock()))},
        )
        return written is not None

    def _put(self, key: str, payload: bytes) -> None:
        starts = range(0, max(len(payload), 1), PART_BYTES)
        for part, start in reversed(list(enumerate(starts))):
            item = {
                "payload": {"B": payload[start : start + PART_BYTES]},
                "parts": number(len(starts)),
                "expires_at": number(int(self._clock()) + self._ttl),
            }
            self._table.client.put_item(TableName=self._table.name, Item=key_of(key, part_key(part)) | item)

    def _get(self, keys: Sequence[str]) -> dict[str, bytes]:
        first = self._read([(key, part_key(0)) for key in keys])
        alive = {pk: item for (pk, _), item in first.items() if int(item["expires_at"]["N"]) > self._clock()}
        counts = {pk: int(item["parts"]["N"]) for pk, item in alive.items()}
        others = self._read([(pk, part_key(part)) for pk, count in counts.items() for part in range(1, count)])
        parts = first | others
        whole = {
            pk: [parts[pk, part_key(part)] for part in range(count) if (pk, part_key(part)) in parts]
            for pk, count in counts.items()
        }
        complete = {pk: items for pk, items in whole.items() if len(items) == counts[pk]}
        for pk, items in complete.items():
            self._keep_alive(pk, items)
        return {pk: b"".join(item["payload"]["B"] for item in items) for pk, items in complete.items()}

    def _read(self, keys: list[tuple[str, str]]) -> dict[tuple[str, str], dict[str, Any]]:
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for start in range(0, len(keys), READ_BATCH):
            items = self._table.read_batch(keys[start : start + READ_BATCH])
            found |= {(item["pk"]["S"], item["sk"]["S"]): item for item in items}
        return found

    def _keep_alive(self, key: str, items: list[dict[str, Any]]) -> None:
        """Whoever is read lives on; a write per item, but only once in half a lifetime."""
        if int(items[0]["expires_at"]["N"]) - self._clock() > self._ttl / 2:
            return
        for item in items:
            unless_condition_fails(
                self._table.client.update_item,
                TableName=self._table.name,
                Key=key_of(key, item["sk"]["S"]),
                UpdateExpression="SET expires_at = :later",
                ConditionExpression="attribute_exists(pk)",
                ExpressionAttributeValues={":later": number(int(self._clock()) + self._ttl)},
            )

    def _delete(self, key: str) -> bool:
        deleted = self._table.client.delete_item(
            TableName=self._table.name, Key=key_of(key, part_key(0)), ReturnValues="ALL_OLD"
        )
        item: Any = deleted.get("Attributes")
        for start in range(1, int(item["parts"]["N"]) if item else 0, WRITE_BATCH):
            parts = range(start, min(start + WRITE_BATCH, int(item["parts"]["N"])))
            self._table.write_batch([{"DeleteRequest": {"Key": key_of(key, part_key(part))}} for part in parts])
        if item is None:
            self._table.delete_all(key, PART_PREFIX)
        return item is not None and int(item["expires_at"]["N"]) > self._clock()
