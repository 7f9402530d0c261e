"""The dashboard and the alarms of template.yaml show metrics that exist: the bridge's own, or AWS's."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from handler.metrics import METRICS, NAMESPACE, Breakdown

TEMPLATE = Path(__file__).resolve().parents[2] / "template.yaml"
# Documented by AWS, with the dimensions that are used here.
AWS_METRICS = {
    "AWS/Lambda": {"Invocations", "Errors", "Throttles", "Duration", "ConcurrentExecutions"},
    "AWS/DynamoDB": {
        "ConsumedReadCapacityUnits",
        "ConsumedWriteCapacityUnits",
        "ReadThrottleEvents",
        "WriteThrottleEvents",
    },
}
DIMENSION = {"AWS/Lambda": "FunctionName", "AWS/DynamoDB": "TableName", NAMESPACE: "service"}
SEARCH = re.compile(
    r"SEARCH\('\{(?P<schema>[^}]+)\} MetricName=\"(?P<metric>\w+)\" service=\"[^\"]+\"', '(?P<stat>\w+)'\)"
)

Json = dict[str, Any]


class Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short tags, their values kept."""


def construct_tag(loader: Loader, _suffix: str, node: yaml.Node) -> object:
    match node:
        case yaml.ScalarNode():
            return loader.construct_scalar(node)
        case yaml.SequenceNode():
            return loader.construct_sequence(node, deep=True)
    raise ValueError("a tag on a mapping")


Loader.add_multi_constructor("!", construct_tag)


@pytest.fixture(scope="module")
def resources() -> Json:
    template: Json = yaml.load(TEMPLATE.read_text("utf-8"), Loader)
    found: Json = template["Resources"]
    return found


@pytest.fixture(scope="module")
def widgets(resources: Json) -> list[Json]:
    body = re.sub(r"\$\{(?!!)[\w:]+\}", "1", resources["Dashboard"]["Properties"]["DashboardBody"])
    listed: list[Json] = json.loads(body)["widgets"]
    return listed


@pytest.fixture(scope="module")
def alarms(resources: Json) -> dict[str, Json]:
    return {name: part["Properties"] for name, part in resources.items() if part["Type"] == "AWS::CloudWatch::Alarm"}


def metrics_of(alarm: Json) -> list[tuple[str, str, str]]:
    """Namespace, metric and dimension of what an alarm looks at."""
    stats = [part["MetricStat"]["Metric"] for part in alarm.get("Metrics", []) if "MetricStat" in part] or [alarm]
    return [(stat["Namespace"], stat["MetricName"], stat["Dimensions"][0]["Name"]) for stat in stats]


def drawn(widgets: list[Json]) -> list[list[Any]]:
    return [line for widget in widgets for line in widget["properties"]["metrics"]]


def assert_exists(namespace: str, metric: str, dimension: str) -> None:
    known = METRICS if namespace == NAMESPACE else AWS_METRICS[namespace]
    assert metric in known, f"{namespace} has no {metric}"
    assert dimension == DIMENSION[namespace], metric


@pytest.mark.req("C9", "NFR7")
def test_every_alarm_looks_at_a_metric_that_exists(alarms: dict[str, Json]) -> None:
    assert len(alarms) >= 5
    for alarm in alarms.values():
        for metric in metrics_of(alarm):
            assert_exists(*metric)


@pytest.mark.req("C9", "NFR7")
def test_every_line_of_the_dashboard_is_a_metric_that_exists(widgets: list[Json]) -> None:
    for line in drawn(widgets):
        match line:
            case [{"expression": expression}] if "SEARCH" in expression:
                found = SEARCH.fullmatch(expression)
                assert found, expression
                namespace, *dimensions = found["schema"].split(",")
                assert namespace == NAMESPACE
                assert tuple(dimensions) in METRICS[found["metric"]].breakdown.value, expression
            case [{"expression": _}]:
                continue
            case [namespace, metric, dimension, _value, *_]:
                assert_exists(namespace, metric, dimension)
            case _:
                pytest.fail(f"not understood: {line}")


@pytest.mark.req("C9")
@pytest.mark.parametrize("metric", ["Latency", "TimeToFirstToken"])
def test_percentiles_are_drawn_by_provider(widgets: list[Json], metric: str) -> None:
    found = [SEARCH.fullmatch(line[0]["expression"]) for line in drawn(widgets) if isinstance(line[0], dict)]
    percentiles = {match["stat"] for match in found if match and match["metric"] == metric}
    assert percentiles == {"p50", "p90", "p99"}
    assert METRICS[metric].breakdown is Breakdown.PROVIDER


@pytest.mark.req("C9")
def test_expressions_use_only_ids_that_are_there(widgets: list[Json], alarms: dict[str, Json]) -> None:
    shown = [[part for line in widget["properties"]["metrics"] for part in line] for widget in widgets]
    groups = [[part for part in parts if isinstance(part, dict)] for parts in shown]
    groups += [
        [{name.lower(): value for name, value in part.items()} for part in a.get("Metrics", [])]
        for a in alarms.values()
    ]
    for group in groups:
        ids = {part["id"] for part in group if "id" in part}
        for part in group:
            words = set(re.findall(r"\b[a-z]\w*\b", part.get("expression", ""))) if "SEARCH" not in str(part) else set()
            assert words <= ids, part


@pytest.mark.req("NFR7")
def test_what_the_store_does_is_on_the_dashboard(widgets: list[Json]) -> None:
    own = {line[1] for line in drawn(widgets) if line[0] == NAMESPACE}
    state = {name for name in METRICS if name.startswith(("Store", "Conversations"))}
    assert state <= own


@pytest.mark.req("C9")
def test_alarms_cover_what_an_operator_must_hear_of_and_say_so_where_asked(
    resources: Json, alarms: dict[str, Json]
) -> None:
    watched = {metric for alarm in alarms.values() for _, metric, _ in metrics_of(alarm)}
    assert watched >= {"Faults", "StoreFailures", "DeadlineEndings", "Throttles", "Errors", "WriteThrottleEvents"}
    for alarm in alarms.values():
        assert alarm["TreatMissingData"] == "notBreaching", "an idle bridge is no alarm"
        assert [action[0] for action in alarm["AlarmActions"]] == ["HasAlarmEmail", "HasAlarmTopic"]
    assert resources["AlarmMail"]["Condition"] == "HasAlarmEmail"


def test_no_two_widgets_overlap(widgets: list[Json]) -> None:
    cells = [
        (x, y)
        for widget in widgets
        for x in range(widget["x"], widget["x"] + widget["width"])
        for y in range(widget["y"], widget["y"] + widget["height"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


@pytest.mark.req("C9")
def test_lambda_lets_metrics_pass_whatever_the_log_level(resources: Json) -> None:
    level = resources["BridgeFunction"]["Properties"]["LoggingConfig"]["ApplicationLogLevel"]
    assert level == ["LogLevelIsDebug", "DEBUG", "INFO"]


def test_the_template_has_no_yaml_aliases() -> None:
    events = yaml.parse(TEMPLATE.read_text("utf-8"))
    assert not any(isinstance(event, yaml.AliasEvent) for event in events), "CloudFormation refuses them"
