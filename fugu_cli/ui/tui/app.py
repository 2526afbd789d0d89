"""The application: themes, the main screen, and how it ends.

Started by `run_app`. Everything of weight is imported behind the first paint (screens/main.py).
"""

from __future__ import annotations

import select
import sys
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import BindingType

from fugu_cli.ui.tui.draw.palette import PALETTES
from fugu_cli.ui.tui.keeping import look
from fugu_cli.ui.tui.screens.main import Main
from fugu_cli.ui.tui.terminal import TerminalApp
from fugu_cli.ui.tui.themes import guessed, themes

if TYPE_CHECKING:
    from fugu_cli.ui.tui.session import Desk, Options

SETTLES, TRIES = 0.03, 100
"""Seconds for what was read from the terminal to arrive; how often it is looked whether all was read."""


class FuguApp(TerminalApp):
    """fugu in a terminal."""

    CSS_PATH = "app.tcss"
    TITLE = "fugu"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, desk: Desk, options: Options) -> None:
        super().__init__()
        for theme in themes():
            self.register_theme(theme)
        left = look(options.state)
        palette = PALETTES.get(options.theme) or PALETTES.get(left.theme) or guessed()
        self.theme = palette.name
        self.main = Main(desk, options, palette, left)
        self._early: list[events.Key | events.Paste] | None = []

    def get_default_screen(self) -> Main:
        """The main screen is the only one that is always there."""
        return self.main

    async def on_event(self, event: events.Event) -> None:
        """What is typed before there is a prompt waits for it. Before that a terminal makes a line feed of Enter."""
        if self._early is None or not isinstance(event, events.Key | events.Paste):
            await super().on_event(event)
        elif isinstance(event, events.Key) and event.key == "ctrl+j":
            self._early.append(events.Key("enter", None))
        else:
            self._early.append(event)

    def on_descendant_focus(self) -> None:
        """The prompt can take keys now; first come those that were typed too early, once all of them are here."""
        if self._early is not None:
            self._settle(0 if self.is_headless else TRIES)

    def _settle(self, tries: int) -> None:
        """What was typed before the terminal was ours may lie unread, or be on its way from the thread that reads."""
        if tries == 0:
            self._hand_over()
        else:
            self.set_timer(SETTLES, partial(self._settle, tries - 1 if unread() else 0))

    def _hand_over(self) -> None:
        early, self._early = self._early or [], None
        for event in early:
            if self.focused is not None:
                self.focused._forward_event(event)

    async def on_unmount(self) -> None:
        """However it ends, the session is closed: what was cut is in the log."""
        if self.main.room is not None:
            await self.main.room.close()


def unread() -> bool:
    """Something that was typed has not been read."""
    try:
        return sys.__stdin__ is not None and bool(select.select([sys.__stdin__], [], [], 0)[0])
    except (OSError, ValueError):  # it is closed, or the system cannot say
        return False
