"""The local estimate of token counts: close to a real tokenizer, bounded, and quick on anything."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.canonical.content import (
    Base64Source,
    Document,
    FileSource,
    Image,
    MediaSource,
    RedactedThinking,
    ServerBlock,
    Text,
    Thinking,
    ToolChange,
    ToolReference,
    ToolResult,
    ToolUse,
    UrlSource,
)
from bridge.canonical.request import OutputFormat, Request, ServerTool, Tool, Turn
from bridge.tokens import estimate_request, estimate_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.canonical.content import Block
    from bridge.canonical.json import JsonObject

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tokens"
REFERENCE: dict[str, int] = json.loads((FIXTURES / "reference.json").read_text(encoding="utf-8"))
MEGABYTE = 1_000_000
PAGE = 2000
PROSE = "The quick brown fox jumps over the lazy dog."
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "City"}},
    "required": ["city"],
}
WEATHER = Tool("get_weather", SCHEMA, "Current weather for a city.")

pytestmark = pytest.mark.req("X1")


def corpus(name: str) -> str:
    return (FIXTURES / "corpus" / name).read_bytes().decode()


# --- accuracy -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_each_corpus_is_within_fifteen_percent_of_the_real_tokenizer(name: str) -> None:
    assert estimate_text(corpus(name)) == pytest.approx(REFERENCE[name], rel=0.15)


def test_every_corpus_has_a_reference_count() -> None:
    assert sorted(path.name for path in (FIXTURES / "corpus").iterdir()) == sorted(REFERENCE)


def test_all_corpora_as_one_document_are_within_five_percent() -> None:
    whole = "\n".join(corpus(name) for name in REFERENCE)
    assert estimate_text(whole) == pytest.approx(sum(REFERENCE.values()), rel=0.05)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        (" ", 1),
        ("hello", 1),
        ("Hello, world!", 4),
        ("def main() -> None:", 6),
        ("1234567", 3),
        ("-" * 80, 2),
        (" " * 40, 1),
        ("\n\n\n", 1),
    ],
)
def test_short_texts_are_counted_piece_by_piece(text: str, tokens: int) -> None:
    assert abs(estimate_text(text) - tokens) <= 1


# --- properties ---------------------------------------------------------------------------------------------------

REALISTIC = st.text(
    st.sampled_from(list("abcXYZ éжλ中的国テスト한국 019 .,:;-_()[]{}\"'\\/\t\n→—😀👍")),
    max_size=200,
)


@given(st.text(max_size=300))
def test_any_text_is_at_least_one_token_and_hardly_more_than_one_a_byte(text: str) -> None:
    tokens = estimate_text(text)
    assert (tokens > 0) == bool(text)
    assert tokens <= 1.1 * len(text.encode("utf-8", "surrogatepass")) + 2


@given(REALISTIC, REALISTIC)
def test_a_whole_is_hardly_more_than_its_parts(left: str, right: str) -> None:
    assert estimate_text(left + right) <= estimate_text(left) + estimate_text(right) + 6


@given(REALISTIC, REALISTIC)
def test_a_whole_is_hardly_less_than_any_part(left: str, right: str) -> None:
    assert estimate_text(left + right) >= max(estimate_text(left), estimate_text(right)) - 3


@given(REALISTIC, st.integers(2, 20))
def test_repeated_paragraphs_cost_alike(text: str, times: int) -> None:
    once, more = (estimate_text(f"Word {text} word.\n\n" * count) for count in (100, 100 * times))
    assert more == pytest.approx(times * once, rel=0.02)


@given(st.text(st.characters(codec=None), max_size=100))
def test_lone_surrogates_do_no_harm(text: str) -> None:
    assert estimate_text(f"\ud800{text}\udfff\ufe0f") > 0


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "A",
        "aA",
        " ",
        "\n",
        " \n",
        "\n ",
        "\t",
        "😀",
        "{",
        "-",
        "- ",
        "-!",
        "'",
        "a'",
        "_",
        "0",
        "中",
        "\u0301",
        "\x00",
        "é",
    ],
    ids=ascii,
)
def test_a_megabyte_of_one_thing_is_counted_to_its_end(unit: str) -> None:
    times = MEGABYTE // len(unit.encode())
    whole, half = estimate_text(unit * times), estimate_text(unit * (times // 2))
    assert 1000 < whole <= MEGABYTE * 1.05
    assert whole == pytest.approx(2 * half, rel=0.01)


def test_runs_that_break_off_at_the_end_are_counted_once() -> None:
    text = (" " * 5000 + "x") * 200
    assert 400 <= estimate_text(text) < MEGABYTE // 10


# --- images and documents -----------------------------------------------------------------------------------------


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\xff" * width for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + b"\x3b"


def jpeg(width: int, height: int, *, padding: int = 0) -> bytes:
    exif = b"\xff\xe1" + struct.pack(">H", 2 + 60_000) + b"\0" * 60_000
    tables = b"\xff\xc4" + struct.pack(">H", 4) + b"\0\0"
    frame = b"\xff" * padding + b"\xff\xc2" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\1\x11\0"
    return b"\xff\xd8" + exif + tables + frame + b"\xff\xd9"


def webp(kind: bytes, payload: bytes) -> bytes:
    chunk = kind + struct.pack("<I", len(payload)) + payload
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def lossy_webp(width: int, height: int) -> bytes:
    return webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height))


def lossless_webp(width: int, height: int) -> bytes:
    return webp(b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + b"\0" * 5)


def extended_webp(width: int, height: int) -> bytes:
    return webp(b"VP8X", b"\0\0\0\0" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"))


def encoded(data: bytes, media_type: str = "image/png") -> Base64Source:
    return Base64Source(media_type, base64.b64encode(data).decode())


def of_blocks(*blocks: Text | Image | Document) -> int:
    """What the blocks add to an empty user turn."""
    empty = Request("m", (Turn("user", ()),), 100)
    return estimate_request(Request("m", (Turn("user", blocks),), 100)) - estimate_request(empty)


@pytest.mark.parametrize("make", [png, gif, jpeg, lossy_webp, lossless_webp, extended_webp])
def test_an_image_costs_a_token_for_750_pixels(make: Callable[[int, int], bytes]) -> None:
    assert of_blocks(Image(encoded(make(300, 200)))) == 300 * 200 // 750


def test_fill_bytes_before_a_jpeg_marker_are_skipped() -> None:
    assert of_blocks(Image(encoded(jpeg(300, 200, padding=3)))) == 80


@pytest.mark.parametrize(("width", "height", "tokens"), [(1, 1, 1), (1092, 1092, 1589), (4000, 3000, 1600)])
def test_an_image_costs_at_least_one_token_and_at_most_what_a_scaled_one_does(
    width: int, height: int, tokens: int
) -> None:
    assert of_blocks(Image(encoded(gif(width, height)))) == tokens


@pytest.mark.parametrize(
    "source",
    [
        UrlSource("https://example.org/a.png"),
        FileSource("file_1"),
        Base64Source("image/png", ""),
        Base64Source("image/png", "not base64 at all: ä"),
        Base64Source("image/png", "iVBOR"),
        encoded(b"\x89PNG"),
        encoded(b"RIFF0000WEBPVP9 " + b"\0" * 30),
        encoded(b"\xff\xd8\xff\xe0\x00\x00\xff\xe0\x00\x00"),
        encoded(b"plain bytes of no known kind"),
    ],
    ids=repr,
)
def test_an_image_of_unknown_size_costs_a_fixed_amount(source: MediaSource) -> None:
    assert of_blocks(Image(source)) == 1500


def pdf(pages: int, *, gap: bytes = b" ", filler: int = 0) -> bytes:
    kids = b"".join(b"<< /Type%s/Page /Parent 1 0 R >>\n" % gap for _ in range(pages))
    return b"%%PDF-1.7\n<< /Type /Pages /Count %d >>\n" % pages + kids + b"\0" * filler + b"%%EOF"


@pytest.mark.parametrize(
    ("data", "pages"),
    [
        (pdf(1), 1),
        (pdf(7), 7),
        (pdf(3, gap=b""), 3),
        (pdf(0), 1),
        (pdf(0, filler=500_000), 10),
        (pdf(2000), 600),
        (b"", 1),
    ],
    ids=["one", "seven", "no space", "no page in sight", "compressed tree", "more than a provider takes", "empty"],
)
def test_a_pdf_costs_by_its_pages(data: bytes, pages: int) -> None:
    assert of_blocks(Document(encoded(data, "application/pdf"))) == pages * PAGE


def test_the_pages_of_a_long_pdf_are_extrapolated_from_its_beginning() -> None:
    page = b"<< /Type /Page >>" + b"\0" * 99_983
    assert of_blocks(Document(encoded(b"%PDF" + page * 60, "application/pdf"))) == pytest.approx(60 * PAGE, rel=0.1)


@pytest.mark.parametrize("source", [UrlSource("https://example.org/a.pdf"), FileSource("file_1")])
def test_a_document_that_is_elsewhere_costs_a_page(source: MediaSource) -> None:
    assert of_blocks(Document(source)) == PAGE


def test_a_text_document_costs_its_text_title_and_context() -> None:
    text = estimate_text(PROSE)
    assert of_blocks(Document((Text(PROSE),))) == text
    assert of_blocks(Document((Text(PROSE),), title=PROSE, context=PROSE)) == 3 * text
    assert of_blocks(Document(encoded(PROSE.encode(), "text/plain"))) == text
    assert of_blocks(Document((Text(PROSE), Image(encoded(png(30, 50)))))) == text + 2


# --- requests -----------------------------------------------------------------------------------------------------


def test_a_plain_request_is_its_texts_and_a_frame_for_each_turn() -> None:
    turns = (Turn("user", (Text(PROSE),)), Turn("assistant", (Text(PROSE),)))
    request = Request("m", turns, 100, system=(Text(PROSE),))
    assert estimate_request(request) == 3 * estimate_text(PROSE) + 2 * 4


def test_an_empty_request_costs_nothing() -> None:
    assert estimate_request(Request("m", (), 100)) == 0


@pytest.mark.parametrize(
    "block",
    [
        Text(PROSE),
        Image(UrlSource("https://example.org/a.png")),
        Document((Text(PROSE),)),
        ToolUse("toolu_1", "get_weather", {"city": "Lisbon"}),
        ToolUse("toolu_1", "get_weather", {}),
        ToolResult("toolu_1"),
        ToolResult("toolu_1", (Text(PROSE), Image(encoded(png(90, 90))), ToolReference("get_weather"))),
        Thinking(PROSE, "c2lnbmF0dXJl"),
        RedactedThinking("x" * 400),
        ToolChange("add", "get_weather"),
        ToolChange("add", "get_weather", WEATHER),
        ServerBlock("web_search_tool_result", {"content": [{"title": PROSE}]}),
    ],
    ids=lambda block: type(block).__name__,
)
def test_every_kind_of_block_counts(block: Block) -> None:
    empty = estimate_request(Request("m", (Turn("user", ()),), 100))
    assert estimate_request(Request("m", (Turn("user", (block,)),), 100)) > empty


def test_arguments_results_and_thoughts_count_by_their_content() -> None:
    def cost(factor: int) -> int:
        text = PROSE * factor
        blocks = (ToolUse("t", "run", {"code": text}), ToolResult("t", (Text(text),)), Thinking(text))
        return estimate_request(Request("m", (Turn("user", blocks),), 100))

    assert cost(20) - cost(10) == pytest.approx(3 * 10 * estimate_text(PROSE), rel=0.1)


def test_a_signature_is_not_read_by_the_model() -> None:
    unsigned, signed = (Request("m", (Turn("assistant", (Thinking(PROSE, sign),)),), 100) for sign in ("", "x" * 9999))
    assert estimate_request(unsigned) == estimate_request(signed)


def test_tools_count_name_description_and_schema() -> None:
    definition = json.dumps(SCHEMA, separators=(",", ":"))
    expected = (
        8 + estimate_text("get_weather") + estimate_text("Current weather for a city.") + estimate_text(definition)
    )
    assert estimate_request(Request("m", (), 100, tools=(WEATHER,))) == expected


def test_the_tools_corpus_as_tools_is_close_to_its_reference() -> None:
    tools = tuple(
        Tool(tool["name"], tool["input_schema"], tool["description"]) for tool in json.loads(corpus("tools.json"))
    )
    assert estimate_request(Request("m", (), 100, tools=tools)) == pytest.approx(REFERENCE["tools.json"], rel=0.15)


def test_server_tools_and_output_formats_count() -> None:
    search = ServerTool("web_search_20250305", "web_search", {"max_uses": 5})
    assert estimate_request(Request("m", (), 100, tools=(search,))) > 8
    assert estimate_request(Request("m", (), 100, output_format=OutputFormat(SCHEMA))) > 8


DEFERRED = Tool("get_weather", SCHEMA, "Current weather for a city.", deferred=True)


def test_a_deferred_tool_costs_nothing_until_it_is_named() -> None:
    assert estimate_request(Request("m", (), 100, tools=(DEFERRED,))) == 0


@pytest.mark.parametrize(
    "block",
    [
        ToolResult("toolu_1", (ToolReference("get_weather"),)),
        ToolUse("toolu_1", "get_weather", {}),
        ToolChange("add", "get_weather"),
    ],
    ids=lambda block: type(block).__name__,
)
def test_a_deferred_tool_counts_once_it_is_named(block: ToolUse | ToolResult | ToolChange) -> None:
    turns = (Turn("user", (block,)),)
    tool = estimate_request(Request("m", (), 100, tools=(WEATHER,)))
    assert estimate_request(Request("m", turns, 100, tools=(DEFERRED,))) == tool + estimate_request(
        Request("m", turns, 100)
    )
