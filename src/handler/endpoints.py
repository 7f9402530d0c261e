"""What is served where: the table of routes and the endpoints behind it."""

from __future__ import annotations

import re
from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import parse_qsl

import orjson

from bridge.conversation import legal_conversation_id
from bridge.errors import BridgeError, ErrorKind
from bridge.exchange import Answer, ClientCall
from bridge.limits import LimitReachedError
from bridge.routing import explain
from bridge.state.claims import conversation_token
from bridge.state.keys import partition_key
from bridge.strict_json import check
from bridge.values import dataclass
from handler.limits import Limits, check_request
from handler.page import page
from handler.usage_endpoint import show_usage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.catalog import Catalog
    from bridge.exchange import Record
    from bridge.pipeline import Bridge
    from bridge.ports import ConversationStore
    from bridge.providers import ProtocolName
    from handler.accounts import Accounts
    from handler.observability import Observer
    from handler.request import HttpRequest

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Edge:
    """What the app serves with."""

    bridge: Bridge
    store: ConversationStore
    observer: Observer
    tokens: Mapping[str, str]
    catalog: Catalog
    accounts: Accounts
    allow_origins: tuple[str, ...] = ()
    max_body_bytes: int = 5 * 1024 * 1024
    limits: Limits = field(default_factory=Limits)
    heartbeat_seconds: float = 10.0
    admins: frozenset[str] = frozenset()
    """Principals who see everybody's usage."""
    serves_page: bool = True


Endpoint: TypeAlias = "Callable[[Edge, HttpRequest, Record], Awaitable[Answer]]"


async def health(_edge: Edge, _request: HttpRequest, _record: Record) -> Answer:
    return _json({"status": "ok"})


async def messages(edge: Edge, request: HttpRequest, record: Record) -> Answer:
    return await _answer(edge, _client_call(edge, request, record, "anthropic"))


async def count_tokens(edge: Edge, request: HttpRequest, record: Record) -> Answer:
    call = _client_call(edge, request, record, "anthropic")
    check_request(call.document or {}, edge.limits)
    return await edge.bridge.count_tokens(call)


async def chat_completions(edge: Edge, request: HttpRequest, record: Record) -> Answer:
    return await _answer(edge, _client_call(edge, request, record, "openai_chat"))


async def responses(edge: Edge, request: HttpRequest, record: Record) -> Answer:
    return await _answer(edge, _client_call(edge, request, record, "openai_responses"))


async def stored_response(edge: Edge, request: HttpRequest, record: Record) -> Answer:
    call = _client_call(edge, request, record, "openai_responses")
    response_id, _, part = request.parameter.partition("/")
    return await edge.bridge.stored_response(call, response_id, part)


async def embeddings(edge: Edge, request: HttpRequest, record: Record) -> Answer:
    return await _limited(edge, _client_call(edge, request, record, "openai_chat"), edge.bridge.embed)


async def messages_resource(edge: Edge, request: HttpRequest, record: Record) -> Answer:
    call, path = _client_call(edge, request, record, "anthropic"), f"/messages/{request.parameter}"
    if request.method != "POST":
        return await edge.bridge.relay(call, path)
    return await _limited(edge, call, lambda call: edge.bridge.relay(call, path))


async def explain_route(edge: Edge, request: HttpRequest, _record: Record) -> Answer:
    query = dict(parse_qsl(request.query))
    credential = request.identity.credential
    return _json(explain(edge.bridge.routing, query.get("model", ""), query.get("client"), credential))


async def list_models(edge: Edge, request: HttpRequest, _record: Record) -> Answer:
    entries = await edge.catalog.list(request.identity.credential, request.identity.principal)
    if dialect_of(request) == "openai_chat":
        from bridge.protocols.openai_chat.models import render_models as render_openai

        return _json(render_openai(entries))
    from bridge.protocols.anthropic.models import parse_limit, render_models

    query = dict(parse_qsl(request.query))
    limit = parse_limit(query.get("limit"))
    return _json(render_models(entries, limit, query.get("after_id"), query.get("before_id")))


async def show_model(edge: Edge, request: HttpRequest, _record: Record) -> Answer:
    entry = await edge.catalog.find(request.parameter, request.identity.credential, request.identity.principal)
    if entry is None:
        raise BridgeError(ErrorKind.NOT_FOUND, f"there is no model {request.parameter[:200]!r}")
    if dialect_of(request) == "openai_chat":
        from bridge.protocols.openai_chat.models import render_model as render_openai

        return _json(render_openai(entry))
    from bridge.protocols.anthropic.models import render_model

    return _json(render_model(entry))


async def list_conversations(edge: Edge, request: HttpRequest, record: Record) -> Answer:
    from handler.conversations_endpoint import show_conversations

    return await show_conversations(edge, request, record)


