"""Content parts as clients send them.

Tags of unions begin with `@`, so that they can be told from field names in the path of an error.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, JsonValue, Tag

TEXT_PARTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")


class Wire(BaseModel):
    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)


class TextPart(Wire):
    type: Literal[TEXT_PARTS]  # type: ignore[valid-type]
    text: str
    annotations: JsonValue = None
    logprobs: JsonValue = None


class RefusalPart(Wire):
    type: Literal["refusal"]
    refusal: str


class ImagePart(Wire):
    type: Literal["input_image"]
    image_url: str | None = None
    file_id: str | None = None
    detail: str | None = None


class FilePart(Wire):
    type: Literal["input_file"]
    file_data: str | None = None
    file_url: str | None = None
    file_id: str | None = None
    filename: str | None = None
    detail: str | None = None


class OtherPart(Wire):
    type: str


_PART_KINDS = dict.fromkeys(TEXT_PARTS, "@text") | {
    "refusal": "@refusal",
    "input_image": "@image",
    "input_file": "@file",
}


def type_of(value: Any) -> Any:
    """The type that an object of the wire names, before or after it was validated."""
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return kind if isinstance(kind, str) else None


def _part_kind(part: Any) -> str:
    return _PART_KINDS.get(type_of(part), "@other")


Part = Annotated[
    Annotated[TextPart, Tag("@text")]
    | Annotated[RefusalPart, Tag("@refusal")]
    | Annotated[ImagePart, Tag("@image")]
    | Annotated[FilePart, Tag("@file")]
    | Annotated[OtherPart, Tag("@other")],
    Discriminator(_part_kind),
]


def _as_parts(content: Any) -> Any:
    return [{"type": "input_text", "text": content}] if isinstance(content, str) else content


Parts = Annotated[list[Part], BeforeValidator(_as_parts)]
