"""A text over the whole terminal, in titled sections: a turn in full, a diff, help.

Opened from the main screen or the trace view; closed with Escape or q. Digits jump to sections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static

from fugu_cli.ui.tui.draw.detail import Section, title
from fugu_cli.ui.tui.draw.palette import Palette
from fugu_cli.ui.tui.widgets.pager import Pager

Page = Callable[[int], tuple[str, Sequence[Section]] | None]
"""The page some steps away from the one that is shown, with its title; None where there is none."""


class Reader(Screen[None]):
    """Shows one page; left and right turn to the ones beside it, where there are any."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "leave", show=False, priority=True),
        Binding("escape,q", "leave", show=False),
        Binding("left,h", "turn(-1)", show=False),
        Binding("right,l", "turn(1)", show=False),
        *(Binding(str(number), f"section({number})", show=False) for number in range(1, 10)),
    ]

    def __init__(self, palette: Palette, page: Page) -> None:
        super().__init__()
        self._palette = palette
        self._page = page
        self._starts: list[int] = []

    def compose(self) -> ComposeResult:
        """A title, the text, what the keys do."""
        yield Static("", id="reader-title", markup=False)
        yield Pager(self._palette, id="reader-text")
        yield Static("", id="reader-keys", markup=False)

    def on_mount(self) -> None:
        """The first page."""
        self.action_turn(0)
        self.query_one(Pager).focus()

    def action_leave(self) -> None:
        """Back to where it was opened."""
        self.dismiss()

    def action_turn(self, by: int) -> None:
        """Another page."""
        found = self._page(by)
        if found is None:
            return
        text, sections = found
        self.query_one("#reader-title", Static).update(text)
        pager = self.query_one(Pager)
        pager.column.cut(0)
        self._starts = []
        for section in sections:
            self._starts.append(len(pager.column))
            if section.title:
                pager.column.put(len(pager.column), [title(f"{len(self._starts)} {section.title}")])
            pager.column.put(len(pager.column), section.pieces)
        keys = f"esc closes · 1-{min(len(sections), 9)} sections" if len(sections) > 1 else "esc closes"
        beside = " · ← → other turns" if self._page(0) is not None and len(sections) > 1 else ""
        self.query_one("#reader-keys", Static).update(f"{keys}{beside} · ↑ ↓ page up/down")
        pager.action_top()
        pager.grew()

    def action_section(self, number: int) -> None:
        """To a section."""
        if number <= len(self._starts):
            pager = self.query_one(Pager)
            pager.go_to(self._starts[number - 1])


def single(text: str, sections: Sequence[Section]) -> Page:
    """A reader's only page."""
    return lambda by: (text, sections) if by == 0 else None
