"""A turn on its way through the canonical form: parse, recall, policies, ask, and back in the client's protocol."""

from __future__ import annotations

import secrets
import time
from contextlib import aclosing
from dataclasses import field, replace
from typing import TYPE_CHECKING

from bridge.asking import Inquiry
from bridge.calling import JSON
from bridge.canonical.content import ServerBlock, ToolResult
from bridge.canonical.events import MessageEnd, add_usage
from bridge.canonical.fold import fold, unfold
from bridge.canonical.head import AnswerHead
from bridge.canonical.json import dumps
from bridge.canonical.request import ServerTool, shape_of
from bridge.canonical.target import Target
from bridge.conversation import cache_key, conversation
from bridge.exchange import Answer
from bridge.policies.chain import PolicySettings, apply_policies
from bridge.policies.client_tools import declare_client_tools
from bridge.protocols import registry
from bridge.state.keeper import AnswerKeeper, Rendering
from bridge.state.memory import ToolMemory
from bridge.streams import EVENT_STREAM, Translation, streamed
from bridge.traits import traits_of
from bridge.values import dataclass
from bridge.web_search import ShownSearches, searched_for, with_native_search

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from bridge.asking import Asked
    from bridge.calling import Caller
    from bridge.canonical.events import StreamEvent
    from bridge.canonical.fold import Message
    from bridge.canonical.request import Request
    from bridge.conversation import Conversation
    from bridge.exchange import ClientCall
    from bridge.ports import ConversationStore
    from bridge.protocols.registry import ClientSide
    from bridge.providers import ProtocolName
    from bridge.routing import Route
    from bridge.state.keeper import KeptTurn
    from bridge.toolloop.runner import ToolLoop
    from bridge.toolloop.serving import BridgeTools, OpenTools

MAX_LOSSES_HEADER = 1024
NOT_STORED = "not stored: results of these tool calls may not be understood later"


