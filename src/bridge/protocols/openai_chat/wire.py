"""Raw JSON of the wire: the per-chunk path reads fields and builds no models. Wrong shapes raise and are caught."""

from typing import Any, TypeAlias

WireObject: TypeAlias = dict[str, Any]
