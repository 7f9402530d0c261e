"""The files in events/ are Function URL events (payload format 2.0)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

EVENTS = Path(__file__).resolve().parents[2] / "events"
FILES = sorted(EVENTS.glob("*.json"))
FIELDS = {"version", "routeKey", "rawPath", "rawQueryString", "headers", "requestContext", "isBase64Encoded"}
HTTP_FIELDS = {"method", "path", "protocol", "sourceIp", "userAgent"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_is_a_function_url_event(path: Path) -> None:
    event = json.loads(path.read_text("utf-8"))
    http = event["requestContext"]["http"]
    assert event.keys() - {"body"} == FIELDS
    assert event["version"] == "2.0"
    assert http.keys() == HTTP_FIELDS
    assert http["path"] == event["rawPath"]
    assert http["userAgent"] == event["headers"]["user-agent"]
    assert all(name == name.lower() and isinstance(value, str) for name, value in event["headers"].items())
    assert ("body" in event) == (http["method"] == "POST")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_body_is_what_the_headers_say(path: Path) -> None:
    event = json.loads(path.read_text("utf-8"))
    body = event.get("body", "")
    assert event["headers"].get("content-length", "0") == str(len(body.encode()))
    if path.stem == "bad-json":
        with pytest.raises(json.JSONDecodeError):
            json.loads(body)
    elif body:
        assert json.loads(body).get("model", "openai/gpt-x") == "openai/gpt-x"


def test_the_readme_lists_every_file() -> None:
    readme = (EVENTS / "README.md").read_text("utf-8")
    assert FILES
    assert [path.name for path in FILES if f"`{path.name}`" not in readme] == []
