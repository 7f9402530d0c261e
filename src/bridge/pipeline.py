"""The way of a request: envelope, route, translate, call, translate back. One direction."""

from __future__ import annotations

import asyncio
import random
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import orjson

from bridge.canonical.events import MessageEnd, StreamFailed, ToolUseStart
from bridge.canonical.fold import fold, unfold
from bridge.errors import BridgeError, ErrorKind, invalid_request
from bridge.exchange import Answer, read_envelope
from bridge.ports import UpstreamCall
from bridge.protocols import registry
from bridge.routing import RouteHints, route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from bridge.canonical.events import StreamEvent
    from bridge.exchange import ClientCall, StreamBody, Write
    from bridge.ports import StreamDecoder, StreamEncoder, Upstream, UpstreamReply
    from bridge.providers import Provider
    from bridge.routing import Route, RoutingTable

MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
DEADLINE_MARGIN_SECONDS = 1.5
EVENT_STREAM = "text/event-stream; charset=utf-8"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Bridge:
    """The pipeline with everything it needs."""

    routing: RoutingTable
    upstream: Upstream
    stream_upstream: bool = True

    async def answer(self, call: ClientCall) -> Answer:
        """Serve one request for an assistant turn."""
        envelope = read_envelope(call.body)
        target = route(self.routing, envelope.model, _hints(call.headers))
        call.record.provider, call.record.wire_model = target.provider.name, target.wire_model
        call.record.route_reason = target.reason
        async with _until(call.deadline):
            if target.provider.protocol == call.protocol:
                return await self._pass_through(call, target, envelope.model)
            return await self._translate(call, target, envelope.model)

    async def _translate(self, call: ClientCall, target: Route, model: str) -> Answer:
        client, server = registry.client(call.protocol), registry.server(target.provider.protocol)
        request = client.parse_request(call.body)
        streaming = request.stream and self.stream_upstream
        rendered = server.render_request(replace(request, stream=streaming), target.wire_model)
        call.record.losses = rendered.losses
        reply = await self._send(call, target.provider, orjson.dumps(rendered.body))
        if reply.status >= 400:
            raise await _refusal(reply, target.provider)
        encoder = client.stream_encoder(f"msg_{secrets.token_hex(12)}", model)
        tools = _ToolIds(call)
        if streaming:
            decoder = server.stream_decoder(target.provider.name)
            return await _streamed(call, _Translation(reply, decoder, encoder, tools))
        body = await _read_and_close(reply, MAX_ANSWER_BYTES)
        message = server.parse_response(body, target.provider.name)
        events = tools.observe(unfold(message))
        if request.stream:
            return Answer(200, {"content-type": EVENT_STREAM}, encoder.encode(events))
        whole = client.render_response(fold(events), f"msg_{secrets.token_hex(12)}", model)
        return Answer(200, {"content-type": JSON}, orjson.dumps(whole))

    async def _pass_through(self, call: ClientCall, target: Route, model: str) -> Answer:
        """Client and provider speak the same protocol: the bytes go through as they are."""
        body = call.body
        if target.wire_model != model:
            body = orjson.dumps(orjson.loads(body) | {"model": target.wire_model})
        reply = await self._send(call, target.provider, body)
        headers = {"content-type": reply.headers.get("content-type", JSON)}
        if not headers["content-type"].startswith("text/event-stream"):
            return Answer(reply.status, headers, await _read_and_close(reply, MAX_ANSWER_BYTES))
        return Answer(reply.status, headers, _relay(call, reply))

    async def _send(self, call: ClientCall, provider: Provider, body: bytes) -> UpstreamReply:
        key = random.choice(provider.keys) if provider.keys else call.credential  # noqa: S311  (load spreading)
        headers = {"content-type": JSON} | provider.headers(key, call.headers)
        reply = await self.upstream.send(UpstreamCall(provider.name, "POST", provider.answer_url, headers, body))
        call.record.upstream_status = reply.status
        return reply


