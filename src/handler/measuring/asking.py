"""One request for a streamed answer, and its outcome."""

from __future__ import annotations

import asyncio
import time
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import httpx2
import orjson

from bridge.providers import ANSWER_PATHS, Provider, api_root
from bridge.sse import EventTooLargeError
from bridge.traits import traits_of
from bridge.upstream.transport import HttpTransport
from bridge.values import dataclass
from handler.measuring.streams import Failure, StreamWatch, error_text
from handler.printing import printable
from handler.redaction import redacted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.providers import ProtocolName
    from handler.measuring.streams import Outcome

CONNECT_SECONDS = 10.0
HEALTH_SECONDS = 10.0
HEALTH_COUNT = 5
MAX_REASON_BYTES = 8 * 1024
MAX_REASON_LETTERS = 300
# A request that was refused so is refused again: the same is not sent a second time.
_REFUSALS = frozenset({"no connection", "not a stream", *(f"http {status}" for status in (400, 401, 403, 404, 405))})


@dataclass(frozen=True, slots=True)
class Target:
    """Somebody to ask, and the request."""

    name: str
    base_url: str
    protocol: ProtocolName
    model: str
    body: bytes = field(repr=False)
    secret: str | None = field(repr=False)

    @property
    def url(self) -> str:
        return api_root(self.base_url) + ANSWER_PATHS[self.protocol]

    @property
    def headers(self) -> Mapping[str, str]:
        """What a client of this protocol sends."""
        provider = Provider(self.name, self.protocol, api_root(self.base_url))
        return {"content-type": "application/json", **provider.call_headers(self.secret, {})}


def request_body(protocol: ProtocolName, base_url: str, model: str, prompt: str, max_tokens: int) -> bytes:
    """The request in one protocol's words."""
    turn = [{"role": "user", "content": prompt}]
    body: dict[str, Any] = {"model": model, "stream": True}
    match protocol:
        case "anthropic":
            body |= {"max_tokens": max_tokens, "messages": turn}
        case "openai_chat":
            traits = traits_of("openai", api_root(base_url), model)
            body |= {traits.max_tokens_field: max_tokens, "messages": turn, "stream_options": {"include_usage": True}}
        case "openai_responses":
            body |= {"max_output_tokens": max_tokens, "input": turn, "store": False}
    return orjson.dumps(body)


def open_client() -> httpx2.AsyncClient:
    """A client on the bridge's own transport, which costs least per chunk. It follows no redirect: the token stays."""
    return httpx2.AsyncClient(
        transport=HttpTransport(),
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
        headers={"accept-encoding": "identity", "user-agent": "toolbridge-bench"},
        follow_redirects=False,
    )


async def ask(client: httpx2.AsyncClient, target: Target, seconds: float) -> Outcome:
    """Send the request and read the answer to its end; whatever goes wrong is an outcome."""
    watch = StreamWatch(target.protocol, time.perf_counter())
    try:
        async with asyncio.timeout(seconds):
            failure = await _exchange(client, target, watch)
    except (httpx2.HTTPError, httpx2.InvalidURL, EventTooLargeError, TimeoutError) as error:
        failure = _failure_of(error, target, seconds)
    outcome = watch.outcome() if failure is None or watch.is_over else failure
    return (
        replace(outcome, text=_fit_to_print(outcome.text, target.secret)) if isinstance(outcome, Failure) else outcome
    )


def is_refusal(outcome: Outcome) -> bool:
    """True if the same request would fail in the same way again."""
    return isinstance(outcome, Failure) and (outcome.kind in _REFUSALS or outcome.kind.startswith("http 3"))


async def health_times(client: httpx2.AsyncClient, base_url: str) -> list[float]:
    """Seconds that `GET /health` takes, some times over; none where it is not answered."""
    times: list[float] = []
    for _ in range(HEALTH_COUNT):
        started = time.perf_counter()
        try:
            async with asyncio.timeout(HEALTH_SECONDS):
                response = await client.get(f"{base_url.removesuffix('/v1')}/health")
        except (httpx2.HTTPError, TimeoutError):
            return []
        if response.status_code != 200:
            return []
        times.append(time.perf_counter() - started)
    return times


def _failure_of(error: Exception, target: Target, seconds: float) -> Failure:
    match error:
        case TimeoutError():
            return Failure("timeout", f"not complete within {seconds:g} s")
        case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.InvalidURL():
            return Failure("no connection", f"nothing answers at {target.base_url} ({error})")
        case EventTooLargeError():
            return Failure("not a stream", str(error))
        case _:
            return Failure("connection lost", str(error) or type(error).__name__)


async def _exchange(client: httpx2.AsyncClient, target: Target, watch: StreamWatch) -> Failure | None:
    async with client.stream("POST", target.url, headers=dict(target.headers), content=target.body) as response:
        if response.status_code != 200:
            return Failure(f"http {response.status_code}", await _reason(response))
        kind = response.headers.get("content-type", "nothing").partition(";")[0].strip()
        if kind != "text/event-stream":
            return Failure("not a stream", f"the answer is {kind}, not text/event-stream")
        async for piece in response.aiter_bytes():
            watch.feed(piece, time.perf_counter())
    return None


async def _reason(response: httpx2.Response) -> str:
    if response.is_redirect:
        return "redirects are not followed, so that the token stays with its host"
    body = b""
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > MAX_REASON_BYTES:
            break
    try:
        return error_text(orjson.loads(body))
    except orjson.JSONDecodeError:
        return body.decode("utf-8", "replace").strip() or "no reason given"


def _fit_to_print(text: str, secret: str | None) -> str:
    """A server's words on one line, without secrets and without what moves a cursor."""
    safe = text.replace(secret, "***") if secret else text
    line = " ".join(redacted(safe.encode("utf-8", "replace")).split())
    return printable(line)[:MAX_REASON_LETTERS]
