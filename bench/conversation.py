"""One conversation that grows by tool calls, in the bridge's own store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bench.bodies import anthropic_body, tool_result_body
from bench.load import Connection, LoadError, Request, payload, post
from bench.systems import TOKEN

if TYPE_CHECKING:
    from bench.systems import System

FRAGMENTS = 50
_TOOL_ID = re.compile(rb'"id":"(toolu_[^"]+)","name":"([^"]+)"')
_CONVERSATION = re.compile(rb"\r\nx-conversation-id: ([^\r]+)\r\n", re.I)


class LongConversation:
    """Grows by one tool call a turn; each turn shows only the call before it."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._calls = 0
        self._newest = self._name = ""
        self._conversation = b""

    def grow_to(self, calls: int) -> None:
        """Have the model make calls until the conversation holds so many."""
        while self._calls < calls:
            body = (
                tool_result_body("fake-tool", self._newest, self._name) if self._newest else anthropic_body("fake-tool")
            )
            self._take(self._ask(body))

    def trimmed_turn(self) -> Request:
        """A turn with the result of a call that the history no longer shows."""
        return self._request(tool_result_body("fake-1x0", self._newest), b'"text_delta"', 1)

    def _ask(self, body: bytes) -> bytes:
        with Connection(self._request(body, b'"input_json_delta"', FRAGMENTS)) as connection:
            return connection.exchange().raw

    def _request(self, body: bytes, marker: bytes, tokens: int) -> Request:
        port = self._system.service.port
        return Request(port, post(port, self._system.path, TOKEN, body), marker, tokens)

    def _take(self, raw: bytes) -> None:
        call, told = _TOOL_ID.search(payload(raw)), _CONVERSATION.search(raw)
        if call is None or told is None or (self._conversation and told[1] != self._conversation):
            raise LoadError(f"the conversation does not go on: {raw[:600]!r}")
        self._newest, self._name, self._conversation = call[1].decode(), call[2].decode(), told[1]
        self._calls += 1
