"""Tool calls in DynamoDB: one partition per conversation, a META item that decides, one item per call."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bridge.state.dynamodb_table import ATTEMPTS, CONDITION_FAILED, READ_BATCH, key_of, number, unless_condition_fails
from bridge.state.keys import META, tool_key
from bridge.state.lifetime import Lifetime
from bridge.state.records import Found, Liveness, Origin, ToolRecord
from bridge.state.tally import count_start

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bridge.state.dynamodb_table import DynamoDbTable
    from bridge.state.records import Recent

_IS_ALIVE = "attribute_exists(pk) AND expires_at > :now AND attribute_not_exists(ended)"
_IS_NOT_ALIVE = "attribute_not_exists(pk) OR expires_at <= :now OR attribute_exists(ended)"


class DynamoDbStore:
    """The conversation store of a deployment."""

    def __init__(self, table: DynamoDbTable, ttl_seconds: int, clock: Callable[[], float] = time.time) -> None:
        self._table = table
        self._lifetime = Lifetime(ttl_seconds, clock)

    async def check(self) -> str:
        await self._table.run(self._probe)
        return f"DynamoDB table {self._table.name}"

    async def save(
        self,
        partition: str,
        records: Sequence[ToolRecord],
        known: Liveness | None = None,
        origin: Origin | None = None,
    ) -> int:
        epoch = await self._table.run(self._living_epoch, partition, known, origin)
        writes = [self._table.run(self._write_once, partition, epoch, record) for record in records]
        return sum(await asyncio.gather(*writes))

    async def load(self, wanted: Mapping[str, Sequence[str]]) -> Found:
        keys = [(partition, sort_key) for partition, ids in wanted.items() for sort_key in (META, *map(tool_key, ids))]
        batches = [keys[start : start + READ_BATCH] for start in range(0, len(keys), READ_BATCH)]
        pages = await asyncio.gather(*(self._table.run(self._table.read_batch, batch) for batch in batches))
        items = {(item["pk"]["S"], item["sk"]["S"]): item for page in pages for item in page}
        metas = {partition: self._judge(items.get((partition, META))) for partition in wanted}
        await asyncio.gather(
            *(self._table.run(self._touch, name) for name, meta in metas.items() if self._is_stale(meta))
        )
        return _sort_out(wanted, metas, items)

    async def forget(self, partition: str, tool_id: str) -> bool:
        return await self._table.run(self._delete, partition, tool_key(tool_id))

    async def terminate(self, partition: str) -> int:
        return await self._table.run(self._terminate, partition)

    async def recent(self, owner: str, limit: int) -> Recent:
        from bridge.state.dynamodb_listing import list_recent

        return await list_recent(self._table, self._lifetime, owner, limit)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._table.close)

    def _probe(self) -> None:
        self._table.client.get_item(TableName=self._table.name, Key=key_of("probe", "probe"))

    def _living_epoch(self, partition: str, known: Liveness | None, origin: Origin | None) -> str:
        """The epoch of the conversation, which begins anew if it is not alive; conditions decide races."""
        if known is not None and known.epoch is not None and not self._lifetime.needs_touch(known.expires_at):
            return known.epoch
        for _ in range(ATTEMPTS):
            epoch = self._touch(partition) or self._begin(partition, origin)
            if epoch is not None:
                return epoch
        raise self._table.failure("TransactionInProgressException")

    def _touch(self, partition: str) -> str | None:
        """Extend a living conversation; its epoch, or None if it is not alive. Never brings one to life."""
        answer = unless_condition_fails(
            self._table.client.update_item,
            TableName=self._table.name,
            Key=key_of(partition, META),
            UpdateExpression="SET expires_at = :later",
            ConditionExpression=_IS_ALIVE,
            ExpressionAttributeValues={":now": self._now(), ":later": number(self._lifetime.extended())},
            ReturnValues="ALL_NEW",
        )
        return answer["Attributes"]["epoch"]["S"] if answer else None

    def _begin(self, partition: str, origin: Origin | None) -> str | None:
        """Start the conversation with an epoch of its own; None if another process was faster."""
        epoch = uuid4().hex
        meta = key_of(partition, META) | {"epoch": {"S": epoch}, "expires_at": number(self._lifetime.extended())}
        begun = unless_condition_fails(
            self._table.client.put_item,
            TableName=self._table.name,
            Item=meta | self._listing_of(origin),
            ConditionExpression=_IS_NOT_ALIVE,
            ExpressionAttributeValues={":now": self._now()},
        )
        if not begun:
            return None
        count_start()
        return epoch

    def _listing_of(self, origin: Origin | None) -> dict[str, Any]:
        """What the index of conversations is made of. It never changes: later writes of META cost no index write."""
        if origin is None:
            return {}
        return {
            "owner_hash": {"S": origin.owner},
            "started_at": {"N": f"{self._lifetime.now():.3f}"},
            "conversation": {"S": origin.conversation_id},
        }

    def _write_once(self, partition: str, epoch: str, record: ToolRecord) -> int:
        """Keep a record unless its id is taken in this epoch; 1 if it is taken by another name."""
        from botocore.exceptions import ClientError

        item = {
            "epoch": {"S": epoch},
            "item": {"S": record.to_json()},
            "expires_at": number(self._lifetime.item_expiry()),
        }
        if record.name:
            item["tool"] = {"S": record.name}  # beside the call, so that a list can read it without the arguments
        try:
            self._table.client.put_item(
                TableName=self._table.name,
                Item=key_of(partition, tool_key(record.id)) | item,
                ConditionExpression="attribute_not_exists(pk) OR epoch <> :epoch",
                ExpressionAttributeValues={":epoch": {"S": epoch}},
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != CONDITION_FAILED:
                raise
            taken: Any = error.response.get("Item", {})
            return int(_read(record.id, taken).name != record.name) if taken else 0
        return 0

    def _judge(self, meta: dict[str, Any] | None) -> Liveness:
        if meta is None:
            return Liveness(None, "unknown")
        expires_at = float(meta["expires_at"]["N"])
        return self._lifetime.judge(meta["epoch"]["S"], expires_at, terminated="ended" in meta)

    def _is_stale(self, meta: Liveness) -> bool:
        return meta.state == "alive" and self._lifetime.needs_touch(meta.expires_at)

    def _delete(self, partition: str, sort_key: str) -> bool:
        answer = self._table.client.delete_item(
            TableName=self._table.name, Key=key_of(partition, sort_key), ReturnValues="ALL_OLD"
        )
        return "Attributes" in answer

    def _terminate(self, partition: str) -> int:
        """First the note that nothing resolves any more, and why; then the tool calls."""
        unless_condition_fails(
            self._table.client.update_item,
            TableName=self._table.name,
            Key=key_of(partition, META),
            UpdateExpression="SET ended = :yes, expires_at = :later",
            ConditionExpression="attribute_exists(pk) AND attribute_not_exists(ended)",
            ExpressionAttributeValues={":yes": {"BOOL": True}, ":later": number(self._lifetime.extended())},
        )
        return self._table.delete_all(partition, tool_key(""))

    def _now(self) -> Any:
        return number(int(self._lifetime.now()))


def _sort_out(
    wanted: Mapping[str, Sequence[str]],
    metas: Mapping[str, Liveness],
    items: Mapping[tuple[str, str], dict[str, Any]],
) -> Found:
    found = Found(alive={partition: meta for partition, meta in metas.items() if meta.state == "alive"})
    for partition, ids in wanted.items():
        for tool_id in ids:
            item = items.get((partition, tool_key(tool_id)))
            absence = metas[partition].absence(item["epoch"]["S"] if item else None)
            if item is not None and absence is None:
                found.records[tool_id] = _read(tool_id, item)
            else:
                found.absent[tool_id] = absence or "unknown"
    return found


def _read(tool_id: str, item: dict[str, Any]) -> ToolRecord:
    return ToolRecord.from_json(tool_id, item["item"]["S"])
