"""How clients name their tools and want to see them called, and the one flat name that any model knows a tool by.

namespace `crm`, tool `find`     crm__find        function_call with a namespace
custom tool (free text)          its name         custom_tool_call with the raw input
local shell, tool search         its type         local_shell_call, tool_search_call
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.canonical.json import JsonObject, JsonValue

CallKind: TypeAlias = Literal["function", "custom", "local_shell", "tool_search"]
_KINDS: tuple[CallKind, ...] = ("function", "custom", "local_shell", "tool_search")
CUSTOM_INPUT = "input"
LOCAL_SHELL = "local_shell"
TOOL_SEARCH = "tool_search"
WEB_SEARCH = "web_search"


@dataclass(frozen=True, slots=True)
class CallForm:
    """A tool by the client's own words, and the kind of item that calls it."""

    kind: CallKind
    name: str
    namespace: str | None = None

    @property
    def is_plain(self) -> bool:
        return self.kind == "function" and self.namespace is None


def flat_name(namespace: str | None, name: str) -> str:
    """The name that stands for a tool inside a namespace; some namespaces bring their separator along."""
    if not namespace:
        return name
    return f"{namespace}{name}" if namespace.endswith("__") else f"{namespace}__{name}"


def said_forms(forms: Mapping[str, CallForm]) -> JsonObject:
    """The forms that differ from a plain function, to be kept with the request until it is answered."""
    return {
        flat: {"kind": form.kind, "name": form.name, "namespace": form.namespace}
        for flat, form in forms.items()
        if not form.is_plain
    }


def form_of(said: JsonValue, flat: str) -> CallForm:
    """The form of a tool by its flat name; a plain function where nothing else was said."""
    match said.get(flat) if isinstance(said, dict) else None:
        case {"kind": str(kind), "name": str(name), "namespace": str() | None as namespace} if kind in _KINDS:
            return CallForm(_KINDS[_KINDS.index(kind)], name, namespace)
    return CallForm("function", flat)
