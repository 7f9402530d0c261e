"""The state in DynamoDB. boto3 blocks, so it runs on a thread; it is imported with the first request that needs it."""

from __future__ import annotations

import asyncio
from time import sleep
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from bridge.errors import BridgeError, ErrorKind
from bridge.state.keys import partition_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from types_boto3_dynamodb import DynamoDBClient
    from types_boto3_dynamodb.type_defs import WriteRequestOutputTypeDef, WriteRequestTypeDef

P = ParamSpec("P")
T = TypeVar("T")

BATCH = 25
_THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingException",
        "InternalServerError",
        "ServiceUnavailable",
    }
)


def connect() -> DynamoDBClient:
    """A client with tight timeouts: a turn must not wait for a store that does not answer."""
    import boto3
    from botocore.config import Config

    config = Config(connect_timeout=1, read_timeout=2, retries={"mode": "standard", "total_max_attempts": 4})
    client: DynamoDBClient = boto3.client("dynamodb", config=config)
    return client


class DynamoDbStore:
    """One table, one partition per conversation."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._connected: DynamoDBClient | None = None

    async def check(self) -> str:
        await self._run(self._probe)
        return f"DynamoDB table {self._table}"

    async def terminate(self, principal: str, conversation_id: str) -> int:
        return await self._run(self._delete_partition, partition_key(principal, conversation_id))

    async def _run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Work on a thread; every way in which DynamoDB can fail becomes the bridge's own."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return await asyncio.to_thread(work, *args, **kwargs)
        except ClientError as error:
            raise self._failure(str(error.response.get("Error", {}).get("Code", ""))) from error
        except BotoCoreError as error:
            raise self._failure(error.__class__.__name__) from error

    def _failure(self, code: str) -> BridgeError:
        if code == "ResourceNotFoundException":
            return BridgeError(ErrorKind.API, f"the state table {self._table!r} does not exist (STATE_TABLE)")
        if code == "NoRegionError":
            return BridgeError(ErrorKind.API, "no AWS region is set (AWS_DEFAULT_REGION)")
        if code in ("AccessDeniedException", "NoCredentialsError", "UnrecognizedClientException"):
            return BridgeError(ErrorKind.API, f"the state table {self._table!r} may not be used ({code})")
        reason = "is throttled" if code in _THROTTLED else "does not answer"
        return BridgeError(ErrorKind.OVERLOADED, f"the state store {reason} ({code}); try again")

    def _client(self) -> DynamoDBClient:
        if self._connected is None:
            self._connected = connect()
        return self._connected

    def _probe(self) -> None:
        self._client().get_item(TableName=self._table, Key={"pk": {"S": "probe"}, "sk": {"S": "probe"}})

    def _delete_partition(self, partition: str) -> int:
        deleted = 0
        for batch in self._sort_keys(partition):
            self._write_batch([_delete(partition, sort_key) for sort_key in batch])
            deleted += len(batch)
        return deleted

    def _write_batch(self, writes: list[WriteRequestTypeDef]) -> None:
        pending: Mapping[str, Sequence[WriteRequestOutputTypeDef | WriteRequestTypeDef]] = {self._table: writes}
        for attempt in range(6):
            answer = self._client().batch_write_item(RequestItems=pending)
            pending = answer.get("UnprocessedItems") or {}
            if not pending:
                return
            sleep(0.05 * 2**attempt)
        raise self._failure("ThrottlingException")

    def _sort_keys(self, partition: str) -> Iterator[list[str]]:
        pages = (
            self._client()
            .get_paginator("query")
            .paginate(
                TableName=self._table,
                ConsistentRead=True,
                KeyConditionExpression="pk = :pk",
                ExpressionAttributeValues={":pk": {"S": partition}},
                ProjectionExpression="sk",
                PaginationConfig={"PageSize": BATCH},
            )
        )
        for page in pages:
            keys = [item["sk"]["S"] for item in page["Items"]]
            if keys:
                yield keys


def _delete(partition: str, sort_key: str) -> WriteRequestTypeDef:
    return {"DeleteRequest": {"Key": {"pk": {"S": partition}, "sk": {"S": sort_key}}}}
