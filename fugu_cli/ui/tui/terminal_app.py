"""The base of both applications: how the terminal is read, suspended and left; the themes; and the sizes below which
the layout changes.
"""

from __future__ import annotations

import os
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.theme import Theme

from fugu_cli.ui.drawing import DARK, LIGHT, PALETTES, Palette

NARROW_COLUMNS, SHORT_LINES = 90, 20
"""Columns and lines below which parts stand one below the other, or are left out."""


BACKGROUNDS = {"dark": ("#10141a", "#161b22", "#1f2630"), "light": ("#ffffff", "#f6f8fa", "#eaeef2"),
           "contrast": ("#000000", "#000000", "#1a1a1a")}  # fmt: skip
"""Background, surface, panel."""


def textual_themes() -> list[Theme]:
    """One for each palette."""
    return [_theme(palette) for palette in PALETTES.values()]


def _theme(palette: Palette) -> Theme:
    background, surface, panel = BACKGROUNDS[palette.name]
    return Theme(
        name=palette.name,
        dark=palette.dark,
        primary=palette.accent,
        secondary=palette.user,
        accent=palette.accent,
        warning=palette.warn,
        error=palette.bad,
        success=palette.good,
        foreground=palette.text,
        background=background,
        surface=surface,
        panel=panel,
        variables={"border-blurred": panel, "muted": palette.dim},
    )


def guess_palette() -> Palette:
    """Light where the terminal says that its background is (COLORFGBG), else dark."""
    ground = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT if ground in {"7", "15"} else DARK


CRASH_EXIT_CODE = 2
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
