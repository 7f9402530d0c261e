"""One provider asked for one turn, and what it answers in the bridge's own terms."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from bridge.calling import (
    BYTES_PER_TOKEN,
    MAX_ANSWER_BYTES,
    MAX_ERROR_BYTES,
    masked,
    read_and_close,
    read_refusal,
    without_keys,
)
from bridge.canonical.events import StreamFailed, Usage
from bridge.canonical.fold import fold
from bridge.canonical.json import dumps
from bridge.canonical.request import media_characters
from bridge.errors import BridgeError
from bridge.protocols import registry
from bridge.providers import ANSWER_PATHS
from bridge.state.memory import without_replays
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from bridge.calling import Caller
    from bridge.canonical.events import StreamEvent
    from bridge.canonical.fold import Message
    from bridge.canonical.reading import Reading
    from bridge.canonical.request import Request
    from bridge.canonical.target import Target
    from bridge.exchange import ClientCall, Record
    from bridge.ports import StreamDecoder, UpstreamReply
    from bridge.protocols.registry import ServerSide
    from bridge.providers import ProtocolName, Provider

_REFUSED_REPLAY = re.compile(r"signature|reasoning|thinking|encrypted content|item with id", re.I)


@dataclass(slots=True)
class Asked:
    """A provider's answer on its way."""

    reply: UpstreamReply
    server: ServerSide
    reading: Reading
    record: Record
    mask: Callable[[BridgeError], BridgeError]
    """Takes keys out of what the provider says about errors."""
    decoder: StreamDecoder | None = None
    """Reads the answer, where it is a stream that is being read."""

    @property
    def is_stream(self) -> bool:
        """False also where a provider that was asked for a stream sends a document, most often an error, instead."""
        content_type = self.reply.headers.get("content-type", "")
        return "json" not in content_type and "html" not in content_type

    async def events(self) -> AsyncIterator[list[StreamEvent]]:
        """What the answer says, as it comes."""
        decoder = self.decoder = self.server.stream_decoder(self.reading)
        try:
            async for data in self.reply.chunks():
                batch = decoder.feed(data)
                if batch:
                    yield batch if batch[-1].__class__ is not StreamFailed else self._masked(batch)
        except BridgeError:
            last = decoder.close()
            if last and isinstance(last[-1], StreamFailed):
                raise
        else:
            last = self._masked(decoder.close())
        if last:  # where the connection broke, it broke after everything had been said
            yield last

    def _masked(self, batch: list[StreamEvent]) -> list[StreamEvent]:
        last = batch[-1] if batch else None
        return [*batch[:-1], StreamFailed(self.mask(last.error))] if isinstance(last, StreamFailed) else batch

    async def aclose(self) -> None:
        """Let go of the answer; if it has not come to its end, what it has used is counted as far as it is known."""
        if self.decoder is not None:
            self.record.spend(self.decoder.unfinished_usage())
            self.decoder = None
        await self.reply.aclose()

    async def message(self) -> Message:
        """The whole answer; some servers stream it although they were not asked to."""
        try:
            body = await read_and_close(self.reply, MAX_ANSWER_BYTES)
        except asyncio.CancelledError:
            self.record.spend(Usage(self.reading.estimated_input_tokens, estimated=True))
            raise
        try:
            if not self.reply.headers.get("content-type", "").startswith("text/event-stream"):
                return self.server.parse_response(body, self.reading)
            decoder = self.server.stream_decoder(self.reading)
            return fold([*decoder.feed(body), *decoder.close()])
        except BridgeError as error:
            raise self.mask(error) from None


@dataclass(frozen=True, slots=True)
class Inquiry:
    """Whom to ask on whose behalf."""

    caller: Caller
    call: ClientCall
    provider: Provider
    protocol: ProtocolName
    target: Target

    async def ask(self, request: Request) -> Asked:
        """Send the request; where the provider refuses data of its own that was replayed, once more without it."""
        call, server = self.call, registry.server(self.protocol)
        rendered = server.render_request(request, self.target)
        body = dumps(rendered.body)
        call.record.losses = rendered.losses
        input_tokens = _rough_tokens(len(body), request)
        try:
            reply = await self.caller.send(call, self.provider, ANSWER_PATHS[self.protocol], body)
        except asyncio.CancelledError:  # nobody waits any more, but the provider may have read all of it
            call.record.spend(Usage(input_tokens, estimated=True))
            raise
        if reply.status < 300:
            return Asked(reply, server, rendered.reading.of_input(input_tokens), call.record, self._mask)
        refusal = await self._refusal(reply, server)
        if not (call.record.replayed_calls and _refuses_replay(refusal)):
            raise refusal
        call.record.replayed_calls = 0
        return await self.ask(without_replays(request))

    def _mask(self, error: BridgeError) -> BridgeError:
        return masked(error, self.provider, self.call.credential)

    async def _refusal(self, reply: UpstreamReply, server: ServerSide) -> BridgeError:
        """The provider's refusal in the bridge's own terms."""
        said = await read_refusal(reply, MAX_ERROR_BYTES)
        body = without_keys(said, self.provider, self.call.credential)
        return server.parse_error(reply.status, body, self.provider.name, reply.headers.get("retry-after"))


def _refuses_replay(refusal: BridgeError) -> bool:
    return refusal.status in (400, 404) and _REFUSED_REPLAY.search(refusal.message) is not None


def _rough_tokens(body_size: int, request: Request) -> int:
    """Enough for the first event of a stream; the provider's own count follows in the last one."""
    return max(1, (body_size - media_characters(request)) // BYTES_PER_TOKEN)
