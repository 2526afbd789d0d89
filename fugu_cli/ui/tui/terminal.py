"""An application of fugu's in a terminal, whatever it shows: how the terminal is read, and how it ended.

Under app.py and viewing.py.
"""

from __future__ import annotations

from textual.app import App
from textual.driver import Driver

BROKE = 2
"""The exit code of what ended and was not left."""


class TerminalApp(App[int], inherit_bindings=False):
    """Without Textual's own keys: its Ctrl+Q leaves at once, and all that was typed is lost."""

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
