"""The `anthropic` SDK of this interpreter beyond plain messages: JSON as argument, JSON out.

In: `{"url", "model"}`. Out: `{"version", "parsed", "counted", "models"}`.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version

import anthropic
from pydantic import BaseModel


class Weather(BaseModel):
    city: str
    degrees: int


task = json.loads(sys.argv[1])
question = {"model": task["model"], "messages": [{"role": "user", "content": "Weather in Paris?"}]}
with anthropic.Anthropic(base_url=task["url"], api_key="sk-client", max_retries=0, timeout=10) as client:
    parsed = client.messages.parse(**question, max_tokens=100, output_format=Weather).parsed_output
    said = {
        "version": version("anthropic"),
        "parsed": parsed.model_dump() if parsed else None,
        "counted": client.messages.count_tokens(**question).input_tokens,
        "models": [model.id for model in client.models.list()],
    }
json.dump(said, sys.stdout)
