"""Serve an ASGI 3 app on Lambda with response streaming: `python -m handler.lambda_runtime`.

Speaks the documented Runtime API directly, because AWS's managed Python runtime does not stream.

Rules
-----
1. One event loop for the life of the process, one invocation at a time. The Runtime API's requests
   follow each other (next, response, next, ...), so one kept-alive connection carries them all.
2. Each ASGI body message is one HTTP chunk, written before `send` returns; `send` waits while Lambda
   does not read. The status line and headers leave with `http.response.start`.
3. Whatever happens, an invocation is answered once: a failure before the first byte is an HTTP error,
   after it the error trailers end the stream. The cause is logged, never told to the client.
4. An app still running `SAFETY_SECONDS` before the deadline is cancelled, and abandoned if it ignores
   that. The app knows the deadline and should end earlier: this is the net below it.
5. A failed start is reported to /init/error. A Runtime API that is gone ends the process.
6. Cold start: the standard library and orjson only.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

import orjson

from handler.asgi import CLIENT_GONE
from handler.function_url import BadEventError, parse_event
from handler.runtime_api import Failure, ResponseClosedError, ResponseStream, RuntimeApi, RuntimeApiError, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from handler.asgi import ASGIApp, Message, Receive
    from handler.function_url import Request
    from handler.runtime_api import Invocation

SAFETY_SECONDS = 0.25
GRACE_SECONDS = 0.1  # for a cancelled app to end its stream itself; within SAFETY_SECONDS

_logger = logging.getLogger("toolbridge")


class Server:
    """Answers invocations with an app, one after the other."""

    def __init__(self, app: ASGIApp, api: RuntimeApi) -> None:
        self._app = app
        self._api = api
        self._abandoned: set[asyncio.Task[None]] = set()

    async def answer(self, invocation: Invocation) -> None:
        """Answer one invocation, whatever the app does."""
        _export_trace_id(invocation.trace_id)
        stream = ResponseStream(self._api, invocation.request_id)
        failure = await self._run(invocation, stream)
        try:
            if failure is not None:
                _log_failure(failure, invocation)
                await stream.fail(failure)
            await stream.acknowledged()
        except (RuntimeApiError, ResponseClosedError) as error:
            self._api.drop()
            _logger.warning(
                "response not delivered: %s",
                stream.lost or error,
                extra={"function_request_id": invocation.request_id},
            )

    async def _run(self, invocation: Invocation, stream: ResponseStream) -> Failure | None:
        try:
            request = parse_event(invocation.event)
        except BadEventError as error:
            return Failure(400, "invalid_request_error", "Runtime.BadEvent", str(error))
        task = asyncio.create_task(self._call(request, invocation, stream))
        if not await self._settle(task, invocation.deadline - SAFETY_SECONDS):
            text = "The request did not finish within the function's time limit."
            return Failure(504, "timeout_error", "Runtime.DeadlineExceeded", text)
        return _verdict(task, stream)

    async def _call(self, request: Request, invocation: Invocation, stream: ResponseStream) -> None:
        request.scope["extensions"]["toolbridge.invocation"] = {
            "request_id": invocation.request_id,
            "deadline": invocation.deadline,
            "trace_id": invocation.trace_id,
        }
        request.scope["extensions"][CLIENT_GONE] = stream.on_client_gone
        await self._app(request.scope, _receiver(request.body, stream.closed), stream.send)

    async def _settle(self, task: asyncio.Task[None], until: float) -> bool:
        """Wait for the task until then; if it is not done, cancel it and say so."""
        await asyncio.wait({task}, timeout=max(0.0, until - asyncio.get_running_loop().time()))
        if task.done():
            return True
        task.cancel()
        await asyncio.wait({task}, timeout=GRACE_SECONDS)
        self._abandoned.add(task)  # asyncio itself holds tasks by weak references only
        task.add_done_callback(self._forget)
        return False

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._abandoned.discard(task)
        if not task.cancelled():
            task.exception()  # seen, so that asyncio does not report it as never retrieved


def _receiver(body: bytes, closed: asyncio.Event) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if pending:
            return pending.pop()
        await closed.wait()
        return {"type": "http.disconnect"}

    return receive


def _verdict(task: asyncio.Task[None], stream: ResponseStream) -> Failure | None:
    cause = asyncio.CancelledError() if task.cancelled() else task.exception()
    if stream.lost is not None:
        return None  # the app could not do better; the loss itself is logged
    if cause is not None:
        error_type = f"Runtime.{type(cause).__name__}"
        return Failure(500, "api_error", error_type, "Internal server error.", cause)
    if stream.state is not State.DONE:
        text = "The application ended without completing its response."
        return Failure(500, "api_error", "Runtime.StreamError", text)
    return None


def _export_trace_id(trace_id: str | None) -> None:
    if trace_id is None:
        os.environ.pop("_X_AMZN_TRACE_ID", None)
    else:
        os.environ["_X_AMZN_TRACE_ID"] = trace_id


def _log_failure(failure: Failure, invocation: Invocation) -> None:
    _logger.error(
        "invocation failed: %s: %s",
        failure.error_type,
        failure.text,
        exc_info=failure.cause,
        extra={"function_request_id": invocation.request_id},
    )


class _JsonLines(logging.Formatter):
    """One JSON object a line, for as long as the app has set up no logging of its own."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"level": record.levelname, "message": record.getMessage()}
        if request_id := getattr(record, "function_request_id", None):
            line["function_request_id"] = request_id
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


def _ensure_logging() -> None:
    if not _logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(_JsonLines())
        _logger.addHandler(handler)


def serve(app_factory: Callable[[], ASGIApp], api_address: str) -> int:
    """Build the app and answer invocations until told to stop; returns the exit code."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_serve(app_factory, api_address))
    finally:
        _close(loop)


async def _serve(app_factory: Callable[[], ASGIApp], api_address: str) -> int:
    _stop_on_sigterm()
    api = RuntimeApi(api_address)
    try:
        app = await _init(app_factory, api)
        return 1 if app is None else await _answer_all(Server(app, api), api)
    except RuntimeApiError as error:
        _logger.critical("Runtime API: %s", error)
        return 1
    except asyncio.CancelledError:
        return 0
    finally:
        api.drop()


async def _init(app_factory: Callable[[], ASGIApp], api: RuntimeApi) -> ASGIApp | None:
    gc.disable()  # almost all that start-up allocates stays
    try:
        app = app_factory()
    except (Exception, SystemExit) as error:  # a setting may be refused with sys.exit
        _ensure_logging()
        _logger.critical("init failed: %s", error, exc_info=error)
        await api.report_init_error(error)
        return None
    _ensure_logging()
    gc.freeze()  # without a collection first: it would take longer than what it frees is worth
    gc.enable()
    return app


async def _answer_all(server: Server, api: RuntimeApi) -> int:
    while True:
        await server.answer(await api.next())


def _stop_on_sigterm() -> None:
    main_task = asyncio.current_task()
    if main_task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, main_task.cancel)


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Give what still runs a moment, not more: `asyncio.run` would wait for ever."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=GRACE_SECONDS))
    loop.close()


def _bootstrap() -> ASGIApp:
    from handler.wiring import bootstrap

    return bootstrap()


def main() -> None:
    """Run inside Lambda, or under its emulator."""
    address = os.environ.get("AWS_LAMBDA_RUNTIME_API")
    if not address:
        sys.exit("AWS_LAMBDA_RUNTIME_API is not set: this module runs inside Lambda. Locally: bridge serve")
    sys.exit(serve(_bootstrap, address))


if __name__ == "__main__":
    main()
