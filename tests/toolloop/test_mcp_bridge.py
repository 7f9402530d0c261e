"""The MCP bridge against real servers of the official SDK, over both transports."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
from base64 import b64encode
from typing import TYPE_CHECKING

import pytest
from https_site import certificates, loopback_too, resolves_here
from loop_parts import REQUEST, Model, all_events, answer, whole
from mcp_servers import PNG, serving_mcp

from bridge.canonical.content import Base64Source, Document, Image, ServerBlock, Text, ToolResult, ToolUse
from bridge.errors import BridgeError
from bridge.toolloop.execution import InMemoryExecutionLog
from bridge.toolloop.mcp import Listings, McpBridge
from bridge.toolloop.mcp_request import McpServer, ToolSpec
from bridge.toolloop.mcp_session import McpTimeouts
from bridge.toolloop.runner import ToolLoop
from bridge.toolloop.toolbox import Toolbox
from bridge.toolloop.tools import McpCall, ToolOutput
from bridge.toolloop.urls import AllowList

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from mcp_servers import Served

    from bridge.toolloop.mcp import McpConnections
    from bridge.toolloop.tools import BridgeTool

pytestmark = pytest.mark.req("C5.6", "C7")
TOKEN = "tok-very-secret"
HERE = AllowList.parse("", loopback=True)


@pytest.fixture(scope="module", params=["http", "sse"])
def _served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with serving_mcp(request.param, TOKEN) as served:
        yield served


@pytest.fixture
def served(_served: Served) -> Served:
    _served.requests.clear()
    _served.bodies.clear()
    _served.counted = _served.met = 0
    _served.started.clear()
    _served.cancelled.clear()
    return _served


def server(served: Served, **fields: object) -> McpServer:
    return McpServer("srv", served.url, **{"token": TOKEN, **fields})  # type: ignore[arg-type]


def bridge(**settings: object) -> McpBridge:
    return McpBridge(HERE, **settings)  # type: ignore[arg-type]


def within(
    served: Served,
    work: Callable[[dict[str, BridgeTool]], Awaitable[ToolOutput]],
    shared: McpBridge | None = None,
    **fields: object,
) -> ToolOutput:
    async def scenario() -> ToolOutput:
        async with (shared or bridge()).connections([server(served, **fields)]) as connections:
            return await work(await tools_of(connections))

    return asyncio.run(scenario())


async def tools_of(connections: McpConnections) -> dict[str, BridgeTool]:
    tools = await connections.tools()
    return {one.shape.tool: one for one in tools if isinstance(one.shape, McpCall)}


def called(served: Served, tool: str, shared: McpBridge | None = None, **arguments: int) -> ToolOutput:
    return within(served, lambda tools: tools[tool].run({**arguments}), shared)


def test_tools_are_listed_under_names_of_their_server(served: Served) -> None:
    async def scenario() -> None:
        async with bridge().connections([server(served)]) as connections:
            tools = await tools_of(connections)
            add = tools["add"]
            assert add.definition.name == "mcp__srv__add"
            assert add.definition.description == "Adds two numbers."
            assert add.definition.input_schema["required"] == ["a", "b"]
            assert (add.repeatable, tools["count"].repeatable) == (True, False)

    asyncio.run(scenario())


def test_only_tools_that_the_request_wants_are_offered(served: Served) -> None:
    async def scenario() -> None:
        chosen = server(served, enabled=False, exceptions={"add": True})
        async with bridge().connections([chosen]) as connections:
            assert list(await tools_of(connections)) == ["add"]

    asyncio.run(scenario())


def test_a_call_brings_its_result(served: Served) -> None:
    assert called(served, "add", a=2, b=3) == ToolOutput((Text("5"),))


def test_the_token_goes_with_every_call_and_nowhere_else(served: Served) -> None:
    called(served, "add", a=1, b=1)
    assert {headers.get("authorization") for _, _, headers in served.requests} == {f"Bearer {TOKEN}"}
    assert all(TOKEN.encode() not in body for body in served.bodies)


def test_pictures_are_shown(served: Served) -> None:
    assert called(served, "picture").content == (Image(Base64Source("image/png", b64encode(PNG).decode())),)


def test_every_kind_of_content_is_given_or_told(served: Served) -> None:
    assert called(served, "everything").content == (
        Text("text"),
        Text("[audio, audio/wav, 3 bytes: cannot be shown]"),
        Text("[resource file:///a.txt]\ninside"),
        Document(Base64Source("application/pdf", "JVBERi0="), title="file:///a.pdf"),
        Text("[file:///a.bin, application/octet-stream, 3 bytes: cannot be shown]"),
        Text("[resource https://a.test/x: x: the x]"),
    )


@pytest.mark.req("FR5.1")
def test_a_tool_that_fails_gives_an_error(served: Served) -> None:
    output = called(served, "fail")
    assert output.is_error
    assert "fail" in output.content[0].text  # type: ignore[union-attr]


@pytest.mark.req("FR5.1")
def test_a_tool_that_takes_too_long_gives_an_error_and_is_ended(served: Served) -> None:
    output = called(served, "slow", bridge(timeouts=McpTimeouts(call=1.0)))
    assert output == ToolOutput((Text("MCP server srv: slow failed: no answer in time"),), is_error=True)
    assert served.cancelled.wait(10)


def test_a_tool_that_the_server_does_not_have_gives_an_error(served: Served) -> None:
    listed = (ToolSpec("gone", {"type": "object"}),)
    output = within(served, lambda tools: tools["gone"].run({}), listed=listed)
    assert output.is_error


def test_a_server_that_repeats_the_token_does_not_give_it_to_the_model(served: Served) -> None:
    assert called(served, "echo_token").content == (Text("you came with ***"),)


def test_a_wrong_token_is_refused_without_being_said(served: Served) -> None:
    with pytest.raises(BridgeError) as caught:
        within(served, lambda tools: tools["add"].run({}), token="wrong-secret")
    assert caught.value.status == 400
    assert caught.value.message == (
        "mcp_servers: MCP server srv: cannot be reached: HTTP 401, its authorization_token is refused"
    )


def test_lists_are_kept_for_a_while_by_server_and_token(served: Served) -> None:
    now = 0.0
    shared = bridge(listings=Listings(seconds=60, clock=lambda: now))
    called(served, "add", shared, a=1, b=1)
    assert TOKEN not in repr(shared)
    known = served.listings()
    list_again = lambda: within(served, lambda _: asyncio.sleep(0, ToolOutput(())), shared)  # noqa: E731
    list_again()
    assert served.listings() == known
    now = 61.0
    list_again()
    assert served.listings() == known + 1


def test_how_a_server_is_spoken_to_is_remembered_with_its_list(served: Served) -> None:
    shared = bridge()
    called(served, "add", shared, a=1, b=1)
    served.requests.clear()
    called(served, "add", shared, a=1, b=1)
    first = served.requests[0][:2]
    assert first == (("GET", "/sse") if served.url.endswith("/sse") else ("POST", "/mcp"))


def test_a_list_in_the_request_is_taken_at_its_word(served: Served) -> None:
    listed = (ToolSpec("add", {"type": "object"}),)
    within(served, lambda _: asyncio.sleep(0, ToolOutput(())), listed=listed)
    assert served.requests == []


def through_the_loop(served: Served, model: Model, log: InMemoryExecutionLog | None = None) -> list[ServerBlock]:
    async def scenario() -> list[ServerBlock]:
        async with bridge().connections([server(served)]) as connections:
            box = Toolbox(REQUEST).with_tools(await connections.tools())
            loop = ToolLoop(box.tools, log or InMemoryExecutionLog(), "conv")
            message = whole(await all_events(loop, model, box.request))
            return [block for block in message.content if isinstance(block, ServerBlock)]

    return asyncio.run(scenario())


def test_the_model_calls_and_the_client_sees_it(served: Served) -> None:
    model = Model([answer(ToolUse("toolu_1", "mcp__srv__add", {"a": 1, "b": 2})), answer(Text("three"))])
    blocks = through_the_loop(served, model)
    assert [block.raw for block in blocks] == [
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "add", "server_name": "srv", "input": {"a": 1, "b": 2}},
        {
            "type": "mcp_tool_result",
            "tool_use_id": "mcptoolu_1",
            "is_error": False,
            "content": [{"type": "text", "text": "3"}],
        },
    ]
    assert "mcp__srv__add" in {one.name for one in model.asked[0].tools}
    assert model.asked[1].turns[-1].content == (ToolResult("toolu_1", (Text("3"),)),)


def test_calls_of_one_answer_are_at_the_server_at_the_same_time(served: Served) -> None:
    calls = [ToolUse(f"toolu_{number}", "mcp__srv__meet", {"parties": 3}) for number in range(3)]
    blocks = through_the_loop(served, Model([answer(*calls), answer(Text("end"))]))
    assert [block.raw["content"] for block in blocks[3:]] == [[{"type": "text", "text": "met"}]] * 3


def test_a_request_that_is_sent_again_runs_nothing_twice(served: Served) -> None:
    log = InMemoryExecutionLog()
    for number in (1, 2):
        model = Model([answer(ToolUse(f"toolu_{number}", "mcp__srv__count", {})), answer(Text("end"))])
        blocks = through_the_loop(served, model, log)
        assert blocks[1].raw["content"] == [{"type": "text", "text": "counted 1"}]
    assert served.counted == 1


def test_a_request_that_is_given_up_leaves_nothing_running(served: Served) -> None:
    async def scenario() -> None:
        async def work() -> None:
            async with bridge().connections([server(served)]) as connections:
                tools = await tools_of(connections)
                await tools["slow"].run({})

        before = asyncio.all_tasks()
        task = asyncio.create_task(work())
        assert await asyncio.to_thread(served.started.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == before

    asyncio.run(scenario())
    assert served.cancelled.wait(10)


def test_a_server_over_https_is_called_by_its_name_at_the_address_that_was_checked(tmp_path: Path) -> None:
    ca, certificate, key = certificates(tmp_path)

    async def scenario(url: str, port: int) -> ToolOutput:
        given = McpServer("srv", url, TOKEN)
        shared = McpBridge(
            AllowList.parse(f"site.test:{port}"),
            allows=loopback_too,
            resolve=resolves_here,
            context=ssl.create_default_context(cafile=str(ca)),
        )
        async with shared.connections([given]) as connections:
            tools = await tools_of(connections)
            return await tools["add"].run({"a": 2, "b": 2})

    with serving_mcp("http", TOKEN, (certificate, key)) as served:
        port = int(served.url.split(":")[2].partition("/")[0])
        assert asyncio.run(scenario(f"https://site.test:{port}/mcp", port)).content == (Text("4"),)
        assert {headers["host"] for _, _, headers in served.requests} == {f"site.test:{port}"}


def test_what_stands_in_the_query_of_a_url_is_not_said_either() -> None:
    with serving_mcp("http") as served:
        message = refused(served.url.replace("/mcp", "/none?key=tok-very-secret"), HERE)
    assert "cannot be reached" in message


def refused(url: str, allow: AllowList, **settings: object) -> str:
    async def scenario() -> None:
        given = McpServer("srv", url, "tok-very-secret")
        async with McpBridge(allow, **settings).connections([given]) as connections:  # type: ignore[arg-type]
            await connections.tools()

    with pytest.raises(BridgeError) as caught:
        asyncio.run(scenario())
    assert caught.value.status == 400
    assert "tok-very-secret" not in str(caught.value)
    return caught.value.message


@pytest.mark.parametrize(
    ("url", "allow"),
    [
        ("https://evil.example/mcp", AllowList.parse("mcp.example.com")),
        ("http://mcp.example.com/mcp", AllowList.parse("mcp.example.com")),
        ("https://mcp.example.com:8443/mcp", AllowList.parse("mcp.example.com")),
        ("https://u:p@mcp.example.com/mcp", AllowList.parse("mcp.example.com")),
        ("http://127.0.0.1:9/mcp", AllowList.parse("*:*")),
        ("http://localhost:9/mcp", AllowList.parse("*:*")),
        ("http://10.0.0.1/mcp", HERE),
        ("http://127.0.0.2/mcp", HERE),
        ("stdio://x", HERE),
    ],
)
def test_servers_that_are_not_allowed_are_refused_before_anything_is_sent(url: str, allow: AllowList) -> None:
    assert refused(url, allow).startswith("mcp_servers: 'srv': ")


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1"])
def test_a_name_that_leads_inside_is_not_called(address: str) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return [address]

    message = refused("https://mcp.example.com/mcp", AllowList.parse("mcp.example.com"), resolve=resolve)
    assert message == (
        "mcp_servers: MCP server srv: cannot be reached: its name leads to an address that is not public"
    )


def test_the_name_of_this_machine_leads_only_to_this_machine() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["10.0.0.1"]

    assert "not public" in refused("http://localhost:9/mcp", HERE, resolve=resolve)


def test_a_server_that_is_not_there_is_said_to_be_out_of_reach() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        message = refused(f"http://127.0.0.1:{taken.getsockname()[1]}/mcp", HERE)
    assert message == "mcp_servers: MCP server srv: cannot be reached: the connection failed (ConnectError)"


def test_a_server_that_says_nothing_is_left_in_time() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(5)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        message = refused(url, HERE, timeouts=McpTimeouts(connect=0.3))
    assert message.endswith("no answer in time")


def test_a_server_that_went_away_is_called_anew_when_it_is_back() -> None:
    async def scenario(first: Served) -> list[ToolOutput]:
        async with bridge().connections([server(first, token=None)]) as connections:
            tools = await tools_of(connections)
            outputs = [await tools["add"].run({"a": 1, "b": 1})]
            first.token = "changed"
            outputs.append(await tools["add"].run({"a": 1, "b": 1}))
            first.token = None
            outputs.append(await tools["add"].run({"a": 1, "b": 1}))
            return outputs

    with serving_mcp("http") as served:
        outputs = asyncio.run(scenario(served))
    assert [output.is_error for output in outputs] == [False, True, False]
    assert "HTTP 401" in outputs[1].content[0].text  # type: ignore[union-attr]


def test_without_the_sdk_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert refused("http://127.0.0.1:9/mcp", HERE).endswith("the bridge is installed without its mcp extra")


def test_the_sdk_is_imported_only_when_a_server_is_called() -> None:
    code = (
        "import sys, bridge.toolloop.mcp, bridge.toolloop.toolbox, bridge.toolloop.runner;"
        "print([name for name in ('mcp', 'justhtml', 'starlette') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
