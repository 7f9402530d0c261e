"""Calls to a provider over real sockets: retries, limits of time, breakers, connections."""

from __future__ import annotations

import asyncio
import gzip
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from bridge.errors import BridgeError, ErrorKind
from bridge.ports import UpstreamCall
from bridge.upstream import retry
from bridge.upstream.breaker import BreakerRule
from bridge.upstream.client import HttpUpstream
from bridge.upstream.failures import NoAnswerError
from bridge.upstream.retry import RetryPolicy, send_with_retries
from bridge.upstream.timeouts import Timeouts
from scripted.server import ScriptedUpstream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    from bridge.ports import UpstreamReply

pytestmark = pytest.mark.req("C12")
QUOTA = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
GOOD: dict[str, Any] = {"reply": {"json": {"good": True}}}
DELTA = {"choices": [{"index": 0, "delta": {"content": "Hello"}}]}


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await test

    asyncio.run(bounded())


def failing(status: int, **headers: str) -> dict[str, Any]:
    return {"status": status, "headers": headers, "json": {"error": {"message": "no"}}}


def first(reply: dict[str, Any], then: dict[str, Any] = GOOD) -> list[dict[str, Any]]:
    return [{"when": {"call": 1}, "reply": reply}, then]


@asynccontextmanager
async def provider(script: list[dict[str, Any]]) -> AsyncIterator[ScriptedUpstream]:
    async with ScriptedUpstream(script) as scripted:
        yield scripted


@asynccontextmanager
async def calling(url: str, **options: Any) -> AsyncIterator[Callable[[], Awaitable[UpstreamReply]]]:
    """A function that makes the same call again and again."""
    upstream = HttpUpstream(**options)
    call = UpstreamCall("acme", "POST", f"{url}/v1/chat/completions", {"content-type": "application/json"}, b"{}")
    try:
        yield lambda: upstream.send(call)
    finally:
        await upstream.aclose()


