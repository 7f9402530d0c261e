"""An agent of pydantic-ai with a tool and an answer of a given shape: JSON as argument, JSON out.

In: `{"api": "chat" | "responses" | "messages", "url", "model", "streaming"}`. Out: `{"used": [cities], "answer"}`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


class Weather(BaseModel):
    city: str
    degrees: int


def model(api: str, name: str, url: str) -> Any:
    if api == "messages":
        return AnthropicModel(name, provider=AnthropicProvider(base_url=url, api_key="sk-client"))
    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="sk-client")
    return (OpenAIChatModel if api == "chat" else OpenAIResponsesModel)(name, provider=provider)


async def main() -> None:
    task = json.loads(sys.argv[1])
    used: list[str] = []
    agent = Agent(model(task["api"], task["model"], task["url"]), output_type=Weather, system_prompt="Be brief.")

    @agent.tool_plain
    def weather(city: str) -> str:
        used.append(city)
        if city == "Atlantis":
            raise ModelRetry("there is no such city")
        return f"{len(city)} degrees"

    if task["streaming"]:
        async with agent.run_stream("Weather in Paris?") as run:
            answer = await run.get_output()
    else:
        answer = (await agent.run("Weather in Paris?")).output
    json.dump({"used": used, "answer": answer.model_dump()}, sys.stdout)


asyncio.run(main())
