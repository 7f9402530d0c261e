"""Models to measure with, named after what they send.

`fake-<N>x<ms>` sends N words, one every so many milliseconds, each in a write of its own; `fake-<N>b0`
sends them in one write; `fake-tool` sends a tool call in 50 fragments of arguments. Everything is
rendered before it is asked for a second time, so that the time measured is not spent here.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from scripted.script import error
from scripted.sse import DONE, event
from scripted.wire import EVENT_STREAM, Pause, Response, Step, after_head, chunk, chunked, head, whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scripted.received import Received

MODEL = re.compile(r"fake-(?:(?P<count>\d+)(?P<how>[xb])(?P<ms>\d+)|tool)")
WORDS = (" the", " quick", " brown", " fox", " jumps", " over", " lazy", " dogs")
FRAGMENTS = ('{"city":"', *["Par"] * 48, '"}')
PROMPT_TOKENS = 11
TURN = 64
ENVELOPE = {
    "id": "chatcmpl-AbCdEfGhIjKlMnOpQrStUvWx",
    "object": "chat.completion.chunk",
    "created": 1_700_000_000,
    "model": "fake",
    "system_fingerprint": "fp_0123456789",
}


def bench_rules() -> list[dict[str, Any]]:
    """The script that puts these models behind chat completions."""
    return [{"when": {"method": "POST", "path": "*/chat/completions"}, "reply": bench_response}]


def bench_response(received: Received) -> Response:
    """The response of the model that the request names."""
    model = str(received.request.get("model", ""))
    found = MODEL.search(model)
    if found is None:
        return error(404, f"no such model: {model}; there are fake-<N>x<ms>, fake-<N>b0 and fake-tool")
    stream = received.request.get("stream") is True
    if found["count"] is None:
        return _tool_stream() if stream else _tool()
    count = int(found["count"])
    return _text_stream(count, int(found["ms"]), burst=found["how"] == "b") if stream else _text(count)


@lru_cache(maxsize=64)
def _text_stream(count: int, ms: int, *, burst: bool) -> Response:
    rendered = [_delta({"content": word}) for word in WORDS]
    words = (rendered[number % len(rendered)] for number in range(count))
    return _stream(words, count, "stop", ms=ms, burst=burst)


@lru_cache(maxsize=1)
def _tool_stream() -> Response:
    opened = {"index": 0, "id": "call_abc123", "type": "function"}
    first = {"tool_calls": [{**opened, "function": {"name": "get_weather", "arguments": ""}}]}
    rest = ({"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in FRAGMENTS)
    return _stream((_delta(delta) for delta in (first, *rest)), len(FRAGMENTS) + 1, "tool_calls")


def _stream(deltas: Iterable[bytes], count: int, reason: str, *, ms: int = 0, burst: bool = False) -> Response:
    steps: list[Step] = [_delta({"role": "assistant", "content": ""})]
    for number, delta in enumerate(deltas):
        # Without a pause in the model, other connections still get their turn now and then.
        if ms or (number % TURN == 0 and not burst):
            steps.append(Pause(ms / 1000))
        steps.append(delta)
    steps += [
        _delta({}, reason),
        chunk(event({**ENVELOPE, "choices": [], "usage": _usage(count)})),
        chunk(DONE),
    ]
    headers = {"content-type": EVENT_STREAM, "cache-control": "no-cache", "transfer-encoding": "chunked"}
    return Response(after_head(head(200, headers), chunked(steps, burst=burst)))


@lru_cache(maxsize=64)
def _text(count: int) -> Response:
    text = "".join(WORDS[number % len(WORDS)] for number in range(count))
    return _completion({"content": text, "refusal": None}, count, "stop")


@lru_cache(maxsize=1)
def _tool() -> Response:
    function = {"name": "get_weather", "arguments": "".join(FRAGMENTS)}
    call = {"id": "call_abc123", "type": "function", "function": function}
    return _completion({"content": None, "tool_calls": [call]}, len(FRAGMENTS) + 1, "tool_calls")


def _completion(message: dict[str, Any], count: int, reason: str) -> Response:
    choice = {
        "index": 0,
        "message": {"role": "assistant", **message},
        "logprobs": None,
        "finish_reason": reason,
    }
    answer = {**ENVELOPE, "object": "chat.completion", "choices": [choice], "usage": _usage(count)}
    return whole(orjson.dumps(answer))


def _delta(delta: dict[str, Any], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return chunk(event({**ENVELOPE, "choices": [choice]}))


def _usage(count: int) -> dict[str, int]:
    total = PROMPT_TOKENS + count
    return {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": count, "total_tokens": total}
