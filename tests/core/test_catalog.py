"""The models that clients are shown: from the configuration and from providers over real HTTP."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import anthropic
import openai
import pytest
from anthropic.types import ModelInfo
from openai.types import Model

from bridge import catalog as catalog_module
from bridge.catalog import FAILURE_SECONDS, TTL_SECONDS, Catalog, ModelEntry
from bridge.errors import BridgeError
from bridge.protocols.anthropic import models as anthropic_models
from bridge.protocols.openai_chat import models as openai_models
from bridge.providers import Provider, api_root
from bridge.upstream.client import HttpUpstream
from handler.settings import load_settings
from scripted.demo import demo_rules
from scripted.server import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from scripted.received import Received
    from scripted.server import ScriptedUpstream

pytestmark = pytest.mark.req("X1")

NOBODY = "http://127.0.0.1:9"


class Clock:
    """A time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def cataloguing(
    demo: Provider | None = None, clock: Clock | None = None, patience: float = 5.0, **environment: str
) -> AsyncIterator[Catalog]:
    """A catalog of these settings, with an HTTP client of its own."""
    async with AsyncExitStack() as stack:
        upstream = HttpUpstream()
        stack.push_async_callback(upstream.aclose)
        table = load_settings(environment).routing(demo)
        yield Catalog(table, upstream, clock or Clock(), patience=patience)


def with_catalog(use: Callable[[Catalog], Awaitable[Any]], **options: Any) -> Any:
    """What `use` returns for a catalog."""

    async def run() -> Any:
        async with cataloguing(**options) as catalog:
            return await use(catalog)

    return asyncio.run(run())


def listed(credential: str | None = None, principal: str = "ann", **options: Any) -> tuple[ModelEntry, ...]:
    entries: tuple[ModelEntry, ...] = with_catalog(lambda catalog: catalog.list(credential, principal), **options)
    return entries


def found(model_id: str, **options: Any) -> ModelEntry | None:
    entry: ModelEntry | None = with_catalog(lambda catalog: catalog.find(model_id, None, "ann"), **options)
    return entry


def ids(entries: tuple[ModelEntry, ...]) -> list[str]:
    return [entry.id for entry in entries]


