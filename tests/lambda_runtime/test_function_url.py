"""Function URL events to ASGI, and responses to Lambda's framing: the pure part."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from url_events import url_event

from handler.function_url import BadEventError, Request, error_messages, parse_event, prelude


def parse(event: object) -> Request:
    return parse_event(json.dumps(event).encode())


def test_an_event_becomes_an_http_scope() -> None:
    request = parse(url_event("/v1/messages", "POST", rawQueryString="beta=true&x=%20", body="{}"))
    assert request.scope == {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "https",
        "path": "/v1/messages",
        "raw_path": b"/v1/messages",
        "root_path": "",
        "query_string": b"beta=true&x=%20",
        "headers": [
            (b"host", b"abc.lambda-url.eu-central-1.on.aws"),
            (b"x-forwarded-proto", b"https"),
        ],
        "client": ("203.0.113.7", 0),
        "server": ("abc.lambda-url.eu-central-1.on.aws", 443),
        "extensions": {},
    }
    assert request.body == b"{}"


@pytest.mark.parametrize(
    ("given", "path", "raw_path"),
    [
        ("/a%20b", "/a b", b"/a%20b"),
        ("/a b", "/a b", b"/a%20b"),
        ("/gr%C3%BC%C3%9Fe", "/grüße", b"/gr%C3%BC%C3%9Fe"),
        ("/grüße/日本", "/grüße/日本", b"/gr%C3%BC%C3%9Fe/%E6%97%A5%E6%9C%AC"),
        ("/a%2Fb", "/a/b", b"/a%2Fb"),
        ("/a+b", "/a+b", b"/a+b"),
        ("/v1/models/openai:gpt@x", "/v1/models/openai:gpt@x", b"/v1/models/openai:gpt@x"),
    ],
)
def test_the_path_is_decoded_and_the_raw_path_is_not(given: str, path: str, raw_path: bytes) -> None:
    scope = parse(url_event(given)).scope
    assert (scope["path"], scope["raw_path"]) == (path, raw_path)


def test_header_names_are_lower_case_and_values_are_bytes() -> None:
    headers = {"X-Api-Key": "k", "x-latin": "é", "x-wide": "日"}
    assert parse(url_event(headers=headers)).scope["headers"] == [
        (b"x-api-key", b"k"),
        (b"x-latin", b"\xe9"),
        (b"x-wide", "日".encode()),
    ]


def test_cookies_become_one_header() -> None:
    event = url_event(cookies=["a=1", "b=2"], headers={"cookie": "a=1", "accept": "*/*"})
    assert parse(event).scope["headers"] == [(b"accept", b"*/*"), (b"cookie", b"a=1; b=2")]


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({}, b""),
        ({"body": None}, b""),
        ({"body": "grüße"}, "grüße".encode()),
        ({"body": base64.b64encode(bytes(range(256))).decode(), "isBase64Encoded": True}, bytes(range(256))),
        ({"body": "", "isBase64Encoded": True}, b""),
    ],
)
def test_bodies(fields: dict[str, Any], body: bytes) -> None:
    assert parse(url_event("/", "POST", **fields)).body == body


def test_an_event_with_little_in_it_is_enough() -> None:
    scope = parse({"rawPath": "/", "requestContext": {"http": {"method": "get"}}}).scope
    assert (scope["method"], scope["headers"], scope["query_string"]) == ("GET", [], b"")


def test_an_iam_authorizer_does_no_harm() -> None:
    event = url_event()
    event["requestContext"]["authorizer"] = {"iam": {"accountId": "1", "userArn": "arn:aws:iam::1:user/u"}}
    assert parse(event).scope["path"] == "/"


@pytest.mark.parametrize(
    "event",
    [
        {},
        [],
        None,
        "text",
        {"key1": "value1", "key2": "value2"},
        {"Records": []},
        {"httpMethod": "GET", "path": "/", "requestContext": {}},
        url_event(headers=["x"]),
        url_event(headers={"x": 1}),
        url_event(cookies="a=1"),
        url_event(cookies=[1]),
        url_event(body={"a": 1}),
        url_event(body="%%%", isBase64Encoded=True),
        url_event(body="é", isBase64Encoded=True),
        url_event(rawQueryString=1),
    ],
)
def test_another_event_is_refused(event: object) -> None:
    with pytest.raises(BadEventError, match=r"^The event"):
        parse(event)


def test_an_event_that_is_not_json_is_refused() -> None:
    with pytest.raises(BadEventError, match="not valid JSON"):
        parse_event(b'{"rawPath": ')


def test_the_prelude_ends_with_eight_nuls_and_holds_no_other() -> None:
    framed = prelude({"status": 200, "headers": [(b"x-odd", b"a\x00b")]})
    assert framed.endswith(bytes(8))
    assert framed.count(0) == 8
    assert json.loads(framed[:-8]) == {"statusCode": 200, "headers": {"x-odd": "a\0b"}, "cookies": []}


def test_repeated_headers_are_joined_and_cookies_are_set_apart() -> None:
    headers = [(b"Vary", b"a"), (b"set-cookie", b"x=1, y"), (b"vary", b"b"), (b"Set-Cookie", b"z=2")]
    content = json.loads(prelude({"status": 200, "headers": headers})[:-8])
    assert content["headers"] == {"vary": "a, b"}
    assert content["cookies"] == ["x=1, y", "z=2"]


def test_errors_have_the_shape_that_anthropic_clients_know() -> None:
    start, body = error_messages(400, "invalid_request_error", "No.")
    assert start["status"] == 400
    assert json.loads(body["body"]) == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "No."},
    }
    assert dict(start["headers"])[b"content-length"] == b"%d" % len(body["body"])
