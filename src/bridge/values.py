"""Dataclasses for values that are made by the dozen for every request.

`frozen=True` is the type checker's business here. The standard library's frozen classes set each field by a call of
`object.__setattr__`: that was a tenth of the time to a first token, to refuse at run time what mypy has refused before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses

    def dataclass(*, frozen=False, eq=True, **options):
        """The standard library's decorator; what is said to be frozen can be hashed, as there."""
        return dataclasses.dataclass(eq=eq, unsafe_hash=frozen and eq, **options)
