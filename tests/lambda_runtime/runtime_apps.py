"""Small ASGI apps, each showing one behaviour: `python apps.py NAME` serves it as Lambda would start it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import sys
from typing import Any

from handler.lambda_runtime import serve

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}
SECRET = "the-password-is-swordfish"


def body(data: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


class Channel:
    """Lines to and from the test, beside the Runtime API."""

    async def __aenter__(self) -> Channel:
        port = int(os.environ["CHANNEL_PORT"])
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def hear(self) -> str:
        return (await self.reader.readline()).decode().strip()

    def say(self, line: str) -> None:
        self.writer.write(f"{line}\n".encode())


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with what it was given."""
    request = await receive()
    loop = asyncio.get_running_loop()
    invocation = dict(scope["extensions"]["toolbridge.invocation"])
    invocation["seconds_left"] = invocation.pop("deadline") - loop.time()
    seen = {
        "scope": {key: text(value) for key, value in scope.items() if key != "extensions"},
        "invocation": invocation,
        "body": base64.b64encode(request["body"]).decode(),
        "more_body": request["more_body"],
        "pid": os.getpid(),
        "loop": id(loop),
        "trace": os.environ.get("_X_AMZN_TRACE_ID"),
    }
    headers = [
        (b"Content-Type", b"application/json"),
        (b"vary", b"origin"),
        (b"set-cookie", b"a=1; Path=/"),
        (b"Vary", b"accept"),
        (b"Set-Cookie", b"b=2"),
        (b"transfer-encoding", b"chunked"),
    ]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send(body(json.dumps(seen).encode(), more=False))


def text(value: Any) -> Any:
    match value:
        case bytes():
            return value.decode("latin-1")
        case list() | tuple():
            return [text(item) for item in value]
        case _:
            return value


async def digest(_scope: Any, receive: Any, send: Any) -> None:
    """Answers with the body's hash."""
    request = await receive()
    await send(START)
    await send(body(hashlib.sha256(request["body"]).hexdigest().encode(), more=False))


async def on_demand(_scope: Any, _receive: Any, send: Any) -> None:
    """Makes a chunk only when the test asks for it."""
    async with Channel() as channel:
        await send(START)
        while (line := await channel.hear()) != "end":
            await send(body(line.encode()))
        await send(body(b"", more=False))


async def flood(_scope: Any, _receive: Any, send: Any) -> None:
    """Sends more than socket buffers hold, and says whether `send` ever had to wait."""
    chunk = bytes(range(256)) * 1024
    waited = False
    async with Channel() as channel:
        await send(START)
        for _ in range(256):
            sending = asyncio.ensure_future(send(body(chunk)))
            await asyncio.wait({sending}, timeout=1)
            if not sending.done() and not waited:
                waited = True
                channel.say("waiting")
            await sending
        channel.say("never waited" if not waited else "sent")
        await send(body(b"", more=False))


async def empty(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204})
    await send({"type": "http.response.body"})


async def empty_pieces(_scope: Any, _receive: Any, send: Any) -> None:
    await send(START)
    for piece in (b"", b"one", b"", b"", b"two", b""):
        await send(body(piece))
    await send(body(b"three", more=False))


async def binary(_scope: Any, _receive: Any, send: Any) -> None:
    await send(START)
    await send(body(bytes(range(256)) * 2))
    await send(body(bytes(16) + b"\r\n0\r\n\r\n", more=False))


async def disconnects(_scope: Any, receive: Any, send: Any) -> None:
    """Tells when `receive` gives http.disconnect."""
    await receive()
    second = asyncio.ensure_future(receive())
    async with Channel() as channel:
        await send(START)
        await send(body(b"part"))
        channel.say("open" if not second.done() else "too early")
        await send(body(b"last", more=False))
        channel.say((await second)["type"])


async def raises_early(_scope: Any, _receive: Any, _send: Any) -> None:
    raise ValueError(SECRET)


async def raises_late(_scope: Any, _receive: Any, send: Any) -> None:
    await send(START)
    await send(body(b"part"))
    raise ValueError(SECRET)


async def raises_after_the_end(_scope: Any, _receive: Any, send: Any) -> None:
    await send(START)
    await send(body(b"whole", more=False))
    raise ValueError(SECRET)


async def cancels_itself(_scope: Any, _receive: Any, _send: Any) -> None:
    raise asyncio.CancelledError


async def never_starts(_scope: Any, _receive: Any, _send: Any) -> None:
    return


async def never_ends(_scope: Any, _receive: Any, send: Any) -> None:
    await send(START)
    await send(body(b"part"))


async def body_first(_scope: Any, _receive: Any, send: Any) -> None:
    await send(body(b"part"))


async def starts_twice(_scope: Any, _receive: Any, send: Any) -> None:
    await send(START)
    await send(START)


async def bad_headers(_scope: Any, _receive: Any, send: Any) -> None:
    await send({**START, "headers": [("not", "bytes")]})


async def sends_after_the_end(_scope: Any, _receive: Any, send: Any) -> None:
    await send(START)
    await send(body(b"whole", more=False))
    async with Channel() as channel:
        try:
            await send(body(b"more"))
        except OSError as error:
            channel.say(type(error).__name__)


async def until_cut(_scope: Any, _receive: Any, send: Any) -> None:
    """Streams until that fails, and tells how."""
    await send(START)
    async with Channel() as channel:
        try:
            while True:
                await send(body(b"x" * 1000))
                await asyncio.sleep(0.001)
        except OSError as error:
            channel.say(type(error).__name__)
            raise


async def hangs_early(_scope: Any, _receive: Any, _send: Any) -> None:
    await asyncio.sleep(3600)


async def hangs_when_asked(scope: Any, _receive: Any, send: Any) -> None:
    if scope["path"] == "/hang":
        await asyncio.sleep(3600)
    await send(START)
    await send(body(b"awake", more=False))


async def hangs_late(_scope: Any, _receive: Any, send: Any) -> None:
    await send(START)
    await send(body(b"part"))
    await asyncio.sleep(3600)


async def hangs_after_the_end(_scope: Any, _receive: Any, send: Any) -> None:
    await send(START)
    await send(body(b"whole", more=False))
    await asyncio.sleep(3600)


async def ends_legally_when_cancelled(_scope: Any, _receive: Any, send: Any) -> None:
    await send(START)
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        await send(body(b"legal end", more=False))
        raise


async def ignores_cancellation(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/echo":
        return await echo(scope, receive, send)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            print("cancellation ignored", file=sys.stderr, flush=True)


def bad_init() -> Any:
    raise ValueError("STATE_TABLE is not set")


def exiting_init() -> Any:
    sys.exit("STATE_TABLE is not set")


if __name__ == "__main__":
    found = globals()[sys.argv[1]]
    factory = found if sys.argv[1].endswith("_init") else lambda: found
    sys.exit(serve(factory, os.environ["AWS_LAMBDA_RUNTIME_API"]))
