"""`bridge table create` makes the table that template.yaml defines."""

from __future__ import annotations

from typing import Any

import boto3
import yaml

from handler.cli import main
from support import ROOT


class Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short tags left as they are."""


Loader.add_multi_constructor("!", lambda loader, suffix, node: suffix)


def template_table() -> dict[str, Any]:
    template = yaml.load((ROOT / "template.yaml").read_text(), Loader)
    properties: dict[str, Any] = template["Resources"]["StateTable"]["Properties"]
    return properties


def test_the_table_is_the_template_s(aws_environment: dict[str, str], monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("STATE_TABLE", "as-in-template")
    assert main(["table", "create"]) == 0
    assert main(["table", "create"]) == 0
    assert "is there already" in capsys.readouterr().out
    client = boto3.client("dynamodb")
    table = client.describe_table(TableName="as-in-template")["Table"]
    ttl = client.describe_time_to_live(TableName="as-in-template")["TimeToLiveDescription"]
    wanted = template_table()
    assert table["KeySchema"] == wanted["KeySchema"]
    assert sorted(table["AttributeDefinitions"], key=str) == sorted(wanted["AttributeDefinitions"], key=str)
    (index,), (wanted_index,) = table["GlobalSecondaryIndexes"], wanted["GlobalSecondaryIndexes"]
    assert {name: index[name] for name in wanted_index} == wanted_index
    assert table["BillingModeSummary"]["BillingMode"] == wanted["BillingMode"]
    assert ttl["AttributeName"] == wanted["TimeToLiveSpecification"]["AttributeName"]
    assert ttl["TimeToLiveStatus"] == "ENABLED"


def test_a_table_needs_a_name(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.delenv("STATE_TABLE", raising=False)
    assert main(["table", "create"]) == 2
    assert "STATE_TABLE is not set" in capsys.readouterr().err
