"""Values that fit a JSON schema, taken from the user's text where it offers one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Schema = Mapping[str, Any]

DEEPEST = 6
URL = re.compile(r"https?://[^\s<>\"'`)]+")
# Something with a slash, a name with an ending, or a dotfile; "e.g." is none of them.
PATH = re.compile(
    r"(?<![\w/.~-])"
    r"(?:[\w.~-]*(?:/[\w.~-]+)+/?|(?:[\w-]{2,}\.[A-Za-z]\w{0,9}|[\w-]\.[A-Za-z]\w{1,9})(?![\w/])|\.[A-Za-z][\w.-]+)"
)
QUOTED = re.compile(r"`([^`]+)`|\"([^\"]+)\"|“([^”]+)”|(?<!\w)'([^']+)'(?!\w)")
PLACE = re.compile(r"\b(?:in|for|at|near|to|of)\s+([A-Z][\w-]*(?:\s+[A-Z][\w-]*)*)")
NAME = re.compile(r"(?<=[a-z,] )[A-Z][\w-]*")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.]*\w)")
FORMATS = {
    "date": "2025-01-31",
    "date-time": "2025-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def shortened(text: str, length: int) -> str:
    """The text on one line, cut to the length."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def sample(schema: object, text: str, name: str = "value") -> Any:
    """A value that fits the schema; of an object only what is required."""
    return _Sampler(schema if isinstance(schema, Mapping) else {}, text).value(schema, name, 0)


class _Sampler:
    def __init__(self, root: Schema, text: str) -> None:
        self._root = root
        self._text = text

    def value(self, given: object, name: str, depth: int) -> Any:
        schema = self._resolved(given, depth)
        match schema:
            case {"const": constant}:
                return constant
            case {"enum": [first, *_] as options}:
                return next((option for option in options if _mentions(self._text, option)), first)
            case {"default": default} if default is not None:
                return default
        return self._typed(schema, name, depth)

    def _typed(self, schema: Schema, name: str, depth: int) -> Any:
        match _type_of(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, name, depth)
            case "integer":
                return int(self._number(schema))
            case "number":
                return self._number(schema)
            case "boolean":
                return False
            case "null":
                return None
            case _:
                return self._string(schema, name)

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        wanted = schema.get("required") or []
        return {key: self.value(properties.get(key, {}), key, depth + 1) for key in wanted}

    def _array(self, schema: Schema, name: str, depth: int) -> list[Any]:
        if depth >= DEEPEST or schema.get("maxItems") == 0:
            return []
        item = self.value(schema.get("items", {}), name, depth + 1)
        return [item] * max(1, schema.get("minItems", 1))

    def _number(self, schema: Schema) -> int | float:
        found = NUMBER.search(self._text)
        number = float(found.group()) if found else float(schema.get("minimum", 1))
        lowest = schema.get("minimum", _beyond(schema.get("exclusiveMinimum"), 1))
        highest = schema.get("maximum", _beyond(schema.get("exclusiveMaximum"), -1))
        number = number if lowest is None else max(number, lowest)
        number = number if highest is None else min(number, highest)
        return int(number) if float(number).is_integer() else number

    def _string(self, schema: Schema, name: str) -> str:
        if "format" in schema and schema["format"] in FORMATS:
            return FORMATS[schema["format"]]
        text = fill_string(name, self._text)
        return text[: schema.get("maxLength", len(text))].ljust(schema.get("minLength", 0), ".")

    def _resolved(self, given: object, depth: int) -> Schema:
        """The schema meant: references followed, one of the choices taken, a null avoided."""
        match given:
            case _ if depth > DEEPEST:
                return {}
            case {"$ref": str(reference)}:
                return self._resolved(_at(self._root, reference), depth + 1)
            case {"anyOf": [*choices]} | {"oneOf": [*choices]}:
                return self._resolved(next((choice for choice in choices if not _is_null(choice)), {}), depth + 1)
            case {"allOf": [*parts]}:
                return {key: entry for part in parts for key, entry in self._resolved(part, depth + 1).items()}
            case Mapping():
                return given
            case _:
                return {}


def fill_string(name: str, text: str) -> str:
    """A string for a property of this name: found in the text, or a readable placeholder."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|[^A-Za-z0-9]+", " ", name).lower().split()
    for names, found_in, placeholder in FILLERS:
        if not names.isdisjoint(words):
            return found_in(text) or placeholder
    return _quoted(text) or f"example {' '.join(words)}"


def _path(text: str) -> str:
    found = PATH.search(URL.sub(" ", text))
    return found.group().rstrip(".") if found else ""


def _place(text: str) -> str:
    if found := PLACE.search(text):
        return found.group(1)
    named = NAME.search(text)
    return named.group() if named else ""


def _quoted(text: str) -> str:
    found = QUOTED.search(text)
    return next(filter(None, found.groups())) if found else ""


def _url(text: str) -> str:
    found = URL.search(text)
    return found.group().rstrip(".,") if found else ""


def _all(text: str) -> str:
    return shortened(text, 80)


def _quoted_or_all(text: str) -> str:
    return _quoted(text) or _all(text)


FILLERS: tuple[tuple[frozenset[str], Callable[[str], str], str], ...] = (
    (frozenset({"path", "file", "filename", "folder", "directory", "dir"}), _path, "README.md"),
    (frozenset({"city", "location", "place", "town", "country", "destination"}), _place, "Paris"),
    (frozenset({"url", "uri", "link", "website"}), _url, "https://example.com/"),
    (frozenset({"command", "cmd", "script", "code"}), _quoted, "echo 'Hello from the demo model'"),
    (frozenset({"pattern", "regex", "glob"}), _quoted, "*"),
    (frozenset({"query", "queries", "search", "q", "expression"}), _quoted_or_all, "example"),
    (frozenset({"prompt", "title", "text", "message", "content", "question"}), _all, "Example"),
    (frozenset({"description", "summary", "subject"}), _all, "Example"),
)


def _type_of(schema: Schema) -> str:
    match schema.get("type"):
        case str(kind):
            return kind
        case [*kinds]:
            return next((str(kind) for kind in kinds if kind != "null"), "null")
        case _ if "properties" in schema:
            return "object"
        case _:
            return "array" if "items" in schema else "string"


def _beyond(bound: object, step: int) -> float | None:
    return bound + step if isinstance(bound, int | float) else None


def _at(root: Schema, reference: str) -> object:
    found: object = root
    for key in reference.lstrip("#/").split("/") if reference.startswith("#/") else ():
        found = found.get(key) if isinstance(found, Mapping) else None
    return None if found is root else found


def _is_null(schema: object) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "null"


def _mentions(text: str, option: object) -> bool:
    return isinstance(option, str) and bool(re.search(rf"\b{re.escape(option)}\b", text, re.IGNORECASE))
