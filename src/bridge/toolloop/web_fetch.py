"""web_fetch: reads a page of an allowed host over https, for models whose provider has no such tool."""

from __future__ import annotations

import asyncio
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import httpx2

from bridge.canonical.content import Text
from bridge.canonical.request import Tool
from bridge.toolloop.pinned import ForbiddenAddressError, PinnedTransport, TooLargeError, resolve_name
from bridge.toolloop.readable import is_readable, media_type_of, readable
from bridge.toolloop.tools import BridgeTool, ServerCall, ToolOutput, failed
from bridge.toolloop.urls import UrlRefusedError, in_domains
from bridge.upstream.addresses import is_public
from bridge.values import dataclass

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from bridge.canonical.content import Document
    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.canonical.request import ServerTool
    from bridge.toolloop.pinned import Resolve
    from bridge.toolloop.urls import AllowList
    from bridge.upstream.addresses import Address

NAME = "web_fetch"
CHARACTERS_PER_TOKEN = 4
_DESCRIPTION = (
    "Fetches the content of a web page or PDF document at a URL and returns it as text. Only https URLs of hosts that "
    "the operator allows can be fetched."
)
_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"url": {"type": "string", "description": "The URL to fetch, with https://"}},
    "required": ["url"],
    "additionalProperties": False,
}


class FetchError(Exception):
    """Nothing could be fetched; `code` is Anthropic's word for why."""

    def __init__(self, message: str, code: str = "url_not_accessible") -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Fetched:
    url: str
    document: Document


async def _everyone() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class WebFetch:
    """Fetches documents. `allows`, `resolve` and `context` are for tests; the defaults are for everybody else."""

    allowed: AllowList
    max_bytes: int = 1024 * 1024
    seconds: float = 10.0
    max_redirects: int = 5
    user_agent: str = "toolbridge"
    allows: Callable[[Address], bool] = is_public
    resolve: Resolve = resolve_name
    context: ssl.SSLContext | None = field(default=None, repr=False)

    async def fetch(self, url: str, permits: Callable[[httpx2.URL], bool] = lambda _: True) -> Fetched:
        """The document behind a URL; `permits` is asked about every URL on the way. FetchError if there is none."""
        try:
            async with asyncio.timeout(self.seconds), self._client() as client:
                return await self._follow(client, url, permits)
        except TimeoutError:
            raise FetchError(f"nothing came within {self.seconds:g} seconds") from None
        except UrlRefusedError as error:
            raise FetchError(str(error), error.code) from None
        except ForbiddenAddressError:
            raise FetchError("the host's name leads to an address that is not public", "url_not_allowed") from None
        except TooLargeError:
            raise FetchError(f"larger than {self.max_bytes} bytes", "content_too_large") from None
        except ImportError:
            raise FetchError("the bridge is installed without its web-fetch extra", "unavailable") from None
        except httpx2.InvalidURL:
            raise FetchError("a redirect leads to what is not a URL") from None
        except httpx2.HTTPError as error:
            raise FetchError(f"the host cannot be reached ({type(error).__name__})") from None

    def _client(self) -> httpx2.AsyncClient:
        transport = PinnedTransport(
            allows=self.allows, resolve=self.resolve, context=self.context, max_bytes=self.max_bytes
        )
        # Nothing compressed: a small body could otherwise unfold without bounds.
        headers = {"user-agent": self.user_agent, "accept-encoding": "identity", "accept": "text/html,*/*;q=0.8"}
        return httpx2.AsyncClient(transport=transport, headers=headers, trust_env=False, timeout=self.seconds)

    async def _follow(self, client: httpx2.AsyncClient, text: str, permits: Callable[[httpx2.URL], bool]) -> Fetched:
        for _ in range(self.max_redirects + 1):
            url = self.allowed.check(text)
            if not permits(url):
                raise FetchError("the request does not allow this domain", "url_not_allowed")
            client.cookies.clear()
            async with client.stream("GET", url) as response:
                if response.status_code not in (301, 302, 303, 307, 308):
                    return await self._read(response, str(url))
                text = str(_joined(url, response.headers.get("location", "")))
        raise FetchError(f"more than {self.max_redirects} redirects")

    async def _read(self, response: httpx2.Response, url: str) -> Fetched:
        if response.status_code != 200:
            raise FetchError(f"the host answered with HTTP {response.status_code}")
        media_type = media_type_of(response.headers)
        if not is_readable(media_type):
            raise FetchError(f"cannot read {media_type or 'a body without a type'}", "unsupported_content_type")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise FetchError("the host answered compressed, which was not asked for", "unsupported_content_type")
        if response.headers.get("content-length", "0").isdigit() and self._is_too_large(response):
            raise TooLargeError("too large")
        body = b"".join([piece async for piece in response.aiter_raw()])
        charset = response.charset_encoding
        return Fetched(url, await asyncio.to_thread(readable, body, media_type, charset, url))

    def _is_too_large(self, response: httpx2.Response) -> bool:
        return int(response.headers.get("content-length", "0")) > self.max_bytes


