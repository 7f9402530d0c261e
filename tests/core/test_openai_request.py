"""Messages requests as chat completion requests: what is said, in which order, and what is lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bridge.canonical.target import Target
from bridge.errors import BridgeError
from bridge.protocols.anthropic.parse_request import parse_request
from bridge.protocols.openai_chat.render_request import render_request

if TYPE_CHECKING:
    from bridge.canonical.reading import Rendered

TARGETS = {
    "openai": "https://api.openai.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai",
    "mistral": "https://api.mistral.ai/v1",
    "deepseek": "https://api.deepseek.com/v1",
    "local": "http://127.0.0.1:8000/v1",
}
HI = {"role": "user", "content": "Hi"}
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}}


def render(provider: str = "openai", model: str = "gpt-x", cache_key: str | None = None, **body: Any) -> Rendered:
    whole = {"model": "m", "max_tokens": 100, "messages": [HI]} | body
    name = provider if provider in ("openai", "openrouter", "gemini") else "openai"
    return render_request(parse_request(json.dumps(whole).encode()), Target(name, model, TARGETS[provider], cache_key))


def messages(*turns: Any, provider: str = "openai", model: str = "gpt-x", **body: Any) -> list[Any]:
    return render(provider, model, messages=list(turns), **body).body["messages"]  # type: ignore[return-value]


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(tool_id: str, name: str = "Read", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": tool_id, "name": name, "input": arguments}


def result(tool_id: str, content: Any = "done", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": tool_id, "content": content} | more


def call(tool_id: str, name: str = "Read", arguments: str = "{}") -> dict[str, Any]:
    return {"id": tool_id, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.req("R1")
@pytest.mark.parametrize(
    "content",
    ["Hi", [text("Hi")], {"text": "Hi"}, {"content": "Hi"}, {"content": [text("Hi")]}, text("Hi")],
    ids=["string", "blocks", "text object", "content object", "nested blocks", "single block"],
)
def test_content_in_any_shape_is_the_same_message(content: Any) -> None:
    assert messages({"role": "user", "content": content}) == [{"role": "user", "content": "Hi"}]


@pytest.mark.req("R2")
@pytest.mark.parametrize(
    "system",
    [
        "Be brief.",
        [text("Be brief.")],
        [text("x-anthropic-billing-header: cc_version=2.1; cch=abc;"), text("Be brief.")],
        [text("x-anthropic-billing-header: cc_version=2.1;\nBe brief.")],
        [text("x-anthropic-billing-header: cc_version=2.1;\n\nBe brief."), text("")],
    ],
)
def test_system_text_comes_first_without_the_billing_line(system: Any) -> None:
    assert messages(HI, system=system) == [{"role": "system", "content": "Be brief."}, HI]


@pytest.mark.req("R4")
def test_all_calls_of_a_turn_are_one_message_with_its_text() -> None:
    sent = messages(
        HI, assistant(text("Let me see."), use("t1", path="a"), use("t2", "Glob")), user(result("t1"), result("t2"))
    )
    assert sent[1] == {
        "role": "assistant",
        "content": "Let me see.",
        "tool_calls": [call("t1", "Read", '{"path":"a"}'), call("t2", "Glob")],
    }


@pytest.mark.req("R5", "R6")
def test_results_come_in_the_order_of_the_calls_and_before_the_text() -> None:
    sent = messages(HI, assistant(use("t1"), use("t2")), user(text("And?"), result("t2", "two"), result("t1", "one")))
    assert sent[2:] == [
        {"role": "tool", "tool_call_id": "t1", "content": "one"},
        {"role": "tool", "tool_call_id": "t2", "content": "two"},
        {"role": "user", "content": "And?"},
    ]


def test_results_spread_over_turns_meet_their_calls() -> None:
    sent = messages(HI, assistant(use("t1")), assistant(use("t2")), user(result("t2")), user(result("t1"), text("ok")))
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert [message.get("tool_call_id") for message in sent[2:4]] == ["t1", "t2"]


@pytest.mark.req("R6", "C5.2")
def test_what_results_show_follows_all_of_them() -> None:
    sent = messages(
        HI,
        assistant(use("t1", "Shot"), use("t2")),
        user(result("t1", [text("a picture"), PNG]), result("t2"), text("What is it?")),
    )
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert sent[2]["content"] == "a picture\n[shown in the next message]"
    assert sent[4]["content"] == [
        {"type": "text", "text": "From the result of Shot (t1):"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "text", "text": "What is it?"},
    ]


@pytest.mark.req("FR5.1")
@pytest.mark.parametrize(
    ("content", "more", "expected"),
    [
        ("plain", {}, "plain"),
        ([text("a"), text("b")], {}, "a\nb"),
        ("", {}, ""),
        ([], {}, ""),
        (None, {}, ""),
        ("gone", {"is_error": True}, "[tool error] gone"),
        (None, {"is_error": True}, "[tool error] no details"),
        ([{"type": "tool_reference", "tool_name": "WebFetch"}], {}, "The tool WebFetch is now available."),
        (
            [{"type": "document", "title": "N", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}],
            {},
            '<document title="N">\nx\n</document>',
        ),
        (
            [{"type": "search_result", "source": "u", "title": "T", "content": [text("x")]}],
            {},
            '<document title="T">\nSource: u\nx\n</document>',
        ),
    ],
)
def test_results_of_every_kind(content: Any, more: dict[str, Any], expected: str) -> None:
    assert messages(HI, assistant(use("t1")), user(result("t1", content, **more)))[2]["content"] == expected


def test_two_results_for_one_call_are_one_message() -> None:
    sent = messages(HI, assistant(use("t1")), user(result("t1", "a"), result("t1", "b")))
    assert [message["content"] for message in sent if message["role"] == "tool"] == ["a\nb"]


@pytest.mark.req("S5")
def test_a_call_without_result_gets_a_neutral_one() -> None:
    rendered = render(messages=[HI, assistant(use("t1"), use("t2")), user(result("t2")), assistant(text("ok")), HI])
    tools = [message for message in rendered.body["messages"] if message["role"] == "tool"]  # type: ignore[union-attr,index,call-overload]
    assert [message["content"] for message in tools] == ["[no result was recorded for this call]", "done"]
    assert any("without a result" in loss for loss in rendered.losses)


@pytest.mark.req("FR5.3", "C11")
def test_a_result_without_its_call_is_refused_by_name() -> None:
    with pytest.raises(BridgeError, match="'t9'"):
        messages(HI, user(result("t9")))


@pytest.mark.req("C5.2")
@pytest.mark.parametrize(
    ("block", "provider", "part"),
    [
        (PNG, "openai", {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}),
        (
            {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
            "openai",
            {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        ),
        (
            PDF | {"title": "a.pdf"},
            "openai",
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}},
        ),
        (
            {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}},
            "openrouter",
            {"type": "file", "file": {"filename": "document.pdf", "file_data": "https://x/y.pdf"}},
        ),
    ],
)
def test_pictures_and_files(block: dict[str, Any], provider: str, part: dict[str, Any]) -> None:
    assert messages(user(text("Look"), block), provider=provider)[0]["content"] == [text("Look"), part]


@pytest.mark.parametrize(
    ("block", "provider", "says"),
    [
        ({"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}, "gemini", "no image URLs"),
        ({"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}}, "openai", "no document URLs"),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, "openai", "uploaded to another provider"),
        ({"type": "container_upload", "file_id": "f"}, "openai", "container"),
        (use("t1"), "openai", r"messages\.0\.content\.0: a tool_use block"),
    ],
)
def test_content_that_cannot_be_said_is_refused(block: dict[str, Any], provider: str, says: str) -> None:
    with pytest.raises(BridgeError, match=says):
        messages(user(block), provider=provider)


def test_documents_made_of_blocks_keep_their_order() -> None:
    source = {"type": "content", "content": [text("before "), PNG, text("after")]}
    (message,) = messages(user({"type": "document", "source": source, "context": "About it."}))
    assert message["content"] == [
        {"type": "text", "text": "<document>\nAbout it.\nbefore "},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "text", "text": "after\n</document>"},
    ]


@pytest.mark.req("S4")
def test_thinking_of_another_family_is_left_out_and_reported() -> None:
    thinking = [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "redacted_thinking", "data": "x"}]
    rendered = render(messages=[HI, assistant(*thinking, text("Yes.")), HI])
    assert rendered.body["messages"][1] == {"role": "assistant", "content": "Yes."}  # type: ignore[index,call-overload]
    assert any(loss.startswith("thinking") for loss in rendered.losses)


def test_server_tool_blocks_of_the_history_are_told_in_words() -> None:
    found = {"type": "web_search_result", "url": "https://x", "title": "X", "encrypted_content": "SECRET"}
    history = assistant(
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [found]},
        text("Found it."),
    )
    content = messages(HI, history, HI)[1]["content"]
    assert content.startswith('[used web_search: {"query":"q"}]\n\n[web_search result: [')
    assert "https://x" in content
    assert content.endswith("Found it.")
    assert "SECRET" not in content


@pytest.mark.parametrize("content", ["Mind the gap.", [text("Mind the gap.")]])
def test_system_turns_stand_after_the_tool_messages(content: Any) -> None:
    system = {"role": "system", "content": content, "output_config": {"effort": "low"}}
    sent = messages(HI, assistant(use("t1")), system, user(result("t1")))
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "system"]
    assert sent[-1]["content"] == "Mind the gap."


def test_system_turns_become_user_text_where_templates_refuse_them() -> None:
    sent = messages(HI, {"role": "system", "content": "Mind."}, provider="local", model="qwen3-coder")
    assert sent == [{"role": "user", "content": "Hi\n\n<system>\nMind.\n</system>"}]


def test_a_system_turn_may_be_empty() -> None:
    empty = {"role": "system", "output_config": {"effort": "high"}}
    rendered = render(model="gpt-5", messages=[HI, empty, {"role": "system", "content": []}])
    assert rendered.body["messages"] == [HI]
    assert rendered.body["reasoning_effort"] == "high"


@pytest.mark.parametrize("provider", ["openai", "openrouter"])
def test_an_empty_effort_says_nothing(provider: str) -> None:
    config = {"output_config": {"effort": ""}}
    rendered = render(provider, "gpt-5", messages=[HI | config], **config)
    assert {"reasoning", "reasoning_effort"}.isdisjoint(rendered.body)


def test_neighbours_and_empty_texts_are_mended() -> None:
    sent = messages(HI, user(text("")), user(text("there")), assistant(text("")), assistant(text("Yes")), HI)
    assert sent == [
        {"role": "user", "content": "Hi\n\nthere"},
        {"role": "assistant", "content": "Yes"},
        HI,
    ]


@pytest.mark.req("C5.1")
def test_a_prefill_is_the_last_assistant_message() -> None:
    assert messages(HI, {"role": "assistant", "content": "{"})[-1] == {"role": "assistant", "content": "{"}
    mistral = messages(HI, {"role": "assistant", "content": "{"}, provider="mistral", model="mistral-large")
    assert mistral[-1] == {"role": "assistant", "content": "{", "prefix": True}


@pytest.mark.req("S6")
@pytest.mark.parametrize(
    ("provider", "model", "tool_id", "legal"),
    [
        ("openai", "gpt-x", "toolu_01AbC-d", r"toolu_01AbC-d"),
        ("openai", "gpt-x", "x" * 41, r"call_[0-9a-f]{32}"),
        ("openai", "gpt-x", "functions.Read:0", r"call_[0-9a-f]{32}"),
        ("mistral", "mistral-large", "toolu_01AbCdEf", r"[A-Za-z0-9]{9}"),
        ("local", "devstral-small", "abc", r"[A-Za-z0-9]{9}"),
    ],
)
def test_ids_are_legal_and_stay_paired(provider: str, model: str, tool_id: str, legal: str) -> None:
    import re

    other = f"{tool_id}2"[-len(tool_id) :] if len(tool_id) > 40 else f"{tool_id}2"
    sent = messages(
        HI, assistant(use(tool_id), use(other)), user(result(other), result(tool_id)), provider=provider, model=model
    )
    calls = [item["id"] for item in sent[1]["tool_calls"]]
    answers = [message["tool_call_id"] for message in sent if message["role"] == "tool"]
    assert calls == answers
    assert len(set(calls)) == 2
    assert re.fullmatch(legal, calls[0])


def test_mistral_gets_no_user_message_right_after_a_result() -> None:
    sent = messages(
        HI, assistant(use("t1")), user(result("t1"), text("And?")), provider="mistral", model="mistral-large"
    )
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "assistant", "user"]


TOOL = {
    "name": "Read",
    "description": "Reads",
    "input_schema": {"type": "object", "properties": {"p": {"type": "string"}}},
}


@pytest.mark.req("C5.3")
@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "tool", "name": "Read"}, {"tool_choice": {"type": "function", "function": {"name": "Read"}}}),
        ({"type": "auto", "disable_parallel_tool_use": True}, {"tool_choice": "auto", "parallel_tool_calls": False}),
        (None, {}),
    ],
)
def test_tool_choice(choice: Any, expected: dict[str, Any]) -> None:
    body = render(tools=[TOOL], tool_choice=choice).body
    assert {key: body[key] for key in ("tool_choice", "parallel_tool_calls") if key in body} == expected


def test_a_demanded_tool_is_declared_although_deferred() -> None:
    assert declared(tools=[TOOL, LATER], tool_choice={"type": "tool", "name": "WebFetch"}) == ["Read", "WebFetch"]


def test_more_tools_than_openai_takes_are_fine_elsewhere() -> None:
    many = [TOOL | {"name": f"t{number}"} for number in range(129)]
    assert len(render("local", "llama-3", tools=many).body["tools"]) == 129  # type: ignore[arg-type]


def test_calls_with_the_same_id_keep_their_own_results() -> None:
    sent = messages(HI, assistant(use("t", path="a"), use("t", path="b")), user(result("t", "A"), result("t", "B")))
    ids = [item["id"] for item in sent[1]["tool_calls"]]
    assert len(set(ids)) == 2
    assert [(message["tool_call_id"], message["content"]) for message in sent[2:]] == [(ids[0], "A"), (ids[1], "B")]


def test_user_turns_around_an_empty_assistant_turn_are_one() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": ""}
    assert messages(HI, assistant(thinking), HI) == [{"role": "user", "content": "Hi\n\nHi"}]


def test_integers_of_any_size_go_through() -> None:
    number = 2**80
    sent = messages(
        HI,
        assistant(use("t", n=number)),
        user(result("t")),
        tools=[TOOL | {"input_schema": {"type": "object", "maximum": number}}],
    )
    assert str(number) in sent[1]["tool_calls"][0]["function"]["arguments"]


@pytest.mark.parametrize("kind", ["adaptive", "between_tools"])
def test_thinking_that_is_not_to_be_had_is_a_loss(kind: str) -> None:
    for rendered in (
        render(model="gpt-5.4", tools=[TOOL], thinking={"type": kind}),
        render(model="gpt-4o", thinking={"type": kind}),
        render("local", "llama-3", thinking={"type": kind}),
    ):
        assert any(loss.startswith("thinking") for loss in rendered.losses)


def test_the_callers_own_cache_key_wins() -> None:
    rendered = render(model="gpt-5", cache_key="ours", prompt_cache_key="theirs")
    assert rendered.body["prompt_cache_key"] == "theirs"
    assert rendered.losses == ()


def test_no_tool_choice_without_tools() -> None:
    assert "tool_choice" not in render(tools=[], tool_choice={"type": "auto"}).body


@pytest.mark.req("C5.3", "S6")
@pytest.mark.parametrize("name", ["mcp__" + "x" * 80, "has.dots", "naïve", "9lives"])
def test_names_are_made_legal_and_given_back(name: str) -> None:
    import re

    rendered = render(
        "gemini",
        "gemini-3-pro",
        tools=[TOOL | {"name": name}],
        tool_choice={"type": "tool", "name": name},
        messages=[HI, assistant(use("t1", name)), user(result("t1"))],
    )
    body: Any = rendered.body
    wire_name = body["tools"][0]["function"]["name"]
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", wire_name)
    assert body["tool_choice"]["function"]["name"] == wire_name
    assert body["messages"][1]["tool_calls"][0]["function"]["name"] == wire_name
    assert rendered.reading.tool_names == {wire_name: name}


def test_names_that_would_meet_when_shortened_stay_apart() -> None:
    tools = [TOOL | {"name": "x" * 80 + suffix} for suffix in ("a", "b", "")]
    body: Any = render(tools=tools).body
    assert len({tool["function"]["name"] for tool in body["tools"]}) == 3


def declared(**body: Any) -> list[str]:
    rendered: Any = render(**body).body
    return [tool["function"]["name"] for tool in rendered.get("tools", [])]


LATER = {"name": "WebFetch", "input_schema": {"type": "object"}, "defer_loading": True}


@pytest.mark.req("C5.3")
def test_deferred_tools_are_left_out_until_something_refers_to_them() -> None:
    reference = result("t1", [{"type": "tool_reference", "tool_name": "WebFetch"}])
    search = {
        "tool_references": [{"type": "tool_reference", "tool_name": "WebFetch"}],
        "type": "tool_search_tool_search_result",
    }
    added = {
        "role": "system",
        "content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "WebFetch"}}],
    }
    gone = {"role": "system", "content": [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "Read"}}]}
    inline = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": LATER | {"name": "New"}}}
    tools = [TOOL, LATER]
    assert declared(tools=tools) == ["Read"]
    assert declared(tools=tools, messages=[HI, assistant(use("t1")), user(reference)]) == ["Read", "WebFetch"]
    assert declared(tools=tools, messages=[HI, assistant(use("t1", "WebFetch")), user(result("t1"))]) == [
        "Read",
        "WebFetch",
    ]
    found = {"type": "tool_search_tool_result", "tool_use_id": "s", "content": search}
    assert declared(tools=tools, messages=[HI, assistant(found), HI]) == ["Read", "WebFetch"]
    assert declared(tools=tools, messages=[HI, added]) == ["Read", "WebFetch"]
    assert declared(tools=tools, messages=[HI, gone]) == []
    assert declared(tools=tools, messages=[HI, {"role": "system", "content": [inline]}]) == ["Read", "New"]


@pytest.mark.parametrize(
    ("tools", "choice", "says"),
    [
        ([{"type": "web_search_20250305", "name": "web_search"}], None, "web_search_20250305"),
        ([TOOL], {"type": "tool", "name": "Write"}, "no tool 'Write'"),
        ([TOOL | {"name": f"t{number}"} for number in range(129)], None, "129 of them"),
        ([{"type": "bash_20250124", "name": "bash"}], None, "custom tools"),
        ([], {"type": "any"}, "none is declared"),
    ],
)
def test_tools_that_cannot_be_said_are_refused(tools: list[Any], choice: Any, says: str) -> None:
    with pytest.raises(BridgeError, match=says):
        render(tools=tools, tool_choice=choice)


def test_strict_tools_only_where_they_are_enforced() -> None:
    schema = {
        "type": "object",
        "properties": {"p": {"type": "string"}},
        "required": ["p"],
        "additionalProperties": False,
    }
    strict = TOOL | {"strict": True, "input_schema": schema}
    enforced: Any = render(tools=[strict]).body
    assert enforced["tools"][0]["function"]["strict"] is True
    optional = strict | {"input_schema": schema | {"required": []}}
    misfit = render(tools=[optional])
    assert "strict" not in misfit.body["tools"][0]["function"]  # type: ignore[index,call-overload]
    assert "strict: strict mode not used: optional properties" in misfit.losses
    loose = render("local", "llama-3", tools=[strict])
    assert "strict" not in loose.body["tools"][0]["function"]  # type: ignore[index,call-overload]
    assert any(loss.startswith("strict") for loss in loose.losses)


@pytest.mark.req("C5.1", "C5.5")
@pytest.mark.parametrize(
    ("provider", "model", "body", "expected", "lost"),
    [
        ("openai", "gpt-4o", {}, {"max_tokens": 100}, ()),
        ("openai", "gpt-5", {}, {"max_completion_tokens": 100}, ()),
        ("openai", "o3-mini", {}, {"max_completion_tokens": 100}, ()),
        ("local", "llama-3", {"max_tokens": 128000}, {"max_tokens": 128000}, ()),
        ("openai", "gpt-4o", {"max_tokens": 128000}, {"max_tokens": 16384}, ("max_tokens",)),
        (
            "openai",
            "gpt-4o",
            {"temperature": 0.5, "top_p": 0.9},
            {"max_tokens": 100, "temperature": 0.5, "top_p": 0.9},
            (),
        ),
        ("openai", "gpt-5", {"temperature": 0.5, "top_k": 5}, {"max_completion_tokens": 100}, ("temperature", "top_k")),
        ("openrouter", "meta/llama", {"top_k": 5}, {"max_tokens": 100, "top_k": 5}, ()),
        ("openai", "gpt-4o", {"stop_sequences": ["a", "b"]}, {"max_tokens": 100, "stop": ["a", "b"]}, ()),
        (
            "openai",
            "gpt-4o",
            {"stop_sequences": list("abcde")},
            {"max_tokens": 100, "stop": list("abcd")},
            ("stop_sequences",),
        ),
        ("openai", "o3", {"stop_sequences": ["a"]}, {"max_completion_tokens": 100}, ("stop_sequences",)),
        (
            "openai",
            "gpt-5",
            {"output_config": {"effort": "low"}},
            {"max_completion_tokens": 100, "reasoning_effort": "low"},
            (),
        ),
        (
            "openai",
            "gpt-5",
            {"output_config": {"effort": "max"}},
            {"max_completion_tokens": 100, "reasoning_effort": "high"},
            ("effort",),
        ),
        (
            "openai",
            "gpt-5",
            {"thinking": {"type": "disabled"}},
            {"max_completion_tokens": 100, "reasoning_effort": "minimal"},
            (),
        ),
        (
            "openai",
            "gpt-5",
            {"thinking": {"type": "enabled", "budget_tokens": 31999}},
            {"max_completion_tokens": 100, "reasoning_effort": "high"},
            (),
        ),
        (
            "openai",
            "gpt-4o",
            {"thinking": {"type": "enabled", "budget_tokens": 2000}},
            {"max_tokens": 100},
            ("thinking",),
        ),
        (
            "openai",
            "gpt-5.4",
            {"output_config": {"effort": "high"}},
            {"max_completion_tokens": 100, "reasoning_effort": "high"},
            (),
        ),
        (
            "openrouter",
            "openai/gpt-5",
            {"output_config": {"effort": "xhigh"}},
            {"max_tokens": 100, "reasoning": {"effort": "xhigh"}},
            (),
        ),
        (
            "openrouter",
            "anthropic/claude-x",
            {"thinking": {"type": "enabled", "budget_tokens": 2000}},
            {"max_tokens": 100, "reasoning": {"max_tokens": 2000}},
            (),
        ),
        (
            "openrouter",
            "openai/gpt-5",
            {"metadata": {"castari": {"reasoning": {"effort": "high", "exclude": True}}}},
            {"max_tokens": 100, "reasoning": {"effort": "high", "exclude": True}},
            (),
        ),
        (
            "openrouter",
            "openai/gpt-5",
            {"thinking": {"type": "disabled"}},
            {"max_tokens": 100, "reasoning": {"enabled": False}},
            (),
        ),
        (
            "gemini",
            "gemini-2.5-pro",
            {"output_config": {"effort": "medium"}},
            {"max_tokens": 100, "reasoning_effort": "medium"},
            (),
        ),
        (
            "gemini",
            "gemini-3-pro",
            {"output_config": {"effort": "xhigh"}},
            {"max_tokens": 100, "reasoning_effort": "high"},
            ("effort",),
        ),
        ("gemini", "gemini-3-pro", {"thinking": {"type": "disabled"}}, {"max_tokens": 100}, ("thinking",)),
        (
            "deepseek",
            "deepseek-v4",
            {"thinking": {"type": "disabled"}},
            {"max_tokens": 100, "thinking": {"type": "disabled"}},
            (),
        ),
        ("openai", "gpt-4o", {"service_tier": "standard_only"}, {"max_tokens": 100, "service_tier": "default"}, ()),
        ("local", "llama-3", {"service_tier": "standard_only"}, {"max_tokens": 100}, ("service_tier",)),
        ("openai", "gpt-4o", {"metadata": {"user_id": "ann"}}, {"max_tokens": 100, "user": "ann"}, ()),
        ("openai", "gpt-4o", {"context_management": {"edits": []}}, {"max_tokens": 100}, ("context_management",)),
    ],
)
def test_parameters_by_what_the_model_takes(
    provider: str, model: str, body: dict[str, Any], expected: dict[str, Any], lost: tuple[str, ...]
) -> None:
    rendered = render(provider, model, **body)
    said = {key: value for key, value in rendered.body.items() if key not in ("model", "messages")}
    assert said == expected
    assert [loss.partition(":")[0] for loss in rendered.losses] == list(lost)


@pytest.mark.req("C5.5")
def test_openai_models_that_refuse_tools_with_reasoning() -> None:
    rendered = render(model="gpt-5.6-sol", tools=[TOOL], output_config={"effort": "high"})
    assert rendered.body["reasoning_effort"] == "none"
    assert any("refuses reasoning together with tools" in loss for loss in rendered.losses)
    with pytest.raises(BridgeError, match="only on its Responses API"):
        render(model="gpt-6-astra", tools=[TOOL])
    assert "reasoning_effort" not in render(model="gpt-6-astra").body


def test_deepseek_is_not_asked_to_think_about_a_forced_tool() -> None:
    rendered = render(
        "deepseek", "deepseek-v4", tools=[TOOL], tool_choice={"type": "any"}, output_config={"effort": "high"}
    )
    assert rendered.body["thinking"] == {"type": "disabled"}
    assert rendered.body["tool_choice"] == "required"


def test_a_long_user_id_becomes_a_digest() -> None:
    rendered = render(metadata={"user_id": "x" * 300})
    assert len(str(rendered.body["user"])) == 64


def test_an_output_format_is_a_response_format() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    rendered = render(output_config={"format": {"type": "json_schema", "schema": schema}})
    assert rendered.body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "output", "schema": schema, "strict": True},
    }


def test_cache_marks_go_where_they_are_understood() -> None:
    marked = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    kept: Any = render("openrouter", "anthropic/claude-x", system=[marked]).body
    assert kept["messages"][0]["content"] == [marked]
    dropped = render(system=[marked])
    assert dropped.body["messages"][0]["content"] == "Be brief."  # type: ignore[index,call-overload]
    assert any(loss.startswith("cache_control") for loss in dropped.losses)


@pytest.mark.parametrize(
    ("provider", "model", "field"),
    [("openai", "gpt-5", "prompt_cache_key"), ("openrouter", "meta/llama", "session_id"), ("local", "llama-3", None)],
)
def test_the_conversation_names_the_prompt_cache(provider: str, model: str, field: str | None) -> None:
    body = render(provider, model, cache_key="k" * 32).body
    assert [key for key in ("prompt_cache_key", "session_id") if key in body] == ([field] if field else [])


def test_fields_without_a_place_are_reported_by_name() -> None:
    block = {"type": "text", "text": "Hi", "citations": []}
    rendered = render(
        messages=[{"role": "user", "content": [block], "clear_at": "never"}], tools=[TOOL | {"input_examples": []}]
    )
    names = {loss.partition(":")[0] for loss in rendered.losses}
    assert {"text.citations", "message.clear_at", "tool.input_examples"} <= names


def test_an_empty_conversation_is_refused() -> None:
    with pytest.raises(BridgeError, match="nothing in them to answer"):
        messages(user(text("")))
    with pytest.raises(BridgeError, match=r"messages\.0\.content: Field required"):
        messages({"role": "user"})
