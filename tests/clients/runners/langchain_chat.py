"""A tool loop of langchain-anthropic: JSON as argument, JSON out.

In: `{"url", "model", "streaming"}`. Out: `{"calls": [[call]], "answer", "usage"}`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"{len(city)} degrees"


def ask(model: Any, messages: list[BaseMessage], streaming: bool) -> AIMessage:
    if not streaming:
        return model.invoke(messages)
    whole = None
    for chunk in model.stream(messages):
        whole = chunk if whole is None else whole + chunk
    return whole


task = json.loads(sys.argv[1])
chat = ChatAnthropic(
    model=task["model"], base_url=task["url"], api_key="sk-client", max_tokens=100, max_retries=0, timeout=10
).bind_tools([weather])
messages: list[BaseMessage] = [SystemMessage("Be brief."), HumanMessage("Weather in Paris and Rome?")]
calls = []
answer = ask(chat, messages, task["streaming"])
while answer.tool_calls:
    calls.append([call["args"] for call in answer.tool_calls])
    messages += [answer, *(weather.invoke(call) for call in answer.tool_calls)]
    answer = ask(chat, messages, task["streaming"])
json.dump({"calls": calls, "answer": answer.text, "usage": answer.usage_metadata}, sys.stdout)
