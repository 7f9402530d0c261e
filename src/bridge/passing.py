"""Client and provider speak the same protocol: the bytes go through as they are, and are only watched for usage."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import orjson

from bridge.calling import BYTES_PER_TOKEN, JSON, MAX_ANSWER_BYTES, read_and_close, read_refusal, without_keys
from bridge.canonical.events import Usage
from bridge.deadline import until
from bridge.errors import BridgeError, broken_upstream
from bridge.exchange import Answer
from bridge.headers import passed_back, passed_on
from bridge.protocols import registry
from bridge.providers import ANSWER_PATHS
from bridge.sse import EventTooLargeError, SseParser

if TYPE_CHECKING:
    from types import TracebackType

    from bridge.calling import Caller
    from bridge.exchange import ClientCall, StreamBody, Write
    from bridge.ports import UpstreamReply
    from bridge.providers import ProtocolName, Provider


class Keeper(Protocol):
    """Reads something off an answer that passes by, and keeps it before the answer ends."""

    def feed(self, data: bytes) -> None: ...

    def document(self, data: bytes) -> None: ...

    async def keep(self) -> int:
        """How much could not be kept."""


async def pass_through(
    caller: Caller, call: ClientCall, provider: Provider, path: str, body: bytes, keeper: Keeper | None = None
) -> Answer:
    """Ask the provider in the client's own words."""
    query = f"?{call.query}" if call.query else ""
    watch = UsageWatch(call, costs=path in ANSWER_PATHS.values())
    with watch:
        reply = await caller.send(call, provider, path + query, body, passed_on(call.headers))
    if 300 <= reply.status < 400:
        await reply.aclose()
        raise broken_upstream(f"it answered {reply.status}, a redirect; check the base URL", provider.name)
    headers = {"content-type": JSON, **passed_back(reply.headers)}
    if reply.status < 300 and headers["content-type"].lower().startswith("text/event-stream"):
        body_writer = _relayed(call, reply, provider, keeper, watch)
        return Answer(reply.status, headers, body_writer, registry.heartbeat(call.protocol))
    if reply.status >= 400:
        refusal = await read_refusal(reply, MAX_ANSWER_BYTES)
        return Answer(reply.status, headers, without_keys(refusal, provider, None))
    with watch:
        said = without_keys(await read_and_close(reply, MAX_ANSWER_BYTES), provider, None)
    watch.document(said)
    if keeper is not None:
        keeper.document(said)
        call.record.state_failures += await keeper.keep()
    return Answer(reply.status, headers, said)


def _relayed(
    call: ClientCall, reply: UpstreamReply, provider: Provider, keeper: Keeper | None, watch: UsageWatch
) -> StreamBody:
    keys = [key.encode() for key in provider.keys]

    async def relay(write: Write) -> None:
        async for data in reply.chunks():
            if keeper is not None:
                keeper.feed(data)
                if b'"finish_reason":"' in data or b'"finish_reason": "' in data:  # now the client may answer
                    call.record.state_failures += await keeper.keep()
            for key in keys:
                if key in data:
                    data = data.replace(key, b"***")
            await write(data)
            watch.feed(data)

    async def write_all(write: Write) -> None:
        try:
            with watch:
                async with until(call.deadline):
                    await relay(write)
        except BridgeError as error:
            call.record.fail(error)
            await write(registry.encode_stream_error(call.protocol, error))
            if keeper is not None:
                call.record.state_failures += await keeper.keep()
        finally:
            watch.finish()
            await reply.aclose()

    return write_all


class UsageWatch:
    """Reads token counts from an answer on its way; whatever it cannot read is none of its business.

    Surrounds what the client waits for: if it leaves, what is known so far is counted, unless the call `costs` nothing.
    """

    def __init__(self, call: ClientCall, *, costs: bool) -> None:
        self._record = call.record
        self._costs = costs
        self._protocol: ProtocolName = call.protocol
        self._sse: SseParser | None = SseParser()
        self._asked_bytes = len(call.body)
        self._events = 0
        self._is_unfinished = False

    def feed(self, data: bytes) -> None:
        """A piece of a stream: only events that tell of usage are parsed."""
        if self._sse is None:
            return
        try:
            for event in self._sse.feed(data):
                self._events += 1
                if b'"usage"' in event.data:
                    self.document(event.data)
        except EventTooLargeError:
            self._sse = None

    def finish(self) -> None:
        """A stream that told of no usage is counted by a rule of thumb: an event is about a token."""
        if self._record.usage is None and self._events:
            self._record.usage = self._estimated()

    def _estimated(self) -> Usage:
        return Usage(self._asked_bytes // BYTES_PER_TOKEN, self._events, estimated=True)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is asyncio.CancelledError and self._costs:
            self._leave()

    def _leave(self) -> None:
        """Nobody waits for the end: what was told so far is as of the start, and each event is about a token."""
        told = self._record.usage
        if told is None:
            self._record.usage = self._estimated()
        elif self._is_unfinished:
            self._record.usage = replace(told, output_tokens=max(told.output_tokens, self._events), estimated=True)

    def document(self, data: bytes) -> None:
        try:
            said = orjson.loads(data)
            usage = registry.usage_of(self._protocol)(said, self._record.usage)
        except (AttributeError, TypeError, ValueError):
            return
        self._is_unfinished = self._record.usage is None and self._protocol == "anthropic"  # another count follows
        self._record.usage = usage or self._record.usage
