"""The base of both applications: how the terminal is read, suspended and left; the themes; and the sizes below which
the layout changes.
"""

from __future__ import annotations

import os
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.driver import Driver

from fugu_cli.ui.drawing import DARK, LIGHT, Palette
from fugu_cli.ui.tui.panels import Pager
from fugu_cli.ui.tui.themes import ASK_BACKGROUND, BackgroundTold, find_palette, guess_palette, textual_theme

NARROW_COLUMNS, SHORT_LINES = 90, 20
"""Columns and lines below which parts stand one below the other, or are left out."""


CRASH_EXIT_CODE = 2
"""The exit code of what ended and was not left."""


class TerminalApp(App[int], inherit_bindings=False):
    """Without Textual's own keys: its Ctrl+Q leaves at once, and all that was typed is lost."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+z", "suspend_process", show=False, priority=True)]

    def __init__(self, theme: str) -> None:
        super().__init__()
        self._auto, self.fault = False, ""
        self.palette = self.choose_palette(theme)

    def choose_palette(self, name: str) -> Palette:
        """Wear a theme; for one that cannot be used the one that fits the terminal, which is asked about its ground."""
        from fugu_cli.errors import ConfigError

        try:
            found = find_palette(name)
        except ConfigError as error:
            found, self.fault = None, str(error)
        self._auto = found is None
        self._wear(found or guess_palette())
        self._ask_background()
        return self.palette

    def _wear(self, palette: Palette) -> None:
        self.palette = palette
        theme = textual_theme(palette)
        self.register_theme(theme)
        self.theme = theme.name
        for screen in self.screen_stack if self.is_running else ():
            for part in (screen, *screen.walk_children()):
                if isinstance(part, Pager):
                    part.repaint(palette)
                elif hasattr(part, "palette"):
                    part.palette = palette
                    part.refresh()

    def _ask_background(self) -> None:
        if self._auto and self._driver is not None and os.environ.get("TERM") not in ("linux", "dumb"):
            self._driver.write(ASK_BACKGROUND)

    def on_background_told(self, event: BackgroundTold) -> None:
        """Follow the terminal."""
        if self._auto and event.dark != self.palette.dark:
            self._wear(DARK if event.dark else LIGHT)

    def on_app_focus(self) -> None:
        """The terminal may have changed its colours meanwhile."""
        self._ask_background()

    def on_mount(self) -> None:
        """Gone on with after a stop (Ctrl+Z, then `fg`), the terminal is empty: everything is painted again."""
        self.app_resume_signal.subscribe(self, lambda app: app.refresh(layout=True))
        self._ask_background()

    def action_suspend_process(self) -> None:
        """Stop as any program of the shell does; `fg` goes on."""
        if self._driver is None or not self._driver.can_suspend:
            return
        from fugu_cli.ui.tui import terminal_driver

        if os.getpgrp() == os.getsid(0):  # no shell waits that could go on with it
            self.notify("there is no shell to go back to", severity="warning")
        elif isinstance(self._driver, terminal_driver.PlainPasteDriver):
            self._driver.stop()

    @property
    def exit_code(self) -> int:
        """0 when the user left. Where it broke, Textual has another code or, after a panic, none."""
        return 0 if self.return_code == 0 else CRASH_EXIT_CODE

    def get_driver_class(self) -> type[Driver]:
        """Ours in the place of the one for terminals of Unix."""
        found = super().get_driver_class()
        if found.__name__ != "LinuxDriver":  # Windows, a browser
            return found
        from fugu_cli.ui.tui import terminal_driver  # there alone it can be imported

        return terminal_driver.PlainPasteDriver
