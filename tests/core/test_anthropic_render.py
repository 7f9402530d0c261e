"""Canonical requests -> Messages requests: what Claude is asked, by model and by Anthropic's rules."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from anthropic.types.beta.message_create_params import MessageCreateParamsNonStreaming
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from bridge.canonical import content as canonical
from bridge.canonical.content import CacheMark, Replay, Text, ToolResult, ToolUse
from bridge.canonical.json import dumps
from bridge.canonical.request import OutputFormat, Reasoning, Request, ServerTool, Tool, ToolChoice, Turn
from bridge.canonical.target import Target
from bridge.canonical.words import NO_RESULT
from bridge.errors import BridgeError
from bridge.protocols.anthropic.claude import claude_of
from bridge.protocols.anthropic.parse_request import parse_request
from bridge.protocols.anthropic.render_request import render_request
from bridge.schemas.anthropic import adapt_enforced, adapt_input
from support import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.canonical.content import Block
    from bridge.canonical.reading import Rendered

OPUS = "claude-opus-5-5"
SONNET5 = "claude-sonnet-5"
OPUS46 = "claude-opus-4-6"
OPUS45 = "claude-opus-4-5"
SONNET45 = "claude-sonnet-4-5"
SONNET4 = "claude-sonnet-4-20250514"
OLD = "claude-3-5-haiku-20241022"
HI = Turn("user", (Text("Hi"),))


def user(*blocks: Block | str) -> Turn:
    return Turn("user", tuple(Text(block) if isinstance(block, str) else block for block in blocks))


def assistant(*blocks: Block | str) -> Turn:
    return replace(user(*blocks), role="assistant")


def system(*blocks: Block | str) -> Turn:
    return replace(user(*blocks), role="system")


def call(tool_id: str = "t1", name: str = "f", replay: Any = None) -> ToolUse:
    return ToolUse(tool_id, name, {}, replay=Replay(call=replay) if replay else None)


def result(tool_id: str = "t1", text: str = "ok") -> ToolResult:
    return ToolResult(tool_id, (Text(text),))


def rendered(*turns: Turn, model: str = SONNET45, marks_cache: bool = False, **fields: Any) -> Rendered:
    request = Request(model, turns or (HI,), fields.pop("max_tokens", 100), **fields)
    return render_request(request, Target("acme", model, marks_cache=marks_cache))


def body_of(*turns: Turn, **fields: Any) -> Any:
    return rendered(*turns, **fields).body


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


# --- what clients of Anthropic send comes back as it was


def recordings() -> list[Path]:
    found = [path for path in sorted((FIXTURES / "wire").glob("*/*/*.json")) if _is_messages(path)]
    assert len(found) > 25
    return found


def _is_messages(path: Path) -> bool:
    recorded = json.loads(path.read_text())
    is_continued = "continue" in json.dumps(recorded["body"].get("thread"))  # the history is elsewhere
    return recorded["path"].partition("?")[0] == "/v1/messages" and not is_continued


def as_rendered(request: Request) -> Request:
    """The request with everything in it that rendering changes on purpose."""
    turns: list[Turn] = []
    for turn in request.turns:
        blocks = _without_unsigned_thinking(turn)
        if turn.role == "system":
            said = "\n\n".join(block.text for block in blocks if isinstance(block, Text))
            marks = [block.cache for block in blocks if isinstance(block, Text) and block.cache]
            blocks = (Text(f"<system>\n{said}\n</system>", marks[-1] if marks else None),) if said else ()
        role = "assistant" if turn.role == "assistant" else "user"
        if turns and turns[-1].role == role:
            turns[-1] = Turn(role, turns[-1].content + blocks)
        elif blocks:
            turns.append(Turn(role, blocks))
    return replace(
        request,
        turns=tuple(_results_in_order(turns)),
        tools=tuple(_closed_if_strict(tool) for tool in request.tools),
        reasoning=_told_reasoning(request),
        extras={name: value for name, value in request.extras.items() if name == "context_management"},
        unread=(),
    )


def _without_unsigned_thinking(turn: Turn) -> tuple[Block, ...]:
    return tuple(block for block in turn.content if not (isinstance(block, canonical.Thinking) and not block.signature))


def _results_in_order(turns: list[Turn]) -> list[Turn]:
    ordered = turns[:1]
    for before, turn in pairwise(turns):
        order = [block.id for block in before.content if isinstance(block, ToolUse)]
        results = [block for block in turn.content if isinstance(block, ToolResult)]
        results.sort(key=lambda block: order.index(block.tool_use_id))
        rest = tuple(block for block in turn.content if not isinstance(block, ToolResult))
        ordered.append(Turn(turn.role, (*results, *rest)))
    return ordered


def _closed_if_strict(tool: Tool | ServerTool) -> Tool | ServerTool:
    if isinstance(tool, ServerTool) or not tool.strict:
        return tool
    return replace(tool, input_schema=tool.input_schema | {"additionalProperties": False})


def _told_reasoning(request: Request) -> Reasoning:
    """An effort is a wish to think; a budget goes when the thinking that led to the calls is not there."""
    reasoning = request.reasoning
    if reasoning.effort:
        return replace(reasoning, enabled=True)
    ends_in_results = any(isinstance(block, ToolResult) for block in request.turns[-1].content)
    return Reasoning() if reasoning.budget_tokens and ends_in_results else reasoning


@pytest.mark.req("C5.1", "C5.2", "C5.3")
@pytest.mark.parametrize("path", recordings(), ids=lambda path: "-".join(path.parts[-3:]).removesuffix(".json"))
def test_what_is_parsed_renders_back(path: Path) -> None:
    request = parse_request(dumps(json.loads(path.read_text())["body"]))
    said = render_request(request, Target("anthropic", request.model))
    assert parse_request(dumps(said.body)) == as_rendered(request)


RICH = Request(
    OPUS,
    (
        user(
            Text("Look", CacheMark("1h")),
            canonical.Image(canonical.Base64Source("image/png", "AAAA"), CacheMark()),
            canonical.Image(canonical.UrlSource("https://example.org/a.png")),
            canonical.Image(canonical.FileSource("file_1")),
            canonical.Document(canonical.Base64Source("application/pdf", "AAAA"), "Title", "Context", CacheMark()),
            canonical.Document(canonical.UrlSource("https://example.org/a.pdf")),
            canonical.Document(canonical.FileSource("file_2")),
            canonical.Document((Text("plain"),), "Plain"),
            canonical.Document((Text("a"), canonical.Image(canonical.UrlSource("https://example.org/b.png")))),
        ),
        assistant(
            canonical.Thinking("hm", "sig"),
            canonical.RedactedThinking("enc"),
            "Looking.",
            ToolUse("t1", "f", {"a": [1, None, {"b": "c"}]}, CacheMark()),
            ToolUse("t2", "g", {}),
        ),
        user(
            ToolResult(
                "t1",
                (
                    Text("x"),
                    canonical.Image(canonical.UrlSource("https://e.org/c.png")),
                    canonical.ToolReference("late"),
                ),
                is_error=True,
                cache=CacheMark(),
            ),
            ToolResult("t2", (canonical.Document((Text("doc"),), "D"),)),
            "And now?",
        ),
        assistant(
            canonical.ServerBlock(
                "server_tool_use", {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
            ),
            "Done.",
        ),
        Turn("system", (canonical.ToolChange("add", "new", Tool("new", {"type": "object", "properties": {}})),)),
        user("Thanks"),
    ),
    1000,
    system=(Text("Be kind", CacheMark()),),
    tools=(
        Tool("f", {"type": "object", "properties": {"a": {}}}, "Does f", cache=CacheMark()),
        Tool("g", {"type": "object", "properties": {}}, strict=False),
        Tool("late", {"type": "object", "properties": {}}, deferred=True),
        ServerTool("web_search_20250305", "web_search", {"max_uses": 3}),
        ServerTool("mcp_toolset", "", {"mcp_server_name": "m"}),
    ),
    tool_choice=ToolChoice("auto", parallel=False),
    stop_sequences=("END",),
    reasoning=Reasoning(enabled=True, effort="high"),
    output_format=OutputFormat({"type": "object", "properties": {}, "additionalProperties": False}),
    user_id="u",
    service_tier="standard_only",
)


@pytest.mark.req("C5.1", "C5.2", "C5.3")
def test_everything_that_the_canonical_form_holds_renders_back() -> None:
    said = render_request(RICH, Target("anthropic", OPUS))
    assert parse_request(dumps(said.body)) == RICH
    assert said.losses == ()


def settled(value: Any) -> Any:
    """The value with everything in it looked at: the SDK's types check lists only when they are read."""
    if isinstance(value, dict):
        return {name: settled(inner) for name, inner in value.items()}
    return value if isinstance(value, str) or not isinstance(value, Iterable) else [settled(item) for item in value]


