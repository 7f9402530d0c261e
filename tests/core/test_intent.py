"""The read-only intent: which words ask for reading only, and which tools are left then."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Any

import pytest

from bridge.canonical.content import Text, ToolChange, ToolResult, ToolUse
from bridge.canonical.request import Request, ServerTool, Tool, ToolChoice, Turn
from bridge.policies.chain import PolicySettings, apply_policies
from bridge.policies.intent import MAX_CHARACTERS, wants_only_to_read

READING = [
    "Read README and summarize.",
    "re-read README",
    "Explain what this function does",
    "EXPLAIN THIS",
    "Can you summarise the changes in the repo?",
    "List all the files in src",
    "What does the pipeline do?",
    "why does it crash?",
    "Walk me through the tests",
    "Explain the fix",
    "describe the last commit",
    "Show me the updated files",
    "Summarize the README, don't edit anything",
    "don’t write or run anything, just explain",
    "Summarize it without changing any files",
    "Read it. Do not modify, create or delete files.",
    "Explain it instead of fixing it",
    "Never edit or run, or delete anything: explain",
    "Please explain update.py",
    "Please explain src/edit/write.ts.",
    "What does `run` do?",
    "Explain this:\n```python\ndef write(): run()\n```",
    "Read https://example.com/edit and explain",
    "解释这段代码",
    "总结一下 README",
    "请总结README，不要修改任何文件",
    "列出所有测试用例",
    "阅读README并总结,别改",
    "查看并分析这些改动",
    "请 read 一下 README 并总结",
    "read一下这个文件",
    "请解释update.py",
    "介绍一下项目的实现",
    "只解释，不修改",
    "不要编辑、删除或运行任何东西，只需解释",
]
NOT_READING = [
    "",
    "Hello",
    "continue",
    "Update the docs",
    "Read README and fix the typos",
    "Read README.Fix the typos",
    "Summarize the file and write it to NOTES.md",
    "Explain it and run the tests",
    "Don't just explain, fix it",
    "not only explain but also fix it",
    "Explain the bug, and don't forget to update the changelog",
    "Why don't you fix it and show me",
    "Don't edit the tests, but fix the code and explain",
    "show me how and do the update",
    "Review it, then go ahead",
    "Read the thread, fix/update it",
    "Don't read it",
    "Don't explain, fix it and show me",
    "Don't edit it, run it and show me",
    "Don't you want to fix it? Show me.",
    "Don't explain",
    "spread the word",
    "a realistic blacklist",
    "阅读README并修改错别字",
    "解释并修复这个bug",
    "能不能看看并修改一下",
    "总结一下并写到文件里",
    "别忘了更新文档，然后总结",
    "运行测试并总结结果",
    "不工作,修复它并解释",
    "不要解释，修复它，然后告诉我",
    "解释一下，然后fix这个bug",
    "不要解释，继续",
    "你好",
]


def tool(name: str) -> Tool:
    return Tool(name, {"type": "object"})


TOOLS = tuple(tool(name) for name in ("Read", "Edit", "Bash", "Grep", "mcp__wiki__get_page"))
ON = PolicySettings(loop_guard="off", read_only_intent=True)


def user(*texts: str) -> Turn:
    return Turn("user", tuple(map(Text, texts)))


def asking(*turns: Turn | str, **more: Any) -> Request:
    said = tuple(user(turn) if isinstance(turn, str) else turn for turn in turns)
    return replace(Request("m", said, 100, tools=TOOLS), **more)


def left(request: Request, settings: PolicySettings = ON) -> list[str]:
    return [declared.name for declared in apply_policies(request, settings)[0].tools]


CALL = (Turn("assistant", (ToolUse("t1", "Bash", {}),)), Turn("user", (ToolResult("t1"),)))
ALL = [declared.name for declared in TOOLS]


@pytest.mark.req("RO")
@pytest.mark.parametrize("text", READING)
def test_asks_only_to_read(text: str) -> None:
    assert wants_only_to_read(text)


@pytest.mark.req("RO")
@pytest.mark.parametrize("text", NOT_READING)
def test_asks_for_more_or_for_nothing(text: str) -> None:
    assert not wants_only_to_read(text)


@pytest.mark.req("RO")
def test_long_material_is_not_judged_but_long_quoted_code_is_no_material() -> None:
    assert not wants_only_to_read("Summarize: " + "word " * MAX_CHARACTERS)
    assert wants_only_to_read("Explain:\n```\n" + "word " * MAX_CHARACTERS + "\n```")


@pytest.mark.req("RO", "C8")
@pytest.mark.parametrize("piece", ["a", "不", "`", "./", "a.b", "don't ", "no a a a ", "don't edit, ", "the edit "])
def test_judging_takes_time_in_proportion(piece: str) -> None:
    wants_only_to_read("warm up")
    started = perf_counter()
    wants_only_to_read(piece * (400_000 // len(piece)))
    wants_only_to_read(piece * (MAX_CHARACTERS // len(piece)))
    assert perf_counter() - started < 2


@pytest.mark.req("RO")
def test_only_reading_tools_stay_declared() -> None:
    request = asking("Explain the README.")
    assert left(request) == ["Read", "Grep"]
    assert left(request, replace(ON, read_only_tools=("mcp__*__get_*",))) == ["Read", "Grep", "mcp__wiki__get_page"]
    assert left(request, replace(ON, read_only_intent=False)) == ALL


@pytest.mark.req("RO")
@pytest.mark.parametrize(
    ("turns", "names"),
    [
        (("Explain the README.", *CALL), ["Read", "Grep"]),
        (("Explain the README.", Turn("assistant", (Text("Done."),)), "Now fix it."), ALL),
        (("Fix it.", Turn("assistant", (Text("Done."),)), "Explain."), ["Read", "Grep"]),
        ((user("<system-reminder>Edit nothing. Run the tests.</system-reminder>", "Explain."),), ["Read", "Grep"]),
        (("Explain.", user("<system-reminder>Fix it.</system-reminder>")), ["Read", "Grep"]),
        (("Explain.", Turn("system", (Text("Fix it."),))), ["Read", "Grep"]),
        ((CALL[0], Turn("user", (ToolResult("t1"), Text("Now fix it.")))), ALL),
        ((user("Explain this.", "And fix it."),), ALL),
        ((Turn("assistant", (Text("Explain."),)),), ALL),
    ],
    ids=[
        "through a tool loop", "until asked for more", "the latest text decides", "reminders ask for nothing",
        "a turn of reminders is no text", "nor is a system turn", "text beside a result", "all texts of a turn",
        "nobody asked",
    ],
)  # fmt: skip
def test_the_latest_user_text_decides(turns: tuple[Turn | str, ...], names: list[str]) -> None:
    assert left(asking(*turns)) == names


@pytest.mark.req("RO")
@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (ToolChoice("tool", "Edit", parallel=False), ToolChoice("auto", None, parallel=False)),
        (ToolChoice("tool", "Read"), ToolChoice("tool", "Read")),
        (ToolChoice("any"), ToolChoice("any")),
        (None, None),
    ],
    ids=["a removed tool", "a kept tool", "any", "unset"],
)
def test_a_demand_for_a_removed_tool_is_relaxed(choice: ToolChoice | None, expected: ToolChoice | None) -> None:
    request, _ = apply_policies(asking("Explain.", tool_choice=choice), ON)
    assert request.tool_choice == expected


@pytest.mark.req("RO")
def test_without_any_reading_tool_nothing_can_be_called() -> None:
    request, _ = apply_policies(asking("Explain.", tools=(tool("Edit"),), tool_choice=ToolChoice("any")), ON)
    assert (request.tools, request.tool_choice) == ((), None)


@pytest.mark.req("RO")
def test_a_history_of_calls_keeps_its_tools_but_calls_none() -> None:
    request, _ = apply_policies(asking("Explain.", *CALL, tools=(tool("Edit"),)), ON)
    assert (request.tools, request.tool_choice) == ((tool("Edit"),), ToolChoice("none"))


@pytest.mark.req("RO")
def test_typed_tools_and_tools_added_by_system_turns_are_judged_by_name() -> None:
    typed = (ServerTool("web_search_20250305", "web_search", {}), ServerTool("bash_20250124", "bash", {}))
    added = tuple(ToolChange("add", name, tool(name)) for name in ("Write", "Glob"))
    request, _ = apply_policies(asking("Explain.", Turn("system", added), tools=(TOOLS[0], *typed)), ON)
    assert request.tools == (TOOLS[0], typed[0])
    assert request.turns[-1].content == added[1:]


@pytest.mark.req("RO")
def test_a_request_whose_tools_only_read_is_left_alone() -> None:
    request = asking("Explain.", tools=TOOLS[:1])
    assert apply_policies(request, ON)[0] is request