def models(*names: str, **more: Any) -> list[dict[str, Any]]:
    """A script whose provider lists these models."""
    data = [{"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "acme", **more} for name in names]
    return [{"when": {"method": "GET", "path": "*/models"}, "reply": {"json": {"object": "list", "data": data}}}]


def by_key(received: Received) -> dict[str, Any]:
    """A list that shows whose key it was read with."""
    key = received.headers.get("authorization", "Bearer nobody").removeprefix("Bearer ")
    return {"json": {"data": [{"id": f"seen-by-{key}"}]}}


BY_KEY = [{"when": {"path": "*/models"}, "reply": by_key}]


def test_every_configured_provider_is_listed_under_ids_that_route_to_it() -> None:
    claude = {"type": "model", "display_name": "Claude Opus 5.5", "created_at": "2026-09-01T00:00:00Z"}
    with ExitStack() as stack:
        providers = {
            "ANTHROPIC": stack.enter_context(serving(models("claude-opus-5-5", created=None, **claude))),
            "OPENAI": stack.enter_context(serving(models("gpt-5"))),
            "OPENROUTER": stack.enter_context(serving(models("meta/llama", name="Meta: Llama"))),
            "GEMINI": stack.enter_context(serving(models("models/gemini-2.5-pro"))),
        }
        keys = {f"{name}_API_KEY": f"{name}-key" for name in providers}
        urls = {f"UPSTREAM_{name}_BASE_URL": provider.url for name, provider in providers.items()}
        entries = listed(**keys, **urls)
        seen = {name: provider.received for name, provider in providers.items()}
    assert entries == (
        ModelEntry("claude-opus-5-5", "anthropic", "Claude Opus 5.5", 1_788_220_800, "acme"),
        ModelEntry("openai/gpt-5", "openai", "gpt-5", 1_700_000_000, "acme"),
        ModelEntry("openrouter/meta/llama", "openrouter", "Meta: Llama", 1_700_000_000, "acme"),
        ModelEntry("gemini/gemini-2.5-pro", "gemini", "gemini-2.5-pro", 1_700_000_000, "acme"),
    )
    assert [received.path for received in seen["ANTHROPIC"]] == ["/v1/models?limit=1000"]
    assert seen["ANTHROPIC"][0].headers["x-api-key"] == "ANTHROPIC-key"
    assert [received.path for received in seen["OPENAI"]] == ["/v1/models"]
    assert seen["OPENAI"][0].headers["authorization"] == "Bearer OPENAI-key"


def test_the_newest_come_first_and_none_comes_twice(upstream: ScriptedUpstream) -> None:
    rows = [{"id": "b", "created": 5}, {"id": "z"}, {"id": "a", "created": 5}, {"id": "c", "created": 9}, {"id": "b"}]
    upstream.script = [{"reply": {"json": rows}}]
    entries = listed(UPSTREAM_OPENAI_BASE_URL=upstream.url)
    assert ids(entries) == ["openai/c", "openai/a", "openai/b", "openai/z"]


def test_names_that_the_configuration_gives_are_listed_with_what_answers(upstream: ScriptedUpstream) -> None:
    upstream.script = models("gpt-5", "gpt-5-mini")
    entries = listed(
        UPSTREAM_OPENAI_BASE_URL=upstream.url,
        MODEL_MAP='{"fast": "openai/gpt-5-mini", "claude-old-*": "gpt-5", "exact": "gpt-4"}',
        MODEL_MAP_OPUS="openai/gpt-5",
    )
    assert [(entry.id, entry.display_name) for entry in entries] == [
        ("claude-opus", "claude-opus (openai/gpt-5)"),
        ("fast", "fast (openai/gpt-5-mini)"),
        ("exact", "exact (openai/gpt-4)"),
        ("openai/gpt-5", "gpt-5"),
        ("openai/gpt-5-mini", "gpt-5-mini"),
        ("openai/gpt-4", "gpt-4"),
    ]
    assert {entry.provider for entry in entries} == {"openai"}
    assert entries[3].created == 1_700_000_000
    assert entries[5].created is None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"MODEL_MAP_OPUS": "openai/gpt-5"}, ["claude-opus", "openai/gpt-5", "anthropic/claude-opus-5", "claude-x"]),
        ({"MODEL_MAP": '{"claude-*": "gpt-5"}'}, ["openai/gpt-5", "anthropic/claude-opus-5", "anthropic/claude-x"]),
    ],
)
def test_a_bare_claude_name_that_is_mapped_away_is_listed_with_its_provider(
    upstream: ScriptedUpstream, environment: dict[str, str], expected: list[str]
) -> None:
    upstream.script = models("claude-x", "claude-opus-5")
    assert ids(listed(UPSTREAM_ANTHROPIC_BASE_URL=upstream.url, **environment)) == expected


def test_a_model_that_no_name_leads_to_is_not_listed(upstream: ScriptedUpstream) -> None:
    """OpenRouter's names all have a vendor; the bridge would add one to this."""
    upstream.script = models("no-vendor", "meta/llama")
    assert ids(listed(UPSTREAM_OPENROUTER_BASE_URL=upstream.url)) == ["openrouter/meta/llama"]


def test_the_demo_shows_only_its_own_models() -> None:
    with serving(demo_rules()) as upstream:
        demo = Provider("demo", "openai_chat", api_root(upstream.url), configured=True)
        entries = listed(demo=demo, OPENAI_API_KEY="k", MODEL_MAP='{"fast": "openai/gpt-5"}')
        anything = found("claude-opus-5-5", demo=demo)
    assert ids(entries) == ["demo"]
    assert entries[0].provider == "demo"
    assert anything is not None
    assert (anything.id, anything.provider) == ("claude-opus-5-5", "demo")


