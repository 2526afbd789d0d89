"""vi's keys for the prompt: prompt-toolkit knows vi, the field has the text. In insert mode keys go
to the field.

Under prompt.py; imported where `[tui] vi` is set.
"""

from __future__ import annotations

from prompt_toolkit.application import Application
from prompt_toolkit.application.current import set_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.input import DummyInput
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.layout import BufferControl, Layout, Window
from prompt_toolkit.output import DummyOutput
from prompt_toolkit.selection import SelectionType
from textual import events
from textual.widgets import TextArea
from textual.widgets.text_area import Selection

Location = tuple[int, int]


class ViKeys:
    """The modes of one field. It begins in insert mode."""

    def __init__(self, field: TextArea) -> None:
        self._field = field
        self._buffer = Buffer(multiline=True)
        self._vi: Application[None] = Application(
            Layout(Window(BufferControl(self._buffer))),
            editing_mode=EditingMode.VI,
            input=DummyInput(),
            output=DummyOutput(),
        )
        self._change_word: dict[str, str] = {}
        """After `c` a word is changed to its end: the space behind it stays."""
        self._vi.timeoutlen = None  # type: ignore[assignment]  # half a command waits for as long as it takes

    @property
    def mode(self) -> str:
        """The mode under vi's name."""
        if self._vi.vi_state.input_mode != InputMode.NAVIGATION:
            return "REPLACE" if self._vi.vi_state.input_mode == InputMode.REPLACE else "INSERT"
        return "VISUAL" if self._buffer.selection_state else "NORMAL"

    @property
    def idle(self) -> bool:
        """True if no command is half typed."""
        waits = (
            self._vi.key_processor.key_buffer
            or self._vi.vi_state.operator_func
            or self._vi.key_processor.arg
        )
        return self.mode == "NORMAL" and not waits

    def insert(self) -> None:
        """Enter insert mode and drop a half-typed command."""
        self._leave(InputMode.INSERT)

    def key(self, event: events.Key) -> bool:
        """Handle a key of the field. Return True if it was vi's."""
        if event.key == "escape":
            if self.idle:
                return False
            if self.mode in ("INSERT", "REPLACE"):
                row, column = self._field.cursor_location
                self._field.move_cursor((row, max(column - 1, 0)))
            self._leave(InputMode.NAVIGATION)
            return True
        if self.mode == "INSERT" or event.character is None or not event.is_printable:
            return False
        self._read()
        letter = self._change_word.get(event.character, event.character)
        self._change_word = (
            {"w": "e", "W": "E"} if event.character == "c" and self.mode == "NORMAL" else {}
        )
        with set_app(self._vi):
            self._vi.key_processor.feed(KeyPress(letter, letter))
            self._vi.key_processor.process_keys()
        self._write()
        return True

    def _leave(self, mode: InputMode) -> None:
        self._vi.key_processor.reset()
        self._buffer.exit_selection()
        self._vi.vi_state.input_mode = mode
        self._field.selection = Selection.cursor(self._field.cursor_location)

    def _read(self) -> None:
        """Copy the field's text and cursor into vi's buffer."""
        if self._buffer.text != self._field.text:
            self._buffer.save_to_undo_stack()
            self._buffer.set_document(Document(self._field.text, 0), bypass_readonly=True)
        if not self._buffer.selection_state:
            self._buffer.cursor_position = self._buffer.document.translate_row_col_to_index(
                *self._field.cursor_location
            )

    def _write(self) -> None:
        """Copy vi's buffer back into the field."""
        if self._buffer.text != self._field.text:
            self._field.load_text(self._buffer.text)
        cursor = self._place(self._buffer.cursor_position)
        if (state := self._buffer.selection_state) is None:
            self._field.selection = Selection.cursor(cursor)
            return
        first, last = sorted((self._place(state.original_cursor_position), cursor))
        if state.type == SelectionType.LINES:
            first, last = (first[0], 0), (last[0], len(self._field.document.get_line(last[0])))
        else:
            last = (last[0], last[1] + 1)
        self._field.selection = Selection(first, last)

    def _place(self, index: int) -> Location:
        return self._buffer.document.translate_index_to_position(index)
