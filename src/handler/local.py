"""The bridge on this machine, under uvicorn. With no provider configured a demo model answers, on loopback only."""

from __future__ import annotations

import gc
import ipaddress
import socket
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import uvicorn

from bridge.providers import Provider, api_root
from handler.settings import SettingsError
from handler.wiring import build_app

if TYPE_CHECKING:
    from collections.abc import Collection

    from handler.settings import Settings


async def serve(settings: Settings, host: str, port: int) -> int:
    """Serve until interrupted; returns the exit code."""
    loopback = _is_loopback(host)
    _refuse_open_door(settings, loopback)
    async with AsyncExitStack() as stack:
        demo = None if settings.has_provider else await _start_demo(stack, loopback)
        listener = _listen(host, port)
        stack.callback(listener.close)
        app = build_app(settings, as_json=False, demo=demo)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            lifespan="on",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        server = uvicorn.Server(config)
        gc.freeze()  # what start-up made stays: collections during a stream need not look at it
        _greet(settings, host, listener.getsockname()[1], demo)
        await server.serve(sockets=[listener])
    return 0


def _refuse_open_door(settings: Settings, loopback: bool) -> None:
    if settings.holds_keys and not settings.worker_token and not loopback:
        raise SettingsError(
            "WORKER_TOKEN is not set: with provider keys and an address others can reach, clients must show a token"
        )


async def _start_demo(stack: AsyncExitStack, loopback: bool) -> Provider:
    if not loopback:
        raise SettingsError(
            "no provider is configured: set OPENAI_API_KEY, ANTHROPIC_API_KEY, OPENROUTER_API_KEY, GEMINI_API_KEY "
            "or a base URL such as UPSTREAM_OPENAI_BASE_URL (the demo model only serves on loopback)"
        )
    from scripted.demo import demo_rules
    from scripted.server import ScriptedUpstream

    upstream = await stack.enter_async_context(ScriptedUpstream(demo_rules(), keep=0))
    return Provider("demo", "openai_chat", api_root(upstream.url), configured=True)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio turns off Nagle only then, and a first token would wait 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise SettingsError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from None
    listener.listen(1024)
    return listener


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _greet(settings: Settings, host: str, port: int, demo: Provider | None) -> None:
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    configured = [name for name, provider in settings.providers().items() if provider.configured]
    answers = ", ".join(configured) if demo is None else "the built-in demo model (set OPENAI_API_KEY or another key)"
    model = _example_model(configured)
    key = "YOUR_WORKER_TOKEN" if settings.worker_token else "any"
    print(
        f"""Toolbridge on {url}, answered by {answers}. Paste one of these:

  curl -N {url}/v1/messages -H 'x-api-key: {key}' -H 'content-type: application/json' \
-d '{{"model":"{model}","max_tokens":200,"stream":true,"messages":[{{"role":"user","content":"Hello!"}}]}}'

  ANTHROPIC_BASE_URL={url} ANTHROPIC_AUTH_TOKEN={key} claude

  OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={key} python -c \
'from openai import OpenAI; print(OpenAI().chat.completions.create(model="{model}", \
messages=[{{"role": "user", "content": "Hello!"}}]).choices[0].message.content)'
""",
        flush=True,
    )


def _example_model(configured: Collection[str]) -> str:
    examples = {
        "openai": "openai/gpt-5",
        "openrouter": "openrouter/openai/gpt-5",
        "gemini": "gemini/gemini-2.5-pro",
        "anthropic": "claude-sonnet-4-5",
    }
    return next((examples[name] for name in examples if name in configured), "demo")