@dataclass(frozen=True, slots=True)
class Translator:
    """Serves clients whose protocol their provider does not speak."""

    caller: Caller
    store: ConversationStore
    policies: PolicySettings = field(default_factory=PolicySettings)
    tools: Callable[[], BridgeTools] | None = None
    """Tools that the bridge runs itself; made when the first request needs them."""
    emulates: bool = False
    """Web search is asked of providers that search by themselves."""
    stream_upstream: bool = True
    mark_prompts: bool = True
    """Ask Claude to cache prompts of clients whose protocol has no words for it."""

    async def answer(self, call: ClientCall, route: Route, model: str, turn: KeptTurn | None) -> Answer:
        """One turn; `turn` is what the bridge keeps of it for the client."""
        client = registry.client(call.protocol)
        protocol = route.provider.protocol_for(route.wire_model, call.protocol)
        request = client.parse_request(turn.body if turn else call.body)
        tools = await self._open_tools(call, request, protocol)
        try:
            request = tools.request if tools else request
            talk = conversation(call.headers, request)
            call.record.conversation_id = talk.id
            if call.record.input_shape is not None:
                call.record.input_shape = shape_of(request)
            target = self._target(call, route, talk)
            memory = ToolMemory(self.store, call.principal, target.family, call.record)
            sent = self._governed(call, await memory.recall(request, talk), protocol)
            asked_for = sent.web_search
            sent, protocol = self._with_search(route, sent, protocol)
            head = AnswerHead(_answer_id(turn, client.id_prefix), model, int(time.time()), request.echo)
            inquiry = Inquiry(self.caller, call, route.provider, protocol, target)
            loop = tools.loop(call.principal, talk, call.headers, again=call.record.fallbacks > 0) if tools else None
            call.record.emulations = (loop is not None) + (sent.web_search != asked_for)
            if sent.stream and not self.stream_upstream:
                sent = replace(sent, stream=False)
            job = _Job(call, client, talk, memory, inquiry, sent, turn, head, loop, tools)
            return await self._streamed(job) if request.stream else await self._whole(job)
        except BaseException:
            if tools is not None:
                await tools.aclose()
            raise

    async def _open_tools(self, call: ClientCall, request: Request, protocol: ProtocolName) -> OpenTools | None:
        """The tools that the bridge runs for this request; Anthropic runs its own."""
        if protocol == "anthropic" or self.tools is None or not _may_need_tools(request):
            return None
        return await self.tools().open(request, call.principal)

    async def _streamed(self, job: _Job) -> Answer:
        if not job.sent.stream or (job.loop is None and self._may_repeat(job.sent)):
            events = await self._events(job)
            body = job.client.stream_encoder(job.head).encode(events)
            return Answer(200, {"content-type": EVENT_STREAM, **job.headers()}, body)
        keeper, encoder = job.keeper(), job.client.stream_encoder(job.head)
        if job.loop is not None:
            batches = job.loop.events(job.sent, job.ask_round)
            return await streamed(job.call, Translation(job.shown(batches), job.aclose, encoder, keeper), job.headers)
        asked = await job.inquiry.ask(job.sent)
        if asked.is_stream:
            translation = Translation(job.shown(asked.events()), job.closing(asked), encoder, keeper)
            return await streamed(job.call, translation, job.headers)
        events = keeper.observe(job.shown_at_once(unfold(await asked.message())))
        await keeper.settle()
        return Answer(200, {"content-type": EVENT_STREAM, **job.headers()}, encoder.encode(events))

    async def _whole(self, job: _Job) -> Answer:
        message = fold(await self._events(job))
        headers = job.headers()
        if job.call.record.state_failures:
            headers["x-bridge-state"] = NOT_STORED
        whole = job.client.render_response(message, job.head)
        return Answer(200, {"content-type": JSON, **headers}, dumps(whole))

    async def _events(self, job: _Job) -> list[StreamEvent]:
        """Everything that an answer says which is not streamed from the provider; it is kept when this returns."""
        keeper = job.keeper()
        if job.loop is not None:
            async with aclosing(job.loop.events(job.sent, job.ask_round)) as batches:
                said = [event async for batch in batches for event in batch]
            await job.aclose()
        else:
            asked = await job.inquiry.ask(replace(job.sent, stream=False))
            said = [*unfold(await self._settled(job.inquiry, job.sent, await asked.message()))]
        events = keeper.observe(job.shown_at_once(said))
        await keeper.settle()
        return events

    def _target(self, call: ClientCall, route: Route, talk: Conversation) -> Target:
        key = None if talk.is_new else cache_key(call.principal, talk.id)
        marks = self.mark_prompts and call.protocol != "anthropic"
        return Target(route.provider.name, route.wire_model, route.provider.api_root, key, marks)

    def _governed(self, call: ClientCall, request: Request, protocol: ProtocolName) -> Request:
        """The request as it is sent: the policies have their say, and tools that only Claude knows are spelled out."""
        governed, decisions = apply_policies(request, self.policies)
        call.record.policies = tuple([decision.policy for decision in decisions])
        return governed if protocol == "anthropic" else declare_client_tools(governed)

    def _with_search(self, route: Route, request: Request, protocol: ProtocolName) -> tuple[Request, ProtocolName]:
        """Web search as the provider's own, in the protocol in which it can be asked for."""
        if not self.emulates or protocol == "anthropic":
            return request, protocol
        how = traits_of(route.provider.name, route.provider.api_root, route.wire_model).web_search
        if how == "none" or (how == "tool" and route.provider.openai_api == "chat"):
            return request, protocol  # whoever renders it says that it cannot be had
        searching = with_native_search(request)
        return searching, "openai_responses" if how == "tool" and searching.web_search else protocol

    def _may_repeat(self, request: Request) -> bool:
        """True if the answer has to be seen whole first, because it may repeat a call whose result is there (ST)."""
        last = next((turn for turn in reversed(request.turns) if turn.role != "system"), None)
        has_results = last is not None and any(isinstance(block, ToolResult) for block in last.content)
        return self.policies.repeat_hint and has_results

    async def _settled(self, inquiry: Inquiry, request: Request, message: Message) -> Message:
        """The answer, or a second one with a hint, where the first only repeats what was done already."""
        if not self._may_repeat(request):
            return message
        from bridge.policies.repeated_calls import repeated_calls, with_hint

        names = repeated_calls(request, message)
        if not names:
            return message
        inquiry.call.record.policies += ("repeat_hint",)
        asked = await inquiry.ask(replace(with_hint(request, names), stream=False))
        second = await asked.message()
        usage = add_usage(message.end.usage, second.end.usage)
        return replace(second, end=replace(second.end, usage=usage))


