"""The table of `make bench-peers`, and what it says of the targets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LEGEND = """\
x = the bridge's figure divided by the peer's. More is better for chunks per second, less for everything else.
floor = a relay that forwards bytes on the bridge's own server and client. direct = the upstream itself.
One system at a time, the others held still. Cold start: process start to the first byte of the first streamed answer,
of the bridge as Lambda starts its package, of the others as servers; once without and once with DynamoDB Local read
before the call. Just started: the first requests and chunks of a server; warmed up: after some hundred thousand chunks
(node compiles what runs often; on Lambda an environment may never get that far)."""


@dataclass(frozen=True, slots=True)
class Target:
    """A limit on the bridge's figure, as a factor of another figure or as it is."""

    limit: float
    of: float = 1.0
    at_least: bool = False
    of_what: str = ""

    def is_met(self, value: float) -> bool:
        bound = self.limit * self.of
        return value >= bound if self.at_least else value <= bound

    def __str__(self) -> str:
        words = "at least" if self.at_least else "at most"
        return f"{words} {self.limit:g} x {self.of_what}" if self.of_what else f"{words} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class PeerRow:
    """One thing, measured on every system that has it."""

    name: str
    figures: Mapping[str, float]
    digits: int = 1
    target: Target | None = field(default=None)

    def ratio(self, peer: str) -> float | None:
        """The bridge's figure to a peer's."""
        other = self.figures.get(peer)
        # Noise can take a difference of two times to nothing or below.
        return self.figures["bridge"] / other if other and other > 0 else None

    def verdict(self) -> str | None:
        """Whether the target is met, in words."""
        if self.target is None:
            return None
        value = self.figures["bridge"]
        met = "met   " if self.target.is_met(value) else "MISSED"
        return f"{met} {self.name}: {value:,.{self.digits}f}, {self.target}"


def peer_table(rows: Sequence[PeerRow], peers: Sequence[str]) -> str:
    """The rows under their headings, peers with the bridge's ratio to each."""
    headings = ["", "bridge"]
    for peer in peers:
        headings += [peer, "x"]
    headings += ["floor", "direct"]
    lines = [headings, *(_cells(row, peers) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return "\n".join(_line(line, widths) for line in lines)


def verdicts(rows: Sequence[PeerRow]) -> list[str]:
    """One line per target."""
    return [verdict for row in rows if (verdict := row.verdict())]


def _cells(row: PeerRow, peers: Sequence[str]) -> list[str]:
    cells = [row.name, _number(row.figures["bridge"], row.digits)]
    for peer in peers:
        cells += [_number(row.figures.get(peer), row.digits), _number(row.ratio(peer), 2)]
    return cells + [_number(row.figures.get(name), row.digits) for name in ("floor", "direct")]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join([first.lstrip().ljust(widths[0]), *others])


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
