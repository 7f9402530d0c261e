"""The shapes of ASGI 3, as far as they are used here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
TellOfLeaving: TypeAlias = Callable[[Callable[[], None] | None], None]
"""Takes what to call when the client leaves before its answer is complete; None takes it back."""

CLIENT_GONE = "toolbridge.client_gone"
"""The extension in which a server offers that, so that the app needs no task to wait for it."""
