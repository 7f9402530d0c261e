"""Messages request -> canonical request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, assert_never

from pydantic import ValidationError

from bridge.canonical import content as canonical
from bridge.canonical.request import (
    OutputFormat,
    Reasoning,
    Request,
    ServerTool,
    Tool,
    ToolChoice,
    Turn,
)
from bridge.errors import invalid_request
from bridge.protocols.anthropic import wire

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.errors import BridgeError

MAX_REPORTED_PROBLEMS = 3
_NOTHING_SAID = Reasoning()
_HOMES: dict[type[wire.Wire], str] = {
    wire.ToolUseBlock: "assistant",
    wire.ThinkingBlock: "assistant",
    wire.RedactedThinkingBlock: "assistant",
    wire.ToolResultBlock: "user",
    wire.ToolChangeBlock: "system",
}


def parse_request(body: bytes) -> Request:
    """The canonical request; a BridgeError that names the field if the body is not a Messages request."""
    request = parse_countable(body)
    if request.max_tokens is None:
        raise invalid_request("max_tokens: Field required")
    return request


def parse_countable(body: bytes) -> Request:
    """A request to count the tokens of: `max_tokens` is not asked for."""
    try:
        parsed = wire.MessagesRequest.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error) from None
    return Request(
        model=parsed.model,
        turns=tuple([_turn(index, message) for index, message in enumerate(parsed.messages)]),
        max_tokens=parsed.max_tokens,
        system=tuple([canonical.Text(block.text, _cache(block)) for block in parsed.system]) if parsed.system else (),
        tools=tuple([_tool(tool) for tool in parsed.tools]) if parsed.tools else (),
        tool_choice=_tool_choice(parsed.tool_choice) if parsed.tool_choice else None,
        stream=bool(parsed.stream),
        temperature=parsed.temperature,
        top_p=parsed.top_p,
        top_k=parsed.top_k,
        stop_sequences=tuple(parsed.stop_sequences) if parsed.stop_sequences else (),
        reasoning=_reasoning(parsed),
        output_format=_output_format(parsed),
        user_id=_text(parsed.metadata.get("user_id")) if parsed.metadata else None,
        service_tier=parsed.service_tier,
        extras=parsed.model_extra or {},
        unread=tuple(_unread(parsed)),
    )


def _refusal(error: ValidationError) -> BridgeError:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    told = [f"{_path(problem['loc'])}: {problem['msg']}" for problem in problems[:MAX_REPORTED_PROBLEMS]]
    if len(problems) > MAX_REPORTED_PROBLEMS:
        told.append(f"and {len(problems) - MAX_REPORTED_PROBLEMS} more")
    return invalid_request("; ".join(told))


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "body"


def _turn(index: int, message: wire.Message) -> Turn:
    if message.content is None and message.role != "system":
        raise invalid_request(f"messages.{index}.content: Field required")
    blocks: list[canonical.Block] = []
    for position, block in enumerate(message.content or ()):
        home = _HOMES.get(block.__class__)
        if home is not None and home != message.role:
            raise invalid_request(
                f"messages.{index}.content.{position}: a {block.type} block stands in {home} turns only"
            )
        blocks.append(_block(block))
    return Turn(message.role, tuple(blocks))


def _unread(request: wire.MessagesRequest) -> Iterable[str]:
    """Names of fields inside messages and tools that the canonical form has no place for."""
    names: dict[str, None] = {}
    for message in request.messages:
        if message.model_extra:
            names |= dict.fromkeys(f"message.{name}" for name in message.model_extra)
        for block in message.content or ():
            if block.model_extra and not isinstance(block, wire.ServerBlock):
                names |= dict.fromkeys(f"{block.type}.{name}" for name in block.model_extra)
    for tool in request.tools or ():
        if tool.model_extra and isinstance(tool, wire.CustomTool):
            names |= dict.fromkeys(f"tool.{name}" for name in tool.model_extra)
    return names


def _block(block: wire.ContentBlock) -> canonical.Block:
    match block:
        case wire.TextBlock():
            return canonical.Text(block.text, _cache(block))
        case wire.ToolUseBlock():
            return canonical.ToolUse(block.id, block.name, block.input, _cache(block))
        case wire.ToolResultBlock():
            return _tool_result(block)
        case wire.ImageBlock():
            return canonical.Image(_media_source(block.source), _cache(block))
        case wire.DocumentBlock():
            return _document(block)
        case wire.SearchResultBlock():
            return _search_result(block)
        case wire.ThinkingBlock():
            return canonical.Thinking(block.thinking, block.signature)
        case wire.RedactedThinkingBlock():
            return canonical.RedactedThinking(block.data)
        case wire.ToolChangeBlock():
            return _tool_change(block)
        case wire.ServerBlock():
            return canonical.ServerBlock(block.type, block.model_dump(mode="json", exclude_unset=True))
        case _:
            assert_never(block)


def _tool_change(block: wire.ToolChangeBlock) -> canonical.ToolChange:
    action: Literal["add", "remove"] = "add" if block.type == "tool_addition" else "remove"
    definition = _custom_tool(block.tool.definition) if block.tool.definition else None
    return canonical.ToolChange(action, definition.name if definition else block.tool.name, definition)


def _tool_result(block: wire.ToolResultBlock) -> canonical.ToolResult:
    content: list[canonical.Text | canonical.Image | canonical.Document | canonical.ToolReference] = []
    for part in block.content or ():
        match part:
            case wire.TextBlock():
                content.append(canonical.Text(part.text))
            case wire.ImageBlock():
                content.append(canonical.Image(_media_source(part.source)))
            case wire.DocumentBlock():
                content.append(_document(part))
            case wire.SearchResultBlock():
                content.append(_search_result(part))
            case wire.BrowserStateBlock():
                content.append(canonical.Text(part.model_dump_json(exclude_unset=True)))
            case wire.ToolReferenceBlock():
                content.append(canonical.ToolReference(part.tool_name))
            case _:
                assert_never(part)
    return canonical.ToolResult(block.tool_use_id, tuple(content), bool(block.is_error), _cache(block))


def _media_source(source: wire.Base64Source | wire.UrlSource | wire.FileSource) -> canonical.MediaSource:
    match source:
        case wire.Base64Source():
            return canonical.Base64Source(source.media_type, source.data)
        case wire.UrlSource():
            return canonical.UrlSource(source.url)
        case wire.FileSource():
            return canonical.FileSource(source.file_id)
        case _:
            assert_never(source)


def _document(block: wire.DocumentBlock) -> canonical.Document:
    source: canonical.MediaSource | tuple[canonical.Text | canonical.Image, ...]
    match block.source:
        case wire.PlainTextSource(data=text):
            source = (canonical.Text(text),)
        case wire.ContentSource(content=str(text)):
            source = (canonical.Text(text),)
        case wire.ContentSource(content=list(parts)):
            source = tuple(
                canonical.Text(part.text)
                if isinstance(part, wire.TextBlock)
                else canonical.Image(_media_source(part.source))
                for part in parts
            )
        case wire.Base64Source() | wire.UrlSource() | wire.FileSource() as media:
            source = _media_source(media)
    return canonical.Document(source, block.title, block.context, _cache(block))


def _search_result(block: wire.SearchResultBlock) -> canonical.Document:
    texts = tuple(canonical.Text(part.text) for part in block.content)
    return canonical.Document(texts, block.title, f"Source: {block.source}", _cache(block))


def _cache(block: wire.Cacheable) -> canonical.CacheMark | None:
    return canonical.CacheMark(block.cache_control.ttl) if block.cache_control else None


def _tool(tool: wire.CustomTool | wire.TypedTool) -> Tool | ServerTool:
    if isinstance(tool, wire.TypedTool):
        return ServerTool(tool.type, tool.name, tool.model_extra or {})
    return _custom_tool(tool)


def _custom_tool(tool: wire.CustomTool) -> Tool:
    return Tool(
        name=tool.name,
        input_schema=tool.input_schema,
        description=tool.description,
        strict=tool.strict,
        deferred=bool(tool.defer_loading),
        cache=_cache(tool),
    )


def _tool_choice(choice: wire.ToolChoice) -> ToolChoice:
    if choice.type == "tool" and not choice.name:
        raise invalid_request("tool_choice.name: Field required")
    return ToolChoice(choice.type, choice.name, not choice.disable_parallel_tool_use)


def _reasoning(request: wire.MessagesRequest) -> Reasoning:
    """What `thinking`, the effort (the newest turn's wins) and `metadata.castari.reasoning` say together."""
    thinking, effort = request.thinking, _effort(request)
    if thinking is None and effort is None and request.metadata is None:
        return _NOTHING_SAID
    castari = _object(_object((request.metadata or {}).get("castari")).get("reasoning"))
    wanted = castari.get("max_tokens")
    budget = thinking.budget_tokens if thinking and thinking.type == "enabled" else None
    return Reasoning(
        enabled=True if castari else None if thinking is None else thinking.type != "disabled",
        effort=_text(castari.get("effort")) or effort,
        budget_tokens=wanted if isinstance(wanted, int) else budget,
        exclude=castari.get("exclude") is True,
    )


def _effort(request: wire.MessagesRequest) -> str | None:
    for message in reversed(request.messages):
        if message.output_config and message.output_config.effort:
            return message.output_config.effort
    return (request.output_config.effort or None) if request.output_config else None


def _output_format(request: wire.MessagesRequest) -> OutputFormat | None:
    config = request.output_config
    chosen = (config.format if config else None) or request.output_format
    return OutputFormat(chosen.schema_) if chosen else None


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None
