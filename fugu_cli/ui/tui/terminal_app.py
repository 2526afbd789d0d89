"""The base of both applications: how the terminal is read, suspended and left; the keys and what
they do; the themes; and the sizes below which the layout changes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from typing import ClassVar

from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.geometry import Size
from textual.keys import Keys, key_to_character
from textual.worker import WorkerFailed

from fugu_cli.errors import ConfigError
from fugu_cli.ui.drawing import Palette, without_colours
from fugu_cli.ui.tui.pager import Pager
from fugu_cli.ui.tui.themes import (
    ASK_BACKGROUND,
    BackgroundTold,
    WithoutColours,
    find_palette,
    guess_palette,
    palette_of_ground,
    textual_theme,
)

SHORT_LINES = 20
"""Lines below which parts are left out."""


KEYS: dict[str, tuple[str, str]] = {
    "send": ("enter", "send; while agents work, give it to them with the next result"),
    "queue": ("tab", "queue what is typed for after the running work"),
    "new_line": ("shift+enter,ctrl+j,alt+enter", "a new line; so does a backslash before Enter"),
    "stop": ("escape", "interrupt; close what is open; twice: go back to an earlier request"),
    "steer": ("ctrl+s", "interrupt and send what is typed or queued now"),
    "clear": ("ctrl+c", "copy what is selected, else empty the prompt; twice leaves"),
    "leave": ("ctrl+d", "leave, where the prompt is empty"),
    "mode": ("shift+tab", "the next permission mode"),
    "trace": ("ctrl+t", "show or hide the trace"),
    "focus": ("f6", "move the focus: question, conversation, trace, prompt"),
    "fold": ("ctrl+o", "unfold all tool results, or fold them"),
    "find": ("ctrl+f", "find a text in conversation, output and trace; n and N: next, previous"),
    "history": ("ctrl+r", "search the history"),
    "paste": ("ctrl+v", "attach the picture in the clipboard"),
    "editor": ("ctrl+g", "write in the editor ($VISUAL, $EDITOR)"),
    "copy": ("ctrl+y", "copy the newest answer"),
    "page_up": ("pageup", "scroll back"),
    "page_down": ("pagedown", "scroll on"),
    "top": ("ctrl+home", "the beginning of the conversation"),
    "end": ("ctrl+end", "its end"),
    "previous_request": ("ctrl+up", "the request before, in the conversation"),
    "next_request": ("ctrl+down", "the request after"),
    "undo_typing": ("ctrl+underscore", "undo typing"),
    "suspend": ("ctrl+z", "back to the shell; `fg` goes on"),
    "help": ("f1", "help"),
    "skip": ("f2", "end the running tests"),
}
"""The keys: name in the table `keys`, keys separated by commas, description."""
_ALIASES = {
    "esc": "escape",
    "return": "enter",
    "ctrl+_": "ctrl+underscore",
    "page_up": "pageup",
    "page_down": "pagedown",
}
_MODIFIERS = ("ctrl", "shift", "alt", "super", "hyper", "meta")


def bound(name: str, action: str, *, priority: bool = True) -> Binding:
    """Return the binding of one of KEYS. The user's keymap finds it by name."""
    return Binding(KEYS[name][0], action, id=name, show=False, priority=priority)


def read_keymap(table: Mapping[str, str]) -> dict[str, str]:
    """Return Textual's keymap for the table `keys`. Raises ConfigError for an unknown action or
    key, and for a key with two actions.
    """
    keymap: dict[str, str] = {}
    for name, keys in table.items():
        if name not in KEYS:
            near = get_close_matches(name, KEYS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(KEYS)}"
            raise ConfigError(f".fugurc: keys.{name}: there is no such action", hint=hint)
        keymap[name] = ",".join(_key(name, key.strip().lower()) for key in keys.split(","))
    owners: dict[str, str] = {}
    for action, (usual, _) in KEYS.items():
        for key in keymap.get(action, usual).split(","):
            owner = owners.setdefault(key, action)
            if owner != action:
                changed, unchanged = (action, owner) if action in keymap else (owner, action)
                raise ConfigError(
                    f".fugurc: keys.{changed}: {key} is the key of {unchanged}",
                    hint=f"give {unchanged} another one, too",
                )
    return keymap


def _key(name: str, typed: str) -> str:
    """Return a key by Textual's name."""
    key = _ALIASES.get(typed, typed)
    *modifiers, base = key.split("+")
    exists = (
        base in {known_key.value for known_key in Keys}
        or (len(base) == 1 and base.isprintable())
        or key_to_character(base)
    )
    if not exists or any(modifier not in _MODIFIERS for modifier in modifiers):
        hint = "keys are written as ctrl+t, alt+enter, shift+f5, pageup"
        raise ConfigError(f".fugurc: keys.{name} = {typed!r}: there is no such key", hint=hint)
    if set(modifiers) <= {"shift"} and key_to_character(base):
        raise ConfigError(
            f".fugurc: keys.{name} = {typed!r}: that key types", hint="add ctrl+ or alt+"
        )
    return key


