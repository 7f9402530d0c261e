"""The state in DynamoDB. boto3 blocks, so it runs on threads; it is imported with the first request that needs it."""

from __future__ import annotations

import asyncio
import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from uuid import uuid4

from bridge.errors import BridgeError, ErrorKind
from bridge.state.keys import META, tool_key
from bridge.state.lifetime import Lifetime
from bridge.state.records import Found, Liveness, ToolRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from types_boto3_dynamodb import DynamoDBClient

P = ParamSpec("P")
T = TypeVar("T")

READ_BATCH = 100
WRITE_BATCH = 25
ATTEMPTS = 5
THREADS = 16
_CONDITION_FAILED = "ConditionalCheckFailedException"
_THROTTLED = frozenset(
    {
        "InternalServerError",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ServiceUnavailable",
        "ThrottlingException",
        "TransactionInProgressException",
    }
)
_REFUSED = frozenset(
    {
        "AccessDeniedException",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "NoCredentialsError",
        "PartialCredentialsError",
        "UnrecognizedClientException",
    }
)
_IS_ALIVE = "attribute_exists(pk) AND expires_at > :now AND attribute_not_exists(ended)"
_IS_NOT_ALIVE = "attribute_not_exists(pk) OR expires_at <= :now OR attribute_exists(ended)"


def connect() -> DynamoDBClient:
    """A client with tight timeouts and retries with jitter: a turn must not wait for a store that does not answer."""
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=1,
        read_timeout=2,
        max_pool_connections=THREADS,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
    )
    client: DynamoDBClient = boto3.client("dynamodb", config=config)
    return client


