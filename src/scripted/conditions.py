"""Which requests a rule answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from scripted.prompt import last_role, messages_of, newest_user_text
from scripted.shape import ScriptError, checked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scripted.received import Received

KEYS: dict[str, type] = {
    "method": str,
    "path": str,
    "model": str,
    "call": int,
    "stream": bool,
    "last_role": str,
    "text": str,
    "header": dict,
}


@dataclass(frozen=True, slots=True)
class When:
    """Conditions that all have to hold; None is no condition."""

    method: str | None = None
    path: str | None = None
    model: str | None = None
    stream: bool | None = None
    last_role: str | None = None
    text: re.Pattern[str] | None = None
    header: tuple[tuple[str, str], ...] = ()

    def holds(self, received: Received) -> bool:
        """Whether the request is one of those meant; the body is read only if a condition needs it."""
        return (
            _globs(self.method, received.method)
            and _globs(self.path, received.route)
            and all(fnmatchcase(received.headers.get(name, ""), glob) for name, glob in self.header)
            and self._holds_for_body(received)
        )

    def _holds_for_body(self, received: Received) -> bool:
        return (
            (self.model is None or fnmatchcase(str(received.request.get("model", "")), self.model))
            and (self.stream is None or (received.request.get("stream") is True) is self.stream)
            and (self.last_role is None or last_role(messages_of(received.request)) == self.last_role)
            and (self.text is None or bool(self.text.search(newest_user_text(messages_of(received.request)))))
        )


def parse_when(data: object, where: str) -> tuple[When, int | None]:
    """The conditions and, if one is wanted, the number of the call among the requests that meet them."""
    entries = checked(data, KEYS, where)
    call: int | None = entries.pop("call", None)
    if call is not None and call < 1:
        raise ScriptError(f"{where}.call: calls are counted from 1, got {call}")
    if "text" in entries:
        entries["text"] = _pattern(entries["text"], f"{where}.text")
    if "header" in entries:
        entries["header"] = _headers(entries["header"], f"{where}.header")
    return When(**entries), call


def _pattern(text: str, where: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ScriptError(f"{where}: not a regular expression: {error}") from error


def _headers(data: Mapping[str, Any], where: str) -> tuple[tuple[str, str], ...]:
    return tuple((name.lower(), glob) for name, glob in checked(data, dict.fromkeys(data, str), where).items())


def _globs(glob: str | None, value: str) -> bool:
    return glob is None or fnmatchcase(value, glob)
