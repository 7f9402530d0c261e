"""Lambda Function URL events (payload format 2.0) to ASGI, and ASGI responses to Lambda's framing.

Rules
-----
1. Pure functions: no I/O, no clock, no environment.
2. An event becomes one HTTP scope and one whole body. What is not a Function URL event raises
   `BadEventError`, whose message may be shown to the caller.
3. A response is a JSON prelude (status, headers, cookies), eight NUL bytes, then the payload.
   JSON never contains a NUL, so the first one ends the prelude.
4. Lambda takes one value per header name: repeated ones are joined by a comma, and Set-Cookie, which
   cannot be joined, goes into `cookies`.
"""

from __future__ import annotations

import base64
import binascii
import string
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

import orjson

if TYPE_CHECKING:
    from handler.asgi import Message, Scope

Event = dict[str, Any]

CONTENT_TYPE = "application/vnd.awslambda.http-integration-response"
PRELUDE_END = bytes(8)

# These describe one connection, and ours ends at Lambda.
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding"})


class BadEventError(ValueError):
    """The invocation is not an HTTP request through a Function URL."""


class Request(NamedTuple):
    """An HTTP request as ASGI wants it."""

    scope: Scope
    body: bytes


def parse_event(payload: bytes) -> Request:
    """Read a Function URL event."""
    try:
        event = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise BadEventError(f"The event is not valid JSON: {error}.") from error
    match event:
        case {"rawPath": str(), "requestContext": {"http": {"method": str()}}}:
            return Request(_scope(event), _body(event))
        case _:
            raise BadEventError(
                "The event is not a Lambda Function URL request (payload format 2.0):"
                " rawPath and requestContext.http.method are required."
            )


def prelude(start: Message) -> bytes:
    """Lambda's framing of an `http.response.start` message."""
    headers: dict[str, str] = {}
    cookies: list[str] = []
    for raw_name, raw_value in start.get("headers", ()):
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name == "set-cookie":
            cookies.append(value)
        elif name not in _HOP_BY_HOP:
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    content = {"statusCode": int(start["status"]), "headers": headers, "cookies": cookies}
    return orjson.dumps(content) + PRELUDE_END


def error_messages(status: int, kind: str, text: str) -> tuple[Message, Message]:
    """A whole response with an error in Anthropic's shape."""
    body = orjson.dumps({"type": "error", "error": {"type": kind, "message": text}})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    return (
        {"type": "http.response.start", "status": status, "headers": headers},
        {"type": "http.response.body", "body": body, "more_body": False},
    )


def _scope(event: Event) -> Scope:
    http: Event = event["requestContext"]["http"]
    path: str = event["rawPath"]
    headers = _headers(event)
    by_name = dict(headers)
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": _text(http, "protocol", "HTTP/1.1").removeprefix("HTTP/"),
        "method": http["method"].upper(),
        "scheme": by_name.get(b"x-forwarded-proto", b"https").decode("latin-1"),
        "path": unquote(path),
        "raw_path": quote(path, safe=string.punctuation).encode("ascii"),
        "root_path": "",
        "query_string": _text(event, "rawQueryString", "").encode(),
        "headers": headers,
        "client": (_text(http, "sourceIp", ""), 0),
        "server": (by_name.get(b"host", b"").decode("latin-1"), 443),
        "extensions": {},
    }


def _headers(event: Event) -> list[tuple[bytes, bytes]]:
    given = event.get("headers") or {}
    if not isinstance(given, dict):
        raise BadEventError("The event's headers are not an object.")
    headers = [(name.lower().encode(), _header_value(_text(given, name, ""))) for name in given]
    cookies = event.get("cookies") or []
    if not isinstance(cookies, list) or not all(isinstance(cookie, str) for cookie in cookies):
        raise BadEventError("The event's cookies are not a list of strings.")
    if not cookies:
        return headers
    others = [pair for pair in headers if pair[0] != b"cookie"]
    return [*others, (b"cookie", _header_value("; ".join(cookies)))]


def _header_value(value: str) -> bytes:
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:  # Lambda decoded the bytes as UTF-8: give the app what was sent
        return value.encode()


def _body(event: Event) -> bytes:
    body = _text(event, "body", "")
    if not event.get("isBase64Encoded"):
        return body.encode()
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadEventError("The event's body is not valid base64.") from error


def _text(mapping: Event, key: str, default: str) -> str:
    match mapping.get(key):
        case None:
            return default
        case str(value):
            return value
        case _:
            raise BadEventError(f"The event's {key} is not a string.")
