"""What a request may cost, in counts: modules loaded, round trips to the store, writes, JSON read and written."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import tracemalloc
from collections import Counter
from dataclasses import is_dataclass, replace
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from bridge.calling import Caller
from bridge.canonical.events import TextDelta
from bridge.canonical.head import AnswerHead
from bridge.canonical.reading import Reading
from bridge.canonical.request import Request
from bridge.protocols.anthropic.stream_encoder import MessagesStreamEncoder
from bridge.protocols.openai_chat.stream_decoder import ChatStreamDecoder
from bridge.protocols.openai_chat.text_run import MAX_LESSONS
from handler.app import App
from handler.asgi import CLIENT_GONE
from handler.live_edge import FixedEdge
from handler.settings import load_settings
from handler.wiring import build_edge
from support import PLAIN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from bridge.ports import ConversationStore, UpstreamCall
    from scripted.server import ScriptedUpstream

TOKEN = "budget-token"
SCRIPT = Path(__file__).with_name("first_byte_modules.py")
# Each is milliseconds of a cold start that a plain streaming request has no use for.
UNUSED = (
    "aiohttp",
    "aws_xray_sdk",
    "boto3",
    "botocore.session",
    "bridge.protocols.openai_responses",
    "bridge.signatures",
    "bridge.state.dynamodb_listing",
    "bridge.state.sqlite",
    "bridge.state.sqlite_file",
    "bridge.tokens",
    "bridge.toolloop",
    "certifi",
    "dotenv",
    "h11",
    "h2",
    "handler.cli",
    "handler.conversations_endpoint",
    "handler.http1",
    "handler.local",
    "httpcore2",
    "justhtml",
    "mcp",
    "multiprocessing",
    "scripted",
    "sqlite3",
    "starlette",
    "uvicorn",
)
MOST_MODULES = 540
MOST_OWN_MODULES = 150


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("budgets")


def loaded_modules(upstream: ScriptedUpstream, **environment: str) -> dict[str, list[str]]:
    """The modules of a fresh process that has served one streaming request as on Lambda."""
    counted = {"when": {"path": "/"}, "reply": {"json": {"Attributes": {}}}}  # what DynamoDB says to an update
    upstream.script = [counted, {"reply": {"chat": {"text": "Hello there"}}}]
    settings = {
        "STATE_TABLE": "none",
        "WORKER_TOKEN": TOKEN,
        "OPENAI_API_KEY": "sk-held",
        "UPSTREAM_OPENAI_BASE_URL": upstream.url,
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_ENDPOINT_URL_DYNAMODB": upstream.url,
        **environment,
    }
    command = [sys.executable, "-P", str(SCRIPT), TOKEN]
    run = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    loaded: dict[str, list[str]] = json.loads(run.stdout.splitlines()[-1])
    return loaded


def within(modules: Sequence[str], packages: Sequence[str]) -> list[str]:
    return [name for name in modules if any(name == package or name.startswith(f"{package}.") for package in packages)]


@pytest.mark.req("S5")
def test_a_plain_streaming_request_on_lambda_loads_only_what_it_uses(upstream: ScriptedUpstream) -> None:
    loaded = loaded_modules(upstream, LEDGER="off")
    assert within(loaded["end"], UNUSED) == []
    assert len(loaded["first_byte"]) <= MOST_MODULES
    assert len(within(loaded["first_byte"], ("bridge", "handler"))) <= MOST_OWN_MODULES


@pytest.mark.req("S5")
def test_the_ledger_loads_boto3_only_after_the_first_byte(upstream: ScriptedUpstream) -> None:
    loaded = loaded_modules(upstream, LEDGER="on")
    assert within(loaded["first_byte"], UNUSED) == []
    assert within(loaded["end"], ("boto3",)) != []


# --- values -------------------------------------------------------------------------------------


def own_dataclasses() -> list[type]:
    packages = [import_module(name) for name in ("bridge", "handler")]
    modules = [
        import_module(found.name)
        for package in packages
        for found in walk_packages(package.__path__, f"{package.__name__}.")
    ]
    members = [
        member
        for module in modules
        for member in vars(module).values()
        if isinstance(member, type) and is_dataclass(member)
    ]
    return [member for member in members if member.__module__.partition(".")[0] in ("bridge", "handler")]


@pytest.mark.req("S5")
def test_no_value_is_made_by_a_call_per_field() -> None:
    frozen = [made.__qualname__ for made in own_dataclasses() if made.__dataclass_params__.frozen]  # type: ignore[attr-defined]
    assert frozen == []
    assert len({TextDelta("a"), TextDelta("a"), TextDelta("b")}) == 2


# --- a stream -----------------------------------------------------------------------------------


class PiecedReply:
    """An answer that arrives in given pieces."""

    status = 200
    headers = {"content-type": "text/event-stream"}  # noqa: RUF012

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            await asyncio.sleep(0)
            yield piece

    async def read(self, limit: int) -> bytes:
        return b"".join(self._pieces)[:limit]

    async def aclose(self) -> None:
        pass


class PiecedUpstream:
    """A provider that answers every call in the same pieces."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces

    async def send(self, call: UpstreamCall) -> PiecedReply:
        return PiecedReply(self.pieces)

    async def aclose(self) -> None:
        pass


