"""What a setting's text may be, and what it becomes. A ValueError names what it takes, never what it was given."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Annotated
from urllib.parse import urlsplit

import orjson
from pydantic import AfterValidator, BeforeValidator, Field

from bridge.upstream.addresses import is_metadata

_METADATA_HOSTS = frozenset({"metadata", "metadata.google.internal", "instance-data", "instance-data.ec2.internal"})


def parse_list(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _parse_base_url(value: object) -> object:
    if not isinstance(value, str):
        return value
    parts = urlsplit(value.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("takes a URL such as https://api.example.com or http://127.0.0.1:8000/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("takes a URL without credentials, query or fragment")
    if _is_metadata_host(parts.hostname):
        raise ValueError("takes no link-local or cloud metadata address")
    return value.strip().rstrip("/")


def _is_metadata_host(host: str) -> bool:
    name = host.rstrip(".").lower()
    if name in _METADATA_HOSTS:
        return True
    try:
        address = ipaddress.ip_address(name.split("%")[0])
    except ValueError:
        try:
            address = ipaddress.ip_address(socket.inet_aton(name))  # 2852039166, 0xa9fea9fe: the C library's spellings
        except OSError:
            return False
    return is_metadata(address)


def parse_model_map(value: object) -> object:
    if not isinstance(value, str):
        return value
    problem = 'takes a JSON object from model pattern to provider/model, such as {"claude-*": "openai/gpt-5.5"}'
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError:
        raise ValueError(problem) from None
    if not isinstance(parsed, dict) or not all(isinstance(target, str) and target for target in parsed.values()):
        raise ValueError(problem)
    return tuple(parsed.items())


def parse_tokens(value: object) -> object:
    """`token` or `name:token`, several separated by commas; unnamed ones are numbered."""
    if not isinstance(value, str):
        return value
    tokens: dict[str, str] = {}
    for number, part in enumerate(parse_list(value), 1):  # type: ignore[arg-type,var-annotated]
        name, colon, token = part.partition(":")
        name, token = (name, token) if colon else (f"token-{number}", part)
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
            raise ValueError("takes tokens as name:token, the name of letters, digits and . _ - (64 at most)")
        if len(token) < 8:
            raise ValueError("takes tokens of at least 8 characters")
        if token in tokens or name in tokens.values():
            raise ValueError("holds the same token or name twice")
        tokens[token] = name
    return tokens


def _parse_origins(value: object) -> object:
    origins = parse_list(value)
    if not isinstance(origins, tuple):
        return origins
    told = tuple(origin.rstrip("/") for origin in origins)
    for origin in told:
        scheme, separator, host = origin.partition("://")
        if origin not in ("*", "null") and not (scheme and separator and host and "/" not in host):
            raise ValueError("takes origins such as https://app.example.com, scheme included and no path, or *")
    return told


def as_typed(value: object) -> str:
    """A setting's value as it would be written into the environment."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, tuple):
        return str(value)
    pairs = {part[0]: part[1] for part in value if isinstance(part, tuple)}
    return orjson.dumps(pairs).decode() if pairs else ",".join(map(str, value))


def _check_header(value: str | None) -> str | None:
    if value is not None and not (value.isascii() and value.isprintable()):
        raise ValueError("takes plain ASCII characters")
    return value


def lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _parse_keys(value: object) -> object:
    keys = parse_list(value)
    if isinstance(keys, tuple) and not all(key.isascii() and key.isprintable() for key in keys):
        raise ValueError("takes plain ASCII characters")
    return keys


Names = Annotated[tuple[str, ...], BeforeValidator(parse_list)]
Origins = Annotated[tuple[str, ...], BeforeValidator(_parse_origins)]
Keys = Annotated[tuple[str, ...], BeforeValidator(_parse_keys)]
BaseUrl = Annotated[str | None, BeforeValidator(_parse_base_url)]
Header = Annotated[str | None, AfterValidator(_check_header)]
Count = Annotated[int | None, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, le=3600)]
Flag = Annotated[bool, BeforeValidator(lower)]
