"""The official SDKs read the bridge's answer to every recorded upstream, streamed and whole, over real HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import pytest

from conformance.cases import ESTIMATED_USAGE, LONG_TOOL_NAME, Case, declared_name, fixture_cases
from conformance.sdks import SDKS
from conformance.strictness import defects, ids_of, parse_events, repeated_ids

if TYPE_CHECKING:
    from collections.abc import Callable

    from scripted.server import ScriptedUpstream

    Results = Callable[[str], dict[str, Any]]

CASES = {case.name: case for case in fixture_cases()}
# What the SDKs add to a block of their own.
ADDED = ("parsed_output", "caller")
# Arguments that the model did not finish: the SDKs keep what is whole of them, raw events hold the text as it came.
UNFINISHED = {"truncated_arguments": '{"path":"a","text":"half of'}

each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
each_sdk = pytest.mark.parametrize("sdk", SDKS)


@pytest.mark.req("C6.1", "C13", "C15")
@each_sdk
@each_case
def test_a_whole_answer_is_read_as_expected(sdk_results: Results, case: Case, sdk: str) -> None:
    result = sdk_results(sdk)[case.name]["whole"]
    assert result["error"] is None
    assert told(result["message"]) == expected_of(case, result["message"])


@pytest.mark.req("C6.1", "C6.2", "C13", "C15", "R9")
@each_sdk
@each_case
def test_the_stream_helper_ends_with_the_expected_message(sdk_results: Results, case: Case, sdk: str) -> None:
    result = sdk_results(sdk)[case.name]["helper"]
    assert result["error"] is None
    assert told(result["message"]) == expected_of(case, result["message"])


@pytest.mark.req("C6.1", "C6.2", "C13", "C15", "R9")
@each_sdk
@each_case
def test_the_events_one_by_one_amount_to_the_expected_message(sdk_results: Results, case: Case, sdk: str) -> None:
    result = sdk_results(sdk)[case.name]["events"]
    assert result["error"] is None
    message = accumulated(result["events"], finished=case.name not in UNFINISHED)
    expected = expected_of(case, message)
    if case.name in UNFINISHED:
        expected["content"][-1]["input"] = UNFINISHED[case.name]
    assert told(message) == expected


@pytest.mark.req("C6.2")
@each_case
def test_the_bytes_of_a_stream_have_nothing_that_a_client_stumbles_over(case_bridge: str, case: Case) -> None:
    answer = httpx2.post(f"{case_bridge}/v1/messages", json=case.request | {"stream": True}, timeout=10)
    events = parse_events(answer.content)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert defects(events) == []
    assert events[-1].type == "message_stop"
    assert events[0].data["message"]["usage"]["input_tokens"] > 0


@pytest.mark.req("S6", "C6.2")
def test_no_id_is_given_twice_over_all_answers(sdk_results: Results, case_bridge: str) -> None:
    ids: list[str] = []
    for sdk in SDKS:
        for name in CASES:
            result = sdk_results(sdk)[name]
            ids += [ident for way in ("whole", "helper") for ident in ids_in(result[way]["message"])]
            ids += ids_in(accumulated(result["events"]["events"], finished=False))
    for case in CASES.values():
        answer = httpx2.post(f"{case_bridge}/v1/messages", json=case.request | {"stream": True}, timeout=10)
        ids += ids_of(parse_events(answer.content))
    assert len(ids) > 10 * len(CASES)
    assert repeated_ids(ids) == []
    assert {ident.partition("_")[0] for ident in ids} == {"msg", "toolu"}


@pytest.mark.req("C5.3")
@pytest.mark.parametrize("streaming", [True, False])
def test_a_long_tool_name_is_short_for_the_upstream_and_whole_for_the_client(
    case_bridge: str, case_upstream: ScriptedUpstream, streaming: bool
) -> None:
    case_upstream.received.clear()
    request = CASES["tool_name_given_back"].request
    with anthropic.Anthropic(base_url=case_bridge, api_key="sk-client", max_retries=0) as client:
        if streaming:
            with client.messages.stream(**request) as stream:
                message: Any = stream.get_final_message()
        else:
            message = client.messages.create(**request)
    wire_name = declared_name(case_upstream.received[0])
    assert len(wire_name) <= 64 < len(LONG_TOOL_NAME)
    assert [block.name for block in message.content] == [LONG_TOOL_NAME]


def told(message: dict[str, Any]) -> dict[str, Any]:
    """What a message says, without ids and without what an SDK adds."""
    content = [
        {
            key: value
            for key, value in block.items()
            if key not in ("id", *ADDED) and (key, value) != ("citations", None)
        }
        for block in message["content"]
    ]
    usage = {key: value for key, value in message["usage"].items() if value is not None}
    return {key: message[key] for key in ("stop_reason", "stop_sequence")} | {"content": content, "usage": usage}


def expected_of(case: Case, message: dict[str, Any]) -> dict[str, Any]:
    """The fixture's expectation; where the upstream counted nothing, any estimate of the input that is one."""
    expected: dict[str, Any] = json.loads(json.dumps(case.expected))
    if case.name in ESTIMATED_USAGE:
        assert message["usage"]["input_tokens"] > 0
        expected["usage"]["input_tokens"] = message["usage"]["input_tokens"]
    return expected


def accumulated(events: list[dict[str, Any]], *, finished: bool) -> dict[str, Any]:
    """The message that raw events amount to, as a client that iterates over them would put it together."""
    message: dict[str, Any] = {}
    arguments: dict[int, str] = {}
    for event in events:
        match event:
            case {"type": "message_start", "message": started}:
                message = {**started, "content": []}
            case {"type": "content_block_start", "index": index, "content_block": block}:
                assert index == len(message["content"])
                message["content"].append(dict(block))
            case {"type": "content_block_delta", "index": index, "delta": {"partial_json": piece}}:
                arguments[index] = arguments.get(index, "") + piece
            case {"type": "content_block_delta", "index": index, "delta": {"citation": citation}}:
                message["content"][index].setdefault("citations", []).append(citation)
            case {"type": "content_block_delta", "index": index, "delta": {"type": kind, **rest}}:
                name = kind.removesuffix("_delta")
                message["content"][index][name] += rest[name]
            case {"type": "message_delta", "delta": delta, "usage": usage}:
                message |= {"stop_reason": delta["stop_reason"], "stop_sequence": delta["stop_sequence"]}
                message["usage"] = usage
    for index, text in arguments.items():
        message["content"][index]["input"] = json.loads(text) if finished else text
    return message


def ids_in(message: dict[str, Any]) -> list[str]:
    return [message["id"], *(block["id"] for block in message["content"] if block["type"] == "tool_use")]
