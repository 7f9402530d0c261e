"""How much one request may hold, checked on the parsed document before any work is done for it.

One walk serves Messages, Chat Completions and Responses: it knows where they keep messages, tools, media and ids,
looks nowhere else, and leaves what is malformed to the protocol's own parser.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, TypeAlias

from bridge.canonical.json import dumps
from bridge.errors import BridgeError, ErrorKind, invalid_request
from bridge.strict_json import JsonLimits, deeper_than
from bridge.values import dataclass

MEGABYTE = 1024 * 1024
MAX_MODEL_CHARACTERS = 256
MAX_ID_CHARACTERS = 512
MAX_USER_CHARACTERS = 4096
MAX_METADATA_BYTES = 64 * 1024

_Object: TypeAlias = Mapping[str, Any]

_NAMES = {
    "model": MAX_MODEL_CHARACTERS,
    "user": MAX_USER_CHARACTERS,
    "safety_identifier": MAX_USER_CHARACTERS,
    "prompt_cache_key": MAX_ID_CHARACTERS,
    "previous_response_id": MAX_ID_CHARACTERS,
}
_ITEM_IDS = frozenset({"id", "call_id", "tool_call_id"})
_BLOCK_IDS = ("id", "tool_use_id")
_OUTPUT_SCHEMAS = {
    "output_config": ("format", "schema"),
    "output_format": ("schema",),
    "response_format": ("json_schema", "schema"),
    "text": ("format", "schema"),
}
_IMAGES = frozenset({"image", "image_url", "input_image", "computer_screenshot"})
_DOCUMENTS = frozenset({"document", "file", "input_file", "input_audio"})


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may hold; each number is a setting of the same name."""

    json: JsonLimits = field(default_factory=JsonLimits)
    max_messages: int = 10_000
    max_tools: int = 1_000
    max_schema_depth: int = 32
    max_schema_bytes: int = 100 * 1024
    max_images: int = 600
    max_image_bytes: int = 5 * MEGABYTE
    max_document_bytes: int = 32 * MEGABYTE


def check_request(document: _Object, limits: Limits) -> None:
    """A BridgeError that names the field, the limit and the setting, if the request holds more than it may."""
    walk = _Walk(limits)
    for name, value in document.items():
        check = _FIELDS.get(name)
        if check is not None:
            check(walk, value, name)


