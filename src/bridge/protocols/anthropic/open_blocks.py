"""The block of an answer that is open: its pieces in, events out.

Blocks arrive one after another. Each kind says what it can at once; server blocks and redacted thinking, which other
protocols take whole, are said when they close.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from bridge.canonical.content import Citation, RedactedThinking, ServerBlock, Thinking
from bridge.canonical.events import (
    BlockStop,
    CitationDelta,
    InputDelta,
    SignatureDelta,
    TextDelta,
    TextStart,
    ThinkingDelta,
    ThinkingStart,
    ToolUseStart,
    WholeBlock,
)
from bridge.canonical.fold import parse_arguments
from bridge.canonical.json import dumps
from bridge.protocols.anthropic.replayed_thinking import ThinkingBeforeCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.canonical.events import StreamEvent
    from bridge.canonical.json import WireObject

MAX_HELD_CHARACTERS = 8 * 1024 * 1024
_KNOWN_DELTAS = frozenset({"text_delta", "input_json_delta", "thinking_delta", "signature_delta", "citations_delta"})
_SERVER_TYPES = frozenset(
    {"server_tool_use", "mcp_tool_use", "mcp_tool_listing", "container_upload", "compaction", "fallback"}
)


class BlockError(ValueError):
    """The provider's pieces do not make a block."""


class Answer:
    """What the blocks of one answer leave for those that follow and for its end."""

    __slots__ = ("calls", "characters", "names", "thinking", "unfinished")

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names
        self.thinking = ThinkingBeforeCall()
        self.characters = 0
        self.calls = 0
        self.unfinished: str | None = None
        """The tool whose arguments stop in the middle: only an answer that was cut short may hold such a call."""


class OpenBlock(Protocol):
    def delta(self, delta: WireObject, out: list[StreamEvent]) -> None: ...

    def close(self, out: list[StreamEvent]) -> None: ...


def open_block(block: WireObject, answer: Answer, out: list[StreamEvent]) -> OpenBlock:
    """The block that begins; it may hold everything already. Kinds that nobody knows are skipped."""
    kind = block["type"]
    match kind:
        case "text":
            return _OpenText(block, answer, out)
        case "thinking":
            return _OpenThinking(block, answer, out)
        case "tool_use":
            return _OpenToolUse(block, answer, out)
        case "redacted_thinking":
            return _OpenRedacted(block, answer)
    if kind in _SERVER_TYPES or str(kind).endswith("_tool_result"):
        return _OpenServerBlock(block)
    return _Skipped()


class _OpenText:
    __slots__ = ("_answer",)

    def __init__(self, block: WireObject, answer: Answer, out: list[StreamEvent]) -> None:
        self._answer = answer
        out.append(TextStart())
        self._say(_text(block, "text"), out)
        out.extend(CitationDelta(_citation(citation)) for citation in block.get("citations") or ())

    def delta(self, delta: WireObject, out: list[StreamEvent]) -> None:
        kind = delta["type"]
        if kind == "text_delta":
            self._say(_text(delta, "text"), out)
        elif kind == "citations_delta":
            out.append(CitationDelta(_citation(delta["citation"])))
        else:
            _refuse_known(kind)

    def close(self, out: list[StreamEvent]) -> None:
        out.append(BlockStop())

    def _say(self, text: str, out: list[StreamEvent]) -> None:
        if text:
            self._answer.characters += len(text)
            self._answer.thinking.text_was_said = True
            out.append(TextDelta(text))


class _OpenThinking:
    """Thinking is said as it arrives, and kept for the tool call that it may lead to."""

    __slots__ = ("_answer", "_pieces", "_signature")

    def __init__(self, block: WireObject, answer: Answer, out: list[StreamEvent]) -> None:
        self._answer = answer
        self._pieces: list[str] = []
        self._signature = ""
        out.append(ThinkingStart())
        self._say(_text(block, "thinking"), out)
        self._sign(str(block.get("signature") or ""), out)

    def delta(self, delta: WireObject, out: list[StreamEvent]) -> None:
        kind = delta["type"]
        if kind == "thinking_delta":
            self._say(_text(delta, "thinking"), out)
        elif kind == "signature_delta":
            self._sign(_text(delta, "signature"), out)
        else:
            _refuse_known(kind)

    def close(self, out: list[StreamEvent]) -> None:
        self._answer.thinking.add(Thinking("".join(self._pieces), self._signature))
        out.append(BlockStop())

    def _say(self, thinking: str, out: list[StreamEvent]) -> None:
        if not thinking:
            return
        self._answer.characters += len(thinking)
        self._answer.thinking.count(len(thinking))
        if self._answer.thinking.has_room:
            self._pieces.append(thinking)
        out.append(ThinkingDelta(thinking))

    def _sign(self, signature: str, out: list[StreamEvent]) -> None:
        if signature:
            self._signature += signature
            if len(self._signature) > MAX_HELD_CHARACTERS:
                raise BlockError("the signature of a thinking block is too large")
            out.append(SignatureDelta(signature))