async def _refusal(reply: UpstreamReply, provider: Provider) -> BridgeError:
    """The provider's refusal in the bridge's own terms."""
    body = await _read_and_close(reply, MAX_ERROR_BYTES)
    parse_error = registry.server(provider.protocol).parse_error
    return parse_error(reply.status, body, provider.name, reply.headers.get("retry-after"))


class _ToolIds:
    """Gives every tool call an id of the bridge's own: providers repeat theirs, or send none."""

    def __init__(self, call: ClientCall) -> None:
        self._record = call.record

    def observe(self, events: Iterable[StreamEvent]) -> list[StreamEvent]:
        return [self._observe(event) for event in events]

    def _observe(self, event: StreamEvent) -> StreamEvent:
        match event:
            case ToolUseStart(_, name):
                self._record.tool_call_count += 1
                return ToolUseStart(f"toolu_{secrets.token_hex(12)}", name)
            case MessageEnd(reason, usage):
                self._record.stop_reason, self._record.usage = reason, usage
        return event


@dataclass(frozen=True, slots=True)
class _Translation:
    """A provider's stream on its way to becoming a client's."""

    reply: UpstreamReply
    decoder: StreamDecoder
    encoder: StreamEncoder
    tools: _ToolIds

    async def events(self) -> AsyncIterator[list[StreamEvent]]:
        async for data in self.reply.chunks():
            batch = self.decoder.feed(data)
            if batch:
                yield self.tools.observe(batch)
        yield self.tools.observe(self.decoder.close())


async def _streamed(call: ClientCall, translation: _Translation) -> Answer:
    """Wait for the first events, so that an early failure still has a status of its own, then stream."""
    batches = translation.events()
    try:
        first = await anext(batches)
    except BaseException:
        await translation.reply.aclose()
        raise
    if isinstance(first[0], StreamFailed):
        await translation.reply.aclose()
        raise first[0].error
    return Answer(200, {"content-type": EVENT_STREAM}, _stream_body(call, translation, first, batches))


def _stream_body(
    call: ClientCall,
    translation: _Translation,
    first: list[StreamEvent],
    batches: AsyncIterator[list[StreamEvent]],
) -> StreamBody:
    encode = translation.encoder.encode

    async def write_all(write: Write) -> None:
        try:
            async with _until(call.deadline):
                await write(encode(first))
                async for batch in batches:
                    if batch:
                        await write(encode(batch))
        except BridgeError as error:
            call.record.error_kind = error.kind.name
            await write(encode([StreamFailed(error)]))
        finally:
            await translation.reply.aclose()

    return write_all


def _relay(call: ClientCall, reply: UpstreamReply) -> StreamBody:
    async def write_all(write: Write) -> None:
        try:
            async with _until(call.deadline):
                async for data in reply.chunks():
                    await write(data)
        except BridgeError as error:
            call.record.error_kind = error.kind.name
            await write(registry.encode_stream_error(call.protocol, error))
        finally:
            await reply.aclose()

    return write_all


async def _read_and_close(reply: UpstreamReply, limit: int) -> bytes:
    try:
        return await reply.read(limit)
    finally:
        await reply.aclose()


class _until:  # noqa: N801  (reads as a preposition where it is used)
    """Ends what it surrounds a moment before the deadline, as an error that the client can retry."""

    def __init__(self, deadline: float | None) -> None:
        when = None if deadline is None else deadline - DEADLINE_MARGIN_SECONDS
        self._timeout = asyncio.timeout_at(when)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *exc: object) -> None:
        try:
            await self._timeout.__aexit__(*exc)  # type: ignore[arg-type]
        except TimeoutError:
            if not self._timeout.expired():
                raise
            raise BridgeError(
                ErrorKind.TIMEOUT,
                "the time of this invocation ran out before the answer was complete; try again",
            ) from None


def _hints(headers: Mapping[str, str]) -> RouteHints:
    def named(name: str) -> str | None:
        value = headers.get(f"x-bridge-{name}") or headers.get(f"x-castari-{name}")
        if value and len(value) > 256:
            raise invalid_request(f"x-bridge-{name}: longer than 256 characters")
        return value

    return RouteHints(named("provider"), named("model"), named("wire-model"))
