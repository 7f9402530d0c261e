"""The way of a request: envelope, route, translate, call, translate back. One direction."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bridge.calling import JSON, MAX_ERROR_BYTES, read_and_close, without_keys
from bridge.canonical.fold import fold, unfold
from bridge.canonical.head import AnswerHead
from bridge.canonical.json import dumps
from bridge.canonical.request import media_characters
from bridge.canonical.target import Target
from bridge.conversation import cache_key, conversation
from bridge.deadline import until
from bridge.errors import BridgeError, ErrorKind, invalid_request
from bridge.exchange import Answer, read_envelope
from bridge.passing import MAX_ANSWER_BYTES, pass_through
from bridge.protocols import registry
from bridge.providers import ANSWER_PATHS
from bridge.routing import RouteHints, route
from bridge.splice import with_model
from bridge.state.keeper import AnswerKeeper, Rendering
from bridge.state.memory import ToolMemory, without_replays
from bridge.streams import EVENT_STREAM, Translation, streamed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.calling import Caller
    from bridge.canonical.fold import Message
    from bridge.canonical.reading import Reading, Rendered
    from bridge.canonical.request import Request
    from bridge.conversation import Conversation
    from bridge.exchange import ClientCall, Envelope
    from bridge.ports import ConversationStore, DocumentStore, ThreadStore, UpstreamReply
    from bridge.protocols.registry import ServerSide
    from bridge.providers import ProtocolName, Provider
    from bridge.routing import Route, RoutingTable
    from bridge.state.keeper import KeptTurn

MAX_LOSSES_HEADER = 1024
BYTES_PER_TOKEN = 4
_REFUSED_REPLAY = re.compile(r"signature|reasoning|thinking|encrypted content|item with id", re.I)
EMBEDDING_PROVIDERS = ("openai", "openrouter", "gemini")


@dataclass(frozen=True, slots=True)
class Bridge:
    """The pipeline with everything it needs."""

    routing: RoutingTable
    caller: Caller
    store: ConversationStore
    threads: ThreadStore | None = None
    """None where threads are switched off."""
    responses: DocumentStore | None = None
    stream_upstream: bool = True
    mark_prompts: bool = True
    """Ask Claude to cache prompts of clients whose protocol has no words for it."""

    async def answer(self, call: ClientCall) -> Answer:
        """Serve one request for an assistant turn."""
        envelope = read_envelope(call.body)
        target = self._route(call, envelope)
        protocol = target.provider.protocol_for(target.wire_model, call.protocol)
        async with until(call.deadline):
            if protocol == call.protocol:
                return await self._pass_through(call, target, envelope.model, ANSWER_PATHS[protocol])
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

    async def embed(self, call: ClientCall) -> Answer:
        """Embeddings, at the providers that have them."""
        envelope = read_envelope(call.body)
        target = self._route(call, envelope)
        if target.provider.name not in EMBEDDING_PROVIDERS:
            raise invalid_request(
                f"model: {target.provider.name} has no embeddings; name a model of {', '.join(EMBEDDING_PROVIDERS)}, "
                "such as openai/text-embedding-3-small"
            )
        async with until(call.deadline):
            return await self._pass_through(call, target, envelope.model, "/embeddings")

    async def stored_response(self, call: ClientCall, response_id: str, part: str) -> Answer:
        """A response by its id: one that the bridge keeps, else one of OpenAI's own."""
        from bridge.state import responses

        provider = self.routing.providers["openai"]
        store = self.responses
        try:
            if store is None:
                raise responses.not_found(response_id)
            shown = await responses.show(store, call.principal, response_id, part, delete=call.method == "DELETE")
        except BridgeError as error:
            if error.kind is not ErrorKind.NOT_FOUND or not provider.keeps_responses:
                raise
            async with until(call.deadline):
                path = f"/responses/{response_id}" + (f"/{part}" if part else "")
                return await pass_through(self.caller, call, provider, path, b"")
        return Answer(200, {"content-type": JSON}, dumps(shown))

    async def relay(self, call: ClientCall, path: str) -> Answer:
        """A sub-resource of the Messages API, such as batches: only Anthropic itself has it."""
        provider = self.routing.providers["anthropic"]
        if self.routing.demo is not None or not (provider.configured or call.credential):
            raise BridgeError(ErrorKind.NOT_FOUND, "this part of the Messages API is served by Anthropic alone")
        call.record.provider = provider.name
        async with until(call.deadline):
            return await pass_through(self.caller, call, provider, path, call.body)

    async def _pass_through(self, call: ClientCall, target: Route, model: str, path: str) -> Answer:
        body = call.body if target.wire_model == model else with_model(call.body, target.wire_model)
        return await pass_through(self.caller, call, target.provider, path, body)

    def _route(self, call: ClientCall, envelope: Envelope) -> Route:
        target = route(self.routing, envelope.model, _hints(call.headers))
        call.record.provider, call.record.wire_model = target.provider.name, target.wire_model
        call.record.route_reason = target.reason
        return target

    async def _translate(self, call: ClientCall, target: Route, envelope: Envelope) -> Answer:
        turn = await self._open_turn(call, envelope)
        try:
            return await self._answer_turn(call, target, envelope.model, turn)
        except BaseException:
            if turn is not None:
                await turn.give_up()
            raise

    async def _open_turn(self, call: ClientCall, envelope: Envelope) -> KeptTurn | None:
        """What the client left to the bridge; to a provider of the client's own protocol it passes untouched."""
        if call.protocol == "openai_responses" and self.responses is not None:
            from bridge.state.responses import open_response

            return await open_response(self.responses, call.principal, call.body)
        if call.protocol != "anthropic" or not envelope.thread:
            return None
        from bridge.state.threads import open_turn, thread_error

        if self.threads is None:
            raise thread_error("thread_unsupported_request")
        return await open_turn(self.threads, call.principal, call.body)

    async def _answer_turn(self, call: ClientCall, route: Route, model: str, turn: KeptTurn | None) -> Answer:
        protocol = route.provider.protocol_for(route.wire_model, call.protocol)
        client, server = registry.client(call.protocol), registry.server(protocol)
        request = client.parse_request(turn.body if turn else call.body)
        talk = conversation(call.headers, request)
        call.record.conversation_id = talk.id
        target = self._target(call, route, talk)
        memory = ToolMemory(self.store, call.principal, target.family, call.record)
        request = await memory.recall(request, talk)
        ask_for_stream = request.stream and self.stream_upstream
        asked = replace(request, stream=ask_for_stream)
        reply, rendered = await self._ask(call, route.provider, protocol, asked, target)
        call.record.losses = rendered.losses
        headers = {"x-conversation-id": talk.id, **_losses_header(rendered.losses)}
        answer_id = turn.answer_id if turn else f"{client.id_prefix}{secrets.token_hex(12)}"
        head = AnswerHead(answer_id, model, int(time.time()), request.echo)
        encoder = client.stream_encoder(head)
        rendering = Rendering(client.render_content, lambda message: client.render_response(message, head))
        keeper = AnswerKeeper(memory.keeper(talk), turn, rendering)
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

    def _target(self, call: ClientCall, route: Route, talk: Conversation) -> Target:
        key = None if talk.is_new else cache_key(call.principal, talk.id)
        marks = self.mark_prompts and call.protocol != "anthropic"
        return Target(route.provider.name, route.wire_model, route.provider.api_root, key, marks)

    async def _ask(
        self, call: ClientCall, provider: Provider, protocol: ProtocolName, request: Request, target: Target
    ) -> tuple[UpstreamReply, Rendered]:
        """Send the request; where the provider refuses data of its own that was replayed, once more without it."""
        server = registry.server(protocol)
        rendered = server.render_request(request, target)
        body = dumps(rendered.body)
        estimated = replace(rendered.reading, estimated_input_tokens=_rough_tokens(len(body), request))
        rendered = replace(rendered, reading=estimated)
        reply = await self.caller.send(call, provider, ANSWER_PATHS[protocol], body)
        if reply.status < 300:
            return reply, rendered
        refusal = await _refusal(reply, server, provider, call.credential)
        if not (call.record.replayed_calls and _refuses_replay(refusal)):
            raise refusal
        call.record.replayed_calls = 0
        return await self._ask(call, provider, protocol, without_replays(request), target)