async def terminate(edge: Edge, request: HttpRequest, record: Record) -> Answer:
    conversation_id = legal_conversation_id(request.parameter)
    partition = partition_key(request.identity.principal, conversation_token(conversation_id))
    deleted = await edge.store.terminate(partition)
    record.conversations_terminated += 1
    return _json({"id": conversation_id, "type": "conversation_terminated", "deleted_items": deleted})


PUBLIC = frozenset({health, page})
"""What is served without a token."""
STREAMING = frozenset({messages, chat_completions, responses})
"""What may answer with a stream."""

_ROUTES: tuple[tuple[str, re.Pattern[str], Endpoint], ...] = (
    ("POST", re.compile(r"(?:/anthropic)?/v1/messages"), messages),
    ("POST", re.compile(r"(?:/anthropic)?/v1/messages/count_tokens"), count_tokens),
    ("POST", re.compile(r"(?:/v1)?/chat/completions"), chat_completions),
    ("POST", re.compile(r"(?:/v1)?/responses"), responses),
    ("GET DELETE", re.compile(r"(?:/v1)?/responses/(?P<parameter>[\w-]{1,128})", re.ASCII), stored_response),
    ("GET", re.compile(r"(?:/v1)?/responses/(?P<parameter>[\w-]{1,128}/input_items)", re.ASCII), stored_response),
    ("POST", re.compile(r"(?:/v1)?/embeddings"), embeddings),
    (
        "GET POST DELETE",
        re.compile(r"(?:/anthropic)?/v1/messages/(?P<parameter>[\w-]+(?:/[\w-]+)*)", re.ASCII),
        messages_resource,
    ),
    ("GET", re.compile(r"/v1/route"), explain_route),
    ("GET HEAD", re.compile(r"/health|/api/hello"), health),
    ("GET HEAD", re.compile(r"/"), page),
    ("GET", re.compile(r"/v1/usage"), show_usage),
    ("GET", re.compile(r"(?:/anthropic)?(?:/v1)?/models"), list_models),
    ("GET", re.compile(r"(?:/anthropic)?(?:/v1)?/models/(?P<parameter>.+)"), show_model),
    ("GET", re.compile(r"/v1/conversations"), list_conversations),
    ("POST", re.compile(r"/v1/conversations/(?P<parameter>[^/]+)/terminate"), terminate),
)


def find_endpoint(request: HttpRequest) -> Endpoint:
    """The endpoint that serves a request; its part of the path that is a name goes into `request.parameter`."""
    for methods, pattern, endpoint in _ROUTES:
        found = pattern.fullmatch(request.path)
        if found is None:
            continue
        if request.method not in methods.split():
            error = BridgeError(
                ErrorKind.METHOD_NOT_ALLOWED, f"{request.path[:200]} takes {methods.replace(' ', ' or ')}"
            )
            error.headers = {"allow": methods.replace(" ", ", ")}
            raise error
        request.parameter = found.groupdict().get("parameter") or ""
        return endpoint
    raise BridgeError(ErrorKind.NOT_FOUND, f"there is nothing at {request.path[:200]}")


def dialect_of(request: HttpRequest) -> ProtocolName:
    """In whose terms a caller is answered: by the endpoint where it says so, else by the headers it sends."""
    path, headers = request.path, request.headers
    if "/responses" in path:
        return "openai_responses"
    if path.endswith(("/chat/completions", "/embeddings")):
        return "openai_chat"
    if "/models" not in path or path.startswith("/anthropic"):
        return "anthropic"
    speaks_anthropic = "anthropic-version" in headers or ("x-api-key" in headers and "authorization" not in headers)
    return "anthropic" if speaks_anthropic else "openai_chat"


def _client_call(edge: Edge, request: HttpRequest, record: Record, protocol: ProtocolName) -> ClientCall:
    return ClientCall(
        protocol,
        request.headers,
        request.body,
        request.identity.principal,
        request.identity.credential,
        request.deadline,
        record,
        request.method,
        request.query,
        check(request.body, edge.limits.json) if request.body else None,
    )


async def _answer(edge: Edge, call: ClientCall) -> Answer:
    check_request(call.document or {}, edge.limits)
    return await _limited(edge, call, edge.bridge.answer)


async def _limited(edge: Edge, call: ClientCall, serve: Callable[[ClientCall], Awaitable[Answer]]) -> Answer:
    """Serve what costs something, as long as its principal is below its limits."""
    try:
        admission = await edge.accounts.admit(call.record)
    except LimitReachedError as error:
        error.headers = error.admission.headers(call.protocol)
        raise
    answer = await serve(call)
    if not admission.standings:
        return answer
    return replace(answer, headers={**admission.headers(call.protocol), **answer.headers})


def _json(body: object) -> Answer:
    return Answer(200, {"content-type": JSON}, orjson.dumps(body))
