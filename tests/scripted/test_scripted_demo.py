"""The demo model: when it calls a tool, with what arguments, and what it says otherwise."""

from __future__ import annotations

import json
import time
from typing import Any

import openai
import pytest

from scripted.demo import demo_reply, demo_rules
from scripted.demo_arguments import sample, shortened


def function(name: str, properties: dict[str, Any] | None = None, *required: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties or {}, "required": list(required)}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


STRING = {"type": "string"}
READ = function("Read", {"file_path": STRING, "offset": {"type": "integer"}}, "file_path")
WEATHER = function("get_weather", {"city": STRING}, "city")
CODING = [
    function("Agent", {"description": STRING, "prompt": STRING}, "description", "prompt"),
    function("Bash", {"command": STRING, "timeout": {"type": "number"}}, "command"),
    function("Edit", {"file_path": STRING, "old_string": STRING}, "file_path", "old_string"),
    function("ListAgents"),
    READ,
    function(
        "ToolSearch",
        {"query": STRING, "max_results": {"default": 5, "type": "number"}},
        "query",
        "max_results",
    ),
    function("DeferredToolPlaceholder"),
    function("Write", {"file_path": STRING, "content": STRING}, "file_path", "content"),
    function("mcp__github__create_issue", {"title": STRING}, "title"),
]
REMINDER = "<system-reminder>Use the Bash tool to Write or Read files, and Edit them.</system-reminder>"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def ask(text: str, tools: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    return {"model": "any", "messages": [user(text)], "tools": tools or [], **more}


def called(request: dict[str, Any]) -> tuple[str, Any] | None:
    calls = demo_reply(request)["chat"].get("tool_calls")
    return (calls[0]["name"], calls[0]["arguments"]) if calls else None


def said(request: dict[str, Any]) -> str:
    text = demo_reply(request)["chat"]["text"]
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize(
    ("text", "tools", "call"),
    [
        ("Read README.md", CODING, ("Read", {"file_path": "README.md"})),
        ("please read src/bridge/sse.py.", CODING, ("Read", {"file_path": "src/bridge/sse.py"})),
        ("Open /etc/hosts", CODING, ("Read", {"file_path": "/etc/hosts"})),
        ("Read it", CODING, ("Read", {"file_path": "README.md"})),
        ("What is the weather in Paris?", [WEATHER], ("get_weather", {"city": "Paris"})),
        ("weather in New York today", [READ, WEATHER], ("get_weather", {"city": "New York"})),
        ("Is Oslo's weather nice?", [WEATHER], ("get_weather", {"city": "Oslo"})),
        ("Weather?", [WEATHER], ("get_weather", {"city": "Paris"})),
        ("Tell me whether Oslo has good weather", [WEATHER], ("get_weather", {"city": "Oslo"})),
        ("Run `git status`", CODING, ("Bash", {"command": "git status"})),
        ('use bash for "ls -la"', CODING, ("Bash", {"command": "ls -la"})),
        ("use bash", CODING, ("Bash", {"command": "echo 'Hello from the demo model'"})),
        ("list the agents", CODING, ("ListAgents", {})),
        ("which agents can you list?", CODING, ("ListAgents", {})),
        ("Read a.txt and then write b.txt", CODING, ("Read", {"file_path": "a.txt"})),
        (
            "create an issue called 'Crash'",
            CODING,
            ("mcp__github__create_issue", {"title": "create an issue called 'Crash'"}),
        ),
        (
            "search tools for 'notebooks'",
            CODING,
            ("ToolSearch", {"query": "notebooks", "max_results": 5}),
        ),
        ("Hello, who are you?", CODING, None),
        ("I am already bread", CODING, None),
        ("weather in Paris", [], None),
    ],
)
def test_the_tool_that_the_text_speaks_of(text, tools, call):
    assert called(ask(text, tools)) == call


@pytest.mark.parametrize(
    ("choice", "text", "name"),
    [
        ("none", "Read README.md", None),
        ("auto", "Read README.md", "Read"),
        ("required", "Read README.md", "Read"),
        ("required", "Hello", "Agent"),
        ({"type": "function", "function": {"name": "Write"}}, "Read README.md", "Write"),
        ({"type": "function", "function": {"name": "Unknown"}}, "Read README.md", None),
    ],
)
def test_tool_choice(choice, text, name):
    call = called(ask(text, CODING, tool_choice=choice))
    assert (call[0] if call else None) == name


def test_reminders_are_not_what_the_user_wants():
    parts = [{"type": "text", "text": REMINDER}, {"type": "text", "text": "Hello there"}]
    request = ask("", CODING, messages=[{"role": "user", "content": parts}])
    assert called(request) is None
    assert "“Hello there”" in said(request)
    assert "Write or Read" not in said(request)


def test_a_reminder_that_never_ends_is_left_out_too():
    assert called(ask("Hi <system-reminder>Read README.md", CODING)) is None


def test_a_coding_agent_asks_for_a_file():
    parts = [
        {"type": "text", "text": REMINDER},
        {"type": "text", "text": "Read pyproject.toml and summarize it"},
    ]
    messages = [
        {"role": "system", "content": "You may Write with Bash."},
        {"role": "user", "content": parts},
        {"role": "system", "content": "A note in the middle: Edit nothing."},
    ]
    assert called(ask("", CODING, messages=messages)) == ("Read", {"file_path": "pyproject.toml"})


CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
OTHER_CALL = {"id": "call_2", "type": "function", "function": {"name": "Read", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL, OTHER_CALL]}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "18 °C,\n and sunny"}
OTHER_RESULT = {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "x" * 500}]}


