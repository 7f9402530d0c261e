"""Every setting, read from the environment once, at start, never at import. docs/settings.md lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from bridge.limits import RateLimits
from bridge.policies.chain import PolicySettings
from bridge.providers import DEFAULT_BASE_URLS, PROTOCOLS, OpenAiApi, Provider, ProviderName, api_root
from bridge.routing import RoutingTable
from bridge.strict_json import JsonLimits
from handler.limits import Limits
from handler.setting_types import (
    BaseUrl,
    Count,
    Flag,
    Header,
    Keys,
    Names,
    Origins,
    Seconds,
    lower,
    parse_model_map,
    parse_tokens,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

T = TypeVar("T")


class SettingsError(ValueError):
    """A setting has a value that it cannot take. The message names the variable, never the value of a secret."""


def _setting(name: str, default: T, description: str, *, secret: bool = False) -> T:
    field: T = Field(default, alias=name, description=description, json_schema_extra={"secret": secret})
    return field


class Settings(BaseModel):
    """One field per environment variable; the alias is the variable's name."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    anthropic_base_url: BaseUrl = _setting(
        "UPSTREAM_ANTHROPIC_BASE_URL", None, "Anthropic's base URL, with or without `/v1`."
    )
    openai_base_url: BaseUrl = _setting(
        "UPSTREAM_OPENAI_BASE_URL",
        None,
        "Base URL of OpenAI or any compatible server (vLLM, Ollama, LM Studio), with or without `/v1`.",
    )
    openrouter_base_url: BaseUrl = _setting(
        "UPSTREAM_OPENROUTER_BASE_URL", None, "OpenRouter's base URL, with or without `/v1`."
    )
    gemini_base_url: BaseUrl = _setting(
        "UPSTREAM_GEMINI_BASE_URL", None, "Base URL of Gemini's OpenAI-compatible endpoint, as Google documents it."
    )
    anthropic_api_key: Keys = _setting("ANTHROPIC_API_KEY", (), "Anthropic key, or several with commas.", secret=True)
    openai_api_key: Keys = _setting("OPENAI_API_KEY", (), "OpenAI key, or several with commas.", secret=True)
    openrouter_api_key: Keys = _setting(
        "OPENROUTER_API_KEY", (), "OpenRouter key, or several with commas.", secret=True
    )
    gemini_api_key: Keys = _setting("GEMINI_API_KEY", (), "Gemini key, or several with commas.", secret=True)
    default_provider: Annotated[ProviderName | None, BeforeValidator(lower)] = _setting(
        "DEFAULT_PROVIDER",
        None,
        "Where models go whose name does not tell: `anthropic`, `openai`, `openrouter` or `gemini`. "
        "Unset: the first of these that is configured.",
    )
    model_map: Annotated[tuple[tuple[str, str], ...], BeforeValidator(parse_model_map)] = _setting(
        "MODEL_MAP",
        (),
        'JSON object from model pattern to `provider/model`, first match wins: `{"claude-*": "openai/gpt-5.5"}`.',
    )
    model_map_opus: str | None = _setting("MODEL_MAP_OPUS", None, "`provider/model` that answers for Claude Opus.")
    model_map_sonnet: str | None = _setting(
        "MODEL_MAP_SONNET", None, "`provider/model` that answers for Claude Sonnet."
    )
    model_map_haiku: str | None = _setting("MODEL_MAP_HAIKU", None, "`provider/model` that answers for Claude Haiku.")
    openrouter_default_vendor: str = _setting(
        "OPENROUTER_DEFAULT_VENDOR", "openai", "Vendor of OpenRouter models named without one (`or:gpt-5.5`)."
    )
    openrouter_referer: Header = _setting("OPENROUTER_REFERER", None, "Sent to OpenRouter as `HTTP-Referer`.")
    openrouter_title: Header = _setting("OPENROUTER_TITLE", None, "Sent to OpenRouter as `X-Title`.")
    anthropic_version: Header = _setting(
        "ANTHROPIC_VERSION", None, "Pins `anthropic-version` towards Anthropic. Unset: the client's own."
    )
    worker_token: Annotated[dict[str, str], BeforeValidator(parse_tokens)] = Field(
        default_factory=dict,
        alias="WORKER_TOKEN",
        description="Token that clients must send (`x-worker-token`, `x-api-key` or Bearer); several with commas, "
        "each optionally `name:token`.",
        json_schema_extra={"secret": True},
    )
    secrets_ttl_seconds: Annotated[int, Field(ge=30, le=86_400)] = _setting(
        "SECRETS_TTL_SECONDS", 300, "Secrets given by reference are fetched again when they are this old."
    )
    state_table: str | None = _setting(
        "STATE_TABLE", None, "DynamoDB table of the state. Unset: a SQLite file. Required on Lambda."
    )
    state_file: str = _setting("STATE_FILE", ".bridge/state.sqlite3", "The SQLite file, where no table is set.")
    state_ttl_seconds: Annotated[int, Field(ge=60, le=31_536_000)] = _setting(
        "STATE_TTL_SECONDS",
        1800,
        "A conversation is forgotten after this long without activity (60 or more). Its end is moved on in steps of a "
        "quarter of this, so it may live up to that much longer.",
    )
    threads: Annotated[Literal["on", "off"], BeforeValidator(lower)] = _setting(
        "THREADS", "on", "Message threads (`thread` in requests) on upstreams other than Anthropic: `on` or `off`."
    )
    thread_ttl_seconds: Annotated[int, Field(ge=10, le=86_400)] = _setting(
        "THREAD_TTL_SECONDS", 300, "A message thread is forgotten after this long without a request."
    )
    response_ttl_seconds: Annotated[int, Field(ge=60, le=31_536_000)] = _setting(
        "RESPONSE_TTL_SECONDS", 86_400, "A stored response (`previous_response_id`) is forgotten when unused this long."
    )
    openai_api: Annotated[OpenAiApi, BeforeValidator(lower)] = _setting(
        "OPENAI_API",
        "auto",
        "Which of OpenAI's protocols its models are asked in: `responses`, `chat`, or `auto`: Responses for models "
        "that need it (gpt-5.4 and later), chat for all others.",
    )
    log_level: Annotated[Literal["debug", "info", "warn", "warning", "error"], BeforeValidator(lower)] = _setting(
        "LOG_LEVEL", "info", "`debug`, `info`, `warn` or `error`."
    )
    log_bodies: Annotated[float, Field(ge=0, le=1)] = _setting(
        "LOG_BODIES",
        0.0,
        "For debugging: the share of requests (0 to 1) whose bodies are logged, shortened and with secrets masked. "
        "They hold what users wrote.",
    )
    allow_origins: Origins = _setting(
        "ALLOW_ORIGINS", (), "Origins of browser clients (CORS), with commas (`https://app.example.com`); `*` for any."
    )
    server_tools_mode: Annotated[Literal["error", "enforceanthropic", "emulate"], BeforeValidator(lower)] = _setting(
        "SERVER_TOOLS_MODE",
        "error",
        "Anthropic's server tools on other upstreams: `error`, `enforceAnthropic` or `emulate`.",
    )
    server_tools_model: str = _setting(
        "SERVER_TOOLS_MODEL",
        "claude-sonnet-5-5",
        "Claude model that stands in for other models where `SERVER_TOOLS_MODE=enforceAnthropic` reroutes a request.",
    )
    mcp_bridge_mode: Annotated[Literal["off", "http-sse"], BeforeValidator(lower)] = _setting(
        "MCP_BRIDGE_MODE", "off", "`mcp_servers` in requests: `off` or `http-sse`."
    )
    mcp_allow: str = _setting(
        "MCP_ALLOW",
        "",
        "Hosts of MCP servers that requests may name, as globs with commas (`*.example.com`); `localhost` for servers "
        "on this machine.",
    )
    tool_fetch_allow: str = _setting(
        "TOOL_FETCH_ALLOW",
        "",
        "Hosts that `web_fetch` may read under `SERVER_TOOLS_MODE=emulate`, as globs with commas. Empty: off.",
    )
    tool_fetch_per_minute: Annotated[int, Field(ge=1, le=10_000)] = _setting(
        "TOOL_FETCH_PER_MINUTE", 30, "Pages that each principal may have fetched in a minute."
    )
    loop_guard: Annotated[Literal["off", "standard", "strict"], BeforeValidator(lower)] = _setting(
        "LOOP_GUARD",
        "standard",
        "`off` forwards faithfully; `standard` drops repeated user text beside tool results and adds a sentence to the "
        "system prompt; `strict` also strips system reminders, drops all text beside results and asks for words, not "
        "calls, after them.",
    )
    read_only_intent: Flag = _setting(
        "READ_ONLY_INTENT",
        False,
        "Leave only reading tools declared while the user only asks to read, explain, summarise or list.",
    )
    read_only_tools: Names = _setting(
        "READ_ONLY_TOOLS", (), "More tools that only read, by name or glob, with commas (`mcp__*__get_*`)."
    )
    repeat_hint: Flag = _setting(
        "REPEAT_HINT",
        False,
        "Ask once more, with a hint, when a model repeats a tool call whose result is there. Answers right after tool "
        "results are then not streamed from the provider.",
    )
    tool_bridge_stream: Flag = _setting(
        "TOOL_BRIDGE_STREAM", True, "`false` serves streams from a provider call that is not streamed."
    )
    cache_prompts: Flag = _setting(
        "CACHE_PROMPTS",
        True,
        "Prompts of OpenAI clients are marked for Anthropic's prompt cache: system, tools and the last turns.",
    )
    connect_timeout_seconds: Seconds = _setting(
        "UPSTREAM_CONNECT_TIMEOUT_SECONDS", 10.0, "How long a connection to a provider may take."
    )
    first_byte_timeout_seconds: Seconds = _setting(
        "UPSTREAM_FIRST_BYTE_TIMEOUT_SECONDS", 600.0, "How long a provider may take to begin its answer."
    )
    idle_timeout_seconds: Seconds = _setting(
        "UPSTREAM_IDLE_TIMEOUT_SECONDS", 300.0, "How long a provider may be silent within an answer."
    )
    total_timeout_seconds: Seconds | None = _setting(
        "UPSTREAM_TOTAL_TIMEOUT_SECONDS", None, "How long a whole answer may take. Unset: until the deadline of Lambda."
    )
    upstream_retries: Annotated[int, Field(ge=0, le=2)] = _setting(
        "UPSTREAM_RETRIES",
        2,
        "How often a call is tried again after 408, 409, 429, 5xx or a failed connection, before the answer begins.",
    )
    circuit_breaker: Annotated[Literal["on", "off"], BeforeValidator(lower)] = _setting(
        "CIRCUIT_BREAKER", "on", "Fail fast while a provider is dead: after 10 failures in 30 s, for 15 s."
    )
    fallback_models: Names = _setting(
        "FALLBACK_MODELS",
        (),
        "Models (`provider/model`, with commas) that are asked one after another when a provider fails before its "
        "answer begins.",
    )
    requests_per_minute: Count = _setting(
        "RATE_LIMIT_REQUESTS_PER_MINUTE", None, "Requests that each principal may make in a minute. Unset: any number."
    )
    tokens_per_minute: Count = _setting(
        "RATE_LIMIT_TOKENS_PER_MINUTE", None, "Tokens that each principal may use in a minute. Unset: any number."
    )
    tokens_per_day: Count = _setting(
        "RATE_LIMIT_TOKENS_PER_DAY", None, "Tokens that each principal may use in a UTC day. Unset: any number."
    )
    ledger: Annotated[Literal["on", "off"], BeforeValidator(lower)] = _setting(
        "LEDGER", "on", "Count usage per principal, model and day for `GET /v1/usage`: one small write per answer."
    )
    admin_principals: Names = _setting(
        "ADMIN_PRINCIPALS",
        ("admin",),
        "Names of tokens, with commas, that see everybody's usage at `/v1/usage`. Unset: `admin`.",
    )
    page: Annotated[Literal["on", "off"], BeforeValidator(lower)] = _setting(
        "PAGE",
        "on",
        "The page at `/`: health, routes, usage, conversations, snippets. It holds no data and asks for the token.",
    )
    metrics: Annotated[Literal["auto", "on", "off"], BeforeValidator(lower)] = _setting(
        "METRICS", "auto", "One line of metrics (CloudWatch EMF) per request on stdout; `auto`: on Lambda only."
    )
    tracing: Annotated[Literal["on", "off"], BeforeValidator(lower)] = _setting(
        "TRACING", "off", "X-Ray subsegments around provider, store and tools. On Lambda only."
    )
    more_settings: str = _setting(
        "MORE_SETTINGS",
        "",
        "Settings in one variable, `NAME=value` with spaces between them: `PAGE=off METRICS=off`. For those that "
        "have no parameter in the template (`MoreSettings`). No secrets.",
    )
    heartbeat_seconds: Annotated[float, Field(ge=0.05, le=60)] = _setting(
        "HEARTBEAT_SECONDS", 10.0, "A stream that is silent for this long sends a sign of life."
    )
    max_body_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = _setting(
        "MAX_BODY_BYTES", 5 * 1024 * 1024, "Largest request body. Lambda itself takes 6 MB, escaping included."
    )

    max_json_depth: Annotated[int, Field(ge=8, le=150)] = _setting(
        "MAX_JSON_DEPTH", 64, "Deepest nesting of a request's JSON."
    )
    max_json_keys: Annotated[int, Field(ge=1000, le=10_000_000)] = _setting(
        "MAX_JSON_KEYS", 400_000, "Keys and list elements of a request, all together."
    )
    max_messages: Annotated[int, Field(ge=1, le=1_000_000)] = _setting(
        "MAX_MESSAGES", 10_000, "Messages, or input items, of one request."
    )
    max_tools: Annotated[int, Field(ge=1, le=100_000)] = _setting(
        "MAX_TOOLS", 1_000, "Tools that one request declares."
    )
    max_schema_depth: Annotated[int, Field(ge=4, le=150)] = _setting(
        "MAX_SCHEMA_DEPTH", 32, "Deepest nesting of a tool's or an answer's schema, in levels of JSON."
    )
    max_schema_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = _setting(
        "MAX_SCHEMA_BYTES", 102_400, "Largest schema of one tool or answer."
    )
    max_images: Annotated[int, Field(ge=0, le=10_000)] = _setting(
        "MAX_IMAGES", 600, "Images and documents of one request, together."
    )
    max_image_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = _setting(
        "MAX_IMAGE_BYTES", 5 * 1024 * 1024, "Largest image, as base64. The whole body has its own limit."
    )
    max_document_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = _setting(
        "MAX_DOCUMENT_BYTES",
        32 * 1024 * 1024,
        "Largest document or sound, as base64. The body has its own limit.",
    )

    def limits(self) -> Limits:
        return Limits(
            JsonLimits(self.max_json_depth, self.max_json_keys),
            self.max_messages,
            self.max_tools,
            self.max_schema_depth,
            self.max_schema_bytes,
            self.max_images,
            self.max_image_bytes,
            self.max_document_bytes,
        )

    def providers(self) -> dict[ProviderName, Provider]:
        return {name: self._provider(name) for name in PROTOCOLS}

    def _provider(self, name: ProviderName) -> Provider:
        base_url: str | None = getattr(self, f"{name}_base_url")
        keys: tuple[str, ...] = getattr(self, f"{name}_api_key")
        root = api_root(base_url or DEFAULT_BASE_URLS[name])
        extra = self._extra_headers(name)
        return Provider(
            name,
            PROTOCOLS[name],
            root,
            keys,
            configured=bool(keys or base_url),
            extra_headers=extra,
            openai_api=self.openai_api if name == "openai" else "chat",
        )

    def _extra_headers(self, name: ProviderName) -> dict[str, str]:
        wanted = {
            "anthropic": {"anthropic-version": self.anthropic_version},
            "openrouter": {"HTTP-Referer": self.openrouter_referer, "X-Title": self.openrouter_title},
        }
        return {header: value for header, value in wanted.get(name, {}).items() if value}

    def routing(self, demo: Provider | None = None) -> RoutingTable:
        tiers = {"opus": self.model_map_opus, "sonnet": self.model_map_sonnet, "haiku": self.model_map_haiku}
        return RoutingTable(
            providers=self.providers(),
            default_provider=self.default_provider,
            model_map=self.model_map,
            tiers={tier: target for tier, target in tiers.items() if target},
            openrouter_default_vendor=self.openrouter_default_vendor,
            demo=demo,
        )

    def rate_limits(self) -> RateLimits:
        return RateLimits(self.requests_per_minute, self.tokens_per_minute, self.tokens_per_day)

    def policies(self) -> PolicySettings:
        return PolicySettings(self.loop_guard, self.read_only_intent, self.read_only_tools, self.repeat_hint)

    @property
    def has_provider(self) -> bool:
        return any(provider.configured for provider in self.providers().values())

    @property
    def holds_keys(self) -> bool:
        return any(provider.keys for provider in self.providers().values())


def load_settings(environment: Mapping[str, str]) -> Settings:
    """The settings that an environment holds; an empty variable counts as unset."""
    given = {name: value for name, value in environment.items() if value.strip()}
    more = given.pop("MORE_SETTINGS", None)
    if more is not None:
        from handler.more_settings import spread

        given = spread(more, given)
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        problems = [_problem(detail) for detail in error.errors()]
        raise SettingsError("; ".join(problems)) from None


def setting_fields() -> dict[str, FieldInfo]:
    """Every variable's name with what it is."""
    return {str(field.alias): field for field in Settings.model_fields.values()}


def is_secret(field: FieldInfo) -> bool:
    extra = field.json_schema_extra
    return isinstance(extra, dict) and extra.get("secret") is True


def _problem(detail: ErrorDetails) -> str:
    from handler.setting_problems import problem

    field = setting_fields()[str(detail["loc"][0])]
    return problem(field, detail, secret=is_secret(field))