class Sleeper:
    """Sleeps no time at all and remembers how long it should have been."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.retries = 0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def send(
        self,
        send: Callable[[], Awaitable[UpstreamReply]],
        policy: RetryPolicy | None = None,
        deadline: float | None = None,
    ) -> UpstreamReply:
        def count() -> None:
            self.retries += 1

        return await send_with_retries(
            send, policy or RetryPolicy(), deadline, on_retry=count, sleep=self.sleep, jitter=lambda: 0.5
        )


@pytest.fixture
def sleeper() -> Sleeper:
    return Sleeper()


# Retries


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_a_passing_failure_is_tried_again(status: int, sleeper: Sleeper) -> None:
    async def test() -> None:
        async with provider(first(failing(status))) as scripted, calling(scripted.url) as send:
            reply = await sleeper.send(send)
            assert (reply.status, await reply.read(99)) == (200, b'{"good":true}')
            assert len(scripted.received) == 2

    run(test())
    assert (sleeper.slept, sleeper.retries) == ([0.25], 1)


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
def test_a_lasting_failure_is_handed_on(status: int, sleeper: Sleeper) -> None:
    async def test() -> None:
        async with provider(first(failing(status))) as scripted, calling(scripted.url) as send:
            assert (await sleeper.send(send)).status == status
            assert len(scripted.received) == 1

    run(test())
    assert sleeper.slept == []


def test_the_last_failure_is_handed_on_whole(sleeper: Sleeper) -> None:
    async def test() -> None:
        async with provider([{"reply": failing(503)}]) as scripted, calling(scripted.url) as send:
            reply = await sleeper.send(send)
            assert (reply.status, await reply.read(99)) == (503, b'{"error":{"message":"no"}}')
            assert len(scripted.received) == 3

    run(test())
    assert (sleeper.slept, sleeper.retries) == ([0.25, 0.5], 2)


def test_no_retries_is_one_call(sleeper: Sleeper) -> None:
    async def test() -> None:
        async with provider([{"reply": failing(503)}]) as scripted, calling(scripted.url) as send:
            assert (await sleeper.send(send, RetryPolicy(retries=0))).status == 503
            assert len(scripted.received) == 1

    run(test())


@pytest.mark.parametrize(("status", "word", "calls"), [(503, "false", 1), (400, "true", 2)])
def test_the_providers_own_word_goes_first(status: int, word: str, calls: int, sleeper: Sleeper) -> None:
    async def test() -> None:
        script = first(failing(status, **{"x-should-retry": word}))
        async with provider(script) as scripted, calling(scripted.url) as send:
            await sleeper.send(send)
            assert len(scripted.received) == calls

    run(test())


@pytest.mark.parametrize(
    ("headers", "slept"),
    [({"retry-after": "3"}, 3.25), ({"retry-after-ms": "200"}, 0.45), ({"retry-after": "0"}, 0.25)],
)
def test_the_wait_is_never_shorter_than_asked_for(headers: dict[str, str], slept: float, sleeper: Sleeper) -> None:
    async def test() -> None:
        async with provider(first(failing(429, **headers))) as scripted, calling(scripted.url) as send:
            assert (await sleeper.send(send)).status == 200

    run(test())
    assert sleeper.slept == [slept]


def test_a_long_wait_is_left_to_the_client(sleeper: Sleeper) -> None:
    async def test() -> None:
        script = first(failing(429, **{"retry-after": "11"}))
        async with provider(script) as scripted, calling(scripted.url) as send:
            reply = await sleeper.send(send)
            assert (reply.status, reply.headers["retry-after"]) == (429, "11")
            assert await reply.read(99) == b'{"error":{"message":"no"}}'

    run(test())
    assert sleeper.slept == []


@pytest.mark.parametrize(("left", "calls"), [(1.8, 1), (2.5, 2)])
def test_no_wait_goes_past_the_deadline(left: float, calls: int, sleeper: Sleeper) -> None:
    async def test() -> None:
        script = first(failing(503, **{"retry-after-ms": "100"}))
        async with provider(script) as scripted, calling(scripted.url) as send:
            deadline = asyncio.get_running_loop().time() + left  # of which 1.5 s belong to saying so
            await sleeper.send(send, deadline=deadline)
            assert len(scripted.received) == calls
        async with calling("http://127.0.0.1:9") as send:
            with pytest.raises(NoAnswerError):
                await sleeper.send(send, deadline=asyncio.get_running_loop().time() + 1.5)

    run(test())


@pytest.mark.parametrize("padding", [0, 3 * retry.PEEKED_BYTES])
def test_a_used_up_quota_is_not_asked_again_and_stays_readable(padding: int, sleeper: Sleeper) -> None:
    async def test() -> None:
        refusal = {"status": 429, "json": QUOTA | {"padding": "x" * padding}}
        async with provider(first(refusal)) as scripted, calling(scripted.url) as send:
            reply = await sleeper.send(send)
            body = await reply.read(1_000_000)
            assert reply.status == 429
            assert b"insufficient_quota" in body
            assert body.endswith(b'"padding":"%b"}' % (b"x" * padding))
            with pytest.raises(BridgeError, match="larger than"):
                await (await sleeper.send(lambda: answered(QUOTA))).read(5)
            await reply.aclose()
            assert len(scripted.received) == 1

    run(test())
    assert sleeper.slept == []


async def answered(body: object) -> UpstreamReply:
    """A reply without a network."""
    transport = httpx2.MockTransport(lambda _: httpx2.Response(429, json=body))
    return await HttpUpstream(transport).send(UpstreamCall("acme", "POST", "http://acme.test/", {}, b"{}"))


def test_a_refusal_that_never_ends_does_not_hold_the_retry_up(
    sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "PEEK_SECONDS", 0.1)

    async def test() -> None:
        refusal = {"status": 429, "sse": [{"$raw": "{"}, {"$hang_ms": 5000}]}
        async with provider(first(refusal)) as scripted, calling(scripted.url) as send:
            assert (await sleeper.send(send)).status == 200
            await asyncio.sleep(0.05)
            assert scripted.open_connections == 1

    run(test())


def test_a_failure_that_is_not_handed_on_leaves_no_connection_behind(sleeper: Sleeper) -> None:
    async def test() -> None:
        refusal = {"status": 503, "sse": [{"$raw": "{"}, {"$hang_ms": 3000}]}
        async with provider(first(refusal)) as scripted, calling(scripted.url) as send:
            assert (await sleeper.send(send)).status == 200
            await asyncio.sleep(0.05)
            assert scripted.open_connections == 1

    run(test())


@pytest.mark.parametrize("cut", ["reset", "close"])
def test_a_connection_that_ends_before_the_answer_is_made_again(cut: str, sleeper: Sleeper) -> None:
    async def test() -> None:
        async with provider(first({"cut": cut})) as scripted, calling(scripted.url) as send:
            assert (await sleeper.send(send)).status == 200
            assert len(scripted.received) == 2

    run(test())


def test_a_provider_that_is_not_there_is_tried_three_times(sleeper: Sleeper) -> None:
    async def test() -> None:
        async with calling("http://127.0.0.1:9") as send:
            with pytest.raises(NoAnswerError, match=r"^acme: cannot be reached; check the base URL") as caught:
                await sleeper.send(send)
        assert (caught.value.status, caught.value.retryable, caught.value.provider) == (502, True, "acme")

    run(test())
    assert sleeper.slept == [0.25, 0.5]


def test_an_answer_that_breaks_off_is_not_asked_for_again(sleeper: Sleeper) -> None:
    async def test() -> None:
        broken = {"sse": [DELTA, {"$delay_ms": 20}, {"$cut": "reset"}]}
        async with provider(first(broken)) as scripted, calling(scripted.url) as send:
            reply = await sleeper.send(send)
            with pytest.raises(BridgeError, match="acme: the connection broke in the middle of the answer"):
                await reply.read(10_000)
            await reply.aclose()
            assert len(scripted.received) == 1

    run(test())


def test_another_key_comes_before_waiting(sleeper: Sleeper) -> None:
    """As the pipeline does it: one attempt is a call with each of the keys until one is not used up."""

    async def test() -> None:
        script = [
            {"when": {"header": {"x-key": "a"}}, "reply": failing(429)},
            {"when": {"header": {"x-key": "b"}, "call": 1}, "reply": failing(429)},
            GOOD,
        ]
        upstream = HttpUpstream()

        async with provider(script) as scripted:

            async def attempt() -> UpstreamReply:
                for key in ("a", "b"):
                    call = UpstreamCall("acme", "POST", f"{scripted.url}/v1/chat/completions", {"x-key": key}, b"{}")
                    reply = await upstream.send(call)
                    if reply.status != 429 or key == "b":
                        break
                    await reply.aclose()
                return reply

            assert (await sleeper.send(attempt)).status == 200
            assert [received.headers["x-key"] for received in scripted.received] == ["a", "b", "a", "b"]
            await upstream.aclose()

    run(test())
    assert len(sleeper.slept) == 1


def test_cancelling_a_wait_ends_it() -> None:
    async def test() -> None:
        script = [{"reply": failing(503, **{"retry-after": "9"})}]
        async with provider(script) as scripted, calling(scripted.url) as send:
            task = asyncio.create_task(send_with_retries(send, RetryPolicy(), None))  # type: ignore[arg-type]
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(scripted.received) == 1

    run(test())


# Limits of time

SILENT = {"json": {}, "delay_ms": 3000}
HEADERS_ONLY = {"sse": [{"$hang_ms": 3000}]}
STALLED = {"sse": [DELTA, {"$hang_ms": 3000}, "[DONE]"]}
STEADY = {"sse": [DELTA] * 12, "chunk_delay_ms": 50}


@pytest.mark.parametrize(
    ("reply", "timeouts", "message"),
    [
        (SILENT, Timeouts(first_byte=0.2), "acme: no answer within 0.2 s; UPSTREAM_FIRST_BYTE_TIMEOUT_SECONDS"),
        (HEADERS_ONLY, Timeouts(first_byte=0.2, idle=9), "no answer within 0.2 s; UPSTREAM_FIRST_BYTE_TIMEOUT_SECONDS"),
        (STALLED, Timeouts(idle=0.2), "acme: the answer stopped for 0.2 s .*; UPSTREAM_IDLE_TIMEOUT_SECONDS"),
        (STEADY, Timeouts(total=0.3), "acme: the answer was not complete within 0.3 s; UPSTREAM_TOTAL_TIMEOUT_SECONDS"),
        (SILENT, Timeouts(total=0.2), "acme: the answer was not complete within 0.2 s; UPSTREAM_TOTAL_TIMEOUT_SECONDS"),
    ],
    ids=["before the headers", "before the body", "within the body", "in all", "in all, before the headers"],
)
def test_a_provider_that_is_too_slow_is_told_by_the_setting_to_change(
    reply: dict[str, Any], timeouts: Timeouts, message: str, sleeper: Sleeper
) -> None:
    async def test() -> None:
        async with provider([{"reply": reply}]) as scripted, calling(scripted.url, timeouts=timeouts) as send:

            async def ask() -> None:
                answer = await sleeper.send(send)
                try:
                    await answer.read(10_000)
                finally:
                    await answer.aclose()

            with pytest.raises(BridgeError, match=message) as caught:
                await ask()
            assert (caught.value.kind, caught.value.status) == (ErrorKind.TIMEOUT, 504)
            assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
            await asyncio.sleep(0.05)
            assert scripted.open_connections == 0
            assert len(scripted.received) == 1

    run(test())


def test_no_connection_in_time_names_its_setting(sleeper: Sleeper) -> None:
    async def test() -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            waiting = [socket.socket() for _ in range(4)]
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(listener.getsockname())
            await asyncio.sleep(0.05)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with calling(url, timeouts=Timeouts(connect=0.2)) as send:
                with pytest.raises(
                    NoAnswerError, match=r"acme: no connection within 0.2 s; UPSTREAM_CONNECT_TIMEOUT_SECONDS"
                ):
                    await sleeper.send(send)
            for one in waiting:
                one.close()

    run(test())
    assert len(sleeper.slept) == 2


def test_a_steady_answer_may_take_longer_than_each_of_its_pauses() -> None:
    async def test() -> None:
        timeouts = Timeouts(first_byte=0.3, idle=0.3)
        async with provider([{"reply": STEADY}]) as scripted, calling(scripted.url, timeouts=timeouts) as send:
            reply = await send()
            assert (await reply.read(10_000)).count(b"Hello") == 12

    run(test())


def test_a_reader_that_takes_its_time_is_not_a_provider_that_is_slow() -> None:
    async def test() -> None:
        async with (
            provider([{"reply": {"sse": [DELTA, {"$delay_ms": 20}, DELTA]}}]) as scripted,
            calling(scripted.url, timeouts=Timeouts(idle=0.1)) as send,
        ):
            reply = await send()
            seen = b""
            async for data in reply.chunks():
                seen += data
                await asyncio.sleep(0.3)
            assert seen.count(b"Hello") == 2

    run(test())


def test_a_callers_own_limit_stays_its_own() -> None:
    async def test() -> None:
        async with provider([{"reply": SILENT}]) as scripted, calling(scripted.url) as send:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await send()

    run(test())


# Breakers


def test_a_host_that_fails_again_and_again_is_left_alone() -> None:
    async def test() -> None:
        rule = BreakerRule(failures=10, within_seconds=30, open_seconds=0.4)
        script = [*({"when": {"call": number}, "reply": failing(503)} for number in range(1, 11)), GOOD]
        async with provider(script) as scripted, calling(scripted.url, breaker=rule) as send:
            for _ in range(10):
                reply = await send()
                assert reply.status == 503
                await reply.aclose()
            with pytest.raises(BridgeError, match=r"acme: 127\.0\.0\.1:\d+ .* left alone for another 1 s") as caught:
                await send()
            assert (caught.value.kind, caught.value.retry_after) == (ErrorKind.OVERLOADED, "1")
            assert len(scripted.received) == 10
            await asyncio.sleep(0.5)
            assert (await send()).status == 200
            assert (await send()).status == 200

    run(test())


def test_an_open_breaker_is_not_waited_for(sleeper: Sleeper) -> None:
    async def test() -> None:
        async with calling("http://127.0.0.1:9", breaker=BreakerRule(failures=3)) as send:
            with pytest.raises(NoAnswerError):
                await sleeper.send(send)
            sleeper.slept.clear()
            with pytest.raises(BridgeError) as caught:
                await sleeper.send(send)
            assert caught.value.retry_after == "15"

    run(test())
    assert sleeper.slept == []


@pytest.mark.parametrize(
    "reply", [failing(429), failing(400), {"sse": [DELTA, {"$delay_ms": 5}, {"$cut": "reset"}]}], ids=str
)
def test_refusals_and_broken_streams_do_not_open_it(reply: dict[str, Any]) -> None:
    async def test() -> None:
        async with (
            provider([{"reply": reply}]) as scripted,
            calling(scripted.url, breaker=BreakerRule(failures=2)) as send,
        ):
            for _ in range(5):
                answer = await send()
                try:
                    await answer.read(10_000)
                except BridgeError as error:
                    assert "broke" in error.message  # noqa: PT017
                await answer.aclose()
            assert len(scripted.received) == 5

    run(test())


def test_each_host_has_its_own() -> None:
    async def test() -> None:
        upstream = HttpUpstream(breaker=BreakerRule(failures=1))
        async with provider([GOOD]) as scripted:
            with pytest.raises(NoAnswerError):
                await upstream.send(UpstreamCall("acme", "POST", "http://127.0.0.1:9/", {}, b"{}"))
            with pytest.raises(BridgeError, match="left alone"):
                await upstream.send(UpstreamCall("acme", "POST", "http://127.0.0.1:9/", {}, b"{}"))
            for name, url in (("other", "http://127.0.0.1:9/"), ("acme", scripted.url)):
                try:
                    await upstream.send(UpstreamCall(name, "POST", url, {}, b"{}"))
                except BridgeError as error:
                    assert "cannot be reached" in error.message  # noqa: PT017
            await upstream.aclose()

    run(test())


def test_a_probe_that_its_caller_gives_up_is_followed_by_another() -> None:
    async def test() -> None:
        rule = BreakerRule(failures=1, open_seconds=0.2)
        script = [
            {"when": {"call": 1}, "reply": failing(500)},
            {"when": {"call": 2}, "reply": SILENT},
            GOOD,
        ]
        async with provider(script) as scripted, calling(scripted.url, breaker=rule) as send:
            await send()
            await asyncio.sleep(0.25)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await send()
            assert (await send()).status == 200

    run(test())


def test_without_a_rule_nothing_is_left_alone() -> None:
    async def test() -> None:
        async with provider([{"reply": failing(500)}]) as scripted, calling(scripted.url, breaker=None) as send:
            for _ in range(15):
                assert (await send()).status == 500

    run(test())


# Connections


def test_connections_serve_many_calls() -> None:
    async def test() -> None:
        async with provider([GOOD]) as scripted, calling(scripted.url) as send:
            for _ in range(5):
                reply = await send()
                await reply.read(99)
                await reply.aclose()
            assert scripted.accepted_connections == 1

    run(test())


def test_an_answer_closed_early_leaves_no_connection_behind() -> None:
    async def test() -> None:
        async with provider([{"reply": STALLED}]) as scripted, calling(scripted.url) as send:
            for _ in range(5):
                reply = await send()
                assert b"Hello" in await anext(aiter(reply.chunks()))
                await reply.aclose()
            await asyncio.sleep(0.05)
            assert (scripted.open_connections, scripted.disconnects) == (0, 5)

    run(test())


@pytest.mark.parametrize("answer", [SILENT, STALLED], ids=["before the answer", "within it"])
def test_a_cancelled_call_leaves_no_connection_behind(answer: dict[str, Any]) -> None:
    async def test() -> None:
        async with provider([{"reply": answer}]) as scripted, calling(scripted.url) as send:

            async def ask() -> None:
                await (await send()).read(10_000)

            task = asyncio.create_task(ask())
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0.05)
            assert scripted.open_connections == 0

    run(test())


@pytest.mark.req("C8")
def test_a_name_for_a_metadata_address_is_not_called(sleeper: Sleeper) -> None:
    async def test() -> None:
        async with calling("http://2852039166") as send:
            with pytest.raises(BridgeError, match="acme: its name leads to a link-local or cloud metadata") as caught:
                await sleeper.send(send)
        assert (caught.value.status, caught.value.retryable) == (502, False)

    run(test())
    assert sleeper.slept == []


@pytest.mark.parametrize("url", ["ftp://acme.test", "http://acme.test:x", "http://127.0.0.1:99999999"])
def test_a_base_url_that_is_none_is_said(url: str, sleeper: Sleeper) -> None:
    async def test() -> None:
        async with calling(url) as send:
            with pytest.raises(BridgeError, match="acme: the base URL is not a valid URL"):
                await sleeper.send(send)

    run(test())
    assert sleeper.slept == []


def test_cookies_of_one_call_do_not_go_out_with_the_next() -> None:
    async def test() -> None:
        script = [{"reply": {"json": {}, "headers": {"set-cookie": "session=secret; Path=/"}}}]
        async with provider(script) as scripted, calling(scripted.url) as send:
            for _ in range(2):
                await (await send()).read(99)
            assert "cookie" not in scripted.received[1].headers

    run(test())


def test_an_answer_that_is_compressed_all_the_same_is_read() -> None:
    body = gzip.compress(b"hello")

    async def test() -> None:
        for content, expected in ((body, b"hello"), (b"no gzip", None)):
            transport = httpx2.MockTransport(
                lambda _, content=content: httpx2.Response(
                    200, headers={"content-encoding": "gzip"}, stream=Stream(content)
                )
            )
            reply = await HttpUpstream(transport).send(UpstreamCall("acme", "GET", "http://acme.test/", {}, None))
            if expected is None:
                with pytest.raises(BridgeError, match="compression"):
                    await reply.read(99)
            else:
                assert await reply.read(99) == expected

    run(test())


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, br"])
def test_an_answer_in_an_encoding_that_cannot_be_read_is_refused(encoding: str) -> None:
    closed: list[bool] = []

    class Watched(Stream):
        async def aclose(self) -> None:
            closed.append(True)

    async def test() -> None:
        headers = {"content-encoding": encoding}
        transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, stream=Watched(b"x")))
        with pytest.raises(BridgeError, match="not asked for"):
            await HttpUpstream(transport).send(UpstreamCall("acme", "GET", "http://acme.test/", {}, None))
        assert closed == [True]

    run(test())


class Stream(httpx2.AsyncByteStream):
    def __init__(self, content: bytes) -> None:
        self._content = content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._content
