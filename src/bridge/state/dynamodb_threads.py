"""Message threads in DynamoDB: a head that conditions guard, and the turns, each in as many items as it needs."""

from __future__ import annotations

import time
from itertools import groupby
from typing import TYPE_CHECKING, Any

from bridge.state.dynamodb_table import key_of, number, unless_condition_fails
from bridge.state.keys import HEAD, TURN_PREFIX, turn_key
from bridge.state.lifetime import LEASE_SECONDS
from bridge.state.threads import thread_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.state.dynamodb_table import DynamoDbTable

PART_BYTES = 350 * 1024
# A lease that is held already counts as free to its holder: the answer to the first try may have been lost.
_IS_FREE = (
    "newest = :previous AND expires_at > :now "
    "AND (attribute_not_exists(holder) OR held_until <= :now OR holder = :lease)"
)


class DynamoDbThreads:
    """The thread store of a deployment."""

    def __init__(self, table: DynamoDbTable, ttl_seconds: int, clock: Callable[[], float] = time.time) -> None:
        self._table = table
        self._ttl = ttl_seconds
        self._clock = clock

    async def begin(self, partition: str, message_id: str, payload: bytes) -> None:
        await self._table.run(self._begin, partition, message_id, payload)

    async def claim(self, partition: str, previous: str, lease: str) -> list[bytes]:
        return await self._table.run(self._claim, partition, previous, lease)

    async def extend(self, partition: str, lease: str, message_id: str, turn: int, payload: bytes) -> None:
        await self._table.run(self._extend, partition, lease, message_id, turn, payload)

    async def release(self, partition: str, lease: str) -> None:
        await self._table.run(self._release, partition, lease)

    def _begin(self, partition: str, message_id: str, payload: bytes) -> None:
        self._put_turn(partition, message_id, 0, payload)
        head = {"newest": {"S": message_id}, "expires_at": self._expiry()}
        self._table.client.put_item(TableName=self._table.name, Item=key_of(partition, HEAD) | head)

    def _claim(self, partition: str, previous: str, lease: str) -> list[bytes]:
        claimed = unless_condition_fails(
            self._table.client.update_item,
            TableName=self._table.name,
            Key=key_of(partition, HEAD),
            UpdateExpression="SET holder = :lease, held_until = :until, expires_at = :later",
            ConditionExpression=_IS_FREE,
            ExpressionAttributeValues={
                ":previous": {"S": previous},
                ":now": self._now(),
                ":lease": {"S": lease},
                ":until": number(int(self._clock()) + LEASE_SECONDS),
                ":later": number(int(self._clock()) + LEASE_SECONDS + self._ttl),
            },
        )
        if claimed is None:
            raise thread_error(self._refusal(partition, previous))
        items = self._turn_items(partition)
        turns = groupby(items, key=lambda item: item["id"]["S"])
        return [b"".join(item["payload"]["B"] for item in parts) for _, parts in turns]

    def _refusal(self, partition: str, previous: str) -> str:
        """Why a head could not be taken; what has expired is deleted, not only left to the TTL."""
        head: Any = self._table.client.get_item(
            TableName=self._table.name, Key=key_of(partition, HEAD), ConsistentRead=True
        ).get("Item")
        if head is None or int(head["expires_at"]["N"]) <= self._clock():
            self._table.client.delete_item(TableName=self._table.name, Key=key_of(partition, HEAD))
            self._table.delete_all(partition, TURN_PREFIX)
            return "thread_not_found"
        if head["newest"]["S"] == previous:
            return "thread_continue_in_flight"
        earlier = {item["id"]["S"] for item in self._turn_items(partition)}
        return "thread_already_continued" if previous in earlier else "thread_not_found"

    def _extend(self, partition: str, lease: str, message_id: str, turn: int, payload: bytes) -> None:
        self._put_turn(partition, message_id, turn, payload)
        passed_on = unless_condition_fails(
            self._table.client.update_item,
            TableName=self._table.name,
            Key=key_of(partition, HEAD),
            UpdateExpression="SET newest = :id, expires_at = :later REMOVE holder, held_until",
            ConditionExpression="holder = :lease",
            ExpressionAttributeValues={":id": {"S": message_id}, ":later": self._expiry(), ":lease": {"S": lease}},
        )
        if passed_on is None:
            raise thread_error("thread_not_found")

    def _release(self, partition: str, lease: str) -> None:
        unless_condition_fails(
            self._table.client.update_item,
            TableName=self._table.name,
            Key=key_of(partition, HEAD),
            UpdateExpression="SET expires_at = :later REMOVE holder, held_until",
            ConditionExpression="holder = :lease",
            ExpressionAttributeValues={":lease": {"S": lease}, ":later": self._expiry()},
        )

    def _put_turn(self, partition: str, message_id: str, turn: int, payload: bytes) -> None:
        for part, start in enumerate(range(0, len(payload), PART_BYTES)):
            item = {
                "id": {"S": message_id},
                "payload": {"B": payload[start : start + PART_BYTES]},
                "expires_at": number(int(self._clock()) + self._ttl + LEASE_SECONDS + 24 * 3600),
            }
            self._table.client.put_item(
                TableName=self._table.name, Item=key_of(partition, f"{turn_key(turn)}#{part:02}") | item
            )

    def _turn_items(self, partition: str) -> list[dict[str, Any]]:
        pages = self._table.client.get_paginator("query").paginate(
            TableName=self._table.name,
            ConsistentRead=True,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :turn)",
            ExpressionAttributeValues={":pk": {"S": partition}, ":turn": {"S": TURN_PREFIX}},
        )
        return [item for page in pages for item in page["Items"]]

    def _expiry(self) -> dict[str, str]:
        return number(int(self._clock()) + self._ttl)

    def _now(self) -> dict[str, str]:
        return number(int(self._clock()))