class DynamoDbStore:
    """One table, one partition per conversation: a META item that decides, and one item per tool call."""

    def __init__(self, table: str, ttl_seconds: int, clock: Callable[[], float] = time.time) -> None:
        self._table = table
        self._lifetime = Lifetime(ttl_seconds, clock)
        self._connected: DynamoDBClient | None = None
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="dynamodb")

    async def check(self) -> str:
        await self._run(self._probe)
        return f"DynamoDB table {self._table}"

    async def save(self, partition: str, records: Sequence[ToolRecord]) -> int:
        epoch = await self._run(self._living_epoch, partition)
        writes = [self._run(self._write_once, partition, epoch, record) for record in records]
        return sum(await asyncio.gather(*writes))

    async def load(self, wanted: Mapping[str, Sequence[str]]) -> Found:
        keys = [(partition, sort_key) for partition, ids in wanted.items() for sort_key in (META, *map(tool_key, ids))]
        batches = [keys[start : start + READ_BATCH] for start in range(0, len(keys), READ_BATCH)]
        pages = await asyncio.gather(*(self._run(self._read_batch, batch) for batch in batches))
        items = {(item["pk"]["S"], item["sk"]["S"]): item for page in pages for item in page}
        metas = {partition: self._judge(items.get((partition, META))) for partition in wanted}
        await asyncio.gather(*(self._run(self._touch, name) for name, meta in metas.items() if self._is_stale(meta)))
        return _sort_out(wanted, metas, items)

    async def forget(self, partition: str, tool_id: str) -> bool:
        return await self._run(self._delete, partition, tool_key(tool_id))

    async def terminate(self, partition: str) -> int:
        return await self._run(self._terminate, partition)

    async def _run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Work on a thread; every way in which DynamoDB can fail becomes the bridge's own."""
        from botocore.exceptions import BotoCoreError, ClientError

        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, lambda: work(*args, **kwargs))
        except ClientError as error:
            raise self._failure(error.response["Error"]["Code"]) from error
        except BotoCoreError as error:
            raise self._failure(error.__class__.__name__) from error

    def _failure(self, code: str) -> BridgeError:
        if code == "ResourceNotFoundException":
            return BridgeError(ErrorKind.API, f"the state table {self._table!r} does not exist (STATE_TABLE)")
        if code == "NoRegionError":
            return BridgeError(ErrorKind.API, "no AWS region is set (AWS_DEFAULT_REGION)")
        if code in _REFUSED:
            return BridgeError(ErrorKind.API, f"the state table {self._table!r} may not be used ({code})")
        reason = "is throttled" if code in _THROTTLED else "does not answer"
        return BridgeError(ErrorKind.OVERLOADED, f"the state store {reason} ({code}); try again")

    def _client(self) -> DynamoDBClient:
        if self._connected is None:
            self._connected = connect()
        return self._connected

    def _probe(self) -> None:
        self._client().get_item(TableName=self._table, Key=_key("probe", "probe"))

    def _living_epoch(self, partition: str) -> str:
        """The epoch of the conversation, which begins anew if it is not alive; conditions decide races."""
        for _ in range(ATTEMPTS):
            epoch = self._touch(partition) or self._begin(partition)
            if epoch is not None:
                return epoch
        raise self._failure("TransactionInProgressException")

    def _touch(self, partition: str) -> str | None:
        """Extend a living conversation; its epoch, or None if it is not alive. Never brings one to life."""
        answer = self._unless_condition_fails(
            self._client().update_item,
            TableName=self._table,
            Key=_key(partition, META),
            UpdateExpression="SET expires_at = :later",
            ConditionExpression=_IS_ALIVE,
            ExpressionAttributeValues={":now": self._now(), ":later": _number(self._lifetime.extended())},
            ReturnValues="ALL_NEW",
        )
        return answer["Attributes"]["epoch"]["S"] if answer else None

    def _begin(self, partition: str) -> str | None:
        """Start the conversation with an epoch of its own; None if another process was faster."""
        epoch = uuid4().hex
        begun = self._unless_condition_fails(
            self._client().put_item,
            TableName=self._table,
            Item=_key(partition, META) | {"epoch": {"S": epoch}, "expires_at": _number(self._lifetime.extended())},
            ConditionExpression=_IS_NOT_ALIVE,
            ExpressionAttributeValues={":now": self._now()},
        )
        return epoch if begun else None

    def _write_once(self, partition: str, epoch: str, record: ToolRecord) -> int:
        """Keep a record unless its id is taken in this epoch; 1 if it is taken by another name."""
        from botocore.exceptions import ClientError

        item = {
            "epoch": {"S": epoch},
            "item": {"S": record.to_json()},
            "expires_at": _number(self._lifetime.item_expiry()),
        }
        try:
            self._client().put_item(
                TableName=self._table,
                Item=_key(partition, tool_key(record.id)) | item,
                ConditionExpression="attribute_not_exists(pk) OR epoch <> :epoch",
                ExpressionAttributeValues={":epoch": {"S": epoch}},
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != _CONDITION_FAILED:
                raise
            taken: Any = error.response.get("Item", {})
            return int(_read(record.id, taken).name != record.name) if taken else 0
        return 0

    def _read_batch(self, keys: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        pending: Any = {self._table: {"Keys": [_key(*key) for key in keys], "ConsistentRead": True}}
        items: list[dict[str, Any]] = []
        for attempt in range(ATTEMPTS):
            answer = self._client().batch_get_item(RequestItems=pending)
            items += answer["Responses"].get(self._table, [])
            pending = answer.get("UnprocessedKeys")
            if not pending:
                return items
            _back_off(attempt)
        raise self._failure("ThrottlingException")

    def _judge(self, meta: dict[str, Any] | None) -> Liveness:
        if meta is None:
            return Liveness(None, "unknown")
        expires_at = float(meta["expires_at"]["N"])
        return self._lifetime.judge(meta["epoch"]["S"], expires_at, terminated="ended" in meta)

    def _is_stale(self, meta: Liveness) -> bool:
        return meta.state == "alive" and self._lifetime.needs_touch(meta.expires_at)

    def _delete(self, partition: str, sort_key: str) -> bool:
        answer = self._client().delete_item(
            TableName=self._table, Key=_key(partition, sort_key), ReturnValues="ALL_OLD"
        )
        return "Attributes" in answer

    def _terminate(self, partition: str) -> int:
        """First the note that nothing resolves any more, and why; then the tool calls."""
        self._unless_condition_fails(
            self._client().update_item,
            TableName=self._table,
            Key=_key(partition, META),
            UpdateExpression="SET ended = :yes, expires_at = :later",
            ConditionExpression="attribute_exists(pk) AND attribute_not_exists(ended)",
            ExpressionAttributeValues={":yes": {"BOOL": True}, ":later": _number(self._lifetime.extended())},
        )
        deleted = 0
        for sort_keys in self._tool_keys(partition):
            self._write_batch([{"DeleteRequest": {"Key": _key(partition, sort_key)}} for sort_key in sort_keys])
            deleted += len(sort_keys)
        return deleted

    def _tool_keys(self, partition: str) -> Iterator[list[str]]:
        pages = (
            self._client()
            .get_paginator("query")
            .paginate(
                TableName=self._table,
                ConsistentRead=True,
                KeyConditionExpression="pk = :pk AND begins_with(sk, :tool)",
                ExpressionAttributeValues={":pk": {"S": partition}, ":tool": {"S": tool_key("")}},
                ProjectionExpression="sk",
                PaginationConfig={"PageSize": WRITE_BATCH},
            )
        )
        for page in pages:
            keys = [item["sk"]["S"] for item in page["Items"]]
            if keys:
                yield keys

    def _write_batch(self, writes: list[Any]) -> None:
        pending: Any = {self._table: writes}
        for attempt in range(ATTEMPTS):
            pending = self._client().batch_write_item(RequestItems=pending).get("UnprocessedItems")
            if not pending:
                return
            _back_off(attempt)
        raise self._failure("ThrottlingException")

    def _unless_condition_fails(self, operation: Callable[..., Any], **arguments: Any) -> Any:
        from botocore.exceptions import ClientError

        try:
            return operation(**arguments)
        except ClientError as error:
            if error.response["Error"]["Code"] == _CONDITION_FAILED:
                return None
            raise

    def _now(self) -> Any:
        return _number(int(self._lifetime.now()))


def _sort_out(
    wanted: Mapping[str, Sequence[str]],
    metas: Mapping[str, Liveness],
    items: Mapping[tuple[str, str], dict[str, Any]],
) -> Found:
    found = Found()
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


def _key(partition: str, sort_key: str) -> dict[str, Any]:
    return {"pk": {"S": partition}, "sk": {"S": sort_key}}


def _number(value: int) -> dict[str, str]:
    return {"N": str(value)}


def _back_off(attempt: int) -> None:
    """Full jitter: waits between nothing and a bound that doubles."""
    time.sleep(random.uniform(0, 0.05 * 2**attempt))  # noqa: S311