@pytest.mark.parametrize(
    "reply",
    [
        {"status": 500, "json": {"error": {"message": "no"}}},
        {"status": 401, "json": {"data": [{"id": "x"}]}},
        {"json": {"error": {"message": "no"}}},
        {"json": {"data": None}},
        {"body": "<html>hello</html>"},
        {"cut": "reset"},
        {"body": "[" + " " * catalog_module.MAX_LIST_BYTES + "]"},
    ],
    ids=["500", "401", "error-with-200", "null", "html", "cut", "too-large"],
)
def test_a_provider_that_fails_is_left_out(upstream: ScriptedUpstream, reply: dict[str, Any]) -> None:
    upstream.script = models("gpt-5")
    with serving([{"reply": reply}]) as broken:
        urls = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "UPSTREAM_ANTHROPIC_BASE_URL": broken.url}
        assert ids(listed(**urls)) == ["openai/gpt-5"]


def test_rows_that_make_no_sense_are_left_out(upstream: ScriptedUpstream) -> None:
    rows = ["x", {"id": 7}, {"id": ""}, {"id": "a\nb"}, {"id": "a" * 300}, {"name": "y"}, {"id": "good", "owned_by": 3}]
    upstream.script = [{"reply": {"json": {"data": rows}}}]
    assert listed(UPSTREAM_OPENAI_BASE_URL=upstream.url) == (
        ModelEntry("openai/good", "openai", "good", None, "openai"),
    )


@pytest.mark.parametrize(
    ("row", "created"),
    [
        ({"created": 1_700_000_000}, 1_700_000_000),
        ({"created": 1_700_000_000.5}, 1_700_000_000),
        ({"created": True}, None),
        ({"created": -1}, None),
        ({"created": 1_700_000_000_000}, None),
        ({"created": 0}, None),
        ({"created_at": "2023-11-14T22:13:20Z"}, 1_700_000_000),
        ({"created_at": "2023-11-14T22:13:20"}, 1_700_000_000),
        ({"created_at": "1970-01-01T00:00:00Z"}, None),
        ({"created_at": "0001-01-01T00:00:00"}, None),
        ({"created_at": "yesterday"}, None),
    ],
)
def test_dates_are_read_in_either_form(upstream: ScriptedUpstream, row: dict[str, Any], created: int | None) -> None:
    upstream.script = [{"reply": {"json": {"data": [{"id": "m", **row}]}}}]
    assert listed(UPSTREAM_OPENAI_BASE_URL=upstream.url)[0].created == created


def test_a_slow_provider_does_not_keep_the_others_waiting(upstream: ScriptedUpstream) -> None:
    upstream.script = models("gpt-5")
    slow = [{"reply": {"delay_ms": 30_000, "json": {"data": [{"id": "claude-x"}]}}}]
    with serving(slow) as sleeper:
        urls = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "UPSTREAM_ANTHROPIC_BASE_URL": sleeper.url}

        async def use(catalog: Catalog) -> tuple[list[str], float]:
            started = asyncio.get_running_loop().time()
            return ids(await catalog.list(None, "ann")), asyncio.get_running_loop().time() - started

        names, seconds = with_catalog(use, patience=0.3, **urls)
    assert names == ["openai/gpt-5"]
    assert seconds < 5


def test_a_list_is_read_again_when_it_is_old(upstream: ScriptedUpstream) -> None:
    clock = Clock()
    upstream.script = [
        {"when": {"call": 1}, "reply": {"json": {"data": [{"id": "old"}]}}},
        {"reply": {"json": {"data": [{"id": "new"}]}}},
    ]

    async def use(catalog: Catalog) -> list[list[str]]:
        seen = []
        for passed in (0.0, TTL_SECONDS - 1, 1.0, 1.0):
            clock.now += passed
            seen.append(ids(await catalog.list(None, "ann")))
        return seen

    seen = with_catalog(use, clock=clock, UPSTREAM_OPENAI_BASE_URL=upstream.url)
    assert seen == [["openai/old"], ["openai/old"], ["openai/new"], ["openai/new"]]
    assert len(upstream.received) == 2


