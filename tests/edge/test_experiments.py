"""The five experiments on repeated tool calls, end to end, at each level of the loop guard; and the opt-in policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import pytest

from support import opened, running_bridge

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator
    from pathlib import Path

    from scripted.server import ScriptedUpstream

LEVELS = ["off", "standard", "strict"]
QUESTION = "Read README and summarize."
TOOLS: Any = [
    {"name": name, "description": name, "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}
    for name in ("Glob", "Read", "Write")
]
READ = {"name": "Read", "arguments": {"path": "README.md"}}


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bridge(upstream: ScriptedUpstream, tmp_path: Path, level: str) -> Iterator[str]:
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, LOOP_GUARD=level) as url:
        yield url


def ask(url: str, messages: list[Any], *, stream: bool = False) -> anthropic.types.Message:
    client = opened(anthropic.Anthropic(base_url=url, api_key="k", max_retries=0, timeout=10))
    body: Any = {"model": "openai/gpt-4.1", "max_tokens": 100, "tools": TOOLS, "messages": messages}
    if not stream:
        return client.messages.create(**body)
    with client.messages.stream(**body) as streamed:
        return streamed.get_final_message()


def history(answer: anthropic.types.Message, *beside: str) -> list[Any]:
    """What a client sends next: the answer, the results of its calls, and maybe words beside them."""
    results: list[Any] = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "# A project"}
        for block in answer.content
        if block.type == "tool_use"
    ]
    said = [{"type": "text", "text": text} for text in beside]
    content = [block.model_dump(exclude_none=True) for block in answer.content]
    return [{"role": "assistant", "content": content}, {"role": "user", "content": results + said}]


def sent_roles(upstream: ScriptedUpstream) -> list[str]:
    return [message["role"] for message in upstream.received[-1].json["messages"]]


def sent_user_texts(upstream: ScriptedUpstream) -> list[str]:
    messages = upstream.received[-1].json["messages"]
    return [str(message["content"]) for message in messages if message["role"] == "user"]


def script(upstream: ScriptedUpstream) -> None:
    upstream.script = [
        {"when": {"last_role": "tool"}, "reply": {"chat": {"text": "A project."}}},
        {"when": {"last_role": "user", "text": "re-read|Read README"}, "reply": {"chat": {"tool_calls": [READ]}}},
        {"reply": {"chat": {"text": "A project."}}},
    ]


@pytest.mark.req("E1", "E5", "R10")
@pytest.mark.parametrize("stream", [False, True])
def test_a_minimal_tool_chain(bridge: str, upstream: ScriptedUpstream, level: str, stream: bool) -> None:
    script(upstream)
    first = ask(bridge, [{"role": "user", "content": QUESTION}], stream=stream)
    assert (first.stop_reason, first.content[0].type) == ("tool_use", "tool_use")
    second = ask(bridge, [{"role": "user", "content": QUESTION}, *history(first)], stream=stream)
    assert second.content[0].text == "A project."  # type: ignore[union-attr]
    assert second.stop_reason == "end_turn"
    assert len(upstream.received) == 2
    guarded = level != "off"
    assert sent_roles(upstream) == (["system"] if guarded else []) + ["user", "assistant", "tool"]
    assert upstream.received[-1].json.get("tool_choice") == ("none" if level == "strict" else None)


@pytest.mark.req("E2", "R7", "R8")
def test_words_beside_a_result(bridge: str, upstream: ScriptedUpstream, level: str) -> None:
    script(upstream)
    first = ask(bridge, [{"role": "user", "content": QUESTION}])
    ask(bridge, [{"role": "user", "content": QUESTION}, *history(first, QUESTION, "And be brief.")])
    forwarded = {
        "off": [QUESTION, f"{QUESTION}\n\nAnd be brief."],
        "standard": [QUESTION, "And be brief."],
        "strict": [QUESTION],
    }
    assert sent_user_texts(upstream) == forwarded[level]
    tool = [message for message in upstream.received[-1].json["messages"] if message["role"] == "tool"]
    assert [message["content"] for message in tool] == ["# A project"]


@pytest.mark.req("E3", "R8")
def test_a_history_that_is_replayed(bridge: str, upstream: ScriptedUpstream, level: str) -> None:
    script(upstream)
    first = ask(bridge, [{"role": "user", "content": QUESTION}])
    replayed = [{"role": "user", "content": QUESTION}, *history(first), {"role": "user", "content": QUESTION}]
    ask(bridge, replayed)
    texts = [text for text in sent_user_texts(upstream) if QUESTION in text]
    assert len(texts) == (1 if level == "strict" else 2)
    names = [
        call["function"]["name"]
        for message in upstream.received[-1].json["messages"]
        for call in message.get("tool_calls", ())
    ]
    assert names == ["Read"]


@pytest.mark.req("E4")
def test_an_intended_refresh_is_not_in_the_way(bridge: str, upstream: ScriptedUpstream, level: str) -> None:
    script(upstream)
    first = ask(bridge, [{"role": "user", "content": QUESTION}])
    done = [{"role": "user", "content": QUESTION}, *history(first), {"role": "assistant", "content": "A project."}]
    again = ask(bridge, [*done, {"role": "user", "content": "Please re-read README.md, it changed."}])
    assert again.stop_reason == "tool_use"
    assert sent_user_texts(upstream)[-1] == "Please re-read README.md, it changed."
    assert level == "off" or "tool_choice" not in upstream.received[-1].json


@pytest.mark.req("RO")
@pytest.mark.parametrize(
    ("words", "declared"),
    [
        ("Explain README.md to me", ["Glob", "Read"]),
        ("解释一下 README", ["Glob", "Read"]),
        ("Fix the typo in README.md", ["Glob", "Read", "Write"]),
    ],
)
def test_who_only_wants_to_read_gets_reading_tools(
    upstream: ScriptedUpstream, tmp_path: Path, words: str, declared: list[str]
) -> None:
    upstream.script = [{"reply": {"chat": {"text": "ok"}}}]
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, READ_ONLY_INTENT="true") as url:
        ask(url, [{"role": "user", "content": words}])
    assert [tool["function"]["name"] for tool in upstream.received[0].json["tools"]] == declared


@pytest.mark.req("ST")
@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_repeats_a_call_is_asked_once_more(
    upstream: ScriptedUpstream, tmp_path: Path, stream: bool
) -> None:
    upstream.script = [
        {"when": {"last_role": "system"}, "reply": {"chat": {"text": "A project."}}},
        {"reply": {"chat": {"tool_calls": [READ]}}},
    ]
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, REPEAT_HINT="true") as url:
        first = ask(url, [{"role": "user", "content": QUESTION}], stream=stream)
        second = ask(url, [{"role": "user", "content": QUESTION}, *history(first)], stream=stream)
    assert second.content[0].text == "A project."  # type: ignore[union-attr]
    assert len(upstream.received) == 3
    assert "Read" in upstream.received[-1].json["messages"][-1]["content"]


@pytest.mark.req("C9", "DIAG")
def test_each_decision_is_logged(
    upstream: ScriptedUpstream, tmp_path: Path, bridge_log: list[logging.LogRecord]
) -> None:
    upstream.script = [{"reply": {"chat": {"text": "ok"}}}]
    settings = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "LOOP_GUARD": "standard", "LOG_LEVEL": "info"}
    with running_bridge(tmp_path, **settings) as url:
        ask(url, [{"role": "user", "content": QUESTION}])
    assert bridge_log[-1].__dict__["fields"]["policies"] == ("loop_guard.guardrail",)


SEARCH: Any = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3, "allowed_domains": ["example.com"]}
SEARCH_BODY: Any = {
    "model": "x",
    "max_tokens": 100,
    "tools": [SEARCH],
    "tool_choice": {"type": "tool", "name": "web_search"},
    "messages": [{"role": "user", "content": "Weather in Paris?"}],
}
CITED = {
    "type": "url_citation",
    "url_citation": {"url": "https://example.com/a", "title": "A", "content": "21 degrees"},
}


@pytest.mark.req("C5.4")
@pytest.mark.parametrize("stream", [False, True])
def test_web_search_is_asked_of_openrouter(upstream: ScriptedUpstream, tmp_path: Path, stream: bool) -> None:
    delta = {"role": "assistant", "content": "21 degrees.", "annotations": [CITED]}
    if stream:
        chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]}
        upstream.script = [{"reply": {"sse": [chunk, "[DONE]"]}}]
    else:
        upstream.script = [{"reply": {"json": {"choices": [{"index": 0, "message": delta, "finish_reason": "stop"}]}}}]
    settings = {"UPSTREAM_OPENROUTER_BASE_URL": upstream.url, "SERVER_TOOLS_MODE": "emulate"}
    with running_bridge(tmp_path, **settings) as url:
        client = opened(anthropic.Anthropic(base_url=url, api_key="k", max_retries=0, timeout=10))
        tuned = SEARCH | {"engine": "exa", "max_results": 4, "search_context_size": "high"}
        body = SEARCH_BODY | {"model": "or:openai/gpt-4.1", "tools": [tuned]}
        if stream:
            with client.messages.stream(**body) as streamed:
                answer = streamed.get_final_message()
        else:
            answer = client.messages.create(**body)
    assert [block.type for block in answer.content] == ["text", "server_tool_use", "web_search_tool_result"]
    text, use, result = answer.content
    assert text.citations[0].url == "https://example.com/a"  # type: ignore[union-attr,index]
    assert use.input == {"query": "Weather in Paris?"}  # type: ignore[union-attr]
    assert result.tool_use_id == use.id  # type: ignore[union-attr]
    assert [found.url for found in result.content] == ["https://example.com/a"]  # type: ignore[union-attr]
    assert answer.usage.server_tool_use is not None
    assert answer.usage.server_tool_use.web_search_requests == 1
    sent = upstream.received[0].json
    web = {"id": "web", "include_domains": ["example.com"], "engine": "exa", "max_results": 4}
    assert (sent["plugins"], sent["web_search_options"]) == ([web], {"search_context_size": "high"})
    assert "tools" not in sent
    assert "tool_choice" not in sent


@pytest.mark.req("C5.4", "P1")
def test_web_search_is_a_tool_of_responses(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    done = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}}
    cited = {"type": "url_citation", "url": "https://example.com/a", "title": "A", "start_index": 0, "end_index": 4}
    part = {"type": "output_text", "text": "21 degrees.", "annotations": [cited]}
    said = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    whole = {"id": "resp_1", "object": "response", "status": "completed", "output": [done, said], "usage": None}
    upstream.script = [{"reply": {"json": whole}}]
    settings = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "SERVER_TOOLS_MODE": "emulate"}
    with running_bridge(tmp_path, **settings) as url:
        client = opened(anthropic.Anthropic(base_url=url, api_key="k", max_retries=0, timeout=10))
        answer = client.messages.create(**(SEARCH_BODY | {"model": "gpt-5.5"}))
    assert [block.type for block in answer.content] == ["server_tool_use", "text", "web_search_tool_result"]
    sent = upstream.received[0].json
    assert sent["tools"] == [{"type": "web_search", "filters": {"allowed_domains": ["example.com"]}}]
    assert "web_search_call.action.sources" in sent["include"]


@pytest.mark.req("C5.4", "C5.6")
@pytest.mark.parametrize(
    ("mode", "model", "told"),
    [("error", "openai/gpt-4.1", "SERVER_TOOLS_MODE"), ("emulate", "gemini-3-pro", "web_search_20250305")],
)
def test_what_nobody_can_search_with_is_refused(
    upstream: ScriptedUpstream, tmp_path: Path, mode: str, model: str, told: str
) -> None:
    settings = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "UPSTREAM_GEMINI_BASE_URL": upstream.url}
    with running_bridge(tmp_path, **settings, SERVER_TOOLS_MODE=mode) as url:
        answer = httpx2.post(f"{url}/v1/messages", json=SEARCH_BODY | {"model": model})
    assert answer.status_code == 400
    assert told in answer.json()["error"]["message"]
    assert upstream.received == []


@pytest.mark.req("C5.4", "C5.6")
@pytest.mark.parametrize(
    ("model", "wire_model"), [("openai/gpt-4.1", "claude-sonnet-5-5"), ("claude-opus-5", "claude-opus-5")]
)
@pytest.mark.parametrize(
    "wish", [{"tools": [SEARCH]}, {"mcp_servers": [{"type": "url", "url": "https://m", "name": "m"}]}]
)
def test_server_tools_take_the_whole_request_to_anthropic(
    upstream: ScriptedUpstream, tmp_path: Path, model: str, wire_model: str, wish: dict[str, Any]
) -> None:
    upstream.script = [{"when": {"path": "/a/*"}, "reply": {"messages": {"text": "ok"}}}]
    settings = {
        "UPSTREAM_OPENAI_BASE_URL": f"{upstream.url}/o/v1",
        "UPSTREAM_ANTHROPIC_BASE_URL": f"{upstream.url}/a/v1",
        "MODEL_MAP": '{"claude-*": "openai/gpt-4.1"}',
        "SERVER_TOOLS_MODE": "enforceAnthropic",
    }
    body = {"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]} | wish
    with running_bridge(tmp_path, **settings) as url:
        answer = httpx2.post(f"{url}/v1/messages", json=body)
    assert answer.status_code == 200
    assert upstream.received[0].json == body | {"model": wire_model}


@pytest.mark.req("C5.3")
def test_tools_that_the_client_runs_are_spelled_out(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.script = [{"reply": {"chat": {"tool_calls": [{"name": "bash", "arguments": {"command": "ls"}}]}}}]
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url) as url:
        client = opened(anthropic.Anthropic(base_url=url, api_key="k", max_retries=0, timeout=10))
        answer = client.messages.create(
            model="openai/gpt-4.1",
            max_tokens=100,
            tools=[{"type": "bash_20250124", "name": "bash"}],
            messages=[{"role": "user", "content": "List the files"}],
        )
    assert (answer.content[0].name, answer.content[0].input) == ("bash", {"command": "ls"})  # type: ignore[union-attr]
    function = upstream.received[0].json["tools"][0]["function"]
    assert function["name"] == "bash"
    assert "command" in function["parameters"]["properties"]