@pytest.mark.req("G1")
@pytest.mark.parametrize("request_", [RICH, replace(RICH, model=SONNET45, tool_choice=ToolChoice("tool", "f"))])
def test_the_sdks_own_types_hold_what_is_rendered(request_: Request) -> None:
    body = render_request(request_, Target("anthropic", request_.model)).body
    assert settled(TypeAdapter(MessageCreateParamsNonStreaming).validate_python(body)) == body


# --- messages

words = st.sampled_from(["", " ", "one", "two"]).map(Text)
said_by_claude = st.one_of(
    words,
    st.builds(call, st.sampled_from(["a", "b", "c|" + "x" * 70])),
    st.builds(canonical.Thinking, st.just("hm"), st.sampled_from(["", "s"])),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Turn]:
    """Rounds with some of the results, in any order, between words of the user and the system."""
    turns: list[Turn] = []
    for spoken in draw(st.lists(st.lists(said_by_claude, max_size=4), max_size=4)):
        calls = draw(st.permutations([block.id for block in spoken if isinstance(block, ToolUse)]))
        given_back = [result(tool_id) for tool_id in calls[: draw(st.integers(0, 4))]]
        following = draw(st.permutations([*given_back, *draw(st.lists(words, max_size=2))]))
        turns += [assistant(*spoken), system(*draw(st.lists(words, max_size=1))), user(*following)]
    return turns


