"""How calls that the bridge runs look to a client: the blocks that Anthropic uses for its own server tools.

An id keeps its claim: `toolu_X` towards the model is `srvtoolu_X` or `mcptoolu_X` towards the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from bridge.canonical.content import Base64Source, Document, Image, ServerBlock, Text
from bridge.toolloop.tools import McpCall, ServerCall

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.toolloop.tools import CallShape, OutputPart, ToolOutput

MODEL_PREFIX, SERVER_PREFIX, MCP_PREFIX = "toolu_", "srvtoolu_", "mcptoolu_"
SOURCE = "Source: "


def shown_id(tool_id: str, shape: CallShape) -> str:
    """The id that the client sees for a call of the model."""
    prefix = SERVER_PREFIX if isinstance(shape, ServerCall) else MCP_PREFIX
    return prefix + tool_id.removeprefix(MODEL_PREFIX)


def model_id(shown: str) -> str:
    """The id that the model knows for a call that the client was shown."""
    return MODEL_PREFIX + shown.removeprefix(SERVER_PREFIX).removeprefix(MCP_PREFIX)


def shown_call(tool_id: str, shape: CallShape, arguments: JsonObject) -> ServerBlock:
    """The block that shows a call."""
    raw: JsonObject = {"id": shown_id(tool_id, shape), "input": arguments}
    match shape:
        case ServerCall(name):
            return _block("server_tool_use", raw | {"name": name})
        case McpCall(server, tool):
            return _block("mcp_tool_use", raw | {"name": tool, "server_name": server})
        case _:
            assert_never(shape)


def shown_result(tool_id: str, shape: CallShape, output: ToolOutput) -> ServerBlock:
    """The block that shows what a call brought."""
    raw: JsonObject = {"tool_use_id": shown_id(tool_id, shape)}
    match shape:
        case ServerCall(name):
            return _block(f"{name}_tool_result", raw | {"content": _server_content(name, output)})
        case McpCall():
            texts: list[JsonValue] = [{"type": "text", "text": _in_words(part)} for part in output.content]
            return _block("mcp_tool_result", raw | {"is_error": output.is_error, "content": texts})
        case _:
            assert_never(shape)


def _block(kind: str, raw: JsonObject) -> ServerBlock:
    return ServerBlock(kind, {"type": kind, **raw})


def _server_content(name: str, output: ToolOutput) -> JsonValue:
    if output.is_error:
        code = output.shown.get("error_code", "unavailable")
        return {"type": f"{name}_tool_result_error", "error_code": code}
    if "content" in output.shown:
        return output.shown["content"]
    return {"type": f"{name}_result", **output.shown, "content": _document(output)}


def _document(output: ToolOutput) -> JsonObject:
    """What was read, as one document: a file as it is, everything else as text."""
    title = next((part.title for part in output.content if isinstance(part, Document)), None)
    for part in output.content:
        match part:
            case Document(Base64Source("application/pdf", data)):
                file: JsonObject = {"type": "base64", "media_type": "application/pdf", "data": data}
                return {"type": "document", "source": file, "title": title}
    text = "\n".join(_in_words(part) for part in output.content)
    return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}, "title": title}


def _in_words(part: OutputPart) -> str:
    match part:
        case Text(text):
            return text
        case Document(tuple(pieces)):
            return "\n".join(_in_words(piece) for piece in pieces)
        case Image(Base64Source(media_type, data)) | Document(Base64Source(media_type, data)):
            return f"[{media_type} of {len(data) * 3 // 4} bytes, seen by the model]"
        case Image() | Document():
            return "[a file, seen by the model]"
        case _:
            assert_never(part)
