"""Client-run typed tools as functions: the documented input of every version, options honoured or reported."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any, get_args, get_type_hints

import anthropic.types.beta as sdk
import pytest
from anthropic.types.beta.beta_computer_member_name import BETA_COMPUTER_MEMBER_NAME_VALUES
from anthropic.types.beta.beta_tool_union_param import BetaToolUnionParam

from bridge.canonical.content import CacheMark
from bridge.canonical.request import Request, ServerTool, Tool, Turn
from bridge.canonical.target import Target
from bridge.errors import BridgeError
from bridge.policies.client_tools import declare_client_tools
from bridge.protocols.anthropic.parse_request import parse_request
from bridge.protocols.openai_chat.render_request import render_request

SCREEN: dict[str, Any] = {"display_width_px": 1024, "display_height_px": 768}
NAMES = {
    "bash_20241022": "bash",
    "bash_20250124": "bash",
    "text_editor_20241022": "str_replace_editor",
    "text_editor_20250124": "str_replace_editor",
    "text_editor_20250429": "str_replace_based_edit_tool",
    "text_editor_20250728": "str_replace_based_edit_tool",
    "memory_20250818": "memory",
    "computer_20241022": "computer",
    "computer_20250124": "computer",
    "computer_20251124": "computer",
}
SERVER_RUN = ("web_search_20250305", "code_execution_20260521", "mcp_toolset", "advisor_20260301")
TOOLSETS = ("computer_toolset_20260801", "browser_toolset_20260801")


def request(*tools: Tool | ServerTool, **more: Any) -> Request:
    return Request("m", (Turn("user", ()),), 100, tools=tools, **more)


def options_for(tool_type: str) -> dict[str, Any]:
    return dict(SCREEN) if tool_type.startswith("computer") else {}


def declared(tool_type: str, **options: Any) -> Tool:
    typed = ServerTool(tool_type, NAMES[tool_type], options_for(tool_type) | options)
    tool = declare_client_tools(request(typed)).tools[0]
    assert isinstance(tool, Tool)
    return tool


def properties(tool: Tool) -> dict[str, Any]:
    return tool.input_schema["properties"]  # type: ignore[return-value]


def sdk_types() -> dict[str, str | None]:
    """Every typed tool of the official SDK, with the name it demands."""
    found: dict[str, str | None] = {}
    for param in get_args(BetaToolUnionParam):
        hints = get_type_hints(param)
        if param.__name__ != "BetaToolParam":
            found[_only_value(hints["type"])] = _only_value(hints["name"]) if "name" in hints else None
    return found


def _only_value(hint: Any) -> str:
    while not isinstance(hint, str):
        hint = get_args(hint)[0]
    return hint


@pytest.mark.req("C5.3")
def test_every_client_run_tool_of_the_sdk_is_declared_and_no_other() -> None:
    by_type = sdk_types()
    typed = [ServerTool(kind, name or "", options_for(kind)) for kind, name in by_type.items()]
    tools = declare_client_tools(request(*typed)).tools
    said = {old.type: new.name for old, new in zip(typed, tools, strict=True) if isinstance(new, Tool)}
    assert said == NAMES
    assert {kind: by_type[kind] for kind in NAMES} == NAMES
    assert {old.type for old in tools if isinstance(old, ServerTool)} == by_type.keys() - NAMES.keys()


@pytest.mark.req("C5.3")
@pytest.mark.parametrize("tool_type", NAMES)
def test_schemas_are_objects_whose_required_properties_exist(tool_type: str) -> None:
    tool = declared(tool_type)
    assert tool.input_schema["type"] == "object"
    assert set(tool.input_schema.get("required", ())) <= properties(tool).keys()  # type: ignore[arg-type]
    assert all(schema.get("description") for schema in properties(tool).values())
    assert all("items" in schema for schema in properties(tool).values() if schema["type"] == "array")
    assert len(tool.description or "") > 80


@pytest.mark.req("C5.3")
def test_bash_takes_a_command_or_a_restart() -> None:
    tool = declared("bash_20250124")
    assert properties(tool).keys() == {"command", "restart"}
    assert not tool.input_schema.get("required")


@pytest.mark.req("C5.3")
@pytest.mark.parametrize(
    ("tool_type", "commands", "inserts"),
    [
        ("text_editor_20241022", ["view", "create", "str_replace", "insert", "undo_edit"], False),
        ("text_editor_20250124", ["view", "create", "str_replace", "insert", "undo_edit"], False),
        ("text_editor_20250429", ["view", "create", "str_replace", "insert"], True),
        ("text_editor_20250728", ["view", "create", "str_replace", "insert"], True),
    ],
)
def test_text_editor_commands_by_version(tool_type: str, commands: list[str], inserts: bool) -> None:
    tool = declared(tool_type)
    common = {"command", "path", "view_range", "file_text", "old_str", "new_str", "insert_line"}
    assert properties(tool)["command"]["enum"] == commands
    assert properties(tool).keys() == common | ({"insert_text"} if inserts else set())
    assert tool.input_schema["required"] == ["command", "path"]
    assert ("insert" in properties(tool)["new_str"]["description"]) is not inserts


@pytest.mark.req("C5.3")
def test_memory_takes_what_the_commands_of_the_sdk_hold() -> None:
    commands = [
        getattr(sdk, f"BetaMemoryTool20250818{name}Command")
        for name in ("View", "Create", "StrReplace", "Insert", "Delete", "Rename")
    ]
    tool = declared("memory_20250818")
    assert properties(tool).keys() == {field for command in commands for field in command.model_fields}
    assert properties(tool)["command"]["enum"] == [
        _only_value(command.model_fields["command"].annotation) for command in commands
    ]
    assert tool.input_schema["required"] == ["command"]


@pytest.mark.req("C5.3")
def test_computer_actions_grow_with_the_version() -> None:
    first = properties(declared("computer_20241022"))
    second = properties(declared("computer_20250124"))
    third = properties(declared("computer_20251124"))
    zooming = properties(declared("computer_20251124", enable_zoom=True))
    added = {"hold_key", "left_mouse_down", "left_mouse_up", "triple_click", "scroll", "wait"}
    assert first.keys() == {"action", "coordinate", "text"}
    assert set(second["action"]["enum"]) == set(first["action"]["enum"]) | added
    assert second.keys() - first.keys() == {"start_coordinate", "scroll_direction", "scroll_amount", "duration"}
    assert third == second
    assert set(zooming["action"]["enum"]) == set(BETA_COMPUTER_MEMBER_NAME_VALUES)
    assert zooming.keys() - third.keys() == {"region"}


@pytest.mark.req("C5.3")
def test_the_screen_is_described() -> None:
    description = declared("computer_20250124", display_number=1).description or ""
    assert "1024 pixels wide and 768 pixels high" in description
    assert "X11 display 1" in description
    assert "X11" not in (declared("computer_20250124").description or "")


@pytest.mark.req("C5.3", "FR5.2")
@pytest.mark.parametrize(
    ("tool", "field"),
    [
        (ServerTool("computer_20250124", "computer", {"display_width_px": 1024}), "tools.1.display_height_px"),
        (ServerTool("computer_20250124", "computer", SCREEN | {"display_width_px": "x"}), "tools.1.display_width_px"),
        (ServerTool("computer_20250124", "computer", SCREEN | {"display_width_px": True}), "tools.1.display_width_px"),
        (ServerTool("bash_20250124", "", {}), "tools.1.name"),
    ],
    ids=["no height", "no number", "a truth", "no name"],
)
def test_what_is_missing_is_named(tool: ServerTool, field: str) -> None:
    with pytest.raises(BridgeError, match=field) as refusal:
        declare_client_tools(request(Tool("Read", {}), tool))
    assert refusal.value.status == 400


@pytest.mark.req("C5.3")
def test_options_that_every_tool_has_are_honoured() -> None:
    tool = declared("bash_20250124", cache_control={"type": "ephemeral", "ttl": "1h"}, strict=True, defer_loading=True)
    assert (tool.cache, tool.strict, tool.deferred) == (CacheMark("1h"), True, True)
    plain = declared("bash_20250124", cache_control=None)
    assert (plain.cache, plain.strict, plain.deferred) == (None, None, False)


@pytest.mark.req("C5.3")
def test_the_limit_of_characters_is_told() -> None:
    assert "at most 5000 characters" in (declared("text_editor_20250728", max_characters=5000).description or "")


@pytest.mark.req("C5.3")
@pytest.mark.parametrize(
    ("tool_type", "options", "unread"),
    [
        ("bash_20250124", {"input_examples": [{"command": "ls"}]}, ("tool.input_examples",)),
        ("bash_20250124", {"allowed_callers": ["direct"]}, ()),
        ("bash_20250124", {"allowed_callers": ["code_execution_20260120"]}, ("tool.allowed_callers",)),
        ("text_editor_20250429", {"max_characters": 10}, ("tool.max_characters",)),
        ("computer_20250124", {"enable_zoom": True}, ("tool.enable_zoom",)),
        ("bash_20250124", {"input_examples": None}, ()),
    ],
)
def test_options_that_cannot_be_said_are_reported(
    tool_type: str, options: dict[str, Any], unread: tuple[str, ...]
) -> None:
    typed = ServerTool(tool_type, NAMES[tool_type], options_for(tool_type) | options)
    assert declare_client_tools(request(typed, unread=("message.x",))).unread == ("message.x", *unread)


@pytest.mark.req("C5.3", "C5.4")
def test_other_tools_stay_as_they_are() -> None:
    others = [ServerTool(kind, "x", {}) for kind in (*SERVER_RUN, *TOOLSETS, "bash_20991231")]
    given = request(Tool("Read", {}), *others)
    assert declare_client_tools(given) is given
    mixed = declare_client_tools(request(*given.tools, ServerTool("bash_20250124", "bash", {})))
    assert mixed.tools[:-1] == given.tools


@pytest.mark.req("C5.3")
def test_declaring_twice_changes_nothing_more() -> None:
    once = declare_client_tools(request(ServerTool("bash_20250124", "bash", {"input_examples": []})))
    assert declare_client_tools(once) is once


@pytest.mark.req("C5.3")
@pytest.mark.parametrize("provider", ["openai", "gemini"])
def test_upstreams_are_told_the_functions_and_leave_the_schemas_alone(provider: str) -> None:
    tools = [
        {"type": kind, "name": f"{name}_{number}", "strict": True, **options_for(kind)}
        for number, (kind, name) in enumerate(NAMES.items())
    ]
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "tools": tools}
    said = declare_client_tools(parse_request(json.dumps(body).encode()))
    before = deepcopy(said.tools)
    rendered = render_request(said, Target(provider, "x", "https://api.example.com/v1")).body
    names = [tool["function"]["name"] for tool in rendered["tools"]]  # type: ignore[index,union-attr,call-overload]
    assert names == [tool["name"] for tool in tools]
    assert said.tools == before