@pytest.mark.req("R4", "R5", "R6", "S5", "S6")
@given(turns=histories())
@settings(max_examples=200)
def test_whatever_the_history_is_the_messages_follow_anthropics_rules(turns: list[Turn]) -> None:
    messages = body_of(*turns, user("Go on"))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * (len(messages) // 2) + ["user"]
    answered: list[str] = []
    for before, message in pairwise([{"content": []}, *messages]):
        calls = [block["id"] for block in before["content"] if block["type"] == "tool_use"]
        first = message["content"][: len(calls)]
        assert [block.get("tool_use_id") for block in first] == calls
        assert all(block["type"] != "tool_result" for block in message["content"][len(calls) :])
        assert all(block["text"].strip() for block in message["content"] if block["type"] == "text")
        assert message["role"] == "user" or message["content"][-1]["type"] != "thinking"
        answered += calls
    assert len(answered) == len(set(answered))


@pytest.mark.req("R4", "R5", "R6")
def test_results_stand_first_in_the_order_of_the_calls() -> None:
    turns = (HI, assistant(call("a"), call("b")), user("well?", result("b", "2")), user(result("a", "1"), "go on"))
    last = body_of(*turns)["messages"][-1]
    assert [block.get("tool_use_id", block.get("text")) for block in last["content"]] == ["a", "b", "well?", "go on"]


@pytest.mark.req("S5")
def test_a_call_without_a_result_gets_a_neutral_one() -> None:
    said = rendered(HI, assistant(call("a"), call("b")), user(result("b")))
    first = said.body["messages"][-1]["content"][0]
    assert first == {"type": "tool_result", "tool_use_id": "a", "content": [text(NO_RESULT)]}
    assert said.losses == ("tool_use without a result: a neutral result stands in",)


@pytest.mark.req("S5")
def test_a_history_that_begins_with_the_assistant_gets_a_user_message_first() -> None:
    messages = body_of(assistant("Hello"), user("Hi"))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[0]["content"] == [text("(Earlier messages are not shown.)")]


def test_neighbours_of_one_role_are_one_message() -> None:
    turns = (user("a"), user("b"), assistant("c"), assistant("d"), user("e"))
    assert body_of(*turns)["messages"] == [
        {"role": "user", "content": [text("a"), text("b")]},
        {"role": "assistant", "content": [text("c"), text("d")]},
        {"role": "user", "content": [text("e")]},
    ]


@pytest.mark.req("R2")
def test_system_turns_in_the_middle_are_marked_words_of_the_user() -> None:
    messages = body_of(HI, assistant("Yes"), system("Be brief", "and kind"), user("Go"))["messages"]
    assert messages[-1]["content"] == [text("<system>\nBe brief\n\nand kind\n</system>"), text("Go")]


def test_blank_texts_are_left_out_and_told_of() -> None:
    said = rendered(user("", " \n", "Hi"), assistant("", "Yes"), user("Go"), system=(Text(""), Text("S")))
    assert said.body["messages"][0]["content"] == [text("Hi")]
    assert said.body["system"] == [text("S")]
    assert said.losses == ("text: Anthropic takes none that is only white space",)


@pytest.mark.parametrize("turns", [(user(" "),), (assistant(""), user("")), (system(),)])
def test_a_request_that_says_nothing_is_refused(turns: tuple[Turn, ...]) -> None:
    with pytest.raises(BridgeError, match="nothing in them to answer"):
        body_of(*turns)


def test_an_empty_result_has_no_content() -> None:
    turns = (HI, assistant(call()), user(ToolResult("t1", (Text(""),))))
    assert body_of(*turns)["messages"][-1]["content"] == [{"type": "tool_result", "tool_use_id": "t1"}]


@pytest.mark.req("FR5.1")
def test_an_error_without_words_gets_some() -> None:
    turns = (HI, assistant(call()), user(ToolResult("t1", is_error=True)))
    said = body_of(*turns)["messages"][-1]["content"][0]
    assert (said["is_error"], said["content"]) == (True, [text("no details")])


@pytest.mark.req("S6")
def test_ids_become_legal_and_unique_in_the_whole_request() -> None:
    long = "call|" + "x" * 80
    turns = (
        HI,
        assistant(call(long), call("a")),
        user(result(long), result("a")),
        assistant(call("a")),
        user(result("a")),
    )
    messages = body_of(*turns)["messages"]
    calls = [block["id"] for message in messages for block in message["content"] if block["type"] == "tool_use"]
    answered = [b["tool_use_id"] for m in messages for b in m["content"] if b["type"] == "tool_result"]
    assert calls == answered
    assert len(set(calls)) == 3
    assert calls[1] == "a"
    assert all(len(one) <= 64 and one.replace("_", "").replace("-", "").isalnum() for one in calls)


@pytest.mark.req("C5.3", "S6")
def test_names_become_legal_everywhere_and_are_read_back() -> None:
    name = "server.tool/" + "n" * 130
    tools = (Tool(name, {"type": "object", "properties": {}}), Tool("x" * 128, {"type": "object", "properties": {}}))
    turns = (HI, assistant(call(name=name)), user(ToolResult("t1", (canonical.ToolReference(name),))))
    said = rendered(*turns, tools=tools, tool_choice=ToolChoice("tool", name))
    body: Any = said.body
    wire = body["tools"][0]["name"]
    assert len(wire) <= 128
    assert body["tools"][1]["name"] == "x" * 128
    assert body["messages"][1]["content"][0]["name"] == wire
    assert body["messages"][2]["content"][0]["content"][0]["tool_name"] == wire
    assert body["tool_choice"]["name"] == wire
    assert said.reading.tool_names == {wire: name}


@pytest.mark.parametrize(
    ("block", "says"),
    [
        (canonical.Image(canonical.Base64Source("image/tiff", "AAAA")), "JPEG, PNG, GIF and WebP"),
        (canonical.Document(canonical.Base64Source("application/msword", "AAAA")), "PDF and plain text"),
        (canonical.Document(canonical.Base64Source("text/plain", "/w==")), "not text"),
        (call(), "cannot stand in a user turn"),
    ],
)
def test_content_that_claude_cannot_read_is_refused(block: Block, says: str) -> None:
    with pytest.raises(BridgeError, match=says):
        body_of(user(block))


def test_a_text_file_in_base64_is_sent_as_text() -> None:
    data = base64.b64encode("schön".encode()).decode()
    source = body_of(user(canonical.Document(canonical.Base64Source("text/csv", data))))["messages"][0]["content"][0]
    assert source["source"] == {"type": "text", "media_type": "text/plain", "data": "schön"}


# --- prefill


@pytest.mark.req("C5.1")
def test_a_prefill_loses_the_white_space_at_its_end() -> None:
    said = rendered(HI, assistant("The answer is  \n"), reasoning=Reasoning(effort="high"), max_tokens=9000)
    assert said.body["messages"][-1]["content"] == [text("The answer is")]
    assert "thinking" not in said.body
    assert said.losses == ("thinking: left out: it does not go with an answer that the client begins",)


@pytest.mark.req("C5.1")
@pytest.mark.parametrize("model", [OPUS, OPUS46, "claude-sonnet-4-6", "claude-opus-4-8", "claude-fable-5-2"])
def test_models_that_take_no_prefill_say_so(model: str) -> None:
    with pytest.raises(BridgeError, match="end with a user message") as refused:
        body_of(HI, assistant("The answer is"), model=model)
    assert refused.value.status == 400


def test_a_paused_turn_is_no_prefill() -> None:
    block = canonical.ServerBlock("server_tool_use", {"type": "server_tool_use", "id": "s", "name": "w", "input": {}})
    assert body_of(HI, assistant(block), model=OPUS)["messages"][-1]["role"] == "assistant"


# --- thinking that comes back

SIGNED = {"type": "thinking", "thinking": "hm", "signature": "s"}
SECOND = {"type": "redacted_thinking", "data": "enc"}


def kinds(turns: tuple[Turn, ...], **fields: Any) -> list[str]:
    said = next(message for message in body_of(*turns, **fields)["messages"] if message["role"] == "assistant")
    return [block["type"] for block in said["content"]]


@pytest.mark.req("S3")
@pytest.mark.parametrize(
    ("replay", "expected"),
    [
        ({"thinking": [SIGNED], "after_text": False}, ["thinking", "text", "tool_use", "tool_use"]),
        ({"thinking": [SIGNED], "after_text": True}, ["text", "thinking", "tool_use", "tool_use"]),
        (
            {"thinking": [SIGNED, SECOND], "after_text": False, "before_text": 1},
            ["thinking", "text", "redacted_thinking", "tool_use", "tool_use"],
        ),
        ({"thinking": [SIGNED, {"type": "thinking"}, 5]}, ["thinking", "text", "tool_use", "tool_use"]),
        ({"thinking": "nonsense"}, ["text", "tool_use", "tool_use"]),
        ({"extra_content": {"google": {}}}, ["text", "tool_use", "tool_use"]),
    ],
)
def test_thinking_that_the_client_dropped_stands_where_it_stood(replay: Any, expected: list[str]) -> None:
    turns = (HI, assistant("Looking.", call("a", replay=replay), call("b")), user(result("a"), result("b")))
    assert kinds(turns) == expected


@pytest.mark.req("S3")
def test_the_thinking_of_a_later_call_stands_before_it() -> None:
    later = call("b", replay={"thinking": [SIGNED], "after_text": False})
    turns = (HI, assistant("Looking.", call("a"), later), user(result("a"), result("b")))
    assert kinds(turns) == ["text", "tool_use", "thinking", "tool_use"]


@pytest.mark.req("S3")
def test_thinking_that_the_client_gave_itself_is_not_doubled() -> None:
    replay = {"thinking": [SIGNED], "after_text": False}
    turns = (HI, assistant(canonical.Thinking("own", "sig"), call("a", replay=replay)), user(result("a")))
    assert kinds(turns) == ["thinking", "tool_use"]


@pytest.mark.req("S3", "S4")
def test_unsigned_thinking_makes_room_for_the_signed() -> None:
    replay = {"thinking": [SECOND], "after_text": False}
    said = rendered(HI, assistant(canonical.Thinking("own"), call("a", replay=replay)), user(result("a")))
    content: Any = said.body["messages"][1]["content"]
    assert [block["type"] for block in content] == ["redacted_thinking", "tool_use"]
    assert said.losses == ("thinking: without a signature of Claude it is not taken back",)


def test_thinking_that_nothing_follows_is_left_out() -> None:
    said = rendered(HI, assistant("Yes", canonical.Thinking("own", "sig")), user("Go"))
    assert said.losses == ("thinking: nothing that it led to follows",)


# --- how much to think


@pytest.mark.req("C5.5")
@pytest.mark.parametrize(
    ("model", "reasoning", "thinking", "effort"),
    [
        (OPUS, Reasoning(), None, None),
        (OPUS, Reasoning(effort="high"), {"type": "adaptive", "display": "summarized"}, "high"),
        (OPUS, Reasoning(effort="xhigh", exclude=True), {"type": "adaptive", "display": "omitted"}, "xhigh"),
        (OPUS, Reasoning(enabled=True), {"type": "adaptive", "display": "summarized"}, None),
        (OPUS, Reasoning(effort="minimal"), {"type": "adaptive", "display": "summarized"}, "low"),
        (OPUS, Reasoning(effort="none"), None, "low"),
        (SONNET5, Reasoning(effort="none"), {"type": "disabled"}, None),
        (SONNET5, Reasoning(enabled=False), {"type": "disabled"}, None),
        (SONNET5, Reasoning(budget_tokens=2000), {"type": "adaptive", "display": "summarized"}, "low"),
        (OPUS46, Reasoning(effort="xhigh"), {"type": "adaptive"}, "high"),
        (OPUS46, Reasoning(effort="max"), {"type": "adaptive"}, "max"),
        (OPUS46, Reasoning(effort="none"), None, None),
        (OPUS45, Reasoning(effort="high"), {"type": "enabled", "budget_tokens": 20_000}, "high"),
        (SONNET45, Reasoning(effort="minimal"), {"type": "enabled", "budget_tokens": 1024}, None),
        (SONNET45, Reasoning(effort="low"), {"type": "enabled", "budget_tokens": 4096}, None),
        (SONNET45, Reasoning(effort="max"), {"type": "enabled", "budget_tokens": 25_000}, None),
        (SONNET45, Reasoning(enabled=True), {"type": "enabled", "budget_tokens": 10_000}, None),
        (SONNET45, Reasoning(budget_tokens=30_000), {"type": "enabled", "budget_tokens": 30_000}, None),
        (SONNET45, Reasoning(budget_tokens=60_000), {"type": "enabled", "budget_tokens": 49_999}, None),
        (SONNET45, Reasoning(budget_tokens=10), {"type": "enabled", "budget_tokens": 1024}, None),
        (SONNET45, Reasoning(effort="none"), None, None),
        (SONNET45, Reasoning(enabled=False), {"type": "disabled"}, None),
        ("claude-3-7-sonnet-20250219", Reasoning(effort="low"), {"type": "enabled", "budget_tokens": 4096}, None),
        ("claude-3-opus-20240229", Reasoning(effort="high"), None, None),
    ],
)
def test_thinking_by_model(model: str, reasoning: Reasoning, thinking: Any, effort: str | None) -> None:
    body = body_of(model=model, reasoning=reasoning, max_tokens=50_000)
    assert body.get("thinking") == thinking
    assert body.get("output_config", {}).get("effort") == effort


@pytest.mark.req("C5.5")
@pytest.mark.parametrize(
    ("model", "fields", "loss"),
    [
        (SONNET45, {"max_tokens": 1000}, "thinking: left out: it takes 1024 tokens, and max_tokens is 1000"),
        (OLD, {}, "thinking: this model has none"),
        (OPUS, {"reasoning": Reasoning(effort="ultra")}, "reasoning: there is no such effort"),
        (OPUS46, {"reasoning": Reasoning(effort="xhigh")}, "reasoning: effort xhigh told as high"),
        (OPUS, {"reasoning": Reasoning(effort="none")}, "reasoning: this model always thinks; it is asked for little"),
        (OPUS, {"reasoning": Reasoning(budget_tokens=9)}, "thinking.budget_tokens: this model takes an effort instead"),
        (
            SONNET45,
            {"reasoning": Reasoning(budget_tokens=9000)},
            "thinking.budget_tokens: 9000 made 8999, to fit into max_tokens",
        ),
        (
            OPUS46,
            {"reasoning": Reasoning(effort="low", exclude=True)},
            "reasoning.exclude: this model shows what it thinks",
        ),
    ],
)
def test_thinking_that_cannot_be_had_as_asked_is_a_loss(model: str, fields: dict[str, Any], loss: str) -> None:
    said = rendered(model=model, **{"max_tokens": 9000, "reasoning": Reasoning(effort="high")} | fields)
    assert loss in said.losses


TOOLS = (Tool("f", {"type": "object", "properties": {}}),)


@pytest.mark.req("C5.3", "C5.5")
@pytest.mark.parametrize("choice", [ToolChoice("any"), ToolChoice("tool", "f")])
@pytest.mark.parametrize(
    ("model", "thinking", "forced"),
    [(SONNET45, None, True), (OPUS46, None, True), (SONNET5, {"type": "disabled"}, True), (OPUS, "adaptive", False)],
)
def test_a_forced_tool_and_thinking_do_not_go_together(
    model: str, thinking: Any, choice: ToolChoice, *, forced: bool
) -> None:
    reasoning = Reasoning(effort="high")
    said = rendered(model=model, tools=TOOLS, tool_choice=choice, reasoning=reasoning, max_tokens=9000)
    body: Any = said.body
    assert body["tool_choice"]["type"] == (choice.mode if forced else "auto")
    assert body.get("thinking") == thinking if forced else body["thinking"]["type"] == thinking
    assert any(("forced" in loss) for loss in said.losses)


@pytest.mark.req("S3", "C5.5")
@pytest.mark.parametrize(
    ("loop", "thinks"),
    [
        ((assistant(call()), user(result())), False),
        ((assistant(canonical.Thinking("hm", "s"), call()), user(result())), True),
        (
            (
                assistant(canonical.Thinking("hm", "s"), call()),
                user(result()),
                assistant(call("t2")),
                user(result("t2")),
            ),
            True,
        ),
        ((assistant(call()), user(result()), assistant("Done."), user("More")), True),
        (
            (
                assistant(canonical.Thinking("hm", "s"), call()),
                user(result()),
                assistant("Done."),
                user("More"),
                assistant(call("t2")),
                user(result("t2")),
            ),
            False,
        ),
    ],
    ids=["none", "there", "earlier-in-the-loop", "loop-is-over", "only-in-a-loop-before"],
)
def test_a_loop_whose_thinking_is_lost_goes_on_without(loop: tuple[Turn, ...], *, thinks: bool) -> None:
    said = rendered(HI, *loop, tools=TOOLS, reasoning=Reasoning(effort="low"), max_tokens=9000)
    assert ("thinking" in said.body) is thinks
    assert bool(said.losses) is not thinks
    adaptive = body_of(HI, *loop, tools=TOOLS, reasoning=Reasoning(effort="low"), max_tokens=9000, model=OPUS46)
    assert adaptive["thinking"] == {"type": "adaptive"}


# --- parameters


@pytest.mark.req("C5.1")
@pytest.mark.parametrize(
    ("model", "stream", "wanted", "expected"),
    [
        (OPUS, True, None, 32_000),
        (OPUS, False, None, 16_000),
        (OLD, True, None, 8192),
        (OPUS, True, 500_000, 128_000),
        (SONNET45, False, 64_000, 64_000),
        ("claude-3-haiku-20240307", False, 5000, 4096),
        ("something-new", True, None, 32_000),
    ],
)
def test_max_tokens_by_model(model: str, wanted: int | None, expected: int, *, stream: bool) -> None:
    said = rendered(model=model, stream=stream, max_tokens=wanted)
    assert said.body["max_tokens"] == expected
    assert bool(said.losses) is (wanted is not None and wanted > expected)
    assert said.body.get("stream", False) is stream


THINKS = Reasoning(effort="low")


@pytest.mark.req("C5.1")
@pytest.mark.parametrize(
    ("model", "reasoning", "given", "said", "lost"),
    [
        (
            SONNET4,
            None,
            {"temperature": 0.5, "top_p": 0.9, "top_k": 5},
            {"temperature": 0.5, "top_p": 0.9, "top_k": 5},
            0,
        ),
        (SONNET4, None, {"temperature": 1.5}, {"temperature": 1}, 1),
        (SONNET45, None, {"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5}, 1),
        (SONNET45, None, {"temperature": 0.5, "top_p": 1}, {"temperature": 0.5}, 0),
        (SONNET45, None, {"top_p": 0.9}, {"top_p": 0.9}, 0),
        (SONNET45, THINKS, {"temperature": 0.5, "top_k": 5}, {}, 2),
        (SONNET45, THINKS, {"temperature": 1, "top_p": 0.95}, {"top_p": 0.95}, 0),
        (SONNET45, THINKS, {"top_p": 0.9}, {}, 1),
        (OPUS46, None, {"temperature": 0.2}, {"temperature": 0.2}, 0),
        (OPUS46, THINKS, {"temperature": 0.2}, {}, 1),
        (OPUS, None, {"temperature": 1, "top_p": 1}, {}, 0),
        (OPUS, None, {"temperature": 0, "top_p": 0.5, "top_k": 1}, {}, 3),
        ("claude-opus-4-7", None, {"temperature": 0.3}, {}, 1),
    ],
)
def test_sampling_by_model(
    model: str, reasoning: Reasoning | None, given: dict[str, Any], said: dict[str, Any], lost: int
) -> None:
    whole = rendered(model=model, reasoning=reasoning or Reasoning(), max_tokens=9000, **given)
    assert {name: whole.body[name] for name in ("temperature", "top_p", "top_k") if name in whole.body} == said
    assert len(whole.losses) == lost


@pytest.mark.parametrize(
    ("tier", "said"),
    [
        ("auto", "auto"),
        ("default", "standard_only"),
        ("standard_only", "standard_only"),
        ("flex", None),
        ("priority", None),
    ],
)
def test_service_tiers_in_anthropics_words(tier: str, said: str | None) -> None:
    whole = rendered(service_tier=tier)
    assert whole.body.get("service_tier") == said
    assert bool(whole.losses) is (said is None)


def test_stop_sequences_of_white_space_are_lost() -> None:
    said = rendered(stop_sequences=("\n\n", "END"))
    assert said.body["stop_sequences"] == ["END"]
    assert said.reading.stop_sequences == ("\n\n", "END")
    assert said.losses == ("stop_sequences: Anthropic takes none that is only white space",)


@pytest.mark.req("C8")
def test_a_long_user_id_becomes_a_digest() -> None:
    assert body_of(user_id="u" * 256)["metadata"] == {"user_id": "u" * 256}
    said = body_of(user_id="u" * 257)["metadata"]["user_id"]
    assert len(said) == 64
    assert said == body_of(user_id="u" * 257)["metadata"]["user_id"]


def test_fields_that_anthropic_does_not_know_are_losses() -> None:
    said = rendered(extras={"container": "c", "speed": "fast", "logit_bias": {}}, unread=("message.name", "speed"))
    assert (said.body["container"], said.body["speed"]) == ("c", "fast")
    assert "logit_bias" not in said.body
    assert said.losses == (
        "logit_bias: this upstream has nothing like it",
        "message.name: this upstream has nothing like it",
    )


# --- output formats and schemas


@pytest.mark.req("C5.1")
def test_json_mode_is_asked_for_in_words() -> None:
    said = rendered(output_format=OutputFormat(None), system=(Text("Be kind"),))
    system: Any = said.body["system"]
    assert system[0] == text("Be kind")
    assert "one JSON object" in system[1]["text"]
    assert "output_config" not in said.body
    assert said.losses == ("response_format: json_object is asked for in words",)


def test_a_schema_that_cannot_be_enforced_is_asked_for_in_words() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    for model, schema in ((OPUS, tree), (SONNET4, {"type": "object", "properties": {"a": {"type": "string"}}})):
        said = rendered(output_format=OutputFormat(schema), model=model)
        system: Any = said.body["system"]
        assert json.dumps(schema, separators=(",", ":")) in system[0]["text"]
        assert "output_config" not in said.body
        assert "response_format: the schema is asked for in words, not enforced" in said.losses


def test_an_effort_and_a_format_share_the_output_config() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    body = body_of(model=OPUS, reasoning=Reasoning(effort="low"), output_format=OutputFormat(schema))
    assert body["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": schema}}


@pytest.mark.parametrize(
    ("schema", "adapted", "losses"),
    [
        ({"type": "integer", "minimum": 1}, {"type": "integer", "description": "{minimum: 1}"}, ["'minimum'"]),
        (
            {"type": "string", "description": "D", "maxLength": 3, "format": "date"},
            {"type": "string", "format": "date", "description": "D\n\n{maxLength: 3}"},
            ["'maxLength'"],
        ),
        ({"type": "string", "format": "phone"}, {"type": "string", "description": '{format: "phone"}'}, ["'format'"]),
        ({"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}, []),
        ({"type": "string", "enum": ["a", "b"]}, {"enum": ["a", "b"]}, []),
        ({"const": None, "title": "T"}, {"const": None, "title": "T"}, []),
        ({"oneOf": [{"type": "string"}]}, {"anyOf": [{"type": "string"}]}, []),
        ({"allOf": [{"$ref": "#/$defs/D"}], "title": "T"}, {"anyOf": [{"$ref": "#/$defs/D"}], "title": "T"}, []),
        (
            {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
            {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "{maxItems: 2}"},
            ["'maxItems'"],
        ),
        ({"type": "string", "default": "x"}, {"type": "string", "description": '{default: "x"}'}, []),
        (
            {"type": "object", "properties": {"b": {"type": "boolean"}}, "required": ["b", "c"], "$comment": "no"},
            {
                "type": "object",
                "properties": {"b": {"type": "boolean"}},
                "additionalProperties": False,
                "required": ["b"],
            },
            [],
        ),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            {
                "type": "object",
                "properties": {},
                "additionalProperties": False,
                "description": '{additionalProperties: {"type":"string"}}',
            },
            ["'additionalProperties'"],
        ),
    ],
)
def test_schemas_as_claude_can_be_held_to_them(schema: Any, adapted: Any, losses: list[str]) -> None:
    definitions = {"$defs": {"D": {"type": "string"}}}
    root = {"type": "object", "properties": {"a": schema}} | definitions
    said, told = adapt_enforced(root)
    assert (
        said
        == {
            "type": "object",
            "properties": {"a": adapted},
            "additionalProperties": False,
        }
        | definitions
    )
    assert [any(word in loss for word in losses) for loss in told] == [True] * len(losses)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"$ref": "#/$defs/A"}, "recursive schema"),
        ({"$ref": "https://example.org/schema"}, "not resolved"),
        ({}, "without a type"),
        (True, "not an object"),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, "allOf"),
    ],
)
def test_schemas_that_claude_cannot_be_held_to(schema: Any, says: str) -> None:
    definitions = {"A": {"anyOf": [{"$ref": "#/$defs/B"}]}, "B": {"type": "array", "items": {"$ref": "#/$defs/A"}}}
    root = {"type": "object", "properties": {"a": schema}} | ({"$defs": definitions} if says[0] == "r" else {})
    said, losses = adapt_enforced(root)
    assert said is None
    assert says in losses[0]


