"""Programs that use a framework: pydantic-ai in all dialects, langchain-anthropic, and the `llm` command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clients.installed import client
from clients.processes import run_library
from clients.turns import SEAL, Call, Ran, asked, declared, rounds, seals, user_texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from clients.conftest import Served
    from clients.processes import Desk
    from clients.turns import Dialect

pytestmark = pytest.mark.clients

ROUTES = [
    ("chat", "claude"),
    ("chat", "gemini"),
    ("responses", "claude"),
    ("responses", "gemini"),
    ("messages", "gpt"),
    ("messages", "gemini"),
]


@pytest.mark.req("C15", "S1", "P1", "G1")
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(("api", "dialect"), ROUTES)
def test_an_agent_of_pydantic_ai_ends_with_a_typed_answer(
    serve: Callable[..., Served], desk: Desk, api: str, dialect: Dialect, streaming: bool
) -> None:
    served = serve(dialect)
    served.says(
        (None, Call("weather", {"city": "Atlantis"})),
        (None, Call("weather", {"city": "Paris"}), Call("weather", {"city": "Rome"})),
        (None, Call("final_result", {"city": "Paris", "degrees": 5})),
    )
    task = {"api": api, "url": served.url, "model": served.model, "streaming": streaming}
    said = run_library(desk, "pydantic_agent", task)
    assert said["answer"] == {"city": "Paris", "degrees": 5}
    assert sorted(said["used"]) == ["Atlantis", "Paris", "Rome"]
    bodies = asked(served.upstream)
    assert len(bodies) == 3
    assert sorted(declared(bodies[0])) == ["final_result", "weather"]
    (lost,), found = rounds(bodies[-1])
    assert lost.arguments == {"city": "Atlantis"}
    assert "there is no such city" in lost.result
    assert found == [
        Ran("weather", {"city": "Paris"}, "5 degrees"),
        Ran("weather", {"city": "Rome"}, "4 degrees"),
    ]
    assert "Weather in Paris?" in user_texts(bodies[-1])
    assert seals(bodies[-1]) == ([SEAL, SEAL] if dialect == "gemini" else [])


@pytest.mark.req("C15", "S1")
@pytest.mark.parametrize("streaming", [False, True])
def test_a_loop_of_langchain(any_model: Served, desk: Desk, streaming: bool) -> None:
    any_model.says(
        ("Both.", Call("weather", {"city": "Paris"}), Call("weather", {"city": "Rome"})),
        (None, Call("weather", {"city": "Oslo"})),
        ("Mild.",),
    )
    task = {"url": any_model.url, "model": "claude-sonnet-5-5", "streaming": streaming}
    said = run_library(desk, "langchain_chat", task)
    assert said["answer"] == "Mild."
    assert said["calls"] == [[{"city": "Paris"}, {"city": "Rome"}], [{"city": "Oslo"}]]
    assert said["usage"]["input_tokens"] > 0
    bodies = asked(any_model.upstream)
    assert len(bodies) == 3
    assert rounds(bodies[-1]) == [
        [Ran("weather", {"city": "Paris"}, "5 degrees"), Ran("weather", {"city": "Rome"}, "4 degrees")],
        [Ran("weather", {"city": "Oslo"}, "4 degrees")],
    ]
    assert user_texts(bodies[-1]) == ["Weather in Paris and Rome?"]
    assert seals(bodies[-1]) == ([SEAL, SEAL] if any_model.seals else [])


LLM_MODEL = """
- model_id: bridged
  model_name: {model}
  api_base: {url}/v1
  api_key_name: bridge
  supports_tools: true
"""
LLM_TOOL = 'def weather(city: str) -> str:\n    "The weather of a city"\n    return f"{len(city)} degrees"\n'


@pytest.mark.req("C15", "G1", "G5")
@pytest.mark.parametrize("streaming", [False, True])
def test_llm_runs_a_function_of_its_user(claude: Served, desk: Desk, streaming: bool) -> None:
    claude.says(
        ("Both.", Call("weather", {"city": "Paris"}), Call("weather", {"city": "Rome"})),
        (None, Call("weather", {"city": "Oslo"})),
        ("Mild.",),
    )
    folder = desk.home / "llm"
    folder.mkdir()
    (folder / "extra-openai-models.yaml").write_text(LLM_MODEL.format(model=claude.model, url=claude.url))
    options = ["-m", "bridged", "--key", "sk-client", "--functions", LLM_TOOL]
    command = [*client("llm"), "Weather in Paris and Rome?", *options, *([] if streaming else ["--no-stream"])]
    ran = desk.with_variables({"LLM_USER_PATH": str(folder)}).run(command).succeeded()
    assert ran.out == "Both. Mild.\n"
    bodies = asked(claude.upstream)
    assert len(bodies) == 3
    assert rounds(bodies[-1]) == [
        [Ran("weather", {"city": "Paris"}, "5 degrees"), Ran("weather", {"city": "Rome"}, "4 degrees")],
        [Ran("weather", {"city": "Oslo"}, "4 degrees")],
    ]
