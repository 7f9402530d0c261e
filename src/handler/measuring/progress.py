"""How far a measurement is, told while it runs."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from handler.measuring.run import Measured

TERMINAL_SECONDS = 0.2
PLAIN_SECONDS = 5.0
_CLEAR_LINE = "\r\x1b[K"


class Progress:
    """A line that changes on a terminal; elsewhere a new line every few seconds."""

    def __init__(self, stream: TextIO, total: int, seconds: float | None = None) -> None:
        self._stream, self._total = stream, total
        self._is_terminal = stream.isatty()
        self._seconds = seconds or (TERMINAL_SECONDS if self._is_terminal else PLAIN_SECONDS)

    async def tell(self, measured: Measured) -> None:
        """Tell until cancelled."""
        started = time.monotonic()
        try:
            while True:
                await asyncio.sleep(self._seconds)
                self._write(self._line(measured, time.monotonic() - started))
        finally:
            if self._is_terminal:
                self._write("")

    def _line(self, measured: Measured, seconds: float) -> str:
        failed = f", {measured.failed} failed" if measured.failed else ""
        return f"{measured.done} of {self._total} done{failed}, {measured.under_way} under way, {seconds:.0f} s"

    def _write(self, line: str) -> None:
        self._stream.write(_CLEAR_LINE + line if self._is_terminal else line + "\n")
        self._stream.flush()
