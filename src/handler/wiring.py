"""Puts the parts together: the one place that knows which adapter stands behind which port."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from bridge.calling import Caller
from bridge.catalog import Catalog
from bridge.ledger import Ledger
from bridge.limits import Limiter, RateLimits
from bridge.pipeline import Bridge
from bridge.translating import Translator
from bridge.upstream.breaker import BreakerRule
from bridge.upstream.client import HttpUpstream
from bridge.upstream.retry import RetryPolicy
from bridge.upstream.timeouts import Timeouts
from bridge.values import dataclass
from handler.accounts import Accounts
from handler.app import App
from handler.endpoints import Edge
from handler.live_edge import FixedEdge, LiveEdge
from handler.metrics import make_metrics
from handler.observability import SERVICE, Observer, make_logger
from handler.secrets import fetch, find_references
from handler.settings import SettingsError, load_settings

EXECUTION_SECONDS = 15 * 60

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.ports import ConversationStore, DocumentStore, ThreadStore, Upstream
    from bridge.providers import Provider
    from bridge.state.counters import CounterStore
    from bridge.toolloop.serving import BridgeTools
    from handler.settings import Settings
    from handler.tracing import Tracing


def bootstrap() -> App:
    """The app as it runs on Lambda; SettingsError says what is missing or wrong."""
    environment = dict(os.environ)
    references = find_references(environment)
    secrets = fetch(references)
    settings = load_settings(environment | secrets)
    if settings.state_table is None:
        raise SettingsError("STATE_TABLE is not set: on Lambda it must name the DynamoDB table that holds the state")
    if settings.holds_keys and not settings.worker_token:
        raise SettingsError(
            "WORKER_TOKEN is not set: a deployment that holds provider keys must not serve whoever finds its URL"
        )
    edge = build_edge(settings, as_json=True)
    if not references:
        return App(FixedEdge(edge))

    def rebuild(before: Edge, newer: Mapping[str, str]) -> Edge:
        return with_settings(before, load_settings({**environment, **newer}))

    return App(LiveEdge(edge, secrets, lambda: fetch(references), rebuild, settings.secrets_ttl_seconds))


def build_app(settings: Settings, *, as_json: bool, demo: Provider | None = None) -> App:
    """The app for given settings; `demo` is the provider that answers when none is configured."""
    return App(FixedEdge(build_edge(settings, as_json=as_json, demo=demo)))


def build_edge(settings: Settings, *, as_json: bool, demo: Provider | None = None) -> Edge:
    check_extras(settings)
    routing, tracing = settings.routing(demo), make_tracing(settings)
    upstream, stores = _traced(tracing, make_upstream(settings), make_stores(settings))
    emulates = settings.server_tools_mode == "emulate"
    observer = _make_observer(settings, as_json=as_json)
    translator = Translator(
        Caller(upstream, RetryPolicy(settings.upstream_retries)),
        stores.tools,
        settings.policies(),
        tools=cache(lambda: make_tools(settings, stores, tracing)),
        emulates=emulates,
        stream_upstream=settings.tool_bridge_stream,
        mark_prompts=settings.cache_prompts,
    )
    return Edge(
        bridge=Bridge(
            routing,
            translator,
            threads=stores.threads if settings.threads == "on" else None,
            responses=stores.responses,
            signatures=stores.signatures,
            fallback_models=settings.fallback_models,
            is_shared=len(settings.worker_token) > 1,
            server_tools=settings.server_tools_mode,
            server_tools_model=settings.server_tools_model,
        ),
        catalog=Catalog(routing, upstream),
        store=stores.tools,
        accounts=Accounts(
            Limiter(stores.counters, settings.rate_limits()),
            _make_ledger(settings, stores, observer),
        ),
        observer=observer,
        tokens=settings.worker_token,
        allow_origins=settings.allow_origins,
        max_body_bytes=settings.max_body_bytes,
        limits=settings.limits(),
        heartbeat_seconds=settings.heartbeat_seconds,
        admins=frozenset(settings.admin_principals),
        serves_page=settings.page == "on",
    )


def _make_ledger(settings: Settings, stores: Stores, observer: Observer) -> Ledger | None:
    """On Lambda an invocation that is over is frozen, so nothing waits there; a local run writes when it has time."""
    if settings.ledger == "off":
        return None
    if settings.state_table is not None:
        return Ledger(stores.counters)
    from bridge.state.gathered_counters import GatheredCounters

    def tell(reason: str) -> None:
        observer.warn(f"usage cannot be written: {reason}")

    return Ledger(GatheredCounters(stores.counters, on_failure=tell))


def _make_observer(settings: Settings, *, as_json: bool) -> Observer:
    # The function's name, which the dashboard knows too, keeps the stacks of an account apart.
    service = os.environ.get("AWS_LAMBDA_FUNCTION_NAME") or SERVICE
    metrics = make_metrics(settings.metrics, as_json=as_json, service=service)
    logger = make_logger(settings.log_level, as_json=as_json)
    return Observer(logger, as_json=as_json, body_share=settings.log_bodies, metrics=metrics)


def make_tracing(settings: Settings) -> Tracing | None:
    """None where requests are not traced: nothing is imported for it then."""
    if settings.tracing == "off":
        return None
    from handler.tracing import Tracing

    return Tracing(SERVICE)


def _traced(tracing: Tracing | None, upstream: Upstream, stores: Stores) -> tuple[Upstream, Stores]:
    """Provider and store as they are, or with a span around each call."""
    if tracing is None:
        return upstream, stores
    from handler.tracing import TracedStore, TracedUpstream

    return TracedUpstream(upstream, tracing), replace(stores, tools=TracedStore(stores.tools, tracing))


def check_extras(settings: Settings) -> None:
    """SettingsError if a setting asks for tools whose libraries are not installed: they are an extra."""
    wanted = [
        ("MCP_BRIDGE_MODE", "mcp", settings.mcp_bridge_mode != "off"),
        ("TOOL_FETCH_ALLOW", "justhtml", bool(settings.tool_fetch_allow)),
    ]
    for variable, module, is_wanted in wanted:
        if is_wanted and find_spec(module) is None:
            raise SettingsError(
                f"{variable} needs the library {module}, which is not installed: build with `make build WITH_TOOLS=1`, "
                "or install toolbridge[tools]"
            )


def with_settings(edge: Edge, settings: Settings) -> Edge:
    """The edge with other keys and tokens; connections and stores stay."""
    routing = settings.routing()
    bridge = replace(edge.bridge, routing=routing, is_shared=len(settings.worker_token) > 1)
    catalog = Catalog(routing, bridge.caller.upstream)
    return replace(edge, bridge=bridge, catalog=catalog, tokens=settings.worker_token)


def make_upstream(settings: Settings) -> HttpUpstream:
    timeouts = Timeouts(
        settings.connect_timeout_seconds,
        settings.first_byte_timeout_seconds,
        settings.idle_timeout_seconds,
        settings.total_timeout_seconds,
    )
    return HttpUpstream(timeouts=timeouts, breaker=BreakerRule() if settings.circuit_breaker == "on" else None)


def make_tools(settings: Settings, stores: Stores, tracing: Tracing | None = None) -> BridgeTools:
    """The tools that the bridge runs itself; imported when the first request may need one."""
    from bridge.toolloop.serving import BridgeTools, StoredExecutionLog
    from bridge.toolloop.urls import AllowList, names_loopback
    from bridge.toolloop.web_fetch import WebFetch

    allowed = AllowList.parse(settings.tool_fetch_allow)
    fetches = settings.server_tools_mode == "emulate" and bool(allowed)
    mcp = None
    if settings.mcp_bridge_mode == "http-sse":
        from bridge.toolloop.mcp import McpBridge

        mcp = McpBridge(AllowList.parse(settings.mcp_allow, loopback=names_loopback(settings.mcp_allow)))
    return BridgeTools(
        StoredExecutionLog(stores.executions),
        WebFetch(allowed) if fetches else None,
        Limiter(stores.counters, RateLimits(requests_per_minute=settings.tool_fetch_per_minute)),
        mcp,
        tracing.tool if tracing else None,
    )


@dataclass(frozen=True, slots=True)
class Stores:
    """Everything that is kept, in one place."""

    tools: ConversationStore
    threads: ThreadStore
    responses: DocumentStore
    counters: CounterStore
    executions: DocumentStore
    """What tools did that the bridge ran, for as long as clients retry."""
    signatures: DocumentStore


def make_stores(settings: Settings) -> Stores:
    """DynamoDB where a table is named, else a SQLite file. Neither is touched before a request needs it."""
    ttl, thread_ttl, response_ttl = (
        settings.state_ttl_seconds,
        settings.thread_ttl_seconds,
        settings.response_ttl_seconds,
    )
    if settings.state_table is not None:
        from bridge.state.dynamodb import DynamoDbStore
        from bridge.state.dynamodb_counters import DynamoDbCounters
        from bridge.state.dynamodb_documents import DynamoDbDocuments
        from bridge.state.dynamodb_table import DynamoDbTable
        from bridge.state.dynamodb_threads import DynamoDbThreads

        table = DynamoDbTable(settings.state_table)
        return Stores(
            DynamoDbStore(table, ttl),
            DynamoDbThreads(table, thread_ttl),
            DynamoDbDocuments(table, response_ttl),
            DynamoDbCounters(table),
            DynamoDbDocuments(table, EXECUTION_SECONDS),
            DynamoDbDocuments(table, ttl),
        )
    from bridge.state.sqlite import SqliteStore
    from bridge.state.sqlite_counters import SqliteCounters
    from bridge.state.sqlite_documents import SqliteDocuments
    from bridge.state.sqlite_file import SqliteFile
    from bridge.state.sqlite_threads import SqliteThreads

    file = SqliteFile(settings.state_file)
    return Stores(
        SqliteStore(file, ttl),
        SqliteThreads(file, thread_ttl),
        SqliteDocuments(file, response_ttl),
        SqliteCounters(file),
        SqliteDocuments(file, EXECUTION_SECONDS),
        SqliteDocuments(file, ttl),
    )