@dataclass(frozen=True, slots=True)
class _Job:
    """One turn with everything that it needs until its last event."""

    call: ClientCall
    client: ClientSide
    talk: Conversation
    memory: ToolMemory
    inquiry: Inquiry
    sent: Request
    turn: KeptTurn | None
    head: AnswerHead
    loop: ToolLoop | None
    tools: OpenTools | None

    def headers(self) -> dict[str, str]:
        return {"x-conversation-id": self.talk.id, **_losses_header(self.call.record.losses)}

    def keeper(self) -> AnswerKeeper:
        client, head = self.client, self.head
        rendering = Rendering(client.render_content, lambda message: client.render_response(message, head))
        tools = None if self.loop else self.memory.keeper(self.talk)
        unwatched = tools.unwatched if tools and self.turn is None else frozenset()
        return AnswerKeeper(tools, self.turn, rendering, self.call.record, unwatched)

    async def ask_round(self, request: Request) -> AsyncIterator[list[StreamEvent]]:
        """One answer within a tool loop; its calls are kept before it ends."""
        keeper = self.memory.keeper(self.talk)
        asked = await self.inquiry.ask(request)
        try:
            if request.stream and asked.is_stream:
                async for batch in asked.events():
                    observed = keeper.observe(batch)
                    if observed and isinstance(observed[-1], MessageEnd):
                        self.call.record.spend(observed[-1].usage)
                        await keeper.settle()
                    yield observed
            else:
                message = await asked.message()
                self.call.record.spend(message.end.usage)
                observed = keeper.observe(unfold(message))
                await keeper.settle()
                yield observed
        finally:
            await asked.aclose()

    def shown(self, batches: AsyncIterator[list[StreamEvent]]) -> AsyncIterator[list[StreamEvent]]:
        """The events with what the provider's own searches found."""
        return ShownSearches(searched_for(self.sent)).shown(batches) if self.sent.web_search else batches

    def shown_at_once(self, events: Iterable[StreamEvent]) -> Iterable[StreamEvent]:
        return ShownSearches(searched_for(self.sent)).show(events) if self.sent.web_search else events

    def closing(self, asked: Asked) -> Callable[[], Awaitable[None]]:
        async def close() -> None:
            await asked.aclose()
            await self.aclose()

        return close

    async def aclose(self) -> None:
        if self.tools is not None:
            await self.tools.aclose()


def _may_need_tools(request: Request) -> bool:
    """True if a request may ask for a tool that the bridge runs, or tells of one that it ran."""
    return (
        "mcp_servers" in request.extras
        or ServerBlock in request.kinds
        or ServerTool in [tool.__class__ for tool in request.tools]
    )


def _answer_id(turn: KeptTurn | None, prefix: str) -> str:
    return turn.answer_id if turn else f"{prefix}{secrets.token_hex(12)}"


def _losses_header(losses: tuple[str, ...]) -> dict[str, str]:
    """What was lost, for whoever looks at the headers to find out."""
    if not losses:
        return {}
    text = "; ".join(losses)[:MAX_LOSSES_HEADER]  # names of fields are the client's words: only what a header may hold
    return {"x-bridge-losses": "".join(letter if " " <= letter <= "~" else "?" for letter in text)}
