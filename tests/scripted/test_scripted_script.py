"""Which rule answers, and what is said of scripts that are wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scripted.script import Script, load
from scripted.shape import ScriptError

USER = {"role": "user", "content": "first"}
TOOL_TURN = [USER, {"role": "assistant", "content": None}, {"role": "tool", "content": "42"}]
ANTHROPIC_TOOL_TURN = [
    {"role": "user", "content": [{"type": "text", "text": "the weather"}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "sunny"}]},
]

CASES: list[tuple[str, dict[str, Any], dict[str, Any], bool]] = [
    ("no conditions", {}, {}, True),
    ("method", {"method": "POST"}, {}, True),
    ("another method", {"method": "GET"}, {}, False),
    ("path glob, without the query", {"path": "*/chat/*s"}, {}, True),
    ("another path", {"path": "/v1/messages"}, {}, False),
    ("model glob", {"model": "gpt-*"}, {"model": "gpt-x"}, True),
    ("another model", {"model": "gpt-*"}, {"model": "claude"}, False),
    ("no model", {"model": "gpt-*"}, {}, False),
    ("stream", {"stream": True}, {"stream": True}, True),
    ("no stream wanted", {"stream": False}, {"stream": True}, False),
    ("stream left out", {"stream": False}, {}, True),
    ("last role", {"last_role": "tool"}, {"messages": TOOL_TURN}, True),
    ("another last role", {"last_role": "user"}, {"messages": TOOL_TURN}, False),
    ("a tool result in Anthropic's dialect", {"last_role": "tool"}, {"messages": ANTHROPIC_TOOL_TURN}, True),
    ("last role of nothing", {"last_role": "user"}, {}, False),
    ("text", {"text": "^fir"}, {"messages": TOOL_TURN}, True),
    (
        "text of the newest user message only",
        {"text": "first"},
        {"messages": [USER, {**USER, "content": "b"}]},
        False,
    ),
    ("text in parts", {"text": "(?i)WEATHER"}, {"messages": ANTHROPIC_TOOL_TURN}, True),
    ("text of a Responses request", {"text": "hi"}, {"input": "hi"}, True),
    ("header", {"header": {"X-Key": "sk-*"}}, {}, True),
    ("another header", {"header": {"x-key": "pk-*"}}, {}, False),
    ("a header that is not there", {"header": {"x-none": "?*"}}, {}, False),
    (
        "all of several",
        {"method": "POST", "model": "a", "stream": True},
        {"model": "a", "stream": True},
        True,
    ),
    ("all but one of several", {"method": "POST", "model": "a", "stream": True}, {"model": "a"}, False),
]


@pytest.mark.parametrize(("when", "body", "matches"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_conditions(upstream, post, when, body, matches):
    upstream.script = [{"when": when, "reply": {"json": "matched"}}]
    answer = post(body, path="/v1/chat/completions?x=1", headers={"x-key": "sk-1"})
    assert answer.status == (200 if matches else 404)


def test_the_first_match_wins(upstream, post):
    upstream.script = [
        {"when": {"model": "b"}, "reply": {"json": 1}},
        {"when": {"model": "*"}, "reply": {"json": 2}},
        {"reply": {"json": 3}},
    ]
    assert [post({"model": model}).json for model in ("a", "b")] == [2, 1]


def test_no_match_is_said_in_the_shape_of_openai(upstream, post):
    answer = post(path="/v1/x")
    assert answer.status == 404
    assert answer.json["error"]["message"] == "no rule of the script matched POST /v1/x"


def test_a_call_matches_once(upstream, post):
    upstream.script = [
        {"when": {"call": 1}, "reply": {"status": 429, "json": {}}},
        {"reply": {"json": {}}},
    ]
    assert [post().status for _ in range(3)] == [429, 200, 200]


def test_calls_count_what_earlier_rules_answered(upstream, post):
    upstream.script = [
        {"when": {"call": 1}, "reply": {"status": 429, "json": {}}},
        {"when": {"call": 2}, "reply": {"status": 500, "json": {}}},
        {"reply": {"json": {}}},
    ]
    assert [post().status for _ in range(3)] == [429, 500, 200]


def test_calls_count_only_requests_that_meet_the_other_conditions(upstream, post):
    upstream.script = [
        {"when": {"model": "a", "call": 2}, "reply": {"json": "second a"}},
        {"reply": {"json": "other"}},
    ]
    assert [post({"model": model}).json for model in "abaa"] == ["other", "other", "second a", "other"]


def test_a_body_that_is_not_json_meets_no_condition_on_it(upstream, post):
    upstream.script = [
        {"when": {"model": "*"}, "reply": {"json": 1}},
        {"when": {"model": "x"}, "reply": {"json": 2}},
    ]
    assert post("a string").json == 1


def test_models_are_built_in(upstream, post):
    answer = post(path="/openai/v1/models?limit=1", method="GET")
    assert answer.json["object"] == "list"
    assert answer.json["data"][0]["id"] == "scripted"


def test_a_rule_goes_before_the_built_in_models(upstream, post):
    upstream.script = [{"when": {"path": "*/models"}, "reply": {"status": 401, "json": {}}}]
    assert post(path="/v1/models", method="GET").status == 401


def test_loads_a_file(tmp_path, upstream, post):
    file = tmp_path / "script.json"
    file.write_text(json.dumps([{"reply": {"json": "from a file"}}]))
    upstream.script = file
    assert post().json == "from a file"


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({}, "rule 2: 'reply' is missing"),
        ({"replies": {}}, "rule 2: unknown key 'replies', known are when, reply"),
        ([], "rule 2: expected an object, got list"),
        ({"when": {"modle": "x"}, "reply": {"json": 1}}, "rule 2: when: unknown key 'modle'"),
        ({"when": {"call": 0}, "reply": {"json": 1}}, "rule 2: when.call: calls are counted from 1, got 0"),
        ({"when": {"call": True}, "reply": {"json": 1}}, "rule 2: when.call: expected int, got bool"),
        ({"when": {"text": "("}, "reply": {"json": 1}}, "rule 2: when.text: not a regular expression"),
        (
            {"when": {"header": {"a": 1}}, "reply": {"json": 1}},
            "rule 2: when.header.a: expected str, got int",
        ),
        (
            {"reply": {}},
            "rule 2: reply: exactly one of json, body, sse, sse_file, chat, messages, responses, cut, wire is needed",
        ),
        ({"reply": {"json": 1, "body": ""}}, "got json, body"),
        ({"reply": {"json": 1, "status": "200"}}, "rule 2: reply.status: expected int, got str"),
        ({"reply": {"json": 1, "headers": {"a": 1}}}, "rule 2: reply.headers.a: expected str, got int"),
        ({"reply": {"body": 1}}, "rule 2: reply.body: expected text, got int"),
        ({"reply": {"sse": {}}}, "rule 2: reply.sse: expected a list, got dict"),
        ({"reply": {"sse": ["a", 1]}}, "rule 2: reply.sse[1]: expected an object or a string, got int"),
        ({"reply": {"sse": [{"$dely_ms": 1}]}}, "rule 2: reply.sse[0]: not an item: $dely_ms"),
        ({"reply": {"sse": [{"$cut": "off"}]}}, "rule 2: reply.sse[0]: not an item: $cut"),
        ({"reply": {"sse": [{"$repeat": 2, "item": 1}]}}, "rule 2: reply.sse[0].item: expected an object"),
        ({"reply": {"sse_file": "none.sse"}}, "rule 2: reply.sse_file: cannot read none.sse: No such file"),
        ({"reply": {"cut": "off"}}, "rule 2: reply.cut: expected 'reset' or 'close', got 'off'"),
        ({"reply": {"chat": {"txt": "a"}}}, "rule 2: reply.chat: unknown key 'txt'"),
        ({"reply": {"chat": {"tool_calls": [{}]}}}, "rule 2: reply.chat.tool_calls[0]: 'name' is missing"),
        (
            {"reply": {"messages": {"signature": "s"}}},
            "rule 2: reply.messages.signature: only thinking is signed",
        ),
        (
            {"reply": {"messages": {"tool_uses": [{"name": 1}]}}},
            "reply.messages.tool_uses[0].name: expected str",
        ),
    ],
)
def test_a_wrong_script_is_refused_with_the_place(rule, message):
    with pytest.raises(ScriptError) as caught:
        Script([{"reply": {"json": 0}}, rule])
    assert message in str(caught.value)


@pytest.mark.parametrize(("text", "message"), [("{}", "a script is a list of rules"), ("[", "unexpected end")])
def test_a_wrong_file_is_named(tmp_path, text, message):
    file = tmp_path / "script.json"
    file.write_text(text)
    with pytest.raises(ScriptError, match=message) as caught:
        load(file)
    assert str(file) in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ScriptError, match=r"none\.json: No such file"):
        load(tmp_path / "none.json")
