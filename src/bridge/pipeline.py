"""Where a request goes: through to a provider that speaks its protocol, or through the canonical form."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic_core import from_json

from bridge.calling import JSON
from bridge.canonical.json import dumps
from bridge.deadline import until
from bridge.errors import BridgeError, ErrorKind, invalid_request
from bridge.exchange import Answer, read_envelope
from bridge.foreign import without_own_data
from bridge.passing import pass_through
from bridge.providers import ANSWER_PATHS
from bridge.routing import RouteHints, lacks_rule, route
from bridge.server_tools import enforced_route, server_tools_in
from bridge.splice import with_model
from bridge.traits import traits_of
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.calling import Caller
    from bridge.canonical.json import JsonObject
    from bridge.exchange import ClientCall, Envelope
    from bridge.ports import DocumentStore, ThreadStore
    from bridge.providers import ProtocolName, Provider
    from bridge.routing import Route, RoutingTable
    from bridge.server_tools import ServerToolsMode
    from bridge.state.keeper import KeptTurn
    from bridge.translating import Translator

# What another provider may do better: not a request that is wrong.
_FAILED = frozenset({408, 429, 500, 502, 503, 504, 529})
MAX_HINT = 256
_NO_HINTS = RouteHints()
_HINTS = tuple((f"x-bridge-{name}", f"x-castari-{name}") for name in ("provider", "model", "wire-model"))
EMBEDDING_PROVIDERS = ("openai", "openrouter", "gemini")


@dataclass(frozen=True, slots=True)
class Bridge:
    """The pipeline with everything it needs."""

    routing: RoutingTable
    translator: Translator
    threads: ThreadStore | None = None
    """None where threads are switched off."""
    responses: DocumentStore | None = None
    signatures: DocumentStore | None = None
    """What providers sign in answers that pass through, for clients that drop it."""
    fallback_models: tuple[str, ...] = ()
    """Asked one after another when a provider fails before its answer begins."""
    is_shared: bool = False
    """Several principals use the bridge."""
    server_tools: ServerToolsMode = "error"
    server_tools_model: str = ""
    """Stands in for models that are not Claude's where a request is sent to Anthropic for its tools."""

    @property
    def caller(self) -> Caller:
        return self.translator.caller

    async def answer(self, call: ClientCall) -> Answer:
        """Serve one request for an assistant turn."""
        envelope = read_envelope(call.document)
        target = self._enforced(call, envelope, self._route(call, envelope))
        failure: Answer | BridgeError | None = None
        async with until(call.deadline):
            for model in (None, *self.fallback_models):
                if model is not None:
                    call.record.fallbacks += 1
                    target = self._note(call, route(self.routing, model))
                try:
                    answer = await self._serve(call, target, envelope)
                except BridgeError as error:
                    if error.status not in _FAILED:
                        if failure is None:
                            self._explain(error, envelope.model)
                            raise
                        continue  # this model cannot serve the request: why others failed is worth more
                    failure = error
                else:
                    if answer.status not in _FAILED:
                        return answer
                    failure = answer
        if isinstance(failure, Answer):
            return failure
        raise failure or BridgeError(ErrorKind.API, "nobody was asked")

    def _explain(self, error: BridgeError, model: str) -> None:
        """Add the likely reason where a provider was asked for a model that only Anthropic has."""
        if error.status == 404 and lacks_rule(self.routing, model):
            error.message += f" (asked for because no rule maps {model[:64]!r}; see MODEL_MAP)"

    def _enforced(self, call: ClientCall, envelope: Envelope, target: Route) -> Route:
        """Where tools that only Anthropic runs decide the route, all of the request goes there."""
        is_at_home = target.provider.protocol_for(target.wire_model, call.protocol) == call.protocol
        if self.server_tools != "enforceanthropic" or target.provider.protocol == "anthropic" or is_at_home:
            return target
        if not server_tools_in(call.document or {}):
            return target
        call.record.rerouted = True
        return self._note(call, enforced_route(self.routing, envelope.model, self.server_tools_model))

    async def _serve(self, call: ClientCall, target: Route, envelope: Envelope) -> Answer:
        protocol = target.provider.protocol_for(target.wire_model, call.protocol)
        if protocol == call.protocol:
            answer = await self._pass_turn(call, target, envelope.model, protocol)
        else:
            answer = await self._translate(call, target, envelope)
        if not call.record.fallbacks:
            return answer
        served_by = {"x-bridge-fallback": f"{target.provider.name}/{target.wire_model}"}
        return replace(answer, headers={**answer.headers, **served_by})

    async def count_tokens(self, call: ClientCall) -> Answer:
        """Count a request's input tokens: by Anthropic itself where it is the upstream, else by estimate."""
        envelope = read_envelope(call.document)
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
        envelope = read_envelope(call.document)
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
            self._refuse_shared_key(provider)
            async with until(call.deadline):
                path = f"/responses/{response_id}" + (f"/{part}" if part else "")
                return await pass_through(self.caller, call, provider, path, b"")
        return Answer(200, {"content-type": JSON}, dumps(shown))

    async def relay(self, call: ClientCall, path: str) -> Answer:
        """A sub-resource of the Messages API, such as batches: only Anthropic itself has it."""
        provider = self.routing.providers["anthropic"]
        if self.routing.demo is not None or not (provider.configured or call.credential):
            raise BridgeError(ErrorKind.NOT_FOUND, "this part of the Messages API is served by Anthropic alone")
        self._refuse_shared_key(provider)
        call.record.provider = provider.name
        async with until(call.deadline):
            return await pass_through(self.caller, call, provider, path, call.body)

    def _refuse_shared_key(self, provider: Provider) -> None:
        """What a provider keeps under one key is everybody's who uses that key: principals would see each other's."""
        if self.is_shared and provider.keys:
            raise BridgeError(
                ErrorKind.PERMISSION,
                f"what {provider.name} keeps under the bridge's own key is not told apart by its users; "
                "this is served only where each has a key of their own, or the bridge has one user",
                retryable=False,
            )

    async def _pass_turn(self, call: ClientCall, target: Route, model: str, protocol: ProtocolName) -> Answer:
        """A turn in the client's own protocol, without what only the bridge can read; signed where providers sign."""
        call = await self._expanded(call, protocol)
        body = without_own_data(protocol, call.body, call.document or {})
        body = body if target.wire_model == model else with_model(body, target.wire_model)
        traits = traits_of(target.provider.name, target.provider.api_root, target.wire_model)
        if protocol != "openai_chat" or not traits.signs_calls or self.signatures is None:
            return await pass_through(self.caller, call, target.provider, ANSWER_PATHS[protocol], body)
        from bridge.signatures import SignatureWatch, with_signatures

        body = await with_signatures(self.signatures, call, body)
        watch = SignatureWatch(self.signatures, call.principal)
        return await pass_through(self.caller, call, target.provider, ANSWER_PATHS[protocol], body, watch)

    async def _expanded(self, call: ClientCall, protocol: ProtocolName) -> ClientCall:
        """The call with what its `previous_response_id` stands for, if it is one that the bridge keeps."""
        document = call.document or {}
        if protocol != "openai_responses" or self.responses is None or not document.get("previous_response_id"):
            return call
        from bridge.state.responses import open_response

        try:
            turn = await open_response(self.responses, call.principal, call.body)
        except BridgeError as error:
            if error.code == "previous_response_not_found":
                return call  # the provider may know it
            raise
        whole: JsonObject = from_json(turn.body)
        whole.pop("previous_response_id", None)
        return replace(call, body=dumps(whole), document=whole)

    async def _pass_through(self, call: ClientCall, target: Route, model: str, path: str) -> Answer:
        body = call.body if target.wire_model == model else with_model(call.body, target.wire_model)
        return await pass_through(self.caller, call, target.provider, path, body)

    def _route(self, call: ClientCall, envelope: Envelope) -> Route:
        return self._note(call, route(self.routing, envelope.model, _hints(call.headers)))

    def _note(self, call: ClientCall, target: Route) -> Route:
        call.record.provider, call.record.wire_model = target.provider.name, target.wire_model
        call.record.route_reason = target.reason
        return target

    async def _translate(self, call: ClientCall, target: Route, envelope: Envelope) -> Answer:
        turn = await self._open_turn(call, envelope)
        try:
            return await self.translator.answer(call, target, envelope.model, turn)
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
        call.record.thread_turns += 1
        return await open_turn(self.threads, call.principal, call.body)


def _hints(headers: Mapping[str, str]) -> RouteHints:
    hints = [headers.get(name) or headers.get(older) for name, older in _HINTS]
    if not any(hints):
        return _NO_HINTS
    for (name, _), hint in zip(_HINTS, hints, strict=True):
        if hint and len(hint) > MAX_HINT:
            raise invalid_request(f"{name}: longer than {MAX_HINT} characters")
    return RouteHints(*hints)
