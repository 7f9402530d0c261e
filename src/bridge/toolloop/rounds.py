"""Reads one answer of the model inside the loop: what the client sees of it at once, and what the loop needs of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.canonical.events import (
    BlockStop,
    InputDelta,
    MessageEnd,
    MessageStart,
    StreamFailed,
    ToolUseStart,
    WholeBlock,
)
from bridge.canonical.fold import fold, parse_arguments
from bridge.canonical.json import dumps
from bridge.toolloop.blocks import shown_call

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.canonical.events import StreamEvent
    from bridge.canonical.fold import Message
    from bridge.canonical.json import JsonObject
    from bridge.toolloop.tools import BridgeTool


@dataclass(slots=True)
class RoundReader:
    """Passes an answer on, with calls of the bridge's tools shown as whole blocks and without start and end."""

    tools: Mapping[str, BridgeTool]
    is_first: bool
    failure: StreamFailed | None = None
    broken: set[str] = field(default_factory=set)
    """Ids of calls whose arguments are not a whole JSON object."""
    _kept: list[StreamEvent] = field(default_factory=list)
    _call: ToolUseStart | None = None
    _pieces: list[str] = field(default_factory=list)

    def feed(self, batch: Iterable[StreamEvent]) -> list[StreamEvent]:
        """What the client sees now."""
        return [shown for event in batch for shown in self._feed(event)]

    def message(self) -> Message:
        """The whole answer; UnfinishedMessageError if it has no end."""
        return fold(self._kept)

    def _feed(self, event: StreamEvent) -> list[StreamEvent]:
        match event:
            case MessageStart():
                return [event] if self.is_first else []
            case MessageEnd():
                self._kept.append(event)
                return []
            case StreamFailed():
                self.failure = event
                return []
            case ToolUseStart():
                self._kept.append(event)
                self._call, self._pieces = event, []
                return [] if event.name in self.tools else [event]
            case InputDelta(piece) if self._call is not None:
                self._pieces.append(piece)
                return [] if self._call.name in self.tools else [event]
            case BlockStop() if self._call is not None:
                return self._end_call(self._call, event)
        self._kept.append(event)
        return [event]

    def _end_call(self, call: ToolUseStart, stop: BlockStop) -> list[StreamEvent]:
        arguments = self._arguments(call.id, "".join(self._pieces))
        self._kept += [InputDelta(dumps(arguments).decode()), stop]
        self._call = None
        tool = self.tools.get(call.name)
        return [stop] if tool is None else [WholeBlock(shown_call(call.id, tool.shape, arguments))]

    def _arguments(self, tool_id: str, text: str) -> JsonObject:
        try:
            return parse_arguments(text, partial=False)
        except ValueError:
            self.broken.add(tool_id)
            return {}