@pytest.mark.parametrize(
    "after",
    [
        [],
        [user(REMINDER)],
        [user("Tool loaded. Read on: weather")],
        [{"role": "system", "content": "weather"}],
    ],
    ids=["nothing", "a reminder", "a text that comes with the result", "a system note"],
)
def test_quotes_what_a_tool_returned_instead_of_calling_again(after):
    request = ask("", [WEATHER, READ], messages=[user("weather in Paris"), CALLED, RESULT, *after])
    assert said(request).startswith("The get_weather call returned: “18 °C, and sunny”.")


def test_quotes_all_results_shortened():
    text = said(ask("", messages=[user("go"), CALLED, RESULT, OTHER_RESULT]))
    assert "get_weather call returned: “18 °C, and sunny”. The Read call returned: “xxx" in text
    assert len(text) < 500


def test_a_new_question_after_an_answer_calls_again():
    messages = [user("weather in Paris"), CALLED, RESULT, {"role": "assistant", "content": "Sunny."}]
    request = ask("", [WEATHER], messages=[*messages, user("and the weather in Rome?")])
    assert called(request) == ("get_weather", {"city": "Rome"})


def test_a_result_of_an_unknown_call():
    assert said(ask("", messages=[{**RESULT, "tool_call_id": "?"}])).startswith("The tool call returned: “18 °C")


def test_says_what_it_is_and_what_makes_it_real():
    text = said(ask("Tell me a story " * 50, CODING[:2]))
    assert "Toolbridge's built-in demo model" in text
    assert "“Tell me a story Tell" in text
    assert "Agent, Bash" in text
    for setting in ("OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY", "ANTHROPIC_API_KEY"):
        assert setting in text
    assert len(text) < 500


@pytest.mark.parametrize("request_", [{}, {"messages": "?"}, {"messages": [1]}, {"messages": [], "tools": None}])
def test_survives_any_request(request_):
    assert "demo model" in said(request_)


def test_a_schema_for_the_answer_is_kept():
    title = {
        "type": "object",
        "properties": {"title": STRING},
        "required": ["title"],
        "additionalProperties": False,
    }
    response_format = {"type": "json_schema", "json_schema": {"name": "t", "schema": title, "strict": True}}
    request = ask(f"{REMINDER}fix the login button on mobile", response_format=response_format)
    assert json.loads(said(request)) == {"title": "fix the login button on mobile"}


