"""The way of a request: envelope, route, translate, call, translate back. One direction."""

from __future__ import annotations

import asyncio
import random
import re
import secrets
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import orjson

from bridge.canonical.fold import fold, unfold
from bridge.canonical.head import AnswerHead
from bridge.canonical.json import dumps
from bridge.canonical.request import media_characters
from bridge.canonical.target import Target
from bridge.conversation import cache_key, conversation
from bridge.deadline import until
from bridge.errors import BridgeError, invalid_request
from bridge.exchange import Answer, read_envelope
from bridge.ports import UpstreamCall
from bridge.protocols import registry
from bridge.routing import RouteHints, route
from bridge.state.keeper import AnswerKeeper
from bridge.state.memory import ToolMemory, without_replays
from bridge.streams import EVENT_STREAM, Translation, relayed, streamed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.canonical.fold import Message
    from bridge.canonical.reading import Reading, Rendered
    from bridge.canonical.request import Request
    from bridge.conversation import Conversation
    from bridge.exchange import ClientCall, Envelope
    from bridge.ports import ConversationStore, ThreadStore, Upstream, UpstreamReply
    from bridge.protocols.registry import ServerSide
    from bridge.providers import Provider
    from bridge.routing import Route, RoutingTable
    from bridge.state.threads import ThreadTurn

MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
MAX_LOSSES_HEADER = 1024
MAX_KEYS_TRIED = 2
BYTES_PER_TOKEN = 4
JSON = "application/json"
_REFUSED_REPLAY = re.compile(r"signature|reasoning|thinking", re.I)
_PASSED_BACK = frozenset({"content-type", "retry-after", "x-should-retry"})


@dataclass(frozen=True, slots=True)
class Bridge:
    """The pipeline with everything it needs."""

    routing: RoutingTable
    upstream: Upstream
    store: ConversationStore
    threads: ThreadStore | None = None
    """None where threads are switched off."""
    stream_upstream: bool = True

    async def answer(self, call: ClientCall) -> Answer:
        """Serve one request for an assistant turn."""
        envelope = read_envelope(call.body)
        target = self._route(call, envelope)
        async with until(call.deadline):
            if target.provider.protocol == call.protocol:
                return await self._pass_through(call, target, envelope.model, target.provider.answer_path)
            return await self._translate(call, target, envelope)

    async def count_tokens(self, call: ClientCall) -> Answer:
        """Count a request's input tokens: by Anthropic itself where it is the upstream, else by estimate."""
        envelope = read_envelope(call.body)
        target = self._route(call, envelope)
        if target.provider.protocol == "anthropic":
            async with until(call.deadline):
                return await self._pass_through(call, target, envelope.model, "/messages/count_tokens")
        from bridge.protocols.anthropic.parse_request import parse_countable
        from bridge.tokens import estimate_request

        counted = await asyncio.to_thread(lambda: estimate_request(parse_countable(call.body)))
        return Answer(200, {"content-type": JSON}, dumps({"input_tokens": counted}))

    def _route(self, call: ClientCall, envelope: Envelope) -> Route:
        target = route(self.routing, envelope.model, _hints(call.headers))
        call.record.provider, call.record.wire_model = target.provider.name, target.wire_model
        call.record.route_reason = target.reason
        return target

    async def _translate(self, call: ClientCall, target: Route, envelope: Envelope) -> Answer:
        thread = await self._open_thread(call) if envelope.thread and call.protocol == "anthropic" else None
        try:
            return await self._answer_turn(call, target, envelope.model, thread)
        except BaseException:
            if thread is not None:
                await thread.give_up()
            raise

    async def _open_thread(self, call: ClientCall) -> ThreadTurn:
        """The turn of a message thread; to an Anthropic upstream threads pass untouched."""
        from bridge.state.threads import open_turn, thread_error

        if self.threads is None:
            raise thread_error("thread_unsupported_request")
        return await open_turn(self.threads, call.principal, call.body)

    async def _answer_turn(self, call: ClientCall, route: Route, model: str, thread: ThreadTurn | None) -> Answer:
        client, server = registry.client(call.protocol), registry.server(route.provider.protocol)
        request = client.parse_request(thread.body if thread else call.body)
        talk = conversation(call.headers, request)
        call.record.conversation_id = talk.id
        target = _target(call, route, talk)
        memory = ToolMemory(self.store, call.principal, target.family, call.record)
        request = await memory.recall(request, talk)
        ask_for_stream = request.stream and self.stream_upstream
        reply, rendered = await self._ask(call, route.provider, replace(request, stream=ask_for_stream), target)
        call.record.losses = rendered.losses
        headers = {"x-conversation-id": talk.id, **_losses_header(rendered.losses)}
        answer_id = thread.message_id if thread else f"{client.id_prefix}{secrets.token_hex(12)}"
        head = AnswerHead(answer_id, model, int(time.time()), request.echo)
        encoder = client.stream_encoder(head)
        keeper = AnswerKeeper(memory.keeper(talk), thread, client.render_content)
        if ask_for_stream and not _is_whole(reply):
            decoder = server.stream_decoder(rendered.reading)
            return await streamed(call, Translation(reply, decoder, encoder, keeper), headers)
        message = await _whole_message(reply, server, rendered.reading)
        events = keeper.observe(unfold(message))
        await keeper.settle()
        if request.stream:
            return Answer(200, {"content-type": EVENT_STREAM, **headers}, encoder.encode(events))
        if call.record.state_failures:
            headers["x-bridge-state"] = "not stored: results of these tool calls may not be understood later"
        whole = client.render_response(fold(events), head)
        return Answer(200, {"content-type": JSON, **headers}, dumps(whole))

    async def _ask(
        self, call: ClientCall, provider: Provider, request: Request, target: Target
    ) -> tuple[UpstreamReply, Rendered]:
        """Send the request; where the provider refuses data of its own that was replayed, once more without it."""
        server = registry.server(provider.protocol)
        rendered = server.render_request(request, target)
        body = dumps(rendered.body)
        estimated = replace(rendered.reading, estimated_input_tokens=_rough_tokens(len(body), request))
        rendered = replace(rendered, reading=estimated)
        reply = await self._send(call, provider, provider.answer_path, body)
        if reply.status < 300:
            return reply, rendered
        refusal = await _refusal(reply, provider, call.credential)
        if not (call.record.replayed_calls and refusal.status == 400 and _REFUSED_REPLAY.search(refusal.message)):
            raise refusal
        call.record.replayed_calls = 0
        return await self._ask(call, provider, without_replays(request), target)

    async def _pass_through(self, call: ClientCall, target: Route, model: str, path: str) -> Answer:
        """Client and provider speak the same protocol: the bytes go through as they are."""
        body = call.body
        if target.wire_model != model:
            body = dumps(orjson.loads(body) | {"model": target.wire_model})
        reply = await self._send(call, target.provider, path, body)
        headers = {"content-type": JSON} | {
            name: value for name, value in reply.headers.items() if name in _PASSED_BACK or "ratelimit" in name
        }
        if not headers["content-type"].startswith("text/event-stream"):
            return Answer(reply.status, headers, await _read_and_close(reply, MAX_ANSWER_BYTES))
        return Answer(reply.status, headers, relayed(call, reply), registry.heartbeat(call.protocol))

    async def _send(self, call: ClientCall, provider: Provider, path: str, body: bytes) -> UpstreamReply:
        """Send a body; where the bridge holds several keys, one that is refused or used up is followed by another."""
        keys: list[str | None] = [*random.sample(provider.keys, min(len(provider.keys), MAX_KEYS_TRIED))]
        keys = keys or [call.credential]
        for key in keys:
            headers = {"content-type": JSON} | provider.call_headers(key, call.headers)
            reply = await self.upstream.send(UpstreamCall(provider.name, "POST", provider.url(path), headers, body))
            call.record.upstream_status = reply.status
            if reply.status not in (401, 429) or key is keys[-1]:
                break
            await reply.aclose()
        return reply


