"""Counters in DynamoDB: one item each, added to by conditional updates."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bridge.state.counters import Added, Counter, CounterKey, reached_limit, summed, too_many
from bridge.state.dynamodb_table import ATTEMPTS, CONDITION_FAILED, key_of, number, unless_condition_fails

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bridge.state.counters import KeyRange
    from bridge.state.dynamodb_table import DynamoDbTable

READS_AT_ONCE = 8  # half the table's threads: a long report leaves the others to the turns
_OWN_ATTRIBUTES = frozenset({"pk", "sk", "expires_at", "last"})
# `last` names the newest addition: one that took place although its answer was lost is not made again.
_IS_OPEN = "(attribute_not_exists(pk) OR (expires_at > :now AND #last <> :token))"


class DynamoDbCounters:
    """The counters of a deployment."""

    def __init__(self, table: DynamoDbTable, clock: Callable[[], float] = time.time) -> None:
        self._table = table
        self._clock = clock

    async def add(
        self,
        key: CounterKey,
        amounts: Mapping[str, int],
        expires_at: int,
        limits: Mapping[str, int] | None = None,
    ) -> Added:
        if not amounts:
            return await self._table.run(self._compare, key, limits or {})
        return await self._table.run(self._add, key, amounts, expires_at, limits or {}, uuid4().hex[:16])

    async def read(self, ranges: Sequence[KeyRange], limit: int) -> list[Counter]:
        found: list[Counter] = []
        for start in range(0, len(ranges), READS_AT_ONCE):
            batch = ranges[start : start + READS_AT_ONCE]
            for counters in await asyncio.gather(*(self._range(span, limit) for span in batch)):
                found += counters
            if len(found) > limit:
                raise too_many(limit)
        return sorted(found, key=lambda counter: counter.key)

    async def aclose(self) -> None:
        pass  # nothing waits here

    def _compare(self, key: CounterKey, limits: Mapping[str, int]) -> Added:
        answer: Any = self._table.client.get_item(
            TableName=self._table.name, Key=key_of(key.partition, key.sort_key), ConsistentRead=True
        )
        item = answer.get("Item", {})
        values = {} if self._is_expired(item) else _values(item)
        return Added(values, reached_limit(values, limits))

    def _add(
        self, key: CounterKey, amounts: Mapping[str, int], expires_at: int, limits: Mapping[str, int], token: str
    ) -> Added:
        update = self._update(key, amounts, expires_at, limits, token)
        for _ in range(ATTEMPTS):
            added, item = self._try(update)
            if added or item.get("last") == {"S": token}:
                return Added(_values(item))
            if not self._is_expired(item):
                refused = reached_limit(_values(item), limits)
                if refused is not None:
                    return Added(_values(item), refused)
            elif (refused := reached_limit({}, limits)) is not None:
                return Added({}, refused)
            elif self._begin_anew(key, amounts, expires_at, token):
                return Added(summed({}, amounts))
        raise self._table.failure("TransactionInProgressException")

    def _try(self, update: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
        """Whether an update took place, and the item after it, or the one that stood against it."""
        from botocore.exceptions import ClientError

        try:
            answer: Any = self._table.client.update_item(**update)
        except ClientError as error:
            if error.response["Error"]["Code"] != CONDITION_FAILED:
                raise
            item: Any = error.response.get("Item", {})
            return False, item
        return True, answer["Attributes"]

    def _update(
        self, key: CounterKey, amounts: Mapping[str, int], expires_at: int, limits: Mapping[str, int], token: str
    ) -> dict[str, Any]:
        names = {name: f"#f{index}" for index, name in enumerate({**amounts, **limits})}
        additions = ", ".join(f"{names[name]} :add_{names[name][1:]}" for name in amounts)
        return {
            "TableName": self._table.name,
            "Key": key_of(key.partition, key.sort_key),
            "UpdateExpression": f"ADD {additions} SET expires_at = :later, #last = :token",
            "ConditionExpression": " AND ".join((_IS_OPEN, *(_below(names[name], limits[name]) for name in limits))),
            "ExpressionAttributeNames": {"#last": "last"} | {mark: name for name, mark in names.items()},
            "ExpressionAttributeValues": {
                ":now": number(int(self._clock())),
                ":later": number(expires_at),
                ":token": {"S": token},
                **{f":add_{names[name][1:]}": number(amount) for name, amount in amounts.items()},
                **{f":max_{names[name][1:]}": number(limit) for name, limit in limits.items()},
            },
            "ReturnValues": "ALL_NEW",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    def _begin_anew(self, key: CounterKey, amounts: Mapping[str, int], expires_at: int, token: str) -> bool:
        """Replace an expired counter; False if another process was faster."""
        item = {name: number(amount) for name, amount in amounts.items()}
        item |= {"expires_at": number(expires_at), "last": {"S": token}}
        answer = unless_condition_fails(
            self._table.client.put_item,
            TableName=self._table.name,
            Item=key_of(key.partition, key.sort_key) | item,
            ConditionExpression="attribute_not_exists(pk) OR expires_at <= :now",
            ExpressionAttributeValues={":now": number(int(self._clock()))},
        )
        return answer is not None

    async def _range(self, span: KeyRange, limit: int) -> list[Counter]:
        """Page by page, so that a fault repeats one page only."""
        found: list[Counter] = []
        start: dict[str, Any] = {}
        while len(found) <= limit:
            page = await self._table.run(self._page, span, start)
            found += [_counter(item) for item in page["Items"] if not self._is_expired(item)]
            if "LastEvaluatedKey" not in page:
                break
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
        return found

    def _page(self, span: KeyRange, start: dict[str, Any]) -> Any:
        return self._table.client.query(
            TableName=self._table.name,
            ConsistentRead=True,
            KeyConditionExpression="pk = :pk AND sk BETWEEN :first AND :last",
            ExpressionAttributeValues={
                ":pk": {"S": span.partition},
                ":first": {"S": span.first},
                ":last": {"S": span.last},
            },
            **start,
        )

    def _is_expired(self, item: Mapping[str, Any]) -> bool:
        return bool(item) and int(item["expires_at"]["N"]) <= int(self._clock())


def _below(mark: str, limit: int) -> str:
    """What is absent is 0, which is below a positive limit only."""
    below = f"{mark} < :max_{mark[1:]}"
    return f"(attribute_not_exists({mark}) OR {below})" if limit > 0 else below


def _counter(item: Mapping[str, Any]) -> Counter:
    return Counter(CounterKey(item["pk"]["S"], item["sk"]["S"]), _values(item))


def _values(item: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(value["N"]) for name, value in item.items() if name not in _OWN_ATTRIBUTES}
