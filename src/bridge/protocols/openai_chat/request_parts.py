"""The content of chat messages as clients send it: OpenAI's parts, and Anthropic's blocks, which Cursor mixes in."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue


class Wire(BaseModel):
    """Built with the whole request, when the first one is read: each class on its own would cost a slower start."""

    model_config = ConfigDict(extra="allow", hide_input_in_errors=True, defer_build=True)


class CacheControl(Wire):
    type: Literal["ephemeral"]
    ttl: str | None = None


class CacheBreakpoint(Wire):
    """OpenAI's own way to ask for what `cache_control` asks for."""

    mode: str | None = None
    ttl: str | None = None


class Cacheable(Wire):
    cache_control: CacheControl | None = None
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class TextPart(Cacheable):
    type: Literal["text"]
    text: str


class RefusalPart(Wire):
    type: Literal["refusal"]
    refusal: str


class ImageUrl(Wire):
    url: str = Field(min_length=1)
    detail: str | None = None


def _as_object(url: Any) -> Any:
    return {"url": url} if isinstance(url, str) else url


class ImageUrlPart(Cacheable):
    type: Literal["image_url"]
    image_url: Annotated[ImageUrl, BeforeValidator(_as_object)]


class File(Wire):
    file_data: str | None = None
    file_id: str | None = None
    filename: str | None = None


class FilePart(Cacheable):
    type: Literal["file"]
    file: File


class AudioPart(Wire):
    type: Literal["input_audio", "audio"]


class Base64Source(Wire):
    type: Literal["base64"]
    media_type: str
    data: str


class UrlSource(Wire):
    type: Literal["url"]
    url: str


class FileSource(Wire):
    type: Literal["file"]
    file_id: str


class TextSource(Wire):
    type: Literal["text"]
    data: str


class ImageBlock(Cacheable):
    type: Literal["image"]
    source: Annotated[Base64Source | UrlSource | FileSource, Field(discriminator="type")]


class DocumentBlock(Cacheable):
    type: Literal["document"]
    source: Annotated[Base64Source | UrlSource | FileSource | TextSource, Field(discriminator="type")]
    title: str | None = None
    context: str | None = None


class ToolUseBlock(Cacheable):
    type: Literal["tool_use"]
    id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    input: dict[str, JsonValue]


class ThinkingBlock(Wire):
    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class RedactedThinkingBlock(Wire):
    type: Literal["redacted_thinking"]
    data: str


def as_parts(content: Any) -> Any:
    """Content as a list of parts: a string is one text, a part on its own is a list of one."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, dict):
        content = [content]
    if isinstance(content, list):
        return [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    return content


ShownPart = TextPart | ImageUrlPart | FilePart | ImageBlock | DocumentBlock


class ToolResultBlock(Cacheable):
    type: Literal["tool_result"]
    tool_use_id: str = Field(min_length=1)
    content: Annotated[list[Annotated[ShownPart, Field(discriminator="type")]], BeforeValidator(as_parts)] | None = None
    is_error: bool | None = None


Part = ShownPart | RefusalPart | AudioPart | ToolUseBlock | ToolResultBlock | ThinkingBlock | RedactedThinkingBlock
Content = Annotated[list[Annotated[Part, Field(discriminator="type")]], BeforeValidator(as_parts)]
