"""An upstream that fails in whatever way is, in every SDK, an error of the right class that names the provider."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from conformance.cases import Fault, fault_cases
from conformance.sdks import ERRORS, SDKS, SERVER_ERROR
from conformance.strictness import defects, parse_events

if TYPE_CHECKING:
    from collections.abc import Callable

    Results = Callable[[str], dict[str, Any]]

FAULTS = {fault.name: fault for fault in fault_cases()}
LATE = {name: fault for name, fault in FAULTS.items() if fault.started}
EARLY = {name: fault for name, fault in FAULTS.items() if not fault.started}
PROVIDER = "openai"

each_sdk = pytest.mark.parametrize("sdk", SDKS)
each_streaming_way = pytest.mark.parametrize("way", ["helper", "events"])


@pytest.mark.req("C11", "C12", "C15")
@each_sdk
@each_streaming_way
@pytest.mark.parametrize("fault", LATE.values(), ids=LATE)
def test_a_failure_in_the_stream_is_raised_after_its_beginning(
    sdk_results: Results, fault: Fault, way: str, sdk: str
) -> None:
    result = sdk_results(sdk)[fault.name][way]
    kinds = [event["type"] for event in result["events"]]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert "content_block_delta" in kinds
    assert "message_stop" not in kinds
    assert result["message"] is None
    assert result["error"]["class"] == SDKS[sdk].error_in_stream
    assert f"{PROVIDER}: " in result["error"]["message"]
    assert fault.says in result["error"]["message"]


@pytest.mark.req("C11", "C15")
@each_sdk
@pytest.mark.parametrize("fault", LATE.values(), ids=LATE)
def test_a_failure_in_a_whole_answer_is_raised(sdk_results: Results, fault: Fault, sdk: str) -> None:
    check_status_error(sdk_results(sdk)[fault.name]["whole"], fault)


@pytest.mark.req("C11", "C15")
@each_sdk
@pytest.mark.parametrize("way", ["helper", "events", "whole"])
@pytest.mark.parametrize("fault", EARLY.values(), ids=EARLY)
def test_a_failure_before_the_first_byte_is_raised_with_its_status(
    sdk_results: Results, fault: Fault, way: str, sdk: str
) -> None:
    result = sdk_results(sdk)[fault.name][way]
    assert result["events"] == []
    check_status_error(result, fault)


@pytest.mark.req("C11", "C12")
@pytest.mark.parametrize("fault", LATE.values(), ids=LATE)
def test_the_bytes_of_a_stream_that_fails_are_legal_and_end_soon(case_bridge: str, fault: Fault) -> None:
    began = time.monotonic()
    answer = httpx2.post(f"{case_bridge}/v1/messages", json=fault.request | {"stream": True}, timeout=10)
    events = parse_events(answer.content)
    assert defects(events) == []
    assert events[-1].type == "error"
    assert time.monotonic() - began < 5


def check_status_error(result: dict[str, Any], fault: Fault) -> None:
    error = result["error"]
    assert result["message"] is None
    assert (error["class"], error["status"]) == (ERRORS.get(fault.status, SERVER_ERROR), fault.status)
    assert PROVIDER in error["message"]
    assert fault.says in error["message"]
