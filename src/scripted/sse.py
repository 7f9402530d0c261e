"""Server-sent events of a script, as steps on the wire."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import orjson

from scripted.shape import ScriptError
from scripted.wire import BAD_CHUNK, Cut, Pause, Step, chunk

if TYPE_CHECKING:
    from pathlib import Path

DONE = b"data: [DONE]\n\n"
END_OF_EVENT = re.compile(rb"(?<=\n\n)|(?<=\r\n\r\n)")


def event(data: object, name: str | None = None) -> bytes:
    """One event, with its name if it has one; a string is sent as it is, anything else as JSON."""
    lines = data.split("\n") if isinstance(data, str) else [orjson.dumps(data).decode()]
    named = f"event: {name}\n" if name else ""
    return "".join([named, *(f"data: {line}\n" for line in lines), "\n"]).encode()


def parse_items(items: Iterable[object], where: str) -> tuple[Step, ...]:
    """The steps that a script's list of items stands for."""
    return tuple(step for number, item in enumerate(items) for step in _steps(item, f"{where}[{number}]"))


def read_recording(path: Path, where: str) -> tuple[Step, ...]:
    """A recorded stream, one HTTP chunk per event; an unfinished last event stays unfinished."""
    try:
        recorded = path.read_bytes()
    except OSError as error:
        raise ScriptError(f"{where}: cannot read {path}: {error.strerror}") from error
    return tuple(chunk(part) for part in END_OF_EVENT.split(recorded) if part)


def _steps(item: object, where: str) -> Iterator[Step]:
    match item:
        case Mapping() if any(str(key).startswith("$") for key in item):
            yield from _special(item, where)
        case str() | Mapping():
            yield chunk(event(item))
        case _:
            raise ScriptError(f"{where}: expected an object or a string, got {type(item).__name__}")


def _special(item: Mapping[str, object], where: str) -> Iterator[Step]:
    match item:
        case {"$event": str(name), "data": data, **rest} if not rest:
            yield chunk(event(data, name))
        case {"$delay_ms": int() | float() as ms, **rest} | {"$hang_ms": int() | float() as ms, **rest} if not rest:
            yield Pause(ms / 1000)
        case {"$raw": str() | bytes() as raw, **rest} if not rest:
            yield chunk(_bytes(raw))
        case {"$wire": str() | bytes() as raw, **rest} if not rest:
            yield _bytes(raw)
        case {"$comment": str(comment), **rest} if not rest:
            yield chunk(f": {comment}\n\n".encode())
        case {"$cut": "reset" | "close" as how, **rest} if not rest:
            yield Cut(reset=how == "reset")
        case {"$bad_chunk": True, **rest} if not rest:
            yield BAD_CHUNK
        case {"$repeat": int(times), "item": repeated, **rest} if not rest:
            yield from list(_steps(repeated, f"{where}.item")) * times
        case _:
            raise ScriptError(f"{where}: not an item: {', '.join(item)}")


def _bytes(raw: str | bytes) -> bytes:
    return raw.encode() if isinstance(raw, str) else raw
