"""What every chat completion request has to be, by OpenAI's own types and by what providers refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Json: TypeAlias = dict[str, Any]


def _validator(params: object) -> SchemaValidator:
    """Lists are typed as iterables, which are checked only when somebody reads them: here they are lists."""
    return SchemaValidator(_eager(TypeAdapter(params).core_schema))


def _eager(schema: Any) -> Any:
    match schema:
        case {"type": "generator", **rest}:
            return {"type": "list", **{key: _eager(value) for key, value in rest.items()}}
        case dict():
            return {key: _eager(value) for key, value in schema.items()}
        case list() | tuple():
            return type(schema)(_eager(value) for value in schema)
        case _:
            return schema


_STREAMED = _validator(CompletionCreateParamsStreaming)
_WHOLE = _validator(CompletionCreateParamsNonStreaming)


def type_defects(body: Json, *, beyond: Iterable[str] = ()) -> list[str]:
    """Where a request departs from OpenAI's types; `beyond` are keys of another provider, left out at any depth."""
    plain = _without(body, frozenset(beyond))
    try:
        read = (_STREAMED if plain.get("stream") else _WHOLE).validate_python(plain)
    except ValidationError as error:
        return [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()]
    # What the types do not know is not in what was read.
    return list(_differences(plain, read, "body"))


def order_defects(messages: list[Json]) -> list[str]:
    """Calls without results right after them in the same order, and results without calls."""
    found = []
    due: list[str] = []
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            wanted = due.pop(0) if due else None
            if message["tool_call_id"] != wanted:
                found.append(f"message {number}: a result for {message['tool_call_id']} where {wanted} was due")
            continue
        if due:
            found.append(f"message {number}: {message['role']} before the results of {', '.join(due)}")
        due = [call["id"] for call in message.get("tool_calls") or ()]
        found += [f"message {number}: {ident} is the id of two calls" for ident in set(due) if due.count(ident) > 1]
    return found + [f"at the end: no result for {ident}" for ident in due]


def undeclared_tools(body: Json) -> set[str]:
    """Tools that the history calls or the choice forces, and that the request does not declare."""
    declared = {tool["function"]["name"] for tool in body.get("tools", ())}
    calls = (call for message in body["messages"] for call in message.get("tool_calls") or ())
    referred = {call["function"]["name"] for call in calls}
    match body.get("tool_choice"):
        case {"function": {"name": str(name)}}:
            referred.add(name)
    return referred - declared


def _without(value: Any, keys: frozenset[str]) -> Any:
    """Schemas are left whole: their keys are the client's own words."""
    match value:
        case dict():
            return {
                key: item if key in ("parameters", "schema") else _without(item, keys)
                for key, item in value.items()
                if key not in keys
            }
        case list():
            return [_without(item, keys) for item in value]
        case _:
            return value


def _differences(given: Any, kept: Any, path: str) -> Iterator[str]:
    match given, kept:
        case dict(), dict():
            for key, value in given.items():
                if key in kept:
                    yield from _differences(value, kept[key], f"{path}.{key}")
                else:
                    yield f"{path}.{key}: OpenAI's types have no such key"
        case list(), list() if len(given) == len(kept):
            for number, pair in enumerate(zip(given, kept, strict=True)):
                yield from _differences(*pair, f"{path}.{number}")
        case _ if given != kept:
            yield f"{path}: {given!r} is read as {kept!r}"
