"""Runs cases through the `anthropic` SDK of the interpreter that runs this: JSON on stdin, JSON on stdout.

In: `{"base_url", "timeout", "cases": {name: request}}`. Out: `{"version", "results": {name: {way: result}}}`, where a
way is `helper`, `events` or `whole`, and a result has `message`, `events` and `error`.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

import anthropic

AT_ONCE = 8


def main() -> None:
    task = json.load(sys.stdin)
    # Retries would hide a failure behind another try.
    with (
        anthropic.Anthropic(
            base_url=task["base_url"], api_key="sk-client", max_retries=0, timeout=task["timeout"]
        ) as client,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        running = {name: pool.submit(run, client, request) for name, request in task["cases"].items()}
        results = {name: future.result() for name, future in running.items()}
    json.dump({"version": version("anthropic"), "results": results}, sys.stdout)


def run(client: anthropic.Anthropic, request: dict[str, Any]) -> dict[str, Any]:
    return {way.__name__: attempt(way, client, request) for way in (helper, events, whole)}


def attempt(way: Any, client: anthropic.Anthropic, request: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {"message": None, "events": [], "error": None}
    try:
        way(client, request, result)
    except Exception as error:  # noqa: BLE001  (whatever the SDK raises is the result)
        status = getattr(error, "status_code", None)
        result["error"] = {"class": type(error).__name__, "message": str(error), "status": status}
    return result


def helper(client: anthropic.Anthropic, request: dict[str, Any], result: dict[str, Any]) -> None:
    with client.messages.stream(**request) as stream:
        for event in stream:
            result["events"].append({"type": event.type})
        result["message"] = dumped(stream.get_final_message())


def events(client: anthropic.Anthropic, request: dict[str, Any], result: dict[str, Any]) -> None:
    for event in client.messages.create(**request, stream=True):
        result["events"].append(dumped(event))


def whole(client: anthropic.Anthropic, request: dict[str, Any], result: dict[str, Any]) -> None:
    result["message"] = dumped(client.messages.create(**request))


def dumped(model: Any) -> Any:
    return model.model_dump(mode="json", exclude_none=False, exclude_unset=True, warnings=False)


if __name__ == "__main__":
    main()