@pytest.mark.req("C5.3")
@pytest.mark.parametrize(
    ("model", "schema", "strict", "loss"),
    [
        (OPUS, {"type": "object", "properties": {"a": {"type": "string"}}}, True, None),
        (OPUS, {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}}, False, "'minimum'"),
        (OPUS, {"type": "object", "properties": {"a": {"type": "object"}}}, False, "open object"),
        (OPUS, {"type": "object", "properties": {"a": {}}}, False, "without a type"),
        (SONNET4, {"type": "object", "properties": {}}, False, "does not enforce"),
    ],
)
def test_tools_are_strict_only_where_their_schema_means_the_same(
    model: str, schema: Any, loss: str | None, *, strict: bool
) -> None:
    said = rendered(model=model, tools=(Tool("f", schema, strict=True),))
    tool: Any = said.body["tools"][0]
    assert tool["strict"] is strict
    assert tool["input_schema"] == (schema | {"additionalProperties": False} if strict else schema)
    assert [loss is not None and loss in one for one in said.losses] == ([True] if loss else [])


@pytest.mark.req("C5.3")
@pytest.mark.parametrize(
    ("schema", "adapted"),
    [
        ({}, {"type": "object", "properties": {}}),
        ({"type": "string"}, {"type": "object"}),
        (
            {"anyOf": [{"properties": {"a": {"type": "string"}}, "required": ["a", "b"]}, {"required": ["b"]}]},
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]},
        ),
        (
            {
                "allOf": [{"$ref": "#/$defs/A"}, {"properties": {"b": {}}, "required": ["b"]}],
                "$defs": {"A": {"properties": {"a": {}}, "required": ["a"]}},
                "description": "D",
            },
            {
                "type": "object",
                "properties": {"a": {}, "b": {}},
                "required": ["a", "b"],
                "$defs": {"A": {"properties": {"a": {}}, "required": ["a"]}},
                "description": "D",
            },
        ),
    ],
)
def test_the_root_of_a_tool_schema_is_an_object_without_alternatives(schema: Any, adapted: Any) -> None:
    said, losses = adapt_input(schema)
    assert said == adapted
    assert bool(losses) is bool(schema)


