"""Ctrl+F: a text is looked for in the conversation, folded output included, and in the trace where
that is shown.
"""

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
"""Entries that are searched before keys get their turn."""


class FindField(SearchInput):
    """The field for the text."""

    hint = "enter goes on with n and N · esc closes"


class FindBar(Horizontal):
    """Hidden until somebody looks for something."""

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
        """The entry that was found last."""
        self._last_seen = 0
        """The lowest block in sight when the bar was opened."""

    def compose(self) -> ComposeResult:
        """Yield the field and the number of matches."""
        yield Static("find", id="find-label", markup=False)
        yield FindField(id="find-text", compact=True)
        yield Static("", id="find-count", markup=False)

    def open(self) -> None:
        """Show the bar, with the text that was looked for last."""
        if not self.display:
            self._last_seen = self.screen.query_one(Conversation).last_seen
        self.display = True
        self.screen.add_class("-finding")
        field = self.query_one(FindField)
        field.focus()
        field.action_select_all()
        if field.value:
            self._look_for(field.value)

    def close(self) -> bool:
        """Hide the bar. Return whether it was open."""
        if not self.display:
            return False
        self.display = False
        self.screen.remove_class("-finding")
        self._look_for("")
        self.screen.query_one(PromptInput).focus()
        return True

    def on_input_changed(self, event: Input.Changed) -> None:
        """Look for the typed text."""
        event.stop()
        if self.display:
            self._look_for(event.value)

    def action_browse(self) -> None:
        """Leave the field, so that n and N go from match to match."""
        pager = (
            self._current[0] if self._current is not None else self.screen.query_one(Conversation)
        )
        self.screen.set_focus(pager)

    def action_step(self, by: int) -> None:
        """Go to the next or the previous match."""
        if self._needle:
            self.run_worker(self._step(by), exclusive=True)

    def _look_for(self, text: str) -> None:
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
        """Show the match after the current one (or before it, with -1); with 0 the newest that
        stands no lower than what was seen when the bar was opened.
        """
        matches = await self._matches()
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
            seen = [
                index
                for index, (pager, entry) in enumerate(matches)
                if isinstance(pager, Conversation) and entry <= self._last_seen
            ]
            index = seen[-1] if seen else 0
        self._current = pager, entry = matches[index]
        pager.show_match(entry, self._needle, from_end=by < 0)
        if not self.query_one(FindField).has_focus and not pager.has_focus:
            pager.focus()
        found = plural(len(matches), "entry", "entries")
        self.query_one("#find-count", Static).update(f"{index + 1} of {found}")

    async def _matches(self) -> list[tuple[EntryPager, int]]:
        """Return the entries that hold the text, those of the conversation first."""
        matches = []
        for pager in self._pagers():
            for entry in range(pager.entry_count):
                if self._needle in pager.entry_text(entry).lower():
                    matches.append((pager, entry))
                if entry % ENTRIES_AT_A_TIME == 0:
                    await asyncio.sleep(0)
        return matches
