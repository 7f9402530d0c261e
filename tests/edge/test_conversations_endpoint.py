"""GET /v1/conversations over HTTP: whose conversations, how many, what is told of them, and what is not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import boto3
import httpx2
import pytest

from bridge.state.dynamodb_table import connect
from bridge.state.table import create_table
from support import running_bridge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scripted.server import ScriptedUpstream

TOKENS = "admin:admin-token,laptop:laptop-token,ci:ci-robot-token"
SECRET = "a-city-that-nobody-may-see"


@pytest.fixture(params=["sqlite", "dynamodb_local"])
def bridge(request: pytest.FixtureRequest, upstream: ScriptedUpstream, tmp_path: Path) -> Iterator[str]:
    upstream.script = [{"reply": {"chat": {"tool_calls": [{"name": "look", "arguments": {"city": SECRET}}]}}}]
    environment = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "OPENAI_API_KEY": "sk-held", "WORKER_TOKEN": TOKENS}
    if request.param == "dynamodb_local":
        request.getfixturevalue("aws_environment")
        environment["STATE_TABLE"] = f"conversations-{uuid4().hex}"
        create_table(connect(), environment["STATE_TABLE"])
    with running_bridge(tmp_path, **environment) as url:
        yield url


def talk(url: str, token: str = "laptop-token", name: str | None = None) -> str:
    """One turn in which the model calls a tool; the id of its conversation."""
    tool = {"name": "look", "input_schema": {"type": "object"}}
    messages = [{"role": "user", "content": "Look!"}]
    body = {"model": "openai/gpt-x", "max_tokens": 9, "messages": messages, "tools": [tool]}
    named = {"x-conversation-id": name} if name else {}
    answer = httpx2.post(f"{url}/v1/messages", json=body, headers={"x-api-key": token} | named, timeout=20)
    assert answer.status_code == 200, answer.text
    conversation_id: str = answer.headers["x-conversation-id"]
    return conversation_id


def listed(url: str, token: str = "laptop-token", **query: str) -> httpx2.Response:
    return httpx2.get(f"{url}/v1/conversations", params=query, headers={"x-api-key": token}, timeout=20)


def ids(answer: httpx2.Response) -> list[str]:
    return [conversation["id"] for conversation in answer.json()["data"]]


@pytest.mark.req("FR2.4", "C11")
def test_a_conversation_is_listed_under_the_id_that_its_answers_carry(bridge: str) -> None:
    unnamed, named = talk(bridge), talk(bridge, name="session:7@home")
    talk(bridge, name="session:7@home")
    answer = listed(bridge)
    assert ids(answer) == [named, unnamed] == ["session:7@home", unnamed]
    assert answer.headers["cache-control"] == "no-store"
    assert (answer.json()["object"], answer.json()["has_more"]) == ("list", False)
    newest = answer.json()["data"][0]
    began, expires = (datetime.fromisoformat(newest.pop(name)) for name in ("started_at", "expires_at"))
    assert newest == {
        "id": named,
        "object": "conversation",
        "tools": [{"name": "look", "calls": 2}],
        "calls": 2,
        "more_calls": False,
    }
    assert abs((datetime.now(UTC) - began).total_seconds()) < 60
    assert 1800 < (expires - began).total_seconds() < 1800 * 1.25 + 60


@pytest.mark.req("NFR5", "C8")
def test_nothing_that_was_said_is_listed(bridge: str) -> None:
    talk(bridge)
    answer = listed(bridge)
    assert ids(answer) != []
    assert SECRET not in answer.text
    assert "toolu_" not in answer.text, "an id of a call is a claim check"


@pytest.mark.req("NFR5")
@pytest.mark.parametrize("other", ["ci-robot-token", "admin-token"])
def test_nobody_sees_anothers_conversations(bridge: str, other: str) -> None:
    talk(bridge, name="shared-name")
    assert ids(listed(bridge, other)) == []
    talk(bridge, other, name="shared-name")
    httpx2.post(f"{bridge}/v1/conversations/shared-name/terminate", headers={"x-api-key": other})
    assert ids(listed(bridge, other)) == []
    assert ids(listed(bridge)) == ["shared-name"]


@pytest.mark.req("FR6.3")
def test_what_is_listed_can_be_terminated_and_is_listed_no_more(bridge: str) -> None:
    kept, named = talk(bridge), talk(bridge, name="session:7@home")
    for conversation_id in (named, named):
        answer = httpx2.post(
            f"{bridge}/v1/conversations/{conversation_id}/terminate", headers={"x-api-key": "laptop-token"}
        )
        assert answer.status_code == 200
        assert ids(listed(bridge)) == [kept]


def test_as_many_are_listed_as_asked_for(bridge: str) -> None:
    newest = [talk(bridge) for _ in range(3)][::-1]
    assert ids(listed(bridge, limit="100")) == newest
    few = listed(bridge, limit="2")
    assert (ids(few), few.json()["has_more"]) == (newest[:2], True)


@pytest.fixture
def empty_bridge(tmp_path: Path) -> Iterator[str]:
    with running_bridge(tmp_path, WORKER_TOKEN=TOKENS) as url:
        yield url


@pytest.mark.req("C11")
@pytest.mark.parametrize(
    ("query", "says"),
    [
        *(({"limit": text}, "limit: takes a whole number") for text in ("", "0", "101", "-1", "2.5", "٣", "9" * 5000)),
        ({"principal": "ci"}, "principal: not a parameter"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_query_that_makes_no_sense_is_refused_by_name(empty_bridge: str, query: dict[str, str], says: str) -> None:
    answer = listed(empty_bridge, **query)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert says in answer.json()["error"]["message"]


def test_where_nothing_was_said_nothing_is_listed(empty_bridge: str) -> None:
    assert listed(empty_bridge).json() == {"object": "list", "data": [], "has_more": False}


@pytest.mark.req("C8")
def test_without_a_token_there_is_nothing_to_see(empty_bridge: str) -> None:
    assert listed(empty_bridge, "a-wrong-token").status_code == 401
    assert httpx2.get(f"{empty_bridge}/v1/conversations").status_code == 401


def test_it_is_there_to_be_read(empty_bridge: str) -> None:
    answer = httpx2.post(f"{empty_bridge}/v1/conversations", headers={"x-api-key": "laptop-token"}, json={})
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")


@pytest.mark.req("FR6.2")
def test_an_expired_conversation_is_not_listed(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.script = [{"reply": {"chat": {"tool_calls": [{"name": "look", "arguments": {}}]}}}]
    environment: dict[str, Any] = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "OPENAI_API_KEY": "sk-held"}
    with running_bridge(tmp_path, WORKER_TOKEN=TOKENS, **environment) as url:
        talk(url)
        _put_expiry_into_the_past(tmp_path / "state.sqlite3")
        assert ids(listed(url)) == []


def _put_expiry_into_the_past(path: Path) -> None:
    import sqlite3

    db = sqlite3.connect(path)
    assert db.execute("UPDATE state SET expires_at = 1 WHERE sk = 'META'").rowcount == 1
    db.commit()
    db.close()


def test_a_table_of_an_older_version_is_served_and_says_what_it_lacks(
    upstream: ScriptedUpstream, tmp_path: Path, aws_environment: dict[str, str]
) -> None:
    upstream.script = [{"reply": {"chat": {"tool_calls": [{"name": "look", "arguments": {}}]}}}]
    name = f"older-{uuid4().hex}"
    boto3.client("dynamodb").create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("pk", "sk")],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    )
    environment = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "OPENAI_API_KEY": "sk-held", "STATE_TABLE": name}
    with running_bridge(tmp_path, WORKER_TOKEN=TOKENS, **environment) as url:
        conversation_id = talk(url)
        answer = listed(url)
        ended = httpx2.post(
            f"{url}/v1/conversations/{conversation_id}/terminate", headers={"x-api-key": "laptop-token"}
        )
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")
    assert "has no index 'by_owner'" in answer.json()["error"]["message"]
    assert ended.json()["deleted_items"] == 1
