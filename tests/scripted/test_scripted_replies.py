"""Every kind of reply and every fault, as bytes on a socket."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

import httpx2
import pytest

from scripted.reply import parse_reply


def test_json(upstream, post):
    reply = {"json": {"error": {"type": "overloaded_error"}}, "status": 529, "headers": {"Retry-After": "3"}}
    upstream.script = [{"reply": reply}]
    answer = post()
    assert (answer.status, answer.json) == (529, {"error": {"type": "overloaded_error"}})
    assert answer.headers["retry-after"] == "3"
    assert answer.headers["content-type"] == "application/json"


def test_body_with_its_own_type(upstream, post):
    upstream.script = [
        {"reply": {"status": 502, "body": "<h1>Bad gateway</h1>", "headers": {"Content-Type": "text/html"}}}
    ]
    answer = post()
    assert (answer.status, answer.body) == (502, b"<h1>Bad gateway</h1>")
    assert answer.headers["content-type"] == "text/html"


def test_a_delay_comes_before_the_headers(upstream, raw):
    upstream.script = [{"reply": {"json": {}, "delay_ms": 80}}]
    arrived = raw(until=b"{}")
    assert arrived[0][0] >= 0.08


def test_events(upstream, raw):
    upstream.script = [
        {"reply": {"sse": [{"a": 1}, {"$event": "ping", "data": {"b": 2}}, {"$comment": "hi"}, "[DONE]", "x\ny"]}}
    ]
    sent = b"".join(data for _, data in raw())
    head, _, body = sent.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n")
    assert body == (
        b'f\r\ndata: {"a":1}\n\n\r\n'
        b'1b\r\nevent: ping\ndata: {"b":2}\n\n\r\n'
        b"6\r\n: hi\n\n\r\n"
        b"e\r\ndata: [DONE]\n\n\r\n"
        b"11\r\ndata: x\ndata: y\n\n\r\n"
        b"0\r\n\r\n"
    )


@pytest.mark.parametrize("pause", ["$delay_ms", "$hang_ms"])
def test_the_next_event_waits_for_its_delay(upstream, raw, pause):
    upstream.script = [{"reply": {"sse": [{"n": 1}, {pause: 200}, {"n": 2}]}}]
    (first_at, first), (second_at, second) = raw()
    assert b'{"n":1}' in first
    assert b'{"n":2}' in second
    assert first_at < 0.2 <= second_at


def test_headers_do_not_wait_for_a_delayed_first_event(upstream, raw):
    upstream.script = [{"reply": {"sse": [{"$delay_ms": 80}, {"n": 1}]}}]
    (_, head), (second_at, _) = raw()
    assert head.endswith(b"\r\n\r\n")
    assert second_at >= 0.08


def test_a_delay_between_all_events(upstream, raw):
    upstream.script = [{"reply": {"sse": [{"n": 1}, {"n": 2}, {"n": 3}], "chunk_delay_ms": 40}}]
    times = [at for at, _ in raw()]
    assert len(times) > 1
    assert times[-1] >= 0.08


def test_a_burst_is_one_write():
    sse = [{"n": 1}, {"$raw": "x"}, {"$delay_ms": 1}, {"n": 2}, "[DONE]"]
    steps = parse_reply({"sse": sse, "burst": True}, "reply", Path()).to({}).steps
    assert [type(step).__name__ for step in steps] == ["bytes", "Pause", "bytes"]


def test_a_burst_arrives_at_once(upstream, raw):
    upstream.script = [{"reply": {"sse": [{"$repeat": 100, "item": {"n": 1}}], "burst": True}}]
    [(_, data)] = raw()
    assert data.count(b"data: ") == 100


@pytest.mark.parametrize("bytes_", ["é: half a frame", b"\xff\xfe"])
def test_raw_text_or_bytes_in_a_chunk(upstream, post, bytes_):
    upstream.script = [{"reply": {"sse": [{"$raw": bytes_}]}}]
    assert post().body == (bytes_ if isinstance(bytes_, bytes) else bytes_.encode())


def test_repeat(upstream, post):
    upstream.script = [{"reply": {"sse": [{"$repeat": 3, "item": {"n": 1}}, "[DONE]"]}}]
    assert post().events == [{"n": 1}, {"n": 1}, {"n": 1}, "[DONE]"]


def test_a_cut_with_a_fin_leaves_the_body_unfinished(upstream, raw, post):
    upstream.script = [{"reply": {"sse": [{"n": 1}, {"$cut": "close"}, {"n": 2}]}}]
    sent = b"".join(data for _, data in raw())
    assert sent.endswith(b'data: {"n":1}\n\n\r\n')
    with pytest.raises(http.client.IncompleteRead):
        post()


def test_a_cut_with_a_reset_comes_after_what_was_sent(upstream):
    upstream.script = [{"reply": {"sse": [{"n": 1}, {"$delay_ms": 30}, {"$cut": "reset"}]}}]
    with httpx2.Client() as client, client.stream("POST", f"{upstream.url}/a", json={}) as response:
        parts = response.iter_raw()
        assert next(parts) == b'data: {"n":1}\n\n'
        with pytest.raises(httpx2.ReadError):
            next(parts)


def test_a_cut_amid_a_chunk(upstream, post):
    upstream.script = [{"reply": {"sse": [{"$wire": "40\r\ndata: {"}, {"$cut": "close"}]}}]
    with pytest.raises(http.client.IncompleteRead):
        post()


def test_a_bad_chunk(upstream):
    upstream.script = [{"reply": {"sse": [{"n": 1}, {"$bad_chunk": True}]}}]
    with httpx2.Client() as client, pytest.raises(httpx2.RemoteProtocolError):
        client.post(f"{upstream.url}/a", json={})


@pytest.mark.parametrize(("how", "error"), [("reset", httpx2.ReadError), ("close", httpx2.RemoteProtocolError)])
def test_a_connection_that_ends_without_an_answer(upstream, how, error):
    upstream.script = [{"reply": {"cut": how, "delay_ms": 10}}]
    with httpx2.Client() as client, pytest.raises(error):
        client.post(f"{upstream.url}/a", json={})


def test_an_answer_that_is_not_http(upstream):
    upstream.script = [{"reply": {"wire": "SSH-2.0-OpenSSH_9.9\r\n"}}]
    with httpx2.Client() as client, pytest.raises(httpx2.RemoteProtocolError):
        client.post(f"{upstream.url}/a", json={})


def test_a_length_that_lies(upstream, post):
    upstream.script = [{"reply": {"body": "short", "headers": {"Content-Length": "50", "connection": "close"}}}]
    with pytest.raises(http.client.IncompleteRead):
        post()


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_recording_is_sent_event_by_event(upstream, raw, tmp_path, newline):
    events = [f"event: a{newline}data: 1{newline}{newline}", f": note{newline}{newline}", "data: unfinished"]
    (tmp_path / "stream.sse").write_bytes("".join(events).encode())
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"reply": {"sse_file": "stream.sse", "chunk_delay_ms": 10}}]))
    upstream.script = script
    body = b"".join(data for _, data in raw()).partition(b"\r\n\r\n")[2]
    assert body == b"".join(f"{len(event):x}\r\n{event}\r\n".encode() for event in events) + b"0\r\n\r\n"


def test_a_function_makes_the_reply(upstream, post):
    upstream.script = [{"reply": lambda received: {"json": {"you": received.json["model"]}}}]
    assert post({"model": "m"}).json == {"you": "m"}
