"""Serves one streaming request as Lambda does and prints which modules were loaded when, as JSON; run as a script."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import handler.lambda_runtime  # noqa: F401  (the loop that Lambda starts)
from handler.wiring import bootstrap


async def main(token: str) -> dict[str, list[str]]:
    """Modules at the first byte of the answer and after its end."""
    loaded: dict[str, list[str]] = {}
    body = {"model": "openai/fake", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    pending = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not pending:
            await asyncio.Event().wait()
        return pending.pop()

    async def send(message: dict[str, Any]) -> None:
        if message.get("body"):
            loaded.setdefault("first_byte", sorted(sys.modules))
            if b"event: error" in message["body"] or b'"type":"error"' in message["body"]:
                raise SystemExit(message["body"])

    headers = [(b"content-type", b"application/json"), (b"x-api-key", token.encode())]
    scope = {"type": "http", "method": "POST", "path": "/v1/messages", "query_string": b"", "headers": headers}
    invocation = {"deadline": asyncio.get_running_loop().time() + 60}
    extensions = {"toolbridge.invocation": invocation}
    await bootstrap()({**scope, "extensions": extensions, "client": None}, receive, send)
    return loaded | {"end": sorted(sys.modules)}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1]))))
