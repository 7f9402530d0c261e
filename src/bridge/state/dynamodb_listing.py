"""A principal's newest conversations, from a sparse index over META items. What it reads is bounded.

The index holds keys alone and may be a moment behind: META, read consistently, decides what is shown. Conversations
that expired or were terminated stay in the index until TTL deletes them, so a page of it may hold few that live.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from bridge.errors import BridgeError, ErrorKind
from bridge.state.dynamodb_table import READ_BATCH
from bridge.state.keys import META, TOOL_PREFIX
from bridge.state.records import CALLS_COUNTED, ConversationSummary, Recent
from bridge.state.table import OWNER_INDEX

if TYPE_CHECKING:
    from bridge.state.dynamodb_table import DynamoDbTable
    from bridge.state.lifetime import Lifetime

MOST_PAGES = 5
MOST_PAGES_OF_CALLS = 3
_NO_INDEX = frozenset({"AccessDeniedException", "ValidationException"})


async def list_recent(table: DynamoDbTable, lifetime: Lifetime, owner: str, limit: int) -> Recent:
    """The living conversations of an owner: a few pages of the index, then one query for the calls of each."""
    metas, is_read_to_the_end = await _newest(table, lifetime, owner, limit)
    summaries = await asyncio.gather(*(table.run(_summary, table, meta) for meta in metas[:limit]))
    return Recent(list(summaries), has_more=len(metas) > limit or not is_read_to_the_end)


async def _newest(
    table: DynamoDbTable, lifetime: Lifetime, owner: str, limit: int
) -> tuple[list[dict[str, Any]], bool]:
    """META of more living conversations than wanted, or of all that were found; True if there are no others."""
    metas: dict[str, dict[str, Any]] = {}
    position: Any = None
    size = min(limit + 1, READ_BATCH)
    for _ in range(MOST_PAGES):
        partitions, position = await table.run(_page, table, owner, size, position)
        unread = [(partition, META) for partition in dict.fromkeys(partitions) if partition not in metas]
        found = await table.run(table.read_batch, unread) if unread else []
        metas |= {meta["pk"]["S"]: meta for meta in found if _is_shown(lifetime, meta)}
        if position is None or len(metas) > limit:
            break
        size = READ_BATCH
    newest_first = sorted(metas.values(), key=lambda meta: float(meta["started_at"]["N"]), reverse=True)
    return newest_first, position is None


def _page(table: DynamoDbTable, owner: str, size: int, position: Any) -> tuple[list[str], Any]:
    """Partitions of an owner's conversations, those that began last first, and where the next page begins."""
    from botocore.exceptions import ClientError

    try:
        answer = table.client.query(
            TableName=table.name,
            IndexName=OWNER_INDEX,
            KeyConditionExpression="owner_hash = :owner",
            ExpressionAttributeValues={":owner": {"S": owner}},
            ScanIndexForward=False,
            Limit=size,
            **({"ExclusiveStartKey": position} if position else {}),
        )
    except ClientError as error:
        details = error.response["Error"]
        if details["Code"] in _NO_INDEX and "index" in details["Message"]:
            raise _no_index(table.name) from error
        raise
    return [item["pk"]["S"] for item in answer["Items"]], answer.get("LastEvaluatedKey")


def _no_index(table: str) -> BridgeError:
    return BridgeError(
        ErrorKind.NOT_FOUND,
        f"conversations cannot be listed: the state table {table!r} has no index {OWNER_INDEX!r} that may be read yet; "
        "deploy the current template.yaml or run `bridge table create`",
    )


def _is_shown(lifetime: Lifetime, meta: dict[str, Any]) -> bool:
    liveness = lifetime.judge(meta["epoch"]["S"], float(meta["expires_at"]["N"]), terminated="ended" in meta)
    return liveness.state == "alive" and "conversation" in meta


def _summary(table: DynamoDbTable, meta: dict[str, Any]) -> ConversationSummary:
    """META and how often each tool was called."""
    names, has_more = _called(table, meta)
    started_at, expires_at = float(meta["started_at"]["N"]), float(meta["expires_at"]["N"])
    calls = dict(Counter(names[:CALLS_COUNTED]))
    return ConversationSummary(meta["conversation"]["S"], started_at, expires_at, calls, has_more)


def _called(table: DynamoDbTable, meta: dict[str, Any]) -> tuple[list[str], bool]:
    """The names of the tools of this epoch's calls, never arguments, and whether there are more than are counted.

    Calls of earlier epochs stand between them until TTL deletes them: they are passed over, and take a share of what
    is read, a few pages at most.
    """
    names: list[str] = []
    position: Any = None
    for _ in range(MOST_PAGES_OF_CALLS):
        answer = table.client.query(
            TableName=table.name,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :prefix)",
            FilterExpression="epoch = :epoch AND attribute_exists(tool)",
            ExpressionAttributeValues={":pk": meta["pk"], ":prefix": {"S": TOOL_PREFIX}, ":epoch": meta["epoch"]},
            ProjectionExpression="tool",
            **({"ExclusiveStartKey": position} if position else {}),
        )
        names += [item["tool"]["S"] for item in answer["Items"]]
        position = answer.get("LastEvaluatedKey")
        if position is None or len(names) > CALLS_COUNTED:
            break
    return names, position is not None or len(names) > CALLS_COUNTED