def test_a_failure_is_remembered_shortly(upstream: ScriptedUpstream) -> None:
    clock = Clock()
    upstream.script = [{"when": {"call": 1}, "reply": {"status": 503, "json": {}}}, *models("gpt-5")]

    async def use(catalog: Catalog) -> list[list[str]]:
        seen = []
        for passed in (0.0, FAILURE_SECONDS - 1, 1.0):
            clock.now += passed
            seen.append(ids(await catalog.list(None, "ann")))
        return seen

    assert with_catalog(use, clock=clock, UPSTREAM_OPENAI_BASE_URL=upstream.url) == [[], [], ["openai/gpt-5"]]
    assert len(upstream.received) == 2


def test_many_who_ask_at_once_cause_one_call(upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"delay_ms": 100, "json": {"data": [{"id": "gpt-5"}]}}}]

    async def use(catalog: Catalog) -> list[tuple[ModelEntry, ...]]:
        return await asyncio.gather(*(catalog.list(None, f"user-{number}") for number in range(25)))

    lists = with_catalog(use, UPSTREAM_OPENAI_BASE_URL=upstream.url)
    assert {tuple(ids(entries)) for entries in lists} == {("openai/gpt-5",)}
    assert len(upstream.received) == 1


def test_who_leaves_while_a_list_is_read_does_not_spoil_it_for_those_who_wait(upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"delay_ms": 100, "json": {"data": [{"id": "gpt-5"}]}}}]

    async def use(catalog: Catalog) -> tuple[ModelEntry, ...]:
        first = asyncio.create_task(catalog.list(None, "ann"))
        second = asyncio.create_task(catalog.list(None, "bob"))
        await asyncio.sleep(0.02)
        first.cancel()
        return await second

    assert ids(with_catalog(use, UPSTREAM_OPENAI_BASE_URL=upstream.url)) == ["openai/gpt-5"]


def test_what_a_callers_own_key_shows_is_that_callers_alone(upstream: ScriptedUpstream) -> None:
    upstream.script = BY_KEY

    async def use(catalog: Catalog) -> list[list[str]]:
        callers = [("k-ann", "ann"), ("k-bob", "bob"), ("k-ann", "ann"), ("k-ann-2", "ann"), ("k-ann", "eve")]
        together = await asyncio.gather(*(catalog.list(key, principal) for key, principal in callers))
        return [ids(entries) for entries in (*together, await catalog.list(None, "ann"))]

    seen = with_catalog(use, UPSTREAM_OPENAI_BASE_URL=upstream.url)
    keys = ["k-ann", "k-bob", "k-ann", "k-ann-2", "k-ann", "nobody"]
    assert seen == [[f"openai/seen-by-{key}"] for key in keys]
    assert len(upstream.received) == 5  # ann's first list, asked for twice, was read once; eve did not get it


def test_what_the_bridges_key_shows_is_everybodys(upstream: ScriptedUpstream) -> None:
    upstream.script = BY_KEY

    async def use(catalog: Catalog) -> list[list[str]]:
        return [ids(await catalog.list(key, name)) for key, name in (("k-ann", "ann"), ("k-bob", "bob"), (None, "c"))]

    seen = with_catalog(use, UPSTREAM_OPENAI_BASE_URL=upstream.url, OPENAI_API_KEY="held,spare")
    assert seen == [["openai/seen-by-held"]] * 3
    assert len(upstream.received) == 1


def test_a_callers_key_is_shown_to_no_provider_when_it_could_be_for_several(upstream: ScriptedUpstream) -> None:
    upstream.script = BY_KEY
    urls = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "UPSTREAM_ANTHROPIC_BASE_URL": upstream.url}
    assert len(listed("sk-secret", **urls)) == 2
    assert len(upstream.received) == 2
    assert "sk-secret" not in str([received.headers for received in upstream.received])
    upstream.received.clear()
    listed("sk-secret", ANTHROPIC_API_KEY="held", **urls)
    sent = {
        received.headers.get("x-api-key") or received.headers.get("authorization") for received in upstream.received
    }
    assert sent == {"held", "Bearer sk-secret"}