def test_a_demanded_tool_has_to_be_there() -> None:
    with pytest.raises(BridgeError, match="none is declared"):
        body_of(tool_choice=ToolChoice("any"))
    with pytest.raises(BridgeError, match="there is no tool 'g'"):
        body_of(tools=TOOLS, tool_choice=ToolChoice("tool", "g"))
    assert "tool_choice" not in body_of(tool_choice=ToolChoice("auto"))


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (ToolChoice("auto"), {"type": "auto"}),
        (ToolChoice("auto", parallel=False), {"type": "auto", "disable_parallel_tool_use": True}),
        (ToolChoice("none", parallel=False), {"type": "none"}),
        (ToolChoice("any", parallel=False), {"type": "any", "disable_parallel_tool_use": True}),
        (ToolChoice("tool", "f"), {"type": "tool", "name": "f"}),
    ],
)
def test_tool_choices(choice: ToolChoice, said: Any) -> None:
    assert body_of(tools=TOOLS, tool_choice=choice)["tool_choice"] == said


# --- cache marks

MARK = {"type": "ephemeral"}


def marks(body: Any) -> list[Any]:
    blocks = [*body.get("tools", ()), *body.get("system", ()), *(b for m in body["messages"] for b in m["content"])]
    return [block.get("name") or block.get("text") or block["type"] for block in blocks if "cache_control" in block]


