"""Bodies made fit for a log, where an operator wants to see some: short, and without what is secret."""

from __future__ import annotations

import re

MAX_LOGGED_BYTES = 8 * 1024

_SECRETS = re.compile(
    r"(sk-[A-Za-z0-9_-]{6,}|AIza[A-Za-z0-9_-]{10,}|gh[pousr]_[A-Za-z0-9]{10,}|xox[abpr]-[A-Za-z0-9-]{10,}"
    r"|AKIA[A-Z0-9]{12,}|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_.-]{10,}|Bearer\s+[^\s\"]{6,})"
)
_SECRET_FIELDS = re.compile(
    r'(\\*"(?:[a-z_]*(?:token|secret|password|api_key|authorization|signature|encrypted_content))\\*"\s*:\s*\\*")[^"\\]*',
    re.I,
)
_LONG_DATA = re.compile(r"[A-Za-z0-9+/]{200,}={0,2}")
_QUERIES = re.compile(r"(https?://[^\s\"?#]+)\?[^\s\"]*")


def redacted(body: bytes) -> str:
    """The beginning of a body without keys, tokens, signatures, files and the queries of URLs, which may be signed."""
    text = body[: MAX_LOGGED_BYTES * 4].decode("utf-8", "replace")
    text = _SECRET_FIELDS.sub(r"\1***", text)
    text = _SECRETS.sub("***", text)
    text = _QUERIES.sub(r"\1?***", text)
    return _LONG_DATA.sub("(data)", text)[:MAX_LOGGED_BYTES]