async def _refusal(reply: UpstreamReply, server: ServerSide, provider: Provider, credential: str | None) -> BridgeError:
    """The provider's refusal in the bridge's own terms."""
    body = without_keys(await read_and_close(reply, MAX_ERROR_BYTES), provider, credential)
    return server.parse_error(reply.status, body, provider.name, reply.headers.get("retry-after"))


async def _whole_message(reply: UpstreamReply, server: ServerSide, reading: Reading) -> Message:
    """The answer that was not to be streamed; some servers stream it all the same."""
    body = await read_and_close(reply, MAX_ANSWER_BYTES)
    if not reply.headers.get("content-type", "").startswith("text/event-stream"):
        return server.parse_response(body, reading)
    decoder = server.stream_decoder(reading)
    return fold([*decoder.feed(body), *decoder.close()])


def _refuses_replay(refusal: BridgeError) -> bool:
    return refusal.status in (400, 404) and _REFUSED_REPLAY.search(refusal.message) is not None


def _is_whole(reply: UpstreamReply) -> bool:
    """True if a provider that was asked for a stream sends a document, most often an error, instead."""
    content_type = reply.headers.get("content-type", "")
    return "json" in content_type or "html" in content_type


def _rough_tokens(body_size: int, request: Request) -> int:
    """Enough for the first event of a stream; the provider's own count follows in the last one."""
    return max(1, (body_size - media_characters(request)) // BYTES_PER_TOKEN)


def _losses_header(losses: tuple[str, ...]) -> dict[str, str]:
    """What was lost, for whoever looks at the headers to find out."""
    if not losses:
        return {}
    text = "; ".join(losses)[:MAX_LOSSES_HEADER]  # names of fields are the client's words: only what a header may hold
    return {"x-bridge-losses": "".join(letter if " " <= letter <= "~" else "?" for letter in text)}


def _hints(headers: Mapping[str, str]) -> RouteHints:
    def named(name: str) -> str | None:
        value = headers.get(f"x-bridge-{name}") or headers.get(f"x-castari-{name}")
        if value and len(value) > 256:
            raise invalid_request(f"x-bridge-{name}: longer than 256 characters")
        return value

    return RouteHints(named("provider"), named("model"), named("wire-model"))
