"""`mcp_servers` and `mcp_toolset` of a request: which servers, with which of their tools. Pure."""

from __future__ import annotations

from dataclasses import field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from bridge.canonical.request import ServerTool
from bridge.errors import BridgeError, invalid_request
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.canonical.json import JsonValue
    from bridge.canonical.request import Request

FIELD = "mcp_servers"
TOOLSET = "mcp_toolset"
MAX_SERVERS = 20


class _Wire(BaseModel):
    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)


class _ToolConfiguration(_Wire):
    enabled: bool | None = None
    allowed_tools: list[str] | None = None


class _Server(_Wire):
    type: Literal["url"]
    url: str = Field(min_length=1, max_length=2048)
    name: str = Field(min_length=1, max_length=255)
    authorization_token: str | None = Field(default=None, repr=False)
    tool_configuration: _ToolConfiguration | None = None


class _ToolConfig(_Wire):
    enabled: bool | None = None
    defer_loading: bool | None = None


class _ListedTool(_Wire):
    name: str = Field(min_length=1)
    input_schema: dict[str, object]
    description: str | None = None


class _Toolset(_Wire):
    mcp_server_name: str
    default_config: _ToolConfig | None = None
    configs: dict[str, _ToolConfig] | None = None
    tools: list[_ListedTool] | None = None


_SERVERS: TypeAdapter[list[_Server]] = TypeAdapter(list[_Server])


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as its server lists it."""

    name: str
    input_schema: Mapping[str, object] = field(hash=False)
    description: str | None = None
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server to call, and which of its tools the model may have."""

    name: str
    url: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    enabled: bool = True
    """What holds for tools that `exceptions` does not name."""
    exceptions: Mapping[str, bool] = field(default_factory=dict, hash=False)
    listed: tuple[ToolSpec, ...] | None = None
    """The tools, where the request brought the list along."""

    @property
    def identity(self) -> str:
        """Stands for the URL and the token, neither of which can be read back from it."""
        return sha256(f"{len(self.url)}:{self.url}{self.token or ''}".encode()).hexdigest()

    @property
    def secrets(self) -> tuple[str, ...]:
        """What is never to be said: the token, and what the URL has behind its path."""
        return tuple(secret for secret in (self.token, self.url.partition("?")[2]) if secret)

    def offers(self, tool: str) -> bool:
        return self.exceptions.get(tool, self.enabled)


@dataclass(frozen=True, slots=True)
class McpPlan:
    """The servers of a request, and the request without what names them."""

    servers: tuple[McpServer, ...]
    request: Request


def wants_mcp(request: Request) -> bool:
    """True if the request names MCP servers or their tools."""
    return bool(request.extras.get(FIELD)) or any(_is_toolset(tool) for tool in request.tools)


def parse_servers(request: Request) -> McpPlan:
    """The servers; BridgeError that names the field if they are not what they should be."""
    servers = _parsed_servers(request.extras.get(FIELD))
    toolsets, unsaid = _parsed_toolsets(request, servers)
    if toolsets and (bare := servers.keys() - toolsets.keys()):
        raise invalid_request(f"{FIELD}: {sorted(bare)[0]!r} has no mcp_toolset in tools")
    plan = tuple(_server(server, toolsets.get(name)) for name, server in servers.items())
    rest = replace(
        request,
        tools=tuple(tool for tool in request.tools if not _is_toolset(tool)),
        extras={name: value for name, value in request.extras.items() if name != FIELD},
        unread=(*request.unread, *unsaid),
    )
    return McpPlan(plan, rest)


def _is_toolset(tool: object) -> bool:
    return isinstance(tool, ServerTool) and tool.type == TOOLSET


def _parsed_servers(value: JsonValue) -> dict[str, _Server]:
    try:
        parsed = _SERVERS.validate_python(value or [])
    except ValidationError as error:
        raise _refusal(FIELD, error) from None
    if len(parsed) > MAX_SERVERS:
        raise invalid_request(f"{FIELD}: {len(parsed)} of them; {MAX_SERVERS} at most")
    servers = {server.name: server for server in parsed}
    if len(servers) < len(parsed):
        raise invalid_request(f"{FIELD}: two servers have the same name")
    return servers


def _parsed_toolsets(request: Request, servers: Mapping[str, _Server]) -> tuple[dict[str, _Toolset], list[str]]:
    found: dict[str, _Toolset] = {}
    unsaid: dict[str, None] = {}
    for index, tool in enumerate(request.tools):
        if not isinstance(tool, ServerTool) or tool.type != TOOLSET:
            continue
        try:
            toolset = _Toolset.model_validate(tool.options)
        except ValidationError as error:
            raise _refusal(f"tools.{index}", error) from None
        if toolset.mcp_server_name not in servers or toolset.mcp_server_name in found:
            problem = "named by two toolsets" if toolset.mcp_server_name in found else f"not in {FIELD}"
            raise invalid_request(f"tools.{index}.mcp_server_name: {toolset.mcp_server_name!r} is {problem}")
        found[toolset.mcp_server_name] = toolset
        unsaid |= dict.fromkeys(_unsaid(toolset))
    return found, list(unsaid)


def _unsaid(toolset: _Toolset) -> list[str]:
    """What is not followed: every tool is loaded at once."""
    configs = [toolset.default_config, *(toolset.configs or {}).values()]
    deferred = [f"{TOOLSET}.defer_loading"] if any(config and config.defer_loading for config in configs) else []
    return deferred + [f"{TOOLSET}.{name}" for name in toolset.model_extra or ()]


def _server(server: _Server, toolset: _Toolset | None) -> McpServer:
    enabled, exceptions = _old_choice(server) if toolset is None else _choice(toolset)
    listed = None
    if toolset is not None and toolset.tools is not None:
        listed = tuple(ToolSpec(tool.name, tool.input_schema, tool.description) for tool in toolset.tools)
    return McpServer(server.name, server.url, server.authorization_token, enabled, exceptions, listed)


def _old_choice(server: _Server) -> tuple[bool, dict[str, bool]]:
    """The choice as the first version of the beta had it: in the server itself."""
    said = server.tool_configuration
    if said is None:
        return True, {}
    if said.enabled is False:
        return False, {}
    return said.allowed_tools is None, dict.fromkeys(said.allowed_tools or (), True)


def _choice(toolset: _Toolset) -> tuple[bool, dict[str, bool]]:
    default = toolset.default_config.enabled if toolset.default_config else None
    configs = (toolset.configs or {}).items()
    return default is not False, {name: config.enabled for name, config in configs if config.enabled is not None}


def _refusal(path: str, error: ValidationError) -> BridgeError:
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return invalid_request(f"{'.'.join([path, *map(str, problem['loc'])])}: {problem['msg']}")
