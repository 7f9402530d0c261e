"""template.yaml keeps its promises: keys and TTL of the table, narrow rights, a URL that answers."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from handler.settings import setting_fields

ROOT = Path(__file__).resolve().parents[2]
SAM = ROOT / ".tools/sam/bin/sam"

Json = dict[str, Any]


class CloudFormationLoader(yaml.SafeLoader):
    """YAML with CloudFormation's short tags, as their long forms."""


def construct_tag(loader: CloudFormationLoader, suffix: str, node: yaml.Node) -> Json:
    match node:
        case yaml.ScalarNode():
            value: object = loader.construct_scalar(node)
        case yaml.SequenceNode():
            value = loader.construct_sequence(node, deep=True)
        case _:
            raise ValueError(f"!{suffix} of a mapping")
    return {suffix if suffix == "Ref" else f"Fn::{suffix}": value}


CloudFormationLoader.add_multi_constructor("!", construct_tag)


@pytest.fixture(scope="module")
def template() -> Json:
    parsed: Json = yaml.load((ROOT / "template.yaml").read_text("utf-8"), CloudFormationLoader)
    return parsed


def properties(template: Json, name: str) -> Json:
    found: Json = template["Resources"][name]["Properties"]
    return found


def test_the_table_has_the_keys_and_the_ttl_of_the_store(template: Json) -> None:
    table = properties(template, "StateTable")
    assert table["KeySchema"] == [
        {"AttributeName": "pk", "KeyType": "HASH"},
        {"AttributeName": "sk", "KeyType": "RANGE"},
    ]
    assert {a["AttributeName"]: a["AttributeType"] for a in table["AttributeDefinitions"]} == {
        "owner_hash": "S",
        "pk": "S",
        "sk": "S",
        "started_at": "N",
    }
    assert table["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert table["SSESpecification"] == {"SSEEnabled": True}


def test_the_function_streams_through_the_wrapper(template: Json) -> None:
    function = properties(template, "BridgeFunction")
    assert function["FunctionUrlConfig"]["InvokeMode"] == "RESPONSE_STREAM"
    assert function["Environment"]["Variables"]["AWS_LAMBDA_EXEC_WRAPPER"] == "/var/task/exec_wrapper"
    assert template["Parameters"]["Architecture"]["Default"] == "arm64"


def test_a_public_url_may_be_called_and_the_function_only_through_it(template: Json) -> None:
    permissions = {
        resource["Properties"]["Action"]: resource
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::Lambda::Permission"
    }
    assert permissions.keys() == {"lambda:InvokeFunctionUrl", "lambda:InvokeFunction"}
    assert {permission["Condition"] for permission in permissions.values()} == {"UrlIsPublic"}
    assert permissions["lambda:InvokeFunctionUrl"]["Properties"]["FunctionUrlAuthType"] == "NONE"
    assert permissions["lambda:InvokeFunction"]["Properties"]["InvokedViaFunctionUrl"] is True


def test_the_role_has_no_wildcards_and_no_managed_policy(template: Json) -> None:
    role = properties(template, "BridgeRole")
    assert "ManagedPolicyArns" not in role
    statements = [s for policy in role["Policies"] for s in policy["PolicyDocument"]["Statement"]]
    table, index, secrets, logs = [statement["Resource"] for statement in statements]
    assert (table, logs) == ({"Fn::GetAtt": "StateTable.Arn"}, {"Fn::GetAtt": "BridgeLogs.Arn"})
    assert (statements[1]["Action"], index) == ("dynamodb:Query", {"Fn::Sub": "${StateTable.Arn}/index/by_owner"})
    token, *keys = secrets
    assert token == {"Ref": "WorkerToken"}
    named = [parameter for parameter in template["Parameters"] if parameter.endswith("KeySecret")]
    for parameter, key in zip(named, keys, strict=True):
        chosen, resource, nothing = key["Fn::If"]
        assert (chosen, nothing) == (f"Has{parameter.removesuffix('Secret')}", {"Ref": "AWS::NoValue"})
        assert parameter in str(resource)
    assert "*" not in str([[statement["Action"], statement["Resource"]] for statement in statements])


def test_secrets_are_fetched_unless_injection_is_chosen(template: Json) -> None:
    variables = properties(template, "BridgeFunction")["Environment"]["Variables"]
    for name, value in variables.items():
        if name.endswith(("_API_KEY", "_TOKEN")):
            choice = value["Fn::If"] if "SecretsAreFetched" in value["Fn::If"] else value["Fn::If"][1]["Fn::If"]
            condition, fetched, injected = choice
            assert condition == "SecretsAreFetched"
            assert fetched["Fn::Sub"].startswith("secretsmanager:${")
            assert injected["Fn::Sub"].startswith("{{resolve:secretsmanager:${")
    assert template["Parameters"]["SecretDelivery"]["Default"] == "fetched"


def test_an_empty_parameter_sets_no_variable(template: Json) -> None:
    variables = properties(template, "BridgeFunction")["Environment"]["Variables"]
    optional = {name for name, spec in template["Parameters"].items() if spec.get("Default") == ""}
    for name, value in variables.items():
        used = optional & set(re.findall(r"\w+", str(value)))
        assert not used or value["Fn::If"][2] == {"Ref": "AWS::NoValue"}, name


def test_secrets_reach_the_function_by_reference_only(template: Json) -> None:
    variables = properties(template, "BridgeFunction")["Environment"]["Variables"]
    secret = {name: str(value) for name, value in variables.items() if name.endswith(("_API_KEY", "_TOKEN"))}
    assert len(secret) == 5
    assert all("{{resolve:secretsmanager:" in value for value in secret.values())


def test_every_parameter_stands_in_one_group_of_the_console(template: Json) -> None:
    groups = template["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    assert [name for group in groups for name in group["Parameters"]] == list(template["Parameters"])


def test_the_build_targets_the_runtime_of_the_template(template: Json) -> None:
    script = (ROOT / "scripts/build_lambda.py").read_text("utf-8")
    version = properties(template, "BridgeFunction")["Runtime"].removeprefix("python")
    assert f'LAMBDA_PYTHON = "{version}"' in script


def test_the_sam_configuration_holds_nothing_of_an_account() -> None:
    deploy = tomllib.loads((ROOT / "samconfig.toml").read_text("utf-8"))["default"]["deploy"]["parameters"]
    assert not deploy.keys() & {"parameter_overrides", "region", "profile", "s3_bucket"}


def test_sam_validate_finds_nothing() -> None:
    environment = os.environ | {"SAM_CLI_TELEMETRY": "0", "AWS_DEFAULT_REGION": "eu-central-1"}
    run = subprocess.run(
        [SAM, "validate", "--lint"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_variable_of_the_function_is_a_setting(template: dict[str, Any]) -> None:
    variables = properties(template, "BridgeFunction")["Environment"]["Variables"]
    assert set(variables) - {"AWS_LAMBDA_EXEC_WRAPPER"} <= set(setting_fields())