async def _refusal(reply: UpstreamReply, provider: Provider, credential: str | None) -> BridgeError:
    """The provider's refusal in the bridge's own terms; some providers quote the key they were shown."""
    body = await _read_and_close(reply, MAX_ERROR_BYTES)
    for key in (*provider.keys, credential):
        if key:
            body = body.replace(key.encode(), b"***")
    parse_error = registry.server(provider.protocol).parse_error
    return parse_error(reply.status, body, provider.name, reply.headers.get("retry-after"))


async def _whole_message(reply: UpstreamReply, server: ServerSide, reading: Reading) -> Message:
    """The answer that was not to be streamed; some servers stream it all the same."""
    body = await _read_and_close(reply, MAX_ANSWER_BYTES)
    if not reply.headers.get("content-type", "").startswith("text/event-stream"):
        return server.parse_response(body, reading)
    decoder = server.stream_decoder(reading)
    return fold([*decoder.feed(body), *decoder.close()])


def _is_whole(reply: UpstreamReply) -> bool:
    """True if a provider that was asked for a stream sends a document, most often an error, instead."""
    content_type = reply.headers.get("content-type", "")
    return "json" in content_type or "html" in content_type


def _target(call: ClientCall, route: Route, talk: Conversation) -> Target:
    key = None if talk.is_new else cache_key(call.principal, talk.id)
    return Target(route.provider.name, route.wire_model, route.provider.api_root, key)


def _rough_tokens(body_size: int, request: Request) -> int:
    """Enough for the first event of a stream; the provider's own count follows in the last one."""
    return max(1, (body_size - media_characters(request)) // BYTES_PER_TOKEN)


def _losses_header(losses: tuple[str, ...]) -> dict[str, str]:
    """What was lost, for whoever looks at the headers to find out."""
    if not losses:
        return {}
    text = "; ".join(losses)[:MAX_LOSSES_HEADER]  # names of fields are the client's words: only what a header may hold
    return {"x-bridge-losses": "".join(letter if " " <= letter <= "~" else "?" for letter in text)}


async def _read_and_close(reply: UpstreamReply, limit: int) -> bytes:
    try:
        return await reply.read(limit)
    finally:
        await reply.aclose()


def _hints(headers: Mapping[str, str]) -> RouteHints:
    def named(name: str) -> str | None:
        value = headers.get(f"x-bridge-{name}") or headers.get(f"x-castari-{name}")
        if value and len(value) > 256:
            raise invalid_request(f"x-bridge-{name}: longer than 256 characters")
        return value

    return RouteHints(named("provider"), named("model"), named("wire-model"))
