"""The last line of the screen. It shows a `Standing`; its clock ticks only while it shows a time."""

from __future__ import annotations

import time

from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from fugu_cli.ui.tui.draw.palette import Palette
from fugu_cli.ui.tui.draw.standing import status
from fugu_cli.ui.tui.front import Standing


class Status(Widget):
    """One line."""

    def __init__(self, palette: Palette, id: str = "status") -> None:
        super().__init__(id=id)
        self.palette = palette
        self.standing = Standing()
        self._clock: Timer | None = None

    def tell(self, standing: Standing) -> None:
        """Say this from now on."""
        if standing == self.standing:
            return
        self.standing = standing
        if self._clock is None and self._moves():
            self._clock = self.set_interval(1.0, self._tick)
        self._tick()

    def _moves(self) -> bool:
        now = time.time()
        return bool(self.standing.doing) or any(until > now for _, until in self.standing.unavailable)

    def _tick(self) -> None:
        if self._clock is not None and not self._moves():
            self._clock.stop()
            self._clock = None
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """The line."""
        width = self.size.width
        made = status(self.standing, time.time(), width, self.palette)
        return Strip(made).adjust_cell_length(width).apply_style(self.rich_style)