def test_the_prompt_is_marked_where_the_client_cannot() -> None:
    tools = (*TOOLS, Tool("g", {"type": "object", "properties": {}}), Tool("h", {"type": "object"}, deferred=True))
    turns = (user("a"), assistant("b"), user("c", "d"), assistant(call()), user(result()))
    body = body_of(*turns, tools=tools, system=(Text("S"), Text("T")), marks_cache=True)
    assert marks(body) == ["g", "T", "d", "tool_result"]
    assert body["tools"][1]["cache_control"] == MARK


@pytest.mark.parametrize(
    "fields",
    [
        {"system": (Text("S", CacheMark()),)},
        {"tools": (replace(TOOLS[0], cache=CacheMark()),)},
        {"tools": (ServerTool("web_search_20250305", "web_search", {"cache_control": MARK}),)},
    ],
)
def test_a_client_that_marks_by_itself_keeps_its_marks(fields: dict[str, Any]) -> None:
    assert len(marks(body_of(marks_cache=True, **fields))) == 1


def test_a_mark_inside_a_result_counts_as_the_clients() -> None:
    turns = (HI, assistant(call()), user(ToolResult("t1", (Text("x", CacheMark()),))))
    assert marks(body_of(*turns, marks_cache=True)) == []


def test_marking_never_changes_the_request_itself() -> None:
    block = canonical.ServerBlock("container_upload", {"type": "container_upload", "file_id": "f"})
    assert marks(body_of(user(block), marks_cache=True)) == ["container_upload"]
    assert "cache_control" not in block.raw


# --- the data file


@pytest.mark.parametrize(
    ("name", "thinking", "prefill", "most"),
    [
        ("claude-opus-4-20250514", "budget", True, 32_000),
        ("claude-opus-4-1-20250805", "budget", True, 32_000),
        ("anthropic.claude-opus-4-6-v1", "adaptive", False, 128_000),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", "budget", True, 64_000),
        ("claude-sonnet-4@20250514", "budget", True, 64_000),
        ("anthropic/claude-sonnet-4.6", "adaptive", False, 128_000),
        ("claude-haiku-5-5", "adaptive", False, 128_000),
        ("claude-mythos-preview", "adaptive", False, 128_000),
        ("claude-3-5-sonnet-latest", "none", True, 8192),
        ("claude-quartet-9", "adaptive", False, 128_000),
    ],
)
def test_models_are_known_by_the_names_that_clouds_give_them(
    name: str, thinking: str, most: int, *, prefill: bool
) -> None:
    claude = claude_of(name)
    assert (claude.thinking, claude.prefill, claude.max_output_tokens) == (thinking, prefill, most)
