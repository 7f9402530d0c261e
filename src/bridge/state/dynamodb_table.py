"""One DynamoDB table. boto3 blocks, so it works on threads; it is imported with the first request that needs it."""

from __future__ import annotations

import asyncio
import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from bridge.errors import BridgeError, ErrorKind
from bridge.state.tally import count_retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from types_boto3_dynamodb import DynamoDBClient

P = ParamSpec("P")
T = TypeVar("T")

READ_BATCH = 100
WRITE_BATCH = 25
ATTEMPTS = 6
PATIENCE_SECONDS = 3.0
THREADS = 16
CONDITION_FAILED = "ConditionalCheckFailedException"
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


def connect() -> DynamoDBClient:
    """A client with tight timeouts: a turn must not wait for a store that does not answer."""
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=1,
        read_timeout=2,
        max_pool_connections=THREADS,
        retries={"mode": "standard", "total_max_attempts": 1},  # its waits are too long: see `run`
    )
    client: DynamoDBClient = boto3.client("dynamodb", config=config)
    return client


class DynamoDbTable:
    """The client, made once and late, and what DynamoDB wants done around its operations."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._connected: DynamoDBClient | None = None
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="dynamodb")

    def close(self) -> None:
        """Close what is kept open between operations."""
        self._threads.shutdown(wait=True)
        if self._connected is not None:
            self._connected.close()

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Work on a thread; short faults are tried again for a moment, others become the bridge's own errors."""
        from botocore.exceptions import BotoCoreError, ClientError

        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + PATIENCE_SECONDS
        context = copy_context()
        for attempt in range(ATTEMPTS):
            try:
                return await loop.run_in_executor(self._threads, lambda: context.run(work, *args, **kwargs))
            except (BotoCoreError, ClientError) as error:
                code = _code_of(error)
                if not _passes(error, code) or attempt == ATTEMPTS - 1 or loop.time() > give_up_at:
                    raise self.failure(code) from error
            count_retry()
            await asyncio.sleep(_jitter(attempt))
        raise self.failure("ThrottlingException")

    def failure(self, code: str) -> BridgeError:
        if code == "ResourceNotFoundException":
            text = f"the state table {self.name!r} does not exist (STATE_TABLE)"
            return BridgeError(ErrorKind.API, text, retryable=False)
        if code == "NoRegionError":
            return BridgeError(ErrorKind.API, "no AWS region is set (AWS_DEFAULT_REGION)", retryable=False)
        if code in _REFUSED:
            text = f"the state table {self.name!r} may not be used ({code})"
            return BridgeError(ErrorKind.API, text, retryable=False)
        reason = "is throttled" if code in _THROTTLED else "does not answer"
        return BridgeError(ErrorKind.OVERLOADED, f"the state store {reason} ({code}); try again")

    @property
    def client(self) -> DynamoDBClient:
        """The one client of this process."""
        if self._connected is None:
            self._connected = connect()
        return self._connected

    def read_batch(self, keys: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        pending: Any = {self.name: {"Keys": [key_of(*key) for key in keys], "ConsistentRead": True}}
        items: list[dict[str, Any]] = []
        for attempt in range(ATTEMPTS):
            answer = self.client.batch_get_item(RequestItems=pending)
            items += answer["Responses"].get(self.name, [])
            pending = answer.get("UnprocessedKeys")
            if not pending:
                return items
            _back_off(attempt)
        raise self.failure("ThrottlingException")

    def write_batch(self, writes: list[Any]) -> None:
        pending: Any = {self.name: writes}
        for attempt in range(ATTEMPTS):
            pending = self.client.batch_write_item(RequestItems=pending).get("UnprocessedItems")
            if not pending:
                return
            _back_off(attempt)
        raise self.failure("ThrottlingException")

    def sort_keys(self, partition: str, prefix: str) -> Iterator[list[str]]:
        """The sort keys of a partition that begin with a prefix, in batches that one write takes."""
        pages = self.client.get_paginator("query").paginate(
            TableName=self.name,
            ConsistentRead=True,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :prefix)",
            ExpressionAttributeValues={":pk": {"S": partition}, ":prefix": {"S": prefix}},
            ProjectionExpression="sk",
            PaginationConfig={"PageSize": WRITE_BATCH},
        )
        for page in pages:
            keys = [item["sk"]["S"] for item in page["Items"]]
            if keys:
                yield keys

    def delete_all(self, partition: str, prefix: str) -> int:
        """Delete what begins with a prefix; how many items that were."""
        deleted = 0
        for keys in self.sort_keys(partition, prefix):
            self.write_batch([{"DeleteRequest": {"Key": key_of(partition, key)}} for key in keys])
            deleted += len(keys)
        return deleted


def unless_condition_fails(operation: Callable[..., Any], **arguments: Any) -> Any:
    """The operation's answer, or None where its condition does not hold."""
    from botocore.exceptions import ClientError

    try:
        return operation(**arguments)
    except ClientError as error:
        if error.response["Error"]["Code"] == CONDITION_FAILED:
            return None
        raise


def key_of(partition: str, sort_key: str) -> dict[str, Any]:
    return {"pk": {"S": partition}, "sk": {"S": sort_key}}


def number(value: int) -> dict[str, str]:
    return {"N": str(value)}


def _back_off(attempt: int) -> None:
    count_retry()
    time.sleep(_jitter(attempt))


def _jitter(attempt: int) -> float:
    """Full jitter: a wait between nothing and a bound that doubles."""
    return random.uniform(0, 0.03 * 2**attempt)  # noqa: S311


def _code_of(error: Exception) -> str:
    response: Any = getattr(error, "response", None)
    return str(response["Error"]["Code"]) if response else error.__class__.__name__


def _passes(error: Exception, code: str) -> bool:
    """True if a fault is likely to pass: throttling, a server error, a broken connection."""
    response: Any = getattr(error, "response", None)
    if response:
        return code in _THROTTLED or response["ResponseMetadata"]["HTTPStatusCode"] >= 500
    return code.endswith(
        ("ConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError", "HTTPClientError")
    )