class _OpenToolUse:
    """A call of the client's tool; arguments that came with its start are said if no others follow."""

    __slots__ = ("_answer", "_given", "_input", "_name")

    def __init__(self, block: WireObject, answer: Answer, out: list[StreamEvent]) -> None:
        name = block.get("name")
        if not name or not isinstance(name, str):
            raise BlockError("a tool call began without a name")
        self._answer = answer
        self._name = answer.names.get(name, name)
        self._given = block.get("input")
        self._input = _HeldJson(f"the arguments of the tool call {self._name!r}")
        answer.calls += 1
        out.append(ToolUseStart(str(block.get("id") or ""), self._name, answer.thinking.take()))

    def delta(self, delta: WireObject, out: list[StreamEvent]) -> None:
        kind = delta["type"]
        if kind != "input_json_delta":
            _refuse_known(kind)
        elif piece := _text(delta, "partial_json"):
            self._answer.characters += len(piece)
            self._input.add(piece)
            out.append(InputDelta(piece))

    def close(self, out: list[StreamEvent]) -> None:
        arguments = self._input.text
        if not arguments.strip() and self._given:
            arguments = dumps(self._given).decode()
            self._answer.characters += len(arguments)
            out.append(InputDelta(arguments))
        if not _is_object(arguments, partial=True):
            raise BlockError(f"the arguments of the tool call {self._name!r} are not a JSON object")
        if not _is_object(arguments, partial=False):
            self._answer.unfinished = self._name
        out.append(BlockStop())


class _OpenRedacted:
    __slots__ = ("_answer", "_block")

    def __init__(self, block: WireObject, answer: Answer) -> None:
        self._answer = answer
        self._block = RedactedThinking(_text(block, "data"))

    def delta(self, delta: WireObject, out: list[StreamEvent]) -> None:  # noqa: ARG002 - no delta says anything to it
        _refuse_known(delta["type"])

    def close(self, out: list[StreamEvent]) -> None:
        self._answer.thinking.add(self._block)
        out.append(WholeBlock(self._block))


class _OpenServerBlock:
    """What Anthropic's own tools did; the input of a call and the text of a summary arrive in pieces."""

    __slots__ = ("_block", "_input")

    def __init__(self, block: WireObject) -> None:
        self._block = dict(block)
        self._input = _HeldJson(f"a block of the type {block['type']!r}")

    def delta(self, delta: WireObject, out: list[StreamEvent]) -> None:  # noqa: ARG002 - it is said when it closes
        if delta["type"] == "input_json_delta":
            self._input.add(_text(delta, "partial_json"))
        elif delta["type"] == "compaction_delta":
            fields = {name: value for name, value in delta.items() if name != "type" and value is not None}
            self._block |= {name: _joined(self._block.get(name), value) for name, value in fields.items()}
        else:
            _refuse_known(delta["type"])

    def close(self, out: list[StreamEvent]) -> None:
        if self._input.text.strip():
            with suppress(ValueError):  # nobody but Anthropic runs it
                self._block["input"] = parse_arguments(self._input.text)
        out.append(WholeBlock(ServerBlock(str(self._block["type"]), self._block)))


class _Skipped:
    __slots__ = ()

    def delta(self, delta: WireObject, out: list[StreamEvent]) -> None:
        """Nothing of it is said."""

    def close(self, out: list[StreamEvent]) -> None:
        """Nothing was begun."""


class _HeldJson:
    """Pieces of JSON, bounded."""

    __slots__ = ("_pieces", "_size", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._pieces: list[str] = []
        self._size = 0

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def add(self, piece: str) -> None:
        self._size += len(piece)
        if self._size > MAX_HELD_CHARACTERS:
            raise BlockError(f"{self._what} are too large")
        self._pieces.append(piece)


def _is_object(arguments: str, *, partial: bool) -> bool:
    try:
        parse_arguments(arguments, partial=partial)
    except ValueError:
        return False
    return True


def _text(holder: WireObject, name: str) -> str:
    value = holder.get(name) or ""
    if not isinstance(value, str):
        raise BlockError(f"a piece of the answer has a {name!r} that is not text")
    return value


def _joined(before: object, piece: object) -> object:
    return before + piece if isinstance(before, str) and isinstance(piece, str) else piece


def _refuse_known(kind: str) -> None:
    """A kind of piece that nobody knows is skipped; one that belongs into another block is not."""
    if kind in _KNOWN_DELTAS:
        raise BlockError(f"a piece of the kind {kind!r} arrived for a block that cannot hold it")


def _citation(citation: WireObject) -> Citation:
    """The source of a text: a page by its address, a document by its title."""
    title = citation.get("title") or citation.get("document_title")
    source = citation.get("url") or citation.get("source") or ""
    return Citation(str(source), str(title) if title else None, str(citation.get("cited_text") or ""))
