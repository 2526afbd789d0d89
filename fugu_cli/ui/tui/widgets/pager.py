"""A tall text that scrolls: paints the lines that are seen and nothing else.

Under the conversation, the trace, every detail view. It shows a Column and knows nothing of what the lines mean. It
draws its own scroll bar, because a widget that asks for a new layout with every token is slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message

from fugu_cli.ui.tui.draw.palette import Palette
from fugu_cli.ui.tui.widgets.sheet import Sheet

WHEEL = 3


class Pager(Sheet):
    """Shows `column`. `following`: the end stays in sight while the text grows. `lead`: what every line begins with."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll(-1)", show=False),
        Binding("down", "scroll(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("home", "top", show=False),
        Binding("end", "end", show=False),
    ]

    @dataclass
    class Clicked(Message):
        """A line was clicked; `block` is the one it belongs to."""

        pager: Pager
        block: int

    def __init__(self, palette: Palette, *, following: bool = False, lead: str = " ", id: str | None = None) -> None:
        super().__init__(palette, lead, id)
        self.following = self._follows = following
        self._total = 0

    def grew(self) -> None:
        """The column is not what it was: look again, and draw what changed."""
        before, total = self._top, self._total
        if self.following:
            self._top = self.column.look_at_end(self._height)
        else:
            self._top = self.column.look(min(self._top, self._last_top()), self._height)
        self._total = self.column.total
        changed = self.column.take_changed() - self._top
        if self._top != before or changed <= 0 or (self._total != total and self._total > self._height):
            self.refresh()
        elif changed < self._height:
            self.refresh(Region(0, changed, self.size.width, self._height - changed))

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Blocks are exchanged meanwhile; what stands at the top stays there."""
        block = None if self.following else self.column.block_at(self._top)
        within = 0 if block is None else self._top - self.column.top_of(block)
        yield
        if block is not None:
            self._top = self.column.top_of(block) + within
        self.grew()

    def repaint(self, palette: Palette) -> None:
        """Another palette."""
        self._forget()
        self._top = self.column.fit(self._room, palette, self._top)
        self.grew()

    def show_block(self, block: int) -> None:
        """Bring a block into sight."""
        top = self.column.top_of(block)
        if not self._top <= top < self._top + self._height:
            self._go(max(top - self._height // 3, 0))

    def go_to(self, block: int) -> None:
        """A block at the top of what is seen."""
        self._go(self.column.top_of(block))

    def action_scroll(self, by: int) -> None:
        """Move by some lines."""
        self._go(self.column.move(self._top, by))

    def action_page(self, pages: int) -> None:
        """Move by pages, one line less than is seen."""
        self.action_scroll(pages * max(self._height - 1, 1))

    def action_top(self) -> None:
        """To the beginning."""
        self._go(0)

    def action_end(self) -> None:
        """To the end, and stay there."""
        self._top = self.column.look_at_end(self._height)
        self.following = self._follows
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        """Fold the text anew; what was at the top stays there."""
        self._forget()
        self._top = self.column.fit(self._room, self.column.palette, self._top)
        self.grew()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel."""
        event.stop()
        self.action_scroll(-WHEEL)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel."""
        event.stop()
        self.action_scroll(WHEEL)

    def on_click(self, event: events.Click) -> None:
        """A click on the scroll bar goes there, one on the text tells which block it was."""
        if self.text_selection is not None:  # something was selected, nothing clicked
            return
        if event.x >= self.size.width - 1:
            self._go(event.y * self.column.total // max(self._height, 1))
        elif (block := self.column.block_at(self._top + event.y)) is not None:
            self.post_message(self.Clicked(self, block))

    def _last_top(self) -> int:
        return max(self.column.total - self._height, 0)

    def _go(self, top: int) -> None:
        top = min(max(top, 0), self._last_top())
        self._top = self.column.look(top, self._height)
        self.following = self._follows and self._top >= self._last_top()
        self.refresh()
