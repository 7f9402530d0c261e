"""Why a setting cannot have its value: what it takes, and what it was given unless that is secret."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

_LONGEST_VALUE = 40
_WORDS = {"enforceanthropic": "enforceAnthropic"}
_SYNONYMS = frozenset({"warning"})


def problem(field: FieldInfo, detail: ErrorDetails, *, secret: bool) -> str:
    """One sentence that begins with the variable's name."""
    kind = detail["type"]
    if kind == "value_error":
        return f"{field.alias} {detail['msg'].removeprefix('Value error, ')}"
    takes = _takes(field, kind, detail.get("ctx", {}))
    if takes is None:
        return f"{field.alias}: {detail['msg']} ({field.description})"
    given = "" if secret else f", not {str(detail['input'])[:_LONGEST_VALUE]!r}"
    return f"{field.alias} takes {takes}{given}"


def _takes(field: FieldInfo, kind: str, context: dict[str, Any]) -> str | None:
    if kind == "literal_error":
        return _either(re.findall(r"'([^']*)'", context["expected"]))
    if kind == "bool_parsing":
        return "true or false"
    if kind.startswith(("int_", "float_", "greater_than", "less_than", "finite_")):
        whole = "whole " if "int" in str(field.annotation) else ""
        return f"a {whole}number{_bounds(field, context)}"
    return None


def _either(choices: list[str]) -> str:
    shown = [_WORDS.get(choice, choice) for choice in choices if choice not in _SYNONYMS]
    return f"{', '.join(shown[:-1])} or {shown[-1]}" if len(shown) > 1 else shown[0]


def _bounds(field: FieldInfo, context: dict[str, Any]) -> str:
    """The numbers between which a value has to lie, as the field has them, else as far as the error tells them."""
    told = {name: _bound(field, name, context) for name in ("ge", "gt", "le")}
    least, above, most = (value if value is None else f"{value:.10g}" for value in told.values())
    if least is not None and most is not None:
        return f" from {least} to {most}"
    parts = [f"of {least} or more"] if least is not None else []
    parts += [f"above {above}"] if above is not None else []
    parts += [f"of {most} at most"] if most is not None and above is None else []
    parts += [f"{most} at most"] if most is not None and above is not None else []
    return " " + ", ".join(parts) if parts else ""


def _bound(field: FieldInfo, name: str, context: dict[str, Any]) -> float | None:
    found = (getattr(part, name, None) for part in field.metadata)
    return next((value for value in found if value is not None), context.get(name))
