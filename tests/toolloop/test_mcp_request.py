"""What a request says about MCP servers, and the names of their tools."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from loop_parts import REQUEST

from bridge.canonical.json import dumps
from bridge.canonical.request import ServerTool, Tool
from bridge.errors import BridgeError
from bridge.protocols.anthropic.parse_request import parse_request
from bridge.toolloop.mcp_names import tool_name, unique_names
from bridge.toolloop.mcp_request import McpServer, ToolSpec, parse_servers, wants_mcp

pytestmark = pytest.mark.req("C5.6")
SERVER = {"type": "url", "url": "https://mcp.example.com/mcp", "name": "srv"}
CLIENTS = Tool("mine", {"type": "object"})


def toolset(**options: object) -> ServerTool:
    return ServerTool("mcp_toolset", "", {"mcp_server_name": "srv", **options})  # type: ignore[dict-item]


def servers(*tools: Tool | ServerTool, **fields: object) -> tuple[McpServer, ...]:
    request = replace(REQUEST, extras={"mcp_servers": [{**SERVER, **fields}]}, tools=tools)  # type: ignore[dict-item]
    return parse_servers(request).servers


def refusal(request_fields: object, *tools: ServerTool) -> str:
    with pytest.raises(BridgeError) as caught:
        parse_servers(replace(REQUEST, extras={"mcp_servers": request_fields}, tools=tools))  # type: ignore[dict-item]
    assert caught.value.status == 400
    return caught.value.message


def test_a_messages_request_is_read_and_what_names_servers_is_taken_out() -> None:
    body = {
        "model": "m",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": "hi"}],
        "mcp_servers": [{**SERVER, "authorization_token": "tok"}],
        "tools": [
            {"type": "mcp_toolset", "mcp_server_name": "srv"},
            {"name": "mine", "input_schema": {"type": "object"}},
        ],
        "thinking": {"type": "disabled"},
    }
    request = parse_request(dumps(body))
    assert wants_mcp(request)
    plan = parse_servers(request)
    assert plan.servers == (McpServer("srv", "https://mcp.example.com/mcp", "tok"),)
    assert plan.request.tools == (CLIENTS,)
    assert plan.request.extras == {}
    assert not wants_mcp(plan.request)


@pytest.mark.parametrize(
    ("configuration", "offered"),
    [
        (None, {"a", "b"}),
        ({}, {"a", "b"}),
        ({"enabled": True}, {"a", "b"}),
        ({"enabled": False}, set()),
        ({"enabled": False, "allowed_tools": ["a"]}, set()),
        ({"allowed_tools": ["a"]}, {"a"}),
        ({"allowed_tools": []}, set()),
    ],
)
def test_the_first_version_of_the_beta_chooses_tools_in_the_server(configuration: object, offered: set[str]) -> None:
    (server,) = servers(tool_configuration=configuration)
    assert {name for name in ("a", "b") if server.offers(name)} == offered


@pytest.mark.parametrize(
    ("options", "offered"),
    [
        ({}, {"a", "b"}),
        ({"default_config": {"enabled": False}}, set()),
        ({"default_config": {"enabled": False}, "configs": {"a": {"enabled": True}}}, {"a"}),
        ({"configs": {"a": {"enabled": False}}}, {"b"}),
        ({"configs": {"a": {"defer_loading": True}}}, {"a", "b"}),
    ],
)
def test_the_second_version_chooses_them_in_a_toolset(options: dict[str, object], offered: set[str]) -> None:
    (server,) = servers(toolset(**options))
    assert {name for name in ("a", "b") if server.offers(name)} == offered


def test_a_list_of_tools_in_the_request_is_used() -> None:
    (server,) = servers(toolset(tools=[{"name": "a", "input_schema": {"type": "object"}, "description": "d"}]))
    assert server.listed == (ToolSpec("a", {"type": "object"}, "d"),)


def test_what_is_not_followed_is_reported() -> None:
    tool = toolset(default_config={"defer_loading": True}, cache_control={"type": "ephemeral"})
    request = replace(REQUEST, extras={"mcp_servers": [SERVER]}, tools=(tool,))  # type: ignore[dict-item]
    assert parse_servers(request).request.unread == ("mcp_toolset.defer_loading", "mcp_toolset.cache_control")


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ("nonsense", "mcp_servers"),
        ([{"type": "url", "name": "x"}], "mcp_servers.0.url"),
        ([{**SERVER, "type": "stdio"}], "mcp_servers.0.type"),
        ([{**SERVER, "name": ""}], "mcp_servers.0.name"),
        ([{**SERVER, "authorization_token": 7}], "mcp_servers.0.authorization_token"),
        ([SERVER, SERVER], "mcp_servers: two servers"),
        ([{**SERVER, "name": str(number)} for number in range(21)], "mcp_servers: 21 of them"),
    ],
)
def test_what_is_wrong_is_named(fields: object, path: str) -> None:
    assert refusal(fields).startswith(path)


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ([ServerTool("mcp_toolset", "", {"mcp_server_name": "other"})], "'other' is not in mcp_servers"),
        ([toolset(), toolset()], "'srv' is named by two toolsets"),
        ([ServerTool("mcp_toolset", "", {})], "tools.0.mcp_server_name"),
        ([toolset(configs=7)], "tools.0.configs"),
    ],
)
def test_toolsets_that_do_not_fit_are_named(tools: list[ServerTool], message: str) -> None:
    assert message in refusal([SERVER], *tools)


def test_a_server_without_a_toolset_beside_others_that_have_one_is_refused() -> None:
    assert "'bare' has no mcp_toolset" in refusal([SERVER, {**SERVER, "name": "bare"}], toolset())


def test_neither_token_nor_url_is_in_what_gets_printed() -> None:
    plan = servers(authorization_token="sk-secret", url="https://mcp.example.com/?key=sk-secret")
    assert "sk-secret" not in repr(plan)
    assert "sk-secret" not in plan[0].identity
    assert "sk-secret" not in refusal([{**SERVER, "authorization_token": "sk-secret", "url": ["sk-secret"]}])


def test_another_token_is_another_identity() -> None:
    identities = {servers(authorization_token=token)[0].identity for token in ("a", "b", None)}
    assert len(identities) == 3


LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


@pytest.mark.parametrize(
    ("server", "tool"),
    [("srv", "look"), ("my server", "look/at.it"), ("s" * 200, "t" * 100), ("süd", "工具"), ("", "")],
)
def test_names_are_legal_and_stay_the_same(server: str, tool: str) -> None:
    name = tool_name(server, tool)
    assert LEGAL.fullmatch(name)
    assert tool_name(server, tool) == name


def test_usual_names_can_be_read() -> None:
    assert tool_name("github", "create_issue") == "mcp__github__create_issue"


def test_every_tool_has_a_name_of_its_own() -> None:
    tools = [("a", "b__c"), ("a__b", "c"), ("x y", "t"), ("x_y", "t"), ("s" * 80, "t1"), ("s" * 80, "t2")]
    names = unique_names(tools, taken={"mcp__a__b__c"})
    assert len({*names.values(), "mcp__a__b__c"}) == len(tools) + 1
    assert all(LEGAL.fullmatch(name) for name in names.values())
    assert unique_names(tools, taken={"mcp__a__b__c"}) == names