def test_what_is_remembered_is_bounded(upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_module, "MAX_SLOTS", 3)
    monkeypatch.setattr(catalog_module, "MAX_MODELS", 2)
    upstream.script = models("a", "b", "c")

    async def use(catalog: Catalog) -> list[int]:
        counts = []
        for name in ("a", "b", "c", "a", "d", "a", "b"):
            assert len(await catalog.list(name, name)) == 2
            counts.append(len(upstream.received))
        return counts

    assert with_catalog(use, UPSTREAM_OPENAI_BASE_URL=upstream.url) == [1, 2, 3, 3, 4, 4, 5]


@pytest.mark.parametrize(
    ("model_id", "expected"),
    [
        ("openai/gpt-5", ModelEntry("openai/gpt-5", "openai", "gpt-5", 1_700_000_000, "acme")),
        ("gpt-5", ModelEntry("gpt-5", "openai", "gpt-5", 1_700_000_000, "acme")),
        ("openai/ft:gpt-5:acme", ModelEntry("openai/ft:gpt-5:acme", "openai", "ft:gpt-5:acme", None, "openai")),
        ("or:meta/llama", ModelEntry("or:meta/llama", "openrouter", "meta/llama", None, "openrouter")),
        ("claude-opus-9", ModelEntry("claude-opus-9", "openai", "claude-opus-9 (openai/gpt-5)", None, "openai")),
        ("claude-opus", ModelEntry("claude-opus", "openai", "claude-opus (openai/gpt-5)", None, "openai")),
        ("my-7", ModelEntry("my-7", "openai", "my-7 (openai/gpt-5)", None, "openai")),
        ("gpt-6-typo", None),
        ("claude-sonnet-9", None),
        ("openai/", None),
        ("meta/llama", None),
    ],
)
def test_a_name_is_found_if_it_is_listed_or_somebody_vouches_for_it(
    upstream: ScriptedUpstream, model_id: str, expected: ModelEntry | None
) -> None:
    upstream.script = models("gpt-5")
    settings = {"MODEL_MAP_OPUS": "openai/gpt-5", "MODEL_MAP": '{"my-*": "openai/gpt-5"}'}
    assert found(model_id, UPSTREAM_OPENAI_BASE_URL=upstream.url, **settings) == expected


def test_a_name_is_not_denied_by_a_list_that_could_not_be_read() -> None:
    entry = found("claude-opus-5-5", UPSTREAM_ANTHROPIC_BASE_URL=NOBODY)
    assert entry == ModelEntry("claude-opus-5-5", "anthropic", "claude-opus-5-5", None, "anthropic")
    assert found("claude-opus-5-5") == entry


def test_only_the_provider_of_a_name_is_asked_for_it(upstream: ScriptedUpstream) -> None:
    upstream.script = models("claude-x")
    with serving(models("gpt-5")) as other:
        urls = {"UPSTREAM_OPENAI_BASE_URL": other.url, "UPSTREAM_ANTHROPIC_BASE_URL": upstream.url}
        assert found("claude-x", **urls)
        assert other.received == []


ENTRIES = (
    ModelEntry("claude-opus", "openai", "claude-opus (openai/gpt-5)", None, "openai"),
    *(ModelEntry(f"openai/m{number}", "openai", f"M {number}", 1_700_000_000, "acme") for number in range(6)),
)


def test_the_anthropic_shape_is_one_that_the_sdk_knows() -> None:
    unknown, known, *_ = (ModelInfo.model_validate(anthropic_models.render_model(entry)) for entry in ENTRIES)
    assert unknown.created_at.timestamp() == 0
    assert known.created_at.timestamp() == 1_700_000_000
    assert (known.id, known.display_name, known.lifecycle) == ("openai/m0", "M 0", "active")
    assert anthropic_models.render_model(ENTRIES[1])["created_at"] == "2023-11-14T22:13:20Z"


