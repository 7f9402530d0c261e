"""The bridge on this machine, under its own server. With no provider configured a demo model answers, on loopback."""

from __future__ import annotations

import asyncio
import errno
import gc
import ipaddress
import socket
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from bridge.providers import Provider, api_root
from handler.greeting import example_model, greeting
from handler.http1.server import HttpServer, listen
from handler.model_lists import ask_for_models
from handler.setting_warnings import warnings_of
from handler.settings import SettingsError
from handler.wiring import build_app

if TYPE_CHECKING:
    from handler.settings import Settings

LIST_SECONDS = 1.5
"""How long the greeting waits for the providers' lists of models."""
GRACE_SECONDS = 2.0
"""How long requests under way may take when the server is told to end."""


async def serve(settings: Settings, host: str, port: int) -> int:
    """Serve until interrupted; returns the exit code."""
    _check_host(host)
    loopback = _is_loopback(host)
    _refuse_open_door(settings, loopback)
    async with AsyncExitStack() as stack:
        demo = None if settings.has_provider else await _start_demo(stack, loopback)
        listener = _listen(host, port)
        stack.callback(listener.close)
        app = build_app(settings, as_json=False, demo=demo)
        server = HttpServer(app, grace_seconds=GRACE_SECONDS)
        gc.freeze()  # what start-up made stays: collections during a stream need not look at it
        port = listener.getsockname()[1]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        greeter = asyncio.create_task(_greet(settings, url))  # beside the server: nobody waits for a provider's list
        stack.callback(greeter.cancel)
        await server.serve(listener)
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
    try:
        return listen(host, port)
    except OSError as error:
        raise SettingsError(f"cannot listen on {host}:{port}: {error.strerror}; {_remedy(error)}") from None


def _remedy(error: OSError) -> str:
    if error.errno == errno.EADDRNOTAVAIL:
        return "--host takes an address of this machine"
    return "choose another port: make run PORT=8790, or --port"


def _check_host(host: str) -> None:
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        raise SettingsError(f"cannot listen on {host!r}: there is no such host") from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _greet(settings: Settings, url: str) -> None:
    """Say hello, with models that the providers have: as far as they tell soon."""
    configured = [provider for provider in settings.providers().values() if provider.configured]
    listings = await ask_for_models(configured, LIST_SECONDS)
    names = [provider.name for provider in configured]
    lists = {listing.provider.name: listing.models for listing in listings if listing.models is not None}
    model = example_model(names, lists)
    print(greeting(settings, url, names, model), flush=True)
    for warning in warnings_of(settings, lists, model):
        print(f"bridge: {warning}", file=sys.stderr, flush=True)