def _joined(url: httpx2.URL, location: str) -> httpx2.URL:
    if not location:
        raise FetchError("a redirect leads nowhere")
    return url.join(location)


@dataclass(slots=True)
class _FetchTool:
    """The tool of one request, with what that request says about it."""

    fetcher: WebFetch
    options: JsonObject
    admit: Callable[[], Awaitable[bool]]
    uses: int = 0

    async def run(self, arguments: JsonObject) -> ToolOutput:
        url = arguments.get("url")
        if not isinstance(url, str) or not url:
            return failed("url: a string is needed", error_code="invalid_tool_input")
        self.uses += 1
        limit = self.options.get("max_uses")
        if isinstance(limit, int) and self.uses > limit:
            return failed(f"web_fetch may be used {limit} times in a request", error_code="max_uses_exceeded")
        if not await self.admit():
            return failed("too many fetches; try again later", error_code="too_many_requests")
        try:
            fetched = await self.fetcher.fetch(url, self._permits)
        except FetchError as error:
            return failed(f"{error}", error_code=error.code)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return ToolOutput((self._cut(fetched.document),), shown={"url": fetched.url, "retrieved_at": now})

    def _permits(self, url: httpx2.URL) -> bool:
        allowed, blocked = _domains(self.options.get("allowed_domains")), _domains(self.options.get("blocked_domains"))
        return (allowed is None or in_domains(url, allowed)) and not in_domains(url, blocked or ())

    def _cut(self, document: Document) -> Document:
        tokens = self.options.get("max_content_tokens")
        if not isinstance(tokens, int) or not isinstance(document.source, tuple):
            return document
        texts = "".join(part.text for part in document.source if isinstance(part, Text))
        most = max(0, tokens) * CHARACTERS_PER_TOKEN
        note = f"\n[cut after {most} of {len(texts)} characters: max_content_tokens]" if len(texts) > most else ""
        return replace(document, source=(Text(texts[:most] + note),))


def _domains(value: JsonValue) -> list[str] | None:
    return [str(entry) for entry in value] if isinstance(value, list) else None


def fetch_tool(declared: ServerTool, fetcher: WebFetch, admit: Callable[[], Awaitable[bool]] = _everyone) -> BridgeTool:
    """The tool that stands in for a `web_fetch_…` of the request. `admit` says whether the principal may fetch now."""
    tool = Tool(declared.name or NAME, _SCHEMA, _DESCRIPTION)
    return BridgeTool(tool, ServerCall(NAME), _FetchTool(fetcher, declared.options, admit).run, repeatable=True)


def unsaid_options(declared: ServerTool) -> list[str]:
    """Options of the declaration that the bridge's own tool does not follow."""
    known: tuple[Literal["allowed_domains", "blocked_domains", "max_content_tokens", "max_uses"], ...] = (
        "allowed_domains",
        "blocked_domains",
        "max_content_tokens",
        "max_uses",
    )
    return [f"{declared.type}.{name}" for name in declared.options if name not in known]
