"""The table as template.yaml defines it, for DynamoDB Local and other places without CloudFormation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient
    from types_boto3_dynamodb.type_defs import AttributeDefinitionTypeDef, GlobalSecondaryIndexTypeDef

TTL_ATTRIBUTE = "expires_at"
OWNER_INDEX = "by_owner"
_ATTRIBUTES: list[AttributeDefinitionTypeDef] = [
    {"AttributeName": "owner_hash", "AttributeType": "S"},
    {"AttributeName": "pk", "AttributeType": "S"},
    {"AttributeName": "sk", "AttributeType": "S"},
    {"AttributeName": "started_at", "AttributeType": "N"},
]
# Sparse: only META items have its keys. They never change and nothing else is in it, so it is written once for each.
_INDEX: GlobalSecondaryIndexTypeDef = {
    "IndexName": OWNER_INDEX,
    "KeySchema": [
        {"AttributeName": "owner_hash", "KeyType": "HASH"},
        {"AttributeName": "started_at", "KeyType": "RANGE"},
    ],
    "Projection": {"ProjectionType": "KEYS_ONLY"},
}


def create_table(client: DynamoDBClient, name: str) -> bool:
    """Create the table with its TTL and wait until it is there; one that was there gets what it lacks, and False."""
    try:
        client.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=_ATTRIBUTES,
            KeySchema=[
                {"AttributeName": "pk", "KeyType": "HASH"},
                {"AttributeName": "sk", "KeyType": "RANGE"},
            ],
            GlobalSecondaryIndexes=[_INDEX],
            SSESpecification={"Enabled": True},
        )
        created = True
    except client.exceptions.ResourceInUseException:
        created = False
    client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    _add_index(client, name)
    ttl = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    if ttl["TimeToLiveStatus"] not in ("ENABLED", "ENABLING"):
        client.update_time_to_live(
            TableName=name, TimeToLiveSpecification={"AttributeName": TTL_ATTRIBUTE, "Enabled": True}
        )
    return created


def _add_index(client: DynamoDBClient, name: str) -> None:
    """Give the index to a table of an older version. DynamoDB fills it while the table is in use."""
    there = client.describe_table(TableName=name)["Table"].get("GlobalSecondaryIndexes", [])
    if any(index["IndexName"] == OWNER_INDEX for index in there):
        return
    client.update_table(
        TableName=name, AttributeDefinitions=_ATTRIBUTES, GlobalSecondaryIndexUpdates=[{"Create": _INDEX}]
    )
