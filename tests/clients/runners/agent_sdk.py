"""An agent of the `claude-agent-sdk` with tools of its own in this process: JSON as argument, JSON out.

In: `{"prompt", "output_format"}`. Out: `{"version", "used": [arguments], "texts": [...], "result", "structured",
"error"}`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from importlib.metadata import version
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ResultMessage,
    TextBlock,
    create_sdk_mcp_server,
    query,
    tool,
)

used: list[Any] = []


@tool("stock", "How much of a fruit is in stock", {"fruit": str})
async def stock(arguments: dict[str, Any]) -> dict[str, Any]:
    used.append(arguments)
    if arguments["fruit"] == "durian":
        return {"content": [{"type": "text", "text": "durian is not allowed in here"}], "is_error": True}
    return {"content": [{"type": "text", "text": f"{len(arguments['fruit'])} crates of {arguments['fruit']}"}]}


async def main() -> None:
    task = json.loads(sys.argv[1])
    options = ClaudeAgentOptions(
        mcp_servers={"shop": create_sdk_mcp_server("shop", tools=[stock])},
        allowed_tools=["mcp__shop__stock"],
        system_prompt="You keep a shop.",
        output_format=task.get("output_format"),
        setting_sources=[],
    )
    said: dict[str, Any] = {"version": version("claude-agent-sdk"), "used": used, "texts": []}
    async for message in query(prompt=task["prompt"], options=options):
        match message:
            case AssistantMessage(content=content):
                said["texts"] += [block.text for block in content if isinstance(block, TextBlock)]
            case ResultMessage():
                said |= {
                    "result": message.result,
                    "structured": message.structured_output,
                    "error": message.is_error,
                }
    json.dump(said, sys.stdout)


asyncio.run(main())