def _moved_inside(event: events.MouseEvent, size: Size) -> events.MouseEvent:
    """Return the event at the nearest cell of the window."""
    x = min(max(event.x, 0), size.width - 1)
    y = min(max(event.y, 0), size.height - 1)
    return type(event)(
        None,
        x,
        y,
        event.delta_x,
        event.delta_y,
        event.button,
        event.shift,
        event.meta,
        event.ctrl,
        screen_x=x,
        screen_y=y,
    )


CRASH_EXIT_CODE = 2
"""The exit code of what ended and was not left."""


class TerminalApp(App[int], inherit_bindings=False):
    """An application without Textual's own keys: its Ctrl+Q would leave at once and lose what was
    typed.
    """

    BINDINGS: ClassVar[list[BindingType]] = [bound("suspend", "suspend_process")]

    def __init__(self, theme: str) -> None:
        super().__init__()
        self._auto, self.fault = False, ""
        self._pressed_inside = False
        self.palette = self.choose_palette(theme)

    def choose_palette(self, name: str) -> Palette:
        """Apply a theme. An unusable one is replaced by the one that fits the terminal's
        background, which is asked for.
        """
        try:
            palette = find_palette(name)
        except ConfigError as error:
            palette, self.fault = None, str(error)
        self._auto = palette is None
        self._wear(palette or guess_palette())
        self._ask_background()
        return self.palette

    def _wear(self, palette: Palette) -> None:
        theme = textual_theme(palette)
        if os.environ.get("NO_COLOR"):
            # in place of Textual's filter, which leaves greys
            self._filters = [WithoutColours(palette.grounds[0])]
            palette = without_colours(palette)
        self.palette = palette
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
        if (
            self._auto
            and self._driver is not None
            and os.environ.get("TERM") not in ("linux", "dumb")
        ):
            self._driver.write(ASK_BACKGROUND)

    def on_background_told(self, event: BackgroundTold) -> None:
        """Change the theme if it follows the terminal's background."""
        if self._auto and event.dark != self.palette.dark:
            self._wear(palette_of_ground(dark=event.dark))

    def on_app_focus(self) -> None:
        """Ask for the background again, since the terminal's colours may have changed."""
        self._ask_background()

    def on_mount(self) -> None:
        """Ask for the background, and redraw everything after a stop (Ctrl+Z, then `fg`)."""
        self.app_resume_signal.subscribe(self, lambda app: app.refresh(layout=True))
        self._ask_background()

    def action_suspend_process(self) -> None:
        """Stop like any program of the shell; `fg` continues."""
        if self._driver is None or not self._driver.can_suspend:
            return
        from fugu_cli.ui.tui import terminal_driver

        if os.getpgrp() == os.getsid(0):  # no shell waits that could go on with it
            self.notify("there is no shell to go back to", severity="warning")
        elif isinstance(self._driver, terminal_driver.PlainPasteDriver):
            self._driver.stop()

    async def on_event(self, event: events.Event) -> None:
        """Keep the mouse inside the window: beyond its edge Textual finds no widget, and takes the
        keyboard focus from the one that has it."""
        if isinstance(event, events.MouseEvent) and not event.is_forwarded:
            inside = self.size.region.contains(event.x, event.y)
            if isinstance(event, events.MouseDown):
                self._pressed_inside = inside
            if not inside:
                if not self._pressed_inside or not isinstance(
                    event, events.MouseMove | events.MouseUp
                ):
                    return
                event = _moved_inside(event, self.size)
        await super().on_event(event)

    def _handle_exception(self, error: Exception) -> None:
        """End the application; `report_crash` tells the user. Textual would print all variables.

        An error after the user has left is ignored: the screens are being taken away then, and one
        that was about to be shown may fail.
        """
        if self._exit:
            return
        self._return_code = 1
        if self._exception is None:
            # WorkerFailed has no traceback of its own
            cause = error.error if isinstance(error, WorkerFailed) else error
            self._exception = cause if isinstance(cause, Exception) else error
            self._exception_event.set()
        self._close_messages_no_wait()

    def report_crash(self) -> None:
        """Write a report of the exception that ended the application, if one did, and say so."""
        if self._exception is not None:
            from fugu_cli.system.crash_reports import report_crash

            print(report_crash(self._exception), end="", file=sys.stderr)

    @property
    def exit_code(self) -> int:
        """0 if the user left, else CRASH_EXIT_CODE. After a panic Textual has no code."""
        return 0 if self.return_code == 0 else CRASH_EXIT_CODE

    def get_driver_class(self) -> type[Driver]:
        """Return our driver instead of Textual's for Unix terminals."""
        driver = super().get_driver_class()
        if driver.__name__ != "LinuxDriver":  # Windows, a browser
            return driver
        from fugu_cli.ui.tui import terminal_driver  # there alone it can be imported

        return terminal_driver.PlainPasteDriver
