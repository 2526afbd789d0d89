"""The terminal of `fugu run`: lines that stay, and under them one that says what is being waited
for. Knows no events.

Owns standard error (what people read) and standard output (the answer). Colour only where the
stream is a terminal and NO_COLOR is not set. Knows no events: `headless.py` tells it what to print.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TextIO

from rich.text import Text

from fugu_cli.formatting import duration, first_line, retrying_in, shorten
from fugu_cli.ui.drawing import COLOUR_SYSTEMS, StyledLine, ansi_text
from fugu_cli.ui.output_stream import OutputStream

TICK = 1.0
"""Seconds between two updates of the waiting line."""


LOG_WIDTH = 120


class TerminalOutput:
    """Writes lines to standard error and data to standard output, and shows a waiting line in
    between.
    """

    def __init__(
        self,
        out: TextIO | None = None,
        err: TextIO | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.out = OutputStream(sys.stdout if out is None else out)
        self.err = OutputStream(sys.stderr if err is None else err)
        self._environ = environ
        self._waiting = ""
        self._since = 0.0
        self._until = 0.0
        self._drawn = ""
        self._is_held = False

    @property
    def colour(self) -> bool:
        """Return whether messages for people are coloured."""
        plain = self._environ.get("NO_COLOR") or self._environ.get("TERM") == "dumb"
        return self.err.terminal and not plain

    @property
    def width(self) -> int:
        """The columns of the terminal, LOG_WIDTH without one."""
        try:
            return os.get_terminal_size(sys.stderr.fileno()).columns or LOG_WIDTH
        except (OSError, ValueError, AttributeError):
            return LOG_WIDTH

    def show(self, text: Text | str) -> None:
        """Show people a line, above the waiting line."""
        self._erase()
        self.err.line(rich_to_ansi(text) if isinstance(text, Text) and self.colour else str(text))
        self._draw()

    def lines(self, lines: Sequence[StyledLine]) -> None:
        """Show people styled lines."""
        if lines:
            self.show(
                ansi_text(lines, COLOUR_SYSTEMS["standard"] if self.colour else None).removesuffix(
                    "\n"
                )
            )

    def data(self, text: str) -> None:
        """Write data for programs to standard output, unchanged."""
        self._erase()
        self.out.line(text)

    def wait(self, why: str, seconds: float = 0.0) -> None:
        """Show what is being waited for, "" for nothing. `seconds` are counted down until the next
        attempt.
        """
        time_now = time.monotonic()
        if why != self._waiting:
            self._waiting, self._since = why, time_now
        self._until = time_now + seconds if seconds else 0.0
        self._draw()

    @asynccontextmanager
    async def ticking(self) -> AsyncIterator[None]:
        """Keep the waiting line's seconds going while this is open."""
        task = asyncio.create_task(self._tick()) if self.err.terminal else None
        try:
            yield
        finally:
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            self._erase()
            self._waiting = ""

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hide the waiting line while a question is open."""
        self._erase()
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self._draw()

    def _draw(self) -> None:
        if not self._waiting or self._is_held or not self.err.terminal:
            return
        time_now = time.monotonic()
        taken = time_now - max(self._since, self._until)
        clock = f" ({duration(taken)})" if taken >= 1 else ""
        if self._until and taken < 1:
            clock = retrying_in(-taken)
        line = first_line(self._waiting, self.width) + clock
        # Letters may be two columns wide; a line that wraps could not be taken away again.
        plain = shorten(line.encode("ascii", "replace").decode("ascii"), self.width - 1)
        if plain != self._drawn:
            self.err.raw("\r\x1b[K" + plain)
            self._drawn = plain

    def _erase(self) -> None:
        if self._drawn:
            self.err.raw("\r\x1b[K")
            self._drawn = ""


def rich_to_ansi(text: Text) -> str:
    """Return a styled text with escape sequences, without wrapping its lines."""
    from rich.console import Console

    buffer = io.StringIO()
    console = Console(
        file=buffer, force_terminal=True, color_system="standard", width=10_000, highlight=False
    )
    console.print(text, soft_wrap=True, end="")
    return buffer.getvalue()