class _Walk:
    """Goes through one request; counts its media on the way."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._media = 0

    def name(self, value: object, path: str) -> None:
        _check_length(value, _NAMES[path], path)

    def metadata(self, metadata: object, path: str) -> None:
        if not isinstance(metadata, dict):
            return
        _check_length(metadata.get("user_id"), MAX_USER_CHARACTERS, f"{path}.user_id")
        size = len(dumps(metadata))
        if size > MAX_METADATA_BYTES:
            raise _too_large(path, size, MAX_METADATA_BYTES)

    def output_schema(self, value: object, path: str) -> None:
        way = _OUTPUT_SCHEMAS[path]
        self.schema(_inside(value, *way), ".".join((path, *way)))

    def messages(self, items: object, path: str) -> None:
        if not isinstance(items, list):
            return
        if len(items) > self._limits.max_messages:
            raise invalid_request(
                f"{path}: {len(items)} were sent, at most {self._limits.max_messages} are taken (MAX_MESSAGES)"
            )
        for index, item in enumerate(items):
            if isinstance(item, dict):
                self._message(item, f"{path}.{index}")

    def tools(self, tools: object, path: str) -> None:
        if not isinstance(tools, list):
            return
        declared = sum(len(tool["tools"]) or 1 if _is_namespace(tool) else 1 for tool in tools)
        if declared > self._limits.max_tools:
            raise invalid_request(
                f"{path}: {declared} were declared, at most {self._limits.max_tools} are taken (MAX_TOOLS)"
            )
        for index, tool in enumerate(tools):
            if isinstance(tool, dict):
                self._tool(tool, f"{path}.{index}")

    def schema(self, schema: object, path: str) -> None:
        if not isinstance(schema, dict):
            return
        limits = self._limits
        if deeper_than(schema, limits.max_schema_depth) is not None:
            raise invalid_request(
                f"{path}: nested deeper than {limits.max_schema_depth} levels of JSON (MAX_SCHEMA_DEPTH)"
            )
        size = len(dumps(schema))
        if size > limits.max_schema_bytes:
            raise _too_large(path, size, limits.max_schema_bytes, "MAX_SCHEMA_BYTES")

    def _tool(self, tool: _Object, path: str) -> None:
        for name in ("input_schema", "parameters"):
            self.schema(tool.get(name), f"{path}.{name}")
        for name in ("function", "custom", "definition"):
            inner = tool.get(name)
            if isinstance(inner, dict):
                self._tool(inner, f"{path}.{name}")
        if _is_namespace(tool):
            self.tools(tool["tools"], f"{path}.tools")

    def _message(self, item: _Object, path: str) -> None:
        for name, value in item.items():
            if name in _ITEM_IDS:
                _check_length(value, MAX_ID_CHARACTERS, f"{path}.{name}")
            elif name in ("content", "output"):
                self._content(value, f"{path}.{name}")
            elif name == "tool_calls":
                self._calls(value, f"{path}.{name}")
            elif name == "tools":
                self.tools(value, f"{path}.{name}")

    def _calls(self, calls: object, path: str) -> None:
        for index, call in enumerate(calls if isinstance(calls, list) else ()):
            _check_length(_inside(call, "id"), MAX_ID_CHARACTERS, f"{path}.{index}.id")

    def _content(self, content: object, path: str) -> None:
        if isinstance(content, list):
            for index, block in enumerate(content):
                if isinstance(block, dict) and block.get("type") != "text":
                    self._block(block, f"{path}.{index}")
        elif isinstance(content, dict) and content.get("type") != "text":
            self._block(content, path)

    def _block(self, block: _Object, path: str) -> None:
        kind = block.get("type")
        for name in _BLOCK_IDS:
            _check_length(block.get(name), MAX_ID_CHARACTERS, f"{path}.{name}")
        if kind in ("tool_addition", "tool_removal"):
            self._tool(_object(block.get("tool")), f"{path}.tool")
        elif isinstance(kind, str) and kind in _IMAGES:
            self._count_media(path)
            self._check_media(block, self._limits.max_image_bytes, path, "MAX_IMAGE_BYTES")
        elif isinstance(kind, str) and kind in _DOCUMENTS:
            self._count_media(path)
            self._check_media(block, self._limits.max_document_bytes, path, "MAX_DOCUMENT_BYTES")
            self._content(_inside(block, "source", "content"), f"{path}.source.content")
        self._content(block.get("content"), f"{path}.content")

    def _count_media(self, path: str) -> None:
        self._media += 1
        if self._media > self._limits.max_images:
            raise invalid_request(
                f"{path}: more than {self._limits.max_images} images and documents in one request (MAX_IMAGES)"
            )

    def _check_media(self, block: _Object, largest: int, path: str, setting: str) -> None:
        name, data = _carried(block)
        size = len(data) - data.find(",", 0, 256) - 1 if data.startswith("data:") else len(data)
        if size > largest:
            raise _too_large(f"{path}.{name}", size, largest, setting)


_FIELDS: dict[str, Callable[[_Walk, object, str], None]] = {
    **dict.fromkeys(_NAMES, _Walk.name),
    **dict.fromkeys(("metadata", "client_metadata"), _Walk.metadata),
    **dict.fromkeys(("tools", "functions"), _Walk.tools),
    **dict.fromkeys(_OUTPUT_SCHEMAS, _Walk.output_schema),
    **dict.fromkeys(("messages", "input"), _Walk.messages),
}


def _carried(block: _Object) -> tuple[str, str]:
    """What a picture or file carries, mostly as base64, and the field it stands in."""
    match block:
        case {"source": {"data": str(data)}}:
            return "source.data", data
        case {"image_url": str(data)}:
            return "image_url", data
        case {"image_url": {"url": str(data)}}:
            return "image_url.url", data
        case {"file": {"file_data": str(data)}}:
            return "file.file_data", data
        case {"file_data": str(data)}:
            return "file_data", data
        case {"input_audio": {"data": str(data)}}:
            return "input_audio.data", data
        case _:
            return "source", ""


def _check_length(value: object, longest: int, path: str) -> None:
    if isinstance(value, str) and len(value) > longest:
        raise invalid_request(f"{path}: {len(value)} characters, at most {longest} are taken")


def _is_namespace(tool: object) -> bool:
    return isinstance(tool, dict) and isinstance(tool.get("tools"), list)


def _inside(value: object, *names: str) -> object:
    for name in names:
        value = _object(value).get(name)
    return value


def _object(value: object) -> _Object:
    return value if isinstance(value, dict) else {}


def _too_large(path: str, size: int, largest: int, setting: str = "") -> BridgeError:
    named = f" ({setting})" if setting else ""
    return BridgeError(ErrorKind.TOO_LARGE, f"{path}: {size} bytes, at most {largest} are taken{named}")