def test_what_anthropic_says_of_its_models_is_kept(upstream: ScriptedUpstream) -> None:
    said = {"lifecycle": "deprecated", "line": "opus", "max_input_tokens": 200_000, "max_tokens": 64_000}
    dates = {"deprecated_at": "2026-01-01T00:00:00Z", "retires_at": None, "capabilities": None}
    upstream.script = models("claude-x", **said, **dates)
    (entry,) = listed(UPSTREAM_ANTHROPIC_BASE_URL=upstream.url)
    shown = ModelInfo.model_validate(anthropic_models.render_model(entry))
    assert shown.model_dump(include=set(said)) == said
    assert shown.deprecated_at is not None
    assert "lifecycle" not in openai_models.render_model(entry)


def test_the_openai_shape_is_one_that_the_sdk_knows() -> None:
    body = openai_models.render_models(ENTRIES)
    shown = [Model.model_validate(row) for row in body["data"]]  # type: ignore[union-attr]
    assert body["object"] == "list"
    assert [model.id for model in shown] == ids(ENTRIES)
    assert (shown[0].created, shown[1].created, shown[1].owned_by) == (0, 1_700_000_000, "acme")


def answer_as_anthropic(received: Received) -> dict[str, Any]:
    query = {name: values[0] for name, values in parse_qs(urlsplit(received.path).query).items()}
    limit = anthropic_models.parse_limit(query.get("limit"))
    page = anthropic_models.render_models(ENTRIES, limit, query.get("after_id"), query.get("before_id"))
    return {"json": page}


@pytest.mark.parametrize(("limit", "calls"), [(1, 7), (2, 4), (3, 3), (7, 1), (1000, 1)])
def test_the_anthropic_sdk_pages_through_all_models_forwards_and_backwards(
    upstream: ScriptedUpstream, limit: int, calls: int
) -> None:
    upstream.script = [{"when": {"path": "*/models"}, "reply": answer_as_anthropic}]
    with anthropic.Anthropic(base_url=upstream.url, api_key="k", max_retries=0) as client:
        assert [model.id for model in client.models.list(limit=limit)] == ids(ENTRIES)
        assert len(upstream.received) == calls
        backwards = client.models.list(limit=limit, before_id=ENTRIES[-1].id)
        pages = [[model.id for model in page.data] for page in backwards.iter_pages()]
    assert [name for page in reversed(pages) for name in page] == ids(ENTRIES)[:-1]
    assert all(len(page) <= limit for page in pages)


def test_the_openai_sdk_lists_all_models(upstream: ScriptedUpstream) -> None:
    upstream.script = [{"when": {"path": "*/models"}, "reply": {"json": openai_models.render_models(ENTRIES)}}]
    with openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="k", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ids(ENTRIES)


def test_pages_say_where_they_are() -> None:
    empty = {"data": [], "has_more": False, "first_id": None, "last_id": None}
    assert anthropic_models.render_models(()) == empty
    assert anthropic_models.render_models(ENTRIES, after_id=ENTRIES[-1].id) == empty
    assert anthropic_models.render_models(ENTRIES, before_id=ENTRIES[0].id) == empty
    page = anthropic_models.render_models(ENTRIES, 2, after_id="openai/m0")
    assert (page["first_id"], page["last_id"], page["has_more"]) == ("openai/m1", "openai/m2", True)


@pytest.mark.parametrize("cursor", [{"after_id": "gone"}, {"before_id": "gone"}, {"after_id": "a", "before_id": "b"}])
def test_a_cursor_that_leads_nowhere_is_refused(cursor: dict[str, str]) -> None:
    with pytest.raises(BridgeError, match=r"after_id|before_id") as refused:
        anthropic_models.render_models(ENTRIES, 20, **cursor)
    assert refused.value.status == 400


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "x", "", "1.5", "٣", "99999"])
def test_a_limit_out_of_range_is_refused(limit: str) -> None:
    with pytest.raises(BridgeError, match="limit: takes a number from 1 to 1000"):
        anthropic_models.parse_limit(limit)


@pytest.mark.parametrize(("limit", "expected"), [(None, 20), ("1", 1), ("1000", 1000)])
def test_limits_are_read(limit: str | None, expected: int) -> None:
    assert anthropic_models.parse_limit(limit) == expected