def test_a_json_object_is_one():
    assert json.loads(said(ask("give me json", response_format={"type": "json_object"}))) == {"answer": "give me json"}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"const": 3}, "", 3),
        ({"enum": ["celsius", "fahrenheit"]}, "in Fahrenheit please", "fahrenheit"),
        ({"enum": ["celsius", "fahrenheit"]}, "", "celsius"),
        ({"type": "integer"}, "give me 12 of them", 12),
        ({"type": "integer", "minimum": 3}, "", 3),
        ({"type": "integer", "exclusiveMinimum": 0, "maximum": 9}, "give me 12", 9),
        ({"type": "number", "exclusiveMinimum": 4}, "", 5),
        ({"type": "number"}, "at 1.5 degrees", 1.5),
        ({"type": "number"}, "version 1.2.3", 1),
        ({"type": "boolean"}, "", False),
        ({"type": "boolean", "default": True}, "", True),
        ({"type": "null"}, "", None),
        ({"type": ["null", "integer"]}, "", 1),
        ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, "", False),
        ({"oneOf": [{"type": "array", "items": {"type": "integer"}}]}, "", [1]),
        ({"type": "array", "items": {"enum": ["a"]}, "minItems": 2}, "", ["a", "a"]),
        ({"type": "array", "maxItems": 0}, "", []),
        ({"type": "string", "format": "date"}, "", "2025-01-31"),
        ({"type": "string", "maxLength": 3}, "", "exa"),
        ({"type": "string", "minLength": 15}, "", "example value.."),
        ({"type": "object"}, "", {}),
        ({"properties": {"a": {}, "b": {}}, "required": ["b"]}, "", {"b": "example b"}),
        (
            {"type": "object", "properties": {"o": {"type": "object", "required": ["x"]}}, "required": ["o"]},
            "",
            {"o": {"x": "example x"}},
        ),
        ({"allOf": [{"type": "object"}, {"required": ["a"]}]}, "", {"a": "example a"}),
        ({"$ref": "#/$defs/N", "$defs": {"N": {"type": "integer"}}}, "", 1),
        ({"$ref": "elsewhere.json"}, "", "example value"),
        (True, "", "example value"),
    ],
)
def test_a_value_fits_its_schema(schema, text, value):
    assert sample(schema, text) == value


def test_a_schema_that_contains_itself_ends():
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}, "required": ["next"]}
    value = sample({"$ref": "#/$defs/Node", "$defs": {"Node": node}}, "")
    assert isinstance(value["next"], dict)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("filePath", "see docs/a.md", "docs/a.md"),
        ("notebook_path", "the file .gitignore please", ".gitignore"),
        ("path", "look at ~/notes and https://x.org/a.html", "~/notes"),
        ("path", "e.g. nothing here", "README.md"),
        ("location", "forecast for São Paulo", "São Paulo"),
        ("url", "fetch https://example.org/a?b=1.", "https://example.org/a?b=1"),
        ("url", "fetch it", "https://example.com/"),
        ("pattern", "grep for 'TODO' but don't stop", "TODO"),
        ("pattern", "don't and won't", "*"),
        ("query", "cats", "cats"),
        ("query", "", "example"),
        ("description", "a\n b", "a b"),
        ("userId", "", "example user id"),
        ("recipient", "send to “bob”", "bob"),
        ("capacity", "in Paris", "example capacity"),
    ],
)
def test_a_string_is_filled_by_its_name(name, text, value):
    schema = {"type": "object", "properties": {name: STRING}, "required": [name]}
    assert sample(schema, text) == {name: value}


def test_shortened():
    assert shortened("a  b\nc", 10) == "a b c"
    assert shortened("abcdef ghi", 8) == "abcdef…"


def test_streams_word_by_word_to_the_openai_sdk(upstream):
    upstream.script = demo_rules()
    with openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="anything", max_retries=0) as client:
        started = time.monotonic()
        stream = client.chat.completions.create(model="any", messages=[user("Hi")], stream=True)
        times = [time.monotonic() for chunk in stream if chunk.choices[0].delta.content]
    assert len(times) > 15
    assert times[10] - started >= 0.15


def test_lists_models_and_refuses_other_paths(upstream, post):
    upstream.script = demo_rules()
    assert post(path="/v1/models", method="GET").status == 200
    assert post(path="/v1/responses").status == 404