class CountingStore:
    """The store itself, and how often it was asked for what."""

    def __init__(self, store: ConversationStore) -> None:
        self._store = store
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        self.asked[name] += 1
        method: Callable[..., Any] = getattr(self._store, name)
        return method


class BudgetedBridge:
    """The bridge as it is wired, between a provider in pieces and a client that counts writes."""

    tasks = 0
    """How many tasks the last request made."""

    def __init__(self, folder: Path) -> None:
        named = {"STATE_FILE": str(folder / "state.sqlite3"), "OPENAI_API_KEY": "sk-held", "WORKER_TOKEN": TOKEN}
        edge = build_edge(load_settings(PLAIN | named | {"LEDGER": "off"}), as_json=False)
        self.upstream = PiecedUpstream(())
        self.store = CountingStore(edge.store)
        caller = Caller(self.upstream, edge.bridge.caller.retries)
        translator = replace(edge.bridge.translator, caller=caller, store=self.store)
        self._app = App(FixedEdge(replace(edge, bridge=replace(edge.bridge, translator=translator))))
        self.extensions: dict[str, Any] = {}

    def ask(self, pieces: Sequence[bytes], messages: list[dict[str, Any]]) -> list[bytes]:
        """The writes of one streamed answer."""
        self.upstream.pieces = pieces
        self.store.asked.clear()
        tools = [{"name": "look", "input_schema": {"type": "object"}}]
        body = {"model": "openai/m", "max_tokens": 9, "stream": True, "messages": messages, "tools": tools}
        return asyncio.run(self._serve(orjson.dumps(body)))

    async def _serve(self, body: bytes) -> list[bytes]:
        writes: list[bytes] = []
        pending = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if not pending:
                await asyncio.Event().wait()
            return pending.pop()

        async def send(message: dict[str, Any]) -> None:
            if message.get("body"):
                writes.append(message["body"])

        def count_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
            self.tasks += 1
            return asyncio.Task(work, loop=loop, **options)

        self.tasks = 0
        asyncio.get_running_loop().set_task_factory(count_task)
        headers = [(b"content-type", b"application/json"), (b"x-api-key", TOKEN.encode())]
        scope = {"type": "http", "method": "POST", "path": "/v1/messages", "query_string": b"", "headers": headers}
        gc.collect()
        gc.disable()  # what is let go must need no collection
        before = living_requests()
        try:
            await self._app({**scope, "extensions": self.extensions, "client": None}, receive, send)
            self.held_requests = living_requests() - before
        finally:
            gc.enable()
        asyncio.get_running_loop().set_task_factory(None)
        return writes


def living_requests() -> int:
    return sum(isinstance(held, Request) for held in gc.get_objects())


@pytest.fixture(scope="module")
def bridge(folder: Path) -> BudgetedBridge:
    return BudgetedBridge(folder)


def event(delta: dict[str, Any], reason: str | None = None) -> bytes:
    return b"data: %b\n\n" % orjson.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


END = event({}, "stop") + b"data: [DONE]\n\n"
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]


def tool_calls(count: int) -> list[bytes]:
    calls = [
        {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        for index in range(count)
    ]
    return [event({"tool_calls": calls}), event({}, "tool_calls") + b"data: [DONE]\n\n"]


def minted_ids(writes: Sequence[bytes]) -> list[str]:
    lines = b"".join(writes).decode().splitlines()
    blocks = [json.loads(line[6:]).get("content_block", {}) for line in lines if line.startswith("data: ")]
    return [block["id"] for block in blocks if block.get("type") == "tool_use"]


def results(tool_ids: Sequence[str]) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": each, "content": "x"} for each in tool_ids],
    }


def calls(tool_ids: Sequence[str]) -> dict[str, Any]:
    blocks = [{"type": "tool_use", "id": tool_id, "name": "look", "input": {}} for tool_id in tool_ids]
    return {"role": "assistant", "content": blocks}


@pytest.mark.req("G1")
@pytest.mark.parametrize("events_per_read", [1, 5, 40])
def test_each_read_from_the_provider_is_one_write_to_the_client(bridge: BudgetedBridge, events_per_read: int) -> None:
    reads = [event({"content": "word "}) * events_per_read for _ in range(20)]
    writes = bridge.ask([*reads, END], HELLO)
    assert b"".join(writes).count(b'"text_delta"') == 20 * events_per_read
    # The end of the message waits for the store, so it has a write of its own.
    assert len(writes) <= len(reads) + 2


def test_a_stream_takes_one_task_beside_its_own(bridge: BudgetedBridge) -> None:
    """The one that waits for the client to leave. Each further one is a turn of the loop before the first token."""
    bridge.ask([event({"content": "word "}), END], HELLO)
    assert bridge.tasks == 1


