"""Where requests are typed: several lines, history at its edges, long pastes folded.

At the foot of the main screen. It knows keys and text; what a text means (a command, a shell line, a request) is
decided by whoever hears `Submitted`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

from fugu_cli.ui.tui.widgets.at_once import bound

HINT = "ask for something · @ file · / command · ! shell"
PASTE_LINES = 20
PASTE_CHARACTERS = 2000
_FOLDED = re.compile(r"\[Pasted #(\d+): [\d,]+ (?:lines|characters)\]")

Keys = Callable[[str], bool]
"""Is shown every key first; True when it has used it up."""
Wander = Callable[[int], None]
"""Up at the first line (-1) or down at the last (+1). Called and not told: Enter may come right behind it."""


class Prompt(TextArea):
    """A text field that grows. Enter sends; Shift+Enter, Ctrl+J, Alt+Enter or a trailing backslash make a new line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", show=False, priority=False),
        Binding("shift+enter,ctrl+j,alt+enter", "new_line", show=False),
        Binding("ctrl+underscore", "undo", show=False),  # its Ctrl+Z stops the program
    ]

    @dataclass
    class Submitted(Message):
        """Enter was pressed on this text, pastes unfolded."""

        text: str

    def __init__(self, id: str = "prompt") -> None:
        super().__init__(id=id, compact=True, show_line_numbers=False, soft_wrap=True, highlight_cursor_line=False)
        self.cursor_blink = False
        self.placeholder = HINT
        self.keys: Keys = lambda key: False
        self.wander: Wander = lambda by: None
        self.typed_at = 0.0
        self._pastes: dict[int, str] = {}

    @property
    def word(self) -> str:
        """What stands between the last white space and the cursor."""
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        found = re.search(r"\S*$", before)
        return found.group() if found else ""

    def replace_word(self, text: str) -> None:
        """Put `text` in the place of `word`."""
        row, column = self.cursor_location
        self.replace(text, (row, column - len(self.word)), (row, column))

    def take(self) -> str:
        """The whole text, pastes unfolded; the field is empty then."""
        text = self.unfolded()
        self.put("")
        self._pastes.clear()
        return text

    def put(self, text: str) -> None:
        """Another text, the cursor at its end."""
        self.load_text(text)
        self.move_cursor(self.document.end)

    def unfolded(self) -> str:
        """The text with every folded paste as it was pasted."""
        return _FOLDED.sub(lambda found: self._pastes.get(int(found.group(1)), found.group()), self.text)

    def action_send(self) -> None:
        """Send, or, after a backslash, go on in a new line."""
        row, column = self.cursor_location
        if self.document.get_line(row)[:column].endswith("\\"):
            self.replace("\n", (row, column - 1), (row, column))
            return
        if self.text.strip():
            self.post_message(self.Submitted(self.take()))

    def action_new_line(self) -> None:
        """A new line at the cursor."""
        self.insert("\n")

    def action_delete_left(self) -> None:
        """The letter before the cursor; a folded paste goes whole, for half of its word stands for nothing."""
        if not self._unpasted(before=True):
            super().action_delete_left()

    def action_delete_word_left(self) -> None:
        """The word before the cursor, or the folded paste."""
        if not self._unpasted(before=True):
            super().action_delete_word_left()

    def action_delete_right(self) -> None:
        """The letter behind the cursor, or the folded paste."""
        if not self._unpasted(before=False):
            super().action_delete_right()

    def action_delete_word_right(self) -> None:
        """The word behind the cursor, or the folded paste."""
        if not self._unpasted(before=False):
            super().action_delete_word_right()

    def _unpasted(self, *, before: bool) -> bool:
        """Take the folded paste out that stands right before the cursor, or behind it. False where there is none."""
        row, column = self.cursor_location
        for found in _FOLDED.finditer(self.document.get_line(row)):
            touched = (found.end() if before else found.start()) == column
            if touched and self.selection.is_empty and int(found.group(1)) in self._pastes:
                self.delete((row, found.start()), (row, found.end()))
                return True
        return False

    async def _on_key(self, event: events.Key) -> None:
        self.typed_at = 0.0 if event.key == "enter" else time.monotonic()
        if self.keys(event.key):
            event.stop()
            event.prevent_default()
            return
        if event.key == "enter":  # the field itself would insert a line
            event.stop()
            event.prevent_default()
            self.action_send()
            return
        edge = {"up": self.cursor_at_first_line, "down": self.cursor_at_last_line}
        if edge.get(event.key):  # stopped: the key would move the cursor in the text that comes
            event.stop()
            event.prevent_default()
            self.wander(-1 if event.key == "up" else 1)
            return
        if await bound(self, event.key):
            event.stop()
            event.prevent_default()
            return
        await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        """A long paste stands in the field as one word; it is sent whole."""
        event.stop()
        event.prevent_default()
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if lines <= PASTE_LINES and len(text) <= PASTE_CHARACTERS:
            self.insert(text)
            return
        number = len(self._pastes) + 1
        self._pastes[number] = text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        self.insert(f"[Pasted #{number}: {size}]")
