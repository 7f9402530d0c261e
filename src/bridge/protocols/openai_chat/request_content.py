"""Parts and blocks of chat messages -> canonical blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from bridge.canonical import content as canonical
from bridge.errors import invalid_request
from bridge.protocols.openai_chat import request_parts as wire
from bridge.protocols.openai_chat.request_media import file_of, image_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST_CACHE = "1h"
_HOMES: dict[type[wire.Wire], str] = {
    wire.ToolUseBlock: "assistant",
    wire.ThinkingBlock: "assistant",
    wire.RedactedThinkingBlock: "assistant",
    wire.RefusalPart: "assistant",
    wire.ToolResultBlock: "user",
}


def blocks_of(parts: Iterable[wire.Part] | None, role: str, path: str) -> list[canonical.Block]:
    """The blocks that a message's content holds; a BridgeError that names the part which cannot stand there."""
    return [_block(part, role, f"{path}.{position}") for position, part in enumerate(parts or ())]


def texts_of(parts: Iterable[wire.Part] | None, path: str) -> list[canonical.Text]:
    """The texts of instructions; they hold nothing else."""
    texts: list[canonical.Text] = []
    for position, part in enumerate(parts or ()):
        if not isinstance(part, wire.TextPart):
            raise invalid_request(f"{path}.{position}: instructions are text only, not {part.type}")
        if part.text:
            texts.append(canonical.Text(part.text, cache_of(part)))
    return texts


def result_of(
    tool_use_id: str,
    parts: Iterable[wire.Part],
    path: str,
    *,
    is_error: bool = False,
    cache: canonical.CacheMark | None,
) -> canonical.ToolResult:
    """A tool's result; a cache mark inside it is one on the whole."""
    content: list[canonical.Text | canonical.Image | canonical.Document] = []
    for position, part in enumerate(parts):
        if not isinstance(part, wire.ShownPart):
            raise invalid_request(f"{path}.{position}: a tool's result cannot hold {part.type}")
        cache = cache or cache_of(part)
        content.append(_shown(part, f"{path}.{position}", None))
    return canonical.ToolResult(tool_use_id, tuple(content), is_error, cache)


def cache_of(part: wire.Cacheable) -> canonical.CacheMark | None:
    """The mark under either name; the lifetimes that OpenAI knows are nearest to the longest that others know."""
    if part.cache_control is not None:
        return canonical.CacheMark(part.cache_control.ttl)
    if part.prompt_cache_breakpoint is not None:
        return canonical.CacheMark(_LONGEST_CACHE if part.prompt_cache_breakpoint.ttl else None)
    return None


def _block(part: wire.Part, role: str, path: str) -> canonical.Block:
    home = _HOMES.get(type(part))
    if home is not None and home != role:
        raise invalid_request(f"{path}: a {part.type} part stands in {home} messages only")
    match part:
        case wire.ToolUseBlock():
            return canonical.ToolUse(part.id, part.name, part.input, cache_of(part))
        case wire.ToolResultBlock():
            return tool_result(part, path)
        case wire.ThinkingBlock():
            return canonical.Thinking(part.thinking, part.signature)
        case wire.RedactedThinkingBlock():
            return canonical.RedactedThinking(part.data)
        case wire.RefusalPart():
            return canonical.Text(part.refusal)
        case wire.AudioPart():
            raise invalid_request(f"{path}: audio cannot be heard by this model; send text, images or files")
        case _:
            return _shown(part, path, cache_of(part))


def tool_result(block: wire.ToolResultBlock, path: str) -> canonical.ToolResult:
    return result_of(
        block.tool_use_id,
        block.content or (),
        f"{path}.content",
        is_error=bool(block.is_error),
        cache=cache_of(block),
    )


def _shown(
    part: wire.ShownPart, path: str, cache: canonical.CacheMark | None
) -> canonical.Text | canonical.Image | canonical.Document:
    match part:
        case wire.TextPart():
            return canonical.Text(part.text, cache)
        case wire.ImageUrlPart():
            return image_of(part.image_url.url, cache, f"{path}.image_url.url")
        case wire.FilePart():
            return file_of(part.file, cache, f"{path}.file")
        case wire.ImageBlock():
            return canonical.Image(_source(part.source), cache)
        case wire.DocumentBlock():
            return _document(part, cache)
        case _:
            assert_never(part)


def _document(block: wire.DocumentBlock, cache: canonical.CacheMark | None) -> canonical.Document:
    source = block.source
    words = (canonical.Text(source.data),) if isinstance(source, wire.TextSource) else _source(source)
    return canonical.Document(words, block.title, block.context, cache)


def _source(source: wire.Base64Source | wire.UrlSource | wire.FileSource) -> canonical.MediaSource:
    match source:
        case wire.Base64Source():
            return canonical.Base64Source(source.media_type, source.data)
        case wire.UrlSource():
            return canonical.UrlSource(source.url)
        case wire.FileSource():
            return canonical.FileSource(source.file_id)
        case _:
            assert_never(source)
