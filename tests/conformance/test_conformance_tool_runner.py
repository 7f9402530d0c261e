"""The tool runner of the `anthropic` SDK, which speaks in message threads: each turn reaches the model whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic
import pytest

if TYPE_CHECKING:
    from scripted.server import ScriptedUpstream

CALL = {"name": "get_weather", "arguments": {"city": "Paris"}}
RULES: list[dict[str, Any]] = [
    {"when": {"last_role": "tool"}, "reply": {"chat": {"text": "Sunny in Paris."}}},
    {"reply": {"chat": {"tool_calls": [CALL]}}},
]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@anthropic.beta_tool(name="get_weather", description="The weather of a city", input_schema=SCHEMA)
def get_weather(city: str) -> str:
    return f"21 degrees in {city}"


@pytest.mark.req("T1", "C15")
@pytest.mark.parametrize("streaming", [False, True])
def test_the_second_turn_of_a_runner_still_has_question_system_and_tools(
    bridge_url: str, upstream: ScriptedUpstream, streaming: bool
) -> None:
    upstream.script = RULES
    with anthropic.Anthropic(base_url=bridge_url, api_key="sk-client", max_retries=0, timeout=10) as client:
        runner: Any = client.beta.messages.tool_runner(
            model="openai/gpt-4.1",
            max_tokens=100,
            system="Be brief.",
            tools=[get_weather],
            messages=[{"role": "user", "content": "Weather in Paris?"}],
            stream=streaming,
        )
        message = runner.until_done()
    assert [block.text for block in message.content] == ["Sunny in Paris."]
    first, second = [received.json for received in upstream.received]
    assert second["messages"][:2] == first["messages"]
    assert second["tools"] == first["tools"]
    assert [turn["role"] for turn in second["messages"]] == ["system", "user", "assistant", "tool"]
    assert second["messages"][-1]["content"] == "21 degrees in Paris"
