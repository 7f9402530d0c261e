"""Paths under which another process reads what was received and replaces the script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import orjson

from scripted.script import Script, error
from scripted.shape import ScriptError
from scripted.wire import whole

if TYPE_CHECKING:
    from scripted.received import Received
    from scripted.wire import Response


class Controlled(Protocol):
    """The part of an upstream that another process may reach."""

    received: list[Received]
    script: Script


def answer_control(upstream: Controlled, received: Received) -> Response | None:
    """The response, or None when the request is not one to the upstream itself."""
    match received.method, received.route:
        case "GET", "/_received":
            return whole(orjson.dumps([_shown(request) for request in upstream.received]))
        case "DELETE", "/_received":
            upstream.received.clear()
            return whole(b"[]")
        case "PUT", "/_script":
            return _replace(upstream, received)
        case _:
            return None


def _replace(upstream: Controlled, received: Received) -> Response:
    try:
        upstream.script = Script(received.json)
    except (ScriptError, orjson.JSONDecodeError) as failure:
        return error(400, str(failure))
    return whole(b"{}")


def _shown(received: Received) -> dict[str, Any]:
    return {
        "method": received.method,
        "path": received.path,
        "headers": received.headers,
        "body": received.request or received.body.decode(errors="replace"),
        "received_at": received.received_at,
    }
