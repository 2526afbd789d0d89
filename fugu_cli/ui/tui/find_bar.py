"""Ctrl+F: searches the conversation, folded output included, and the trace if it is shown."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input, Static

from fugu_cli.formatting import plural
from fugu_cli.ui.tui.pager import EntryPager
from fugu_cli.ui.tui.panels import Conversation, Trace
from fugu_cli.ui.tui.prompt import PromptInput, SearchInput

ENTRIES_AT_A_TIME = 200
"""Entries that are searched before pressed keys are handled."""


class FindField(SearchInput):
    """The field in which the user types the text to find."""

    hint = "enter goes on with n and N · esc closes"


class FindBar(Horizontal):
    """The line with the field and the number of matches, hidden until Ctrl+F opens it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "browse", show=False, priority=True),
        Binding("up", "step(-1)", show=False),
        Binding("down", "step(1)", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="find")
        self.display = False
        self._needle = ""
        self._current: tuple[EntryPager, int] | None = None
        """The pager and entry of the match that is shown."""
        self._lowest_visible = 0
        """The lowest block that was visible when the bar was opened."""

    def compose(self) -> ComposeResult:
        """Yield the field and the number of matches."""
        yield Static("find", id="find-label", markup=False)
        yield FindField(id="find-text", compact=True)
        yield Static("", id="find-count", markup=False)

    def open(self) -> None:
        """Show the bar with the text of the last search."""
        if not self.display:
            self._lowest_visible = self.screen.query_one(Conversation).last_seen
        self.display = True
        self.screen.add_class("-finding")
        field = self.query_one(FindField)
        field.focus()
        field.action_select_all()
        if field.value:
            self._search(field.value)

    def close(self) -> bool:
        """Hide the bar. Return whether it was open."""
        if not self.display:
            return False
        self.display = False
        self.screen.remove_class("-finding")
        self._search("")
        self.screen.query_one(PromptInput).focus()
        return True

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search for the typed text."""
        event.stop()
        if self.display:
            self._search(event.value)

    def action_browse(self) -> None:
        """Leave the field, so that n and N go from match to match."""
        if self._current is None:
            self.screen.set_focus(self.screen.query_one(Conversation))
        else:
            pager, _ = self._current
            self.screen.set_focus(pager)

    def action_step(self, by: int) -> None:
        """Go to the next or the previous match."""
        if self._needle:
            self.run_worker(self._step(by), exclusive=True)

    def _search(self, text: str) -> None:
        self._needle = text.lower()
        self._current = None
        for pager in self._pagers():
            pager.highlight(self._needle)
        if self._needle:
            self.run_worker(self._step(0), exclusive=True)
        else:
            self.query_one("#find-count", Static).update("")

    def _pagers(self) -> list[EntryPager]:
        pagers: list[EntryPager] = [
            self.screen.query_one(Conversation),
            self.screen.query_one(Trace),
        ]
        return [pager for pager in pagers if pager.size.width]

    async def _step(self, by: int) -> None:
        """Show the next match (1) or the previous one (-1). Without a current match, show the lowest
        one of the conversation that was visible or above when the bar was opened.
        """
        matches = await self._find_matches()
        if not self._needle:
            return  # the bar was closed meanwhile
        if not matches:
            self.query_one("#find-count", Static).update("nothing found")
            return
        current = self._current
        if current is not None and current in matches:
            pager, entry = current
            if pager.step_within(entry, self._needle, by):
                return
            index = (matches.index(current) + by) % len(matches)
        else:
            earlier = [
                index
                for index, (pager, entry) in enumerate(matches)
                if isinstance(pager, Conversation) and entry <= self._lowest_visible
            ]
            index = earlier[-1] if earlier else 0
        self._current = pager, entry = matches[index]
        pager.show_match(entry, self._needle, from_end=by < 0)
        if not self.query_one(FindField).has_focus and not pager.has_focus:
            pager.focus()
        total = plural(len(matches), "entry", "entries")
        self.query_one("#find-count", Static).update(f"{index + 1} of {total}")

    async def _find_matches(self) -> list[tuple[EntryPager, int]]:
        """Return the entries that contain the text, those of the conversation first."""
        matches = []
        for pager in self._pagers():
            for entry in range(pager.entry_count):
                if self._needle in pager.entry_text(entry).lower():
                    matches.append((pager, entry))
                if entry % ENTRIES_AT_A_TIME == 0:
                    await asyncio.sleep(0)
        return matches
