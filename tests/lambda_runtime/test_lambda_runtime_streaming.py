"""The runtime against a Runtime API that records each chunk: what arrives, and when it exists."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from url_events import url_event

if TYPE_CHECKING:
    from runtime_api import Exchange, RuntimeApi
    from runtime_process import Channel, Run


def seen(exchange: Exchange) -> Any:
    """What the echo app was given."""
    return json.loads(exchange.done().payload)


def test_a_chunk_reaches_lambda_before_the_next_exists(api: RuntimeApi, run: Run, channel: Channel) -> None:
    run("on_demand")
    exchange = api.push(url_event())
    channel.accept()
    assert exchange.chunk(0).endswith(bytes(8))
    for number in range(1, 6):
        assert len(exchange.chunks) == number
        channel.say(f"chunk {number}")  # only now does the app make it
        assert exchange.chunk(number) == f"chunk {number}".encode()
    assert not exchange.finished
    channel.say("end")
    exchange.done()
    times = [chunk.at for chunk in exchange.chunks]
    assert times == sorted(times)
    assert len(times) == 6
    assert exchange.trailers == {}


def test_the_response_is_announced_as_a_stream_with_trailers(api: RuntimeApi, run: Run) -> None:
    run("echo")
    exchange = api.push(url_event()).done()
    assert exchange.method_and_path == f"POST /2018-06-01/runtime/invocation/{exchange.request_id}/response"
    assert exchange.headers == {
        "host": api.address,
        "content-type": "application/vnd.awslambda.http-integration-response",
        "lambda-runtime-function-response-mode": "streaming",
        "transfer-encoding": "chunked",
        "trailer": "Lambda-Runtime-Function-Error-Type, Lambda-Runtime-Function-Error-Body",
    }


def test_the_prelude(api: RuntimeApi, run: Run) -> None:
    run("echo")
    assert api.push(url_event()).done().prelude == {
        "statusCode": 201,
        "headers": {"content-type": "application/json", "vary": "origin, accept"},
        "cookies": ["a=1; Path=/", "b=2"],
    }


def test_the_app_gets_the_request_and_the_invocation(api: RuntimeApi, run: Run) -> None:
    run("echo")
    raw = bytes(range(256))
    event = url_event(
        "/gr%C3%BC%C3%9Fe",
        "POST",
        body=base64.b64encode(raw).decode(),
        isBase64Encoded=True,
        cookies=["a=1", "b=2"],
    )
    exchange = api.push(event, trace_id="Root=1-abc;Sampled=1")
    got = seen(exchange)
    assert base64.b64decode(got["body"]) == raw
    assert got["more_body"] is False
    assert got["scope"]["path"] == "/grüße"
    assert ["cookie", "a=1; b=2"] in got["scope"]["headers"]
    assert got["invocation"]["request_id"] == exchange.request_id
    assert got["invocation"]["trace_id"] == got["trace"] == "Root=1-abc;Sampled=1"
    assert 0 < got["invocation"]["seconds_left"] <= 30


def test_one_process_and_one_loop_answer_all_invocations(api: RuntimeApi, run: Run) -> None:
    process = run("echo")
    answers = [seen(api.push(url_event(f"/{number}"))) for number in range(4)]
    assert [answer["scope"]["path"] for answer in answers] == ["/0", "/1", "/2", "/3"]
    assert {answer["pid"] for answer in answers} == {process.pid}
    assert len({answer["loop"] for answer in answers}) == 1
    assert api.connections_seen == 1


def test_a_trace_id_does_not_outlive_its_invocation(api: RuntimeApi, run: Run) -> None:
    run("echo")
    assert seen(api.push(url_event(), trace_id="Root=1-abc"))["trace"] == "Root=1-abc"
    assert seen(api.push(url_event()))["trace"] is None


@pytest.mark.parametrize("chunked", [False, True])
def test_a_large_event(api: RuntimeApi, run: Run, chunked: bool) -> None:
    run("echo")
    body = 'grüße "日本" ' * 400_000
    event = json.dumps(url_event("/", "POST", body=body), ensure_ascii=False).encode()
    assert len(event) > 6 * 1024 * 1024
    got = seen(api.push(event, chunked=chunked))
    assert base64.b64decode(got["body"]).decode() == body


def test_a_small_event_in_chunks(api: RuntimeApi, run: Run) -> None:
    run("echo")
    assert seen(api.push(url_event("/a"), chunked=True))["scope"]["path"] == "/a"
    assert seen(api.push(url_event("/b")))["scope"]["path"] == "/b"


def test_a_connection_that_lambda_closes_is_opened_anew(api: RuntimeApi, run: Run) -> None:
    run("echo")
    assert [seen(api.push(url_event(path), hang_up=True))["scope"]["path"] for path in ("/a", "/b")] == [
        "/a",
        "/b",
    ]
    assert api.connections_seen >= 3


def test_an_empty_response_is_the_prelude_alone(api: RuntimeApi, run: Run) -> None:
    run("empty")
    exchange = api.push(url_event()).done()
    assert exchange.prelude == {"statusCode": 204, "headers": {}, "cookies": []}
    assert (len(exchange.chunks), exchange.payload, exchange.trailers) == (1, b"", {})


def test_an_empty_piece_does_not_end_the_stream(api: RuntimeApi, run: Run) -> None:
    run("empty_pieces")
    exchange = api.push(url_event()).done()
    assert [chunk.data for chunk in exchange.chunks[1:]] == [b"one", b"two", b"three"]


def test_binary_payloads_pass_unchanged(api: RuntimeApi, run: Run) -> None:
    run("binary")
    exchange = api.push(url_event()).done()
    assert [chunk.data for chunk in exchange.chunks[1:]] == [
        bytes(range(256)) * 2,
        bytes(16) + b"\r\n0\r\n\r\n",
    ]


def test_the_app_waits_while_lambda_does_not_read(api: RuntimeApi, run: Run, channel: Channel) -> None:
    run("flood")
    exchange = api.push(url_event(), reading=False)
    channel.accept()
    assert channel.hear() == "waiting"
    exchange.reading.set()
    assert channel.hear() == "sent"
    assert exchange.done().payload == bytes(range(256)) * 1024 * 256


def test_receive_gives_disconnect_once_the_response_is_over(api: RuntimeApi, run: Run, channel: Channel) -> None:
    run("disconnects")
    exchange = api.push(url_event())
    channel.accept()
    assert [channel.hear(), channel.hear()] == ["open", "http.disconnect"]
    assert exchange.done().payload == b"partlast"
