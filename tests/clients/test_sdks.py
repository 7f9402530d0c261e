"""The official SDKs where they do more than send a message: parsing, counting, models, threads, their own loops."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import openai
import pytest
from pydantic import BaseModel

from clients.installed import RUNNERS, SDK_MODULES, client
from clients.turns import SEAL, Call, Ran, asked, declared, rounds, seals, turn, user_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clients.conftest import Served
    from clients.processes import Desk
    from clients.turns import Dialect, Json

pytestmark = pytest.mark.clients

PARSED = {"city": "Paris", "degrees": 21}
VERSIONS = {"2.9.0": "python", "0.125.0": "python-0x"}


class Weather(BaseModel):
    city: str
    degrees: int


# --- anthropic ------------------------------------------------------------------------------------


@pytest.mark.req("X1", "C5.1", "C15")
@pytest.mark.parametrize("version", VERSIONS)
def test_python_parses_counts_and_lists(gpt: Served, desk: Desk, version: str) -> None:
    gpt.says((json.dumps(PARSED),))
    task = json.dumps({"url": gpt.url, "model": gpt.model})
    ran = desk.run([*client(VERSIONS[version]), RUNNERS / "messages_sdk.py", task]).succeeded()
    said = json.loads(ran.out)
    assert (said["version"], said["parsed"]) == (version, PARSED)
    assert 1 < said["counted"] < 100
    assert "scripted" in " ".join(said["models"])
    (body,) = asked(gpt.upstream)
    assert body["response_format"]["json_schema"]["schema"]["required"] == ["city", "degrees"]


@pytest.mark.req("X1", "C5.1", "C15", "T1")
def test_javascript_parses_counts_lists_and_runs_tools(gpt: Served, desk: Desk) -> None:
    gpt.says((json.dumps(PARSED),), (None, Call("weather", {"city": "Paris"})), ("Five degrees.",))
    task = json.dumps({"url": gpt.url, "model": gpt.model})
    said = json.loads(desk.run(["node", RUNNERS / "messages_sdk.mjs", task, SDK_MODULES]).succeeded().out)
    assert said["parsed"] == PARSED
    assert 1 < said["counted"] < 100
    assert "scripted" in " ".join(said["models"])
    assert [block["text"] for block in said["answer"]] == ["Five degrees."]
    _, _, last = asked(gpt.upstream)
    assert rounds(last) == [[Ran("weather", {"city": "Paris"}, "5 degrees")]]
    assert user_texts(last) == ["Weather in Paris?"]
    assert declared(last) == ["weather"]


# --- openai ---------------------------------------------------------------------------------------

SHAPE = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTION = {"name": "weather", "description": "The weather of a city", "parameters": SHAPE, "strict": True}
PARIS, ROME, OSLO = ({"city": city} for city in ("Paris", "Rome", "Oslo"))
LOOP = (
    (None, Call("weather", PARIS), Call("weather", ROME)),
    (None, Call("weather", OSLO)),
    (json.dumps(PARSED),),
)
LOOPED = [
    [Ran("weather", PARIS, "5 degrees"), Ran("weather", ROME, "4 degrees")],
    [Ran("weather", OSLO, "4 degrees")],
]


@pytest.fixture
def sdk(serve: Callable[..., Served]) -> Iterator[Callable[[Dialect], tuple[Served, openai.OpenAI]]]:
    clients: list[openai.OpenAI] = []

    def start(dialect: Dialect) -> tuple[Served, openai.OpenAI]:
        served = serve(dialect)
        clients.append(openai.OpenAI(base_url=f"{served.url}/v1", api_key="sk-client", max_retries=0, timeout=10))
        return served, clients[-1]

    yield start
    for made in clients:
        made.close()


def weather(arguments: str) -> str:
    return f"{len(json.loads(arguments)['city'])} degrees"


@pytest.mark.req("G1", "G3", "G5", "C15")
@pytest.mark.parametrize("streaming", [False, True])
def test_a_loop_over_chat_completions_ends_with_a_parsed_answer(sdk: Any, streaming: bool) -> None:
    served, api = sdk("claude")
    served.says(*LOOP)
    messages: list[Any] = [{"role": "user", "content": "Weather in Paris and Rome?"}]
    request: Any = {"model": served.model, "tools": [{"type": "function", "function": FUNCTION}]}
    while True:
        if streaming:
            with api.chat.completions.stream(**request, messages=messages, response_format=Weather) as stream:
                message = stream.get_final_completion().choices[0].message
        else:
            answer = api.chat.completions.parse(**request, messages=messages, response_format=Weather)
            message = answer.choices[0].message
        if not message.tool_calls:
            break
        messages.append(message)
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": weather(call.function.arguments)}
            for call in message.tool_calls
        ]
    assert message.parsed == Weather(**PARSED)
    bodies = asked(served.upstream)
    assert len(bodies) == 3
    assert rounds(bodies[-1]) == LOOPED
    assert user_texts(bodies[-1]) == ["Weather in Paris and Rome?"]


@pytest.mark.req("P1", "S1", "S6", "C15")
@pytest.mark.parametrize("remembering", ["by_id", "in_full"])
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("dialect", ["gpt", "claude", "gemini"])
def test_a_loop_over_responses_ends_with_a_parsed_answer(
    sdk: Any, dialect: Dialect, streaming: bool, remembering: str
) -> None:
    served, api = sdk(dialect)
    served.says(*LOOP)
    request: Any = {"model": served.model, "tools": [{"type": "function", **FUNCTION}], "text_format": Weather}
    history: list[Any] = [{"role": "user", "content": "Weather in Paris and Rome?"}]
    while True:
        response = respond(api, streaming, request | {"input": history})
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": weather(item.arguments)}
            for item in response.output
            if item.type == "function_call"
        ]
        if not results:
            break
        if remembering == "by_id":
            request["previous_response_id"], history = response.id, results
        else:
            history = [*history, *[item.to_dict() for item in response.output], *results]
    assert response.output_parsed == Weather(**PARSED)
    bodies = asked(served.upstream)
    assert len(bodies) == 3
    assert rounds(bodies[-1]) == LOOPED
    assert user_texts(bodies[-1]) == ["Weather in Paris and Rome?"]
    assert seals(bodies[-1]) == ([SEAL, SEAL] if served.seals else [])


@pytest.mark.req("S3", "P1")
@pytest.mark.parametrize("streaming", [False, True])
def test_signed_thinking_comes_back_before_the_calls_of_its_turn(sdk: Any, streaming: bool) -> None:
    served, api = sdk("claude")
    called: Json = turn("claude", None, Call("weather", PARIS))
    called["messages"] |= {"thinking": "Only Paris.", "signature": SEAL}
    served.replies(called, turn("claude", json.dumps(PARSED)))
    request: Any = {"model": served.model, "tools": [{"type": "function", **FUNCTION}], "text_format": Weather}
    request |= {"reasoning": {"effort": "high", "summary": "auto"}}
    first = respond(api, streaming, request | {"input": "Weather in Paris?"})
    (call,) = [item for item in first.output if item.type == "function_call"]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "5 degrees"}
    second = respond(api, streaming, request | {"input": [result], "previous_response_id": first.id})
    assert second.output_parsed == Weather(**PARSED)
    assert seals(asked(served.upstream)[-1]) == [SEAL]
    assert rounds(asked(served.upstream)[-1]) == [[Ran("weather", PARIS, "5 degrees")]]


def respond(api: openai.OpenAI, streaming: bool, request: Any) -> Any:
    if not streaming:
        return api.responses.parse(**request)
    with api.responses.stream(**request) as stream:
        return stream.get_final_response()
