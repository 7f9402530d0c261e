"""Scripts: ordered rules, `{"when": {...}, "reply": {...}}`, of which the first that matches answers.

when    all that is given must hold: `method`, `path` and `model` (globs; the path without its query),
        `stream`, `last_role`, `text` (a regular expression to be found in the newest user text),
        `header` {name: glob}, and `call`: N for the Nth request that meets the rest. Requests that
        an earlier rule answered count too, so that rules with the calls 1, 2, 3 are a sequence.
reply   `status`, `headers`, `delay_ms` before the headers, `chunk_delay_ms` between events, `burst` for
        one write, and one of
  json, body      a JSON value; text with a content-type of its own
  sse             a list of events: an object or a string is the data of one. Also {"$event", "data"},
                  {"$comment"}, {"$raw"} for bytes in a chunk, {"$wire"} for bytes past the framing,
                  {"$delay_ms"}, {"$hang_ms"}, {"$cut": "reset" | "close"}, {"$bad_chunk": true} and
                  {"$repeat": n, "item"}
  sse_file        a recorded stream, its path relative to the script's
  chat, messages, responses
                  a turn in the dialect of chat completions, Anthropic or Responses, streamed if the request says so
  cut, wire       no response: "reset" or "close"; raw text, then the end
In Python a reply may also be a function of the request that returns one, or a `Response`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from scripted.conditions import When, parse_when
from scripted.reply import Reply, parse_reply
from scripted.shape import ScriptError, checked, required
from scripted.wire import Response, whole

if TYPE_CHECKING:
    from scripted.received import Received

ReplyFunction = Callable[["Received"], Mapping[str, Any] | Response]


@dataclass(slots=True)
class Rule:
    """Conditions, the call that is meant, and the answer; counts the calls."""

    when: When
    call: int | None
    reply: Reply | ReplyFunction
    calls: int = 0

    def takes(self, received: Received) -> bool:
        """Whether this rule answers the request, which is counted if it meets the conditions."""
        if not self.when.holds(received):
            return False
        self.calls += 1
        return self.call in (None, self.calls)


class Script:
    """Rules, with an answer for every request."""

    def __init__(self, rules: Sequence[Mapping[str, Any]], folder: Path | None = None) -> None:
        if not isinstance(rules, list | tuple):
            raise ScriptError(f"a script is a list of rules, got {type(rules).__name__}")
        where = folder or Path()
        self._rules = tuple(_parse_rule(rule, f"rule {number}", where) for number, rule in enumerate(rules, 1))

    def answer(self, received: Received) -> Response:
        """The response of the first rule that takes the request."""
        # Every rule sees every request, because every rule counts.
        taking = [rule for rule in self._rules if rule.takes(received)]
        if taking:
            return _response(taking[0].reply, received)
        if received.method == "GET" and received.route.endswith("/models"):
            return whole(MODELS)
        return error(404, f"no rule of the script matched {received.method} {received.path}")


ScriptSource = Script | Path | Sequence[Mapping[str, Any]]


def load(source: ScriptSource) -> Script:
    """A script from a JSON file or from data."""
    if isinstance(source, Script):
        return source
    if not isinstance(source, Path):
        return Script(source)
    try:
        return Script(orjson.loads(source.read_bytes()), source.parent)
    except OSError as failure:
        raise ScriptError(f"{source}: {failure.strerror}") from failure
    except ValueError as failure:
        raise ScriptError(f"{source}: {failure}") from failure


def error(status: int, message: str) -> Response:
    """An error in OpenAI's shape."""
    detail = {"message": message, "type": "invalid_request_error", "param": None, "code": "scripted_upstream"}
    return whole(orjson.dumps({"error": detail}), status=status)


def _parse_rule(data: object, where: str, folder: Path) -> Rule:
    entries = checked(data, {"when": object, "reply": object}, where)
    when, call = parse_when(entries.get("when", {}), f"{where}: when")
    reply = required(entries, "reply", where)
    return Rule(when, call, reply if callable(reply) else parse_reply(reply, f"{where}: reply", folder))


def _response(reply: Reply | ReplyFunction, received: Received) -> Response:
    if isinstance(reply, Reply):
        return reply.to(received.request)
    made = reply(received)
    return made if isinstance(made, Response) else parse_reply(made, "reply", Path()).to(received.request)


MODELS = orjson.dumps(
    {
        "object": "list",
        "data": [{"id": "scripted", "object": "model", "created": 1_700_000_000, "owned_by": "toolbridge"}],
    }
)
