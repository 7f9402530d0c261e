"""A turn on its way through the canonical form: parse, recall, policies, ask, and back in the client's protocol."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bridge.asking import Inquiry
from bridge.calling import JSON
from bridge.canonical.content import ToolResult
from bridge.canonical.events import add_usage
from bridge.canonical.fold import fold, unfold
from bridge.canonical.head import AnswerHead
from bridge.canonical.json import dumps
from bridge.canonical.request import shape_of
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
from bridge.web_search import ShownSearches, searched_for, with_native_search

if TYPE_CHECKING:
    from bridge.calling import Caller
    from bridge.canonical.fold import Message
    from bridge.canonical.request import Request
    from bridge.conversation import Conversation
    from bridge.exchange import ClientCall
    from bridge.ports import ConversationStore
    from bridge.providers import ProtocolName
    from bridge.routing import Route
    from bridge.state.keeper import KeptTurn

MAX_LOSSES_HEADER = 1024
NOT_STORED = "not stored: results of these tool calls may not be understood later"


@dataclass(frozen=True, slots=True)
class Translator:
    """Serves clients whose protocol their provider does not speak."""

    caller: Caller
    store: ConversationStore
    policies: PolicySettings = field(default_factory=PolicySettings)
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
        talk = conversation(call.headers, request)
        call.record.conversation_id, call.record.input_shape = talk.id, shape_of(request)
        target = self._target(call, route, talk)
        memory = ToolMemory(self.store, call.principal, target.family, call.record)
        sent = self._governed(call, await memory.recall(request, talk), protocol)
        sent, protocol = self._with_search(route, sent, protocol)
        searches = ShownSearches(searched_for(sent)) if sent.web_search else None
        head = AnswerHead(_answer_id(turn, client.id_prefix), model, int(time.time()), request.echo)
        rendering = Rendering(client.render_content, lambda message: client.render_response(message, head))
        keeper = AnswerKeeper(memory.keeper(talk), turn, rendering)
        encoder = client.stream_encoder(head)
        inquiry = Inquiry(self.caller, call, route.provider, protocol, target)
        streams = sent.stream and self.stream_upstream and not self._may_repeat(sent)
        asked = await inquiry.ask(replace(sent, stream=streams))
        headers = {"x-conversation-id": talk.id, **_losses_header(call.record.losses)}
        if streams and asked.is_stream:
            batches = searches.shown(asked.events()) if searches else asked.events()
            return await streamed(call, Translation(batches, asked.reply.aclose, encoder, keeper), headers)
        message = await self._settled(inquiry, sent, await asked.message())
        events = keeper.observe(searches.show(unfold(message)) if searches else unfold(message))
        await keeper.settle()
        if request.stream:
            return Answer(200, {"content-type": EVENT_STREAM, **headers}, encoder.encode(events))
        if call.record.state_failures:
            headers["x-bridge-state"] = NOT_STORED
        whole = client.render_response(fold(events), head)
        return Answer(200, {"content-type": JSON, **headers}, dumps(whole))

    def _target(self, call: ClientCall, route: Route, talk: Conversation) -> Target:
        key = None if talk.is_new else cache_key(call.principal, talk.id)
        marks = self.mark_prompts and call.protocol != "anthropic"
        return Target(route.provider.name, route.wire_model, route.provider.api_root, key, marks)

    def _governed(self, call: ClientCall, request: Request, protocol: ProtocolName) -> Request:
        """The request as it is sent: the policies have their say, and tools that only Claude knows are spelled out."""
        governed, decisions = apply_policies(request, self.policies)
        call.record.policies = tuple(decision.policy for decision in decisions)
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


def _answer_id(turn: KeptTurn | None, prefix: str) -> str:
    return turn.answer_id if turn else f"{prefix}{secrets.token_hex(12)}"


def _losses_header(losses: tuple[str, ...]) -> dict[str, str]:
    """What was lost, for whoever looks at the headers to find out."""
    if not losses:
        return {}
    text = "; ".join(losses)[:MAX_LOSSES_HEADER]  # names of fields are the client's words: only what a header may hold
    return {"x-bridge-losses": "".join(letter if " " <= letter <= "~" else "?" for letter in text)}
