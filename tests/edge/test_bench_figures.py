"""What `bridge bench` makes of streams and times: pure, with times that are given."""

from __future__ import annotations

import json

import pytest

from handler.measuring.asking import Target
from handler.measuring.figures import added, spread, summarize
from handler.measuring.report import text_report
from handler.measuring.run import Measured, Plan
from handler.measuring.streams import Answer, Failure, Outcome, StreamWatch

MESSAGES = [
    {"type": "message_start", "message": {"usage": {"output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "One"}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " two"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}},
    {"type": "message_stop"},
]
CHAT = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
    {"choices": []},
    {"choices": [], "usage": None},
    {"choices": [{"index": 0, "delta": {"content": "One"}}], "usage": None},
    {"choices": [{"index": 0, "delta": {}}]},
    {"choices": [{"index": 0, "delta": {"content": " two"}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"choices": [], "usage": {"completion_tokens": 7}},
    "[DONE]",
]
RESPONSES = [
    {"type": "response.created", "response": {"usage": None}},
    {"type": "response.output_item.added"},
    {"type": "response.content_part.added"},
    {"type": "response.output_text.delta", "delta": "One"},
    {"type": "response.in_progress"},
    {"type": "response.output_text.delta", "delta": " two"},
    {"type": "response.output_text.done", "text": "One two"},
    {"type": "response.output_item.done"},
    {"type": "response.completed", "response": {"usage": {"output_tokens": 7}}},
]
STREAMS = {"anthropic": MESSAGES, "openai_chat": CHAT, "openai_responses": RESPONSES}
PROTOCOLS = pytest.mark.parametrize("protocol", STREAMS)


def on_the_wire(item: object) -> bytes:
    return b"data: " + (item if isinstance(item, str) else json.dumps(item)).encode() + b"\n\n"


def watched(protocol: str, items: list[object], began: float = 100.0) -> Outcome:
    """What is seen of events that come a second apart, the first a second after the request."""
    watch = StreamWatch(protocol, began)  # type: ignore[arg-type]
    for number, item in enumerate(items, 1):
        watch.feed(on_the_wire(item), began + number)
    return watch.outcome()


@PROTOCOLS
def test_only_content_counts_as_a_token(protocol: str) -> None:
    assert watched(protocol, STREAMS[protocol]) == Answer(4.0, 9.0, 2, 2.0, 7)


@PROTOCOLS
def test_any_split_of_the_bytes_gives_the_same(protocol: str) -> None:
    data = b"".join(map(on_the_wire, STREAMS[protocol]))
    for size in (1, 2, 3, 7, 1000):
        watch = StreamWatch(protocol, 0.0)  # type: ignore[arg-type]
        for begin in range(0, len(data), size):
            watch.feed(data[begin : begin + size], 1.0)
        assert watch.outcome() == Answer(1.0, 1.0, 2, 0.0, 7)


@PROTOCOLS
def test_a_stream_is_whole_only_with_its_last_event(protocol: str) -> None:
    items = STREAMS[protocol]
    for length in range(len(items)):
        assert watched(protocol, items[:length]) == Failure("ended early", "the stream ended without its last event")


@PROTOCOLS
def test_what_follows_the_end_changes_nothing(protocol: str) -> None:
    late = [{"type": "error", "error": {"type": "api_error", "message": "too late"}}, {"error": {"message": "late"}}]
    assert watched(protocol, [*STREAMS[protocol], *late]) == watched(protocol, STREAMS[protocol])


@pytest.mark.parametrize(
    ("protocol", "said", "text"),
    [
        ("anthropic", {"type": "error", "error": {"type": "api_error", "message": "gone"}}, "api_error: gone"),
        ("openai_chat", {"error": {"type": "server_error", "message": "gone"}}, "server_error: gone"),
        ("openai_chat", {"error": "gone"}, "gone"),
        ("openai_chat", {"error": {"code": 502, "message": "gone"}}, "gone"),
        ("openai_responses", {"type": "error", "code": "server_error", "message": "gone"}, "gone"),
        (
            "openai_responses",
            {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "gone"}}},
            "server_error: gone",
        ),
        ("openai_responses", {"type": "response.failed"}, "no reason given"),
        ("anthropic", "{half", "an event is not JSON"),
        ("anthropic", "[]", "an event is not a JSON object"),
    ],
)
def test_an_error_in_the_stream_is_a_failure_with_its_words(protocol: str, said: object, text: str) -> None:
    assert watched(protocol, [*STREAMS[protocol][:5], said]) == Failure("error event", text)


@pytest.mark.parametrize(
    ("protocol", "delta"),
    [
        ("anthropic", {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "Hm"}}),
        ("anthropic", {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "{"}}),
        ("openai_chat", {"choices": [{"delta": {"reasoning_content": "Hm"}}]}),
        ("openai_chat", {"choices": [{"delta": {"reasoning": "Hm"}}]}),
        ("openai_chat", {"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]}),
        ("openai_responses", {"type": "response.reasoning_summary_text.delta", "delta": "Hm"}),
        ("openai_responses", {"type": "response.function_call_arguments.delta", "delta": "{"}),
    ],
)
def test_thoughts_and_tool_calls_are_tokens_too(protocol: str, delta: object) -> None:
    outcome = watched(protocol, [delta, STREAMS[protocol][-1]])
    assert isinstance(outcome, Answer)
    assert (outcome.first_token, outcome.chunks) == (1.0, 1)


def answer(first: float | None, total: float = 2.0, chunks: int = 11, tokens: int | None = 20) -> Answer:
    return Answer(first, total, chunks, 0.25, tokens)


def test_a_spread_names_least_middle_95th_and_most() -> None:
    values = spread([float(number) for number in range(100, 0, -1)])
    assert values is not None
    assert (values.least, values.median, values.p95, values.most) == (1.0, 50.5, 95.0, 100.0)
    assert spread([]) is None


@pytest.mark.parametrize(("count", "has_p95"), [(1, False), (19, False), (20, True)])
def test_few_values_have_no_95th_of_a_hundred(count: int, has_p95: bool) -> None:
    values = spread([float(number) for number in range(count)])
    assert values is not None
    assert (values.p95 is not None) == has_p95


@pytest.mark.parametrize(("first_token", "is_told"), [(0.0103, False), (0.5, True)])
def test_a_cold_start_is_suspected_only_where_the_first_is_much_later(first_token: float, is_told: bool) -> None:
    target = Target("bridge", "http://127.0.0.1:9", "anthropic", "m", b"", None)
    plan = Plan(target, None, requests=3, concurrency=1, max_tokens=9, seconds=60)
    others = [Answer(0.010, 0.02, 2, 0.001, 7) for _ in range(2)]
    measured = Measured(bridge=[Answer(first_token, 1.0, 2, 0.001, 7), *others])
    assert ("a cold start" in text_report(plan, measured)) == is_told


def test_the_first_request_stands_apart() -> None:
    summary = summarize([answer(1.5), answer(0.5), answer(0.7), answer(0.6)])
    assert summary.first is not None
    assert summary.first_token is not None
    assert summary.first.first_token == pytest.approx(1500)
    assert summary.first.later_by == pytest.approx(900)
    assert summary.first.later_than_all
    assert (summary.first_token.least, summary.first_token.most) == pytest.approx((500, 700))


def test_a_lone_request_is_in_the_table_and_compared_with_nothing() -> None:
    summary = summarize([answer(1.5)])
    assert summary.first is not None
    assert summary.first_token is not None
    assert (summary.first.later_by, summary.first_token.median) == (None, 1500)


def test_rates_run_from_the_first_token_to_the_end() -> None:
    summary = summarize([answer(1.0), answer(1.0, total=3.0)])
    assert summary.tokens_per_second is not None
    assert summary.chunks_per_second is not None
    assert (summary.tokens_per_second.median, summary.chunks_per_second.median) == (10.0, 5.5)


@pytest.mark.parametrize(
    "odd", [answer(2.0, total=2.0), answer(1.0, chunks=1), answer(None, chunks=0), answer(1.0, tokens=None)]
)
def test_no_rate_is_made_up(odd: Answer) -> None:
    assert summarize([odd]).tokens_per_second is None


def test_failures_are_counted_by_kind_with_the_first_of_each_told() -> None:
    failures = [Failure("timeout", "a"), Failure("http 500", "b"), Failure("http 500", "c")]
    summary = summarize([answer(1.0), *failures])
    assert (summary.asked, summary.answered) == (4, 1)
    assert list(summary.failures.items()) == [("http 500", 2), ("timeout", 1)]
    assert summary.reasons == {"http 500": "b", "timeout": "a"}


def test_what_the_bridge_added_is_a_difference_of_medians() -> None:
    bridge, direct = summarize([answer(1.0, total=4.0)] * 3), summarize([answer(0.75, total=3.0), answer(0.5, 3.0)])
    difference = added(bridge, direct)
    assert difference is not None
    assert (difference.first_token, difference.total, difference.provider_range) == (500.0, 1000.0, 0.0)
    assert added(bridge, summarize([Failure("timeout", "")])) is None