def test_a_stream_takes_no_other_task_where_the_server_tells_of_leaving(bridge: BudgetedBridge) -> None:
    bridge.extensions = {CLIENT_GONE: lambda _callback: None}
    try:
        bridge.ask([event({"content": "word "}), END], HELLO)
    finally:
        bridge.extensions = {}
    assert bridge.tasks == 0


def test_a_request_is_let_go_when_it_is_answered(bridge: BudgetedBridge) -> None:
    """Whatever outlives an exchange (its record, timers that were cancelled) would keep megabytes."""
    bridge.ask([event({"content": "word "}), END], HELLO)
    assert bridge.held_requests == 0


@pytest.mark.req("NFR1")
def test_a_turn_without_tool_calls_never_asks_the_store(bridge: BudgetedBridge) -> None:
    bridge.ask([event({"content": "Hello"}), END], HELLO)
    assert bridge.store.asked == {}


@pytest.mark.req("NFR1")
@pytest.mark.parametrize("count", [1, 3, 40])
def test_a_history_that_suffices_is_not_looked_up(bridge: BudgetedBridge, count: int) -> None:
    ids = minted_ids(bridge.ask(tool_calls(count), HELLO))
    assert len(ids) == count
    bridge.ask([event({"content": "Done"}), END], [*HELLO, calls(ids), results(ids)])
    assert bridge.store.asked == {}


@pytest.mark.req("NFR1")
@pytest.mark.parametrize("count", [1, 3, 40])
def test_what_the_history_lacks_is_one_read(bridge: BudgetedBridge, count: int) -> None:
    ids = minted_ids(bridge.ask(tool_calls(count), HELLO))
    bridge.ask([event({"content": "Done"}), END], [results(ids)])
    assert bridge.store.asked == {"load": 1}


@pytest.mark.req("NFR1")
def test_results_of_two_conversations_are_still_one_read(bridge: BudgetedBridge) -> None:
    ids = [minted_ids(bridge.ask(tool_calls(1), HELLO))[0] for _ in range(2)]
    bridge.ask([event({"content": "Done"}), END], [results(ids)])
    assert bridge.store.asked == {"load": 1}


# --- a chunk ------------------------------------------------------------------------------------

CHUNKS = 1000
MOST_CALLS_PER_CHUNK = 30
MOST_KEPT_BYTES = 16 * 1024


class Codec:
    """The decoder and the encoder of a text stream that has begun."""

    def __init__(self) -> None:
        self._decoder = ChatStreamDecoder(Reading("acme"))
        self._encoder = MessagesStreamEncoder(AnswerHead("msg_1", "m"))
        self.translate(event({"role": "assistant", "content": "Hello"}))

    def translate(self, data: bytes) -> bytes:
        return self._encoder.encode(self._decoder.feed(data))


def counted_calls(work: Callable[[], object]) -> Counter[str]:
    """How often functions are called, those of C by their names and all of Python under one."""
    counts: Counter[str] = Counter()

    def count(_frame: object, kind: str, argument: object) -> None:
        if kind == "call":
            counts["python"] += 1
        elif kind == "c_call":
            counts[f"{getattr(argument, '__module__', '')}.{getattr(argument, '__name__', '')}"] += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counts


@pytest.mark.req("G1")
@pytest.mark.parametrize(
    ("text", "most_parsed"),
    [("word ", MAX_LESSONS * 2), ('"word"\n', CHUNKS + MAX_LESSONS)],
    ids=["plain letters are not parsed", "others are, once"],
)
def test_a_text_chunk_is_read_once_and_written_from_a_template(text: str, most_parsed: int) -> None:
    codec, chunk = Codec(), event({"content": text})
    counts = counted_calls(lambda: [codec.translate(chunk) for _ in range(CHUNKS)])
    assert counts["orjson.loads"] <= most_parsed
    assert counts["orjson.dumps"] == CHUNKS  # the text itself; what surrounds it is bytes already
    assert counts["python"] <= MOST_CALLS_PER_CHUNK * CHUNKS


@pytest.mark.req("G1")
def test_a_stream_of_text_leaves_nothing_behind_in_the_codec() -> None:
    codec, chunk = Codec(), event({"content": "word " * 20})
    codec.translate(chunk)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(CHUNKS):
            codec.translate(chunk)
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < MOST_KEPT_BYTES


@pytest.mark.req("G1")
def test_a_long_run_of_arguments_is_not_read_again_with_every_piece() -> None:
    codec = Codec()
    opened = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"a":"'}}
    codec.translate(event({"tool_calls": [opened]}))
    piece = event({"tool_calls": [{"index": 0, "function": {"arguments": "word "}}]})
    counts = counted_calls(lambda: [codec.translate(piece) for _ in range(CHUNKS)])
    assert counts["orjson.loads"] == CHUNKS  # the chunks; never what the pieces make together
    assert counts["python"] <= MOST_CALLS_PER_CHUNK * CHUNKS
