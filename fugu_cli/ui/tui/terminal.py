"""An application of fugu's in a terminal, whatever it shows: how the terminal is read, and how it ended.

Under app.py and viewing.py.
"""

from __future__ import annotations

import os
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.driver import Driver

BROKE = 2
"""The exit code of what ended and was not left."""


class TerminalApp(App[int], inherit_bindings=False):
    """Without Textual's own keys: its Ctrl+Q leaves at once, and all that was typed is lost."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+z", "suspend_process", show=False, priority=True)]

    def on_mount(self) -> None:
        """Gone on with after a stop (Ctrl+Z, then `fg`), the terminal is empty: everything is painted again."""
        self.app_resume_signal.subscribe(self, lambda app: app.refresh(layout=True))

    def action_suspend_process(self) -> None:
        """Stop as any program of the shell does; `fg` goes on."""
        if self._driver is None or not self._driver.can_suspend:
            return
        from fugu_cli.ui.tui import driver

        if os.getpgrp() == os.getsid(0):  # no shell waits that could go on with it
            self.notify("there is no shell to go back to", severity="warning")
        elif isinstance(self._driver, driver.PlainPastes):
            self._driver.stop()

    @property
    def exit_code(self) -> int:
        """0 when the user left. Where it broke, Textual has another code or, after a panic, none."""
        return 0 if self.return_code == 0 else BROKE

    def get_driver_class(self) -> type[Driver]:
        """Ours in the place of the one for terminals of Unix."""
        found = super().get_driver_class()
        if found.__name__ != "LinuxDriver":  # Windows, a browser
            return found
        from fugu_cli.ui.tui import driver  # there alone it can be imported

        return driver.PlainPastes
