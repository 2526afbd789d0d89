"""The prompt: text field, completions, and their sources (`/` commands, `@` files).

Keys act in the order in which they were pressed.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Static, TextArea
from textual.widgets.text_area import Edit, EditResult, Location

from fugu_cli.ui.drawing import Palette, StyledPart, parse_style, styled_line
from fugu_cli.ui.graphemes import first_character, is_joiner, last_character
from fugu_cli.ui.tui.project_folder import FolderFiles, mention
from fugu_cli.ui.tui.screen_protocol import Choice
from fugu_cli.ui.tui.terminal_app import bound

if TYPE_CHECKING:
    from fugu_cli.ui.tui.vi_keys import ViKeys


async def run_bound_key(field: Widget, key: str) -> bool:
    """Run the action that a key of the field is bound to. Return False if it is bound to none."""
    bindings = field._bindings
    if field.app._keymap:
        bindings = bindings.copy()
        bindings.apply_keymap(field.app._keymap)
    for binding in bindings.key_to_bindings.get(key, ()):
        if not binding.priority and await field.app.run_action(binding.action, field):
            return True
    return False


class SearchInput(Input):
    """A field with one line of text."""

    def action_delete_left(self) -> None:
        """Delete the character before the cursor with all its code points."""
        before = self.value[: self.cursor_position]
        if self.selection.is_empty and before:
            size = len(last_character(before))
            self.delete(self.cursor_position - size, self.cursor_position)
        else:
            super().action_delete_left()

    async def _on_key(self, event: events.Key) -> None:
        if event.is_printable or not await run_bound_key(self, event.key):
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()


PLACEHOLDER = "ask for something · @ file · / command · ! shell"
PASTE_LINES = 20
PASTE_CHARACTERS = 2000
_FOLDED = re.compile(r"\[Pasted #(\d+): [\d,]+ (?:lines|characters)\]")

KeyFilter = Callable[[str], bool]
"""Is shown every key first; True when it has used it up."""
WalkHistory = Callable[[int], None]
"""Up at the first line (-1) or down at the last (+1). Called and not told: Enter may come right
behind it.
"""


class PromptInput(TextArea):
    """A text field that grows. Enter sends; Shift+Enter, Ctrl+J, Alt+Enter or a trailing backslash
    make a new line.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("send", "send", priority=False),
        bound("queue", "queue", priority=False),
        bound("new_line", "new_line", priority=False),
        bound("paste", "paste_picture", priority=False),
        bound("undo_typing", "undo", priority=False),  # its Ctrl+Z stops the program
    ]

    @dataclass
    class Submitted(Message):
        """A key sent this text, pastes unfolded. `queued`: it is for after the running work. `typed`:
        every character came from the keyboard.
        """

        text: str
        queued: bool = False
        typed: bool = False

    def __init__(self, id: str = "prompt") -> None:
        """Create the field. `picture` returns the mention of the clipboard's picture, in a thread;
        `paths` those of pasted paths.
        """
        super().__init__(
            id=id,
            compact=True,
            show_line_numbers=False,
            soft_wrap=True,
            highlight_cursor_line=False,
        )
        self.cursor_blink = False
        self.placeholder = PLACEHOLDER
        self.keys: KeyFilter = lambda key: False
        self.wander: WalkHistory = lambda by: None
        self.picture: Callable[[], str] = lambda: ""
        self.paths: Callable[[str], str] = lambda text: ""
        self.is_working: Callable[[], bool] = lambda: False
        """True if a request is being worked on, so that another can be queued."""
        self.vi: ViKeys | None = None
        self.vi_key: Callable[[], None] = lambda: None
        """A key was vi's: its mode may be another one."""
        self.typed_at = 0.0
        self._pastes: dict[int, str] = {}
        self._is_typed = True
        """Nothing in the text came from a paste, the history or an editor."""

    @property
    def word(self) -> str:
        """The text between the last white space and the cursor."""
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        match = re.search(r"\S*$", before)
        return match.group() if match else ""

    def replace_word(self, text: str) -> None:
        """Put `text` in the place of `word`."""
        row, column = self.cursor_location
        self.replace(text, (row, column - len(self.word)), (row, column))

    def take(self) -> str:
        """Return the whole text, with folded pastes unfolded, and empty the field."""
        text = self.unfolded()
        self.put("")
        self._pastes.clear()
        return text

    def put(self, text: str) -> None:
        """Replace the text, with the cursor at its end."""
        self._is_typed = not text
        self.load_text(text)
        self.move_cursor(self.document.end)

    def unfolded(self) -> str:
        """Return the text with every folded paste as it was pasted."""
        return _FOLDED.sub(
            lambda match: self._pastes.get(int(match.group(1)), match.group()), self.text
        )

    def type_letter(self, letter: str) -> None:
        """Take the focus and insert a letter that was typed while another widget had it."""
        self.typed_at = time.monotonic()
        self.screen.set_focus(self)  # `focus` comes too late for letters that follow at once
        self.insert(letter)

    def action_send(self) -> None:
        """Send, or, after a backslash, go on in a new line."""
        row, column = self.cursor_location
        if self.document.get_line(row)[:column].endswith("\\"):
            self.replace("\n", (row, column - 1), (row, column))
            return
        self._submit(queued=False)

    def action_queue(self) -> None:
        """Send for after the running work."""
        if self.is_working():
            self._submit(queued=True)

    def _submit(self, *, queued: bool) -> None:
        if not self.text.strip():
            return
        is_typed = self._is_typed
        self.post_message(self.Submitted(self.take(), queued, is_typed))
        if self.vi is not None:
            self.vi.insert()
            self.vi_key()

    async def action_paste_picture(self) -> None:
        """Insert a mention of the clipboard's picture, or what was last cut here."""
        mention = await asyncio.to_thread(self.picture)
        if mention:
            self.insert(mention)
        else:
            self.action_paste()

    def action_new_line(self) -> None:
        """Insert a new line at the cursor."""
        self.insert("\n")

    def edit(self, edit: Edit) -> EditResult:
        """Change the text. An edit of more than one character counts as pasted, not typed."""
        result = super().edit(edit)
        if len(self.text) <= 1:
            self._is_typed = True
        elif last_character(edit.text) != edit.text:
            self._is_typed = False
        return result

    def undo(self) -> None:
        """Undo the last change. It may bring back a paste."""
        super().undo()
        self._is_typed = False

    def redo(self) -> None:
        """Redo what was undone. It may bring back a paste."""
        super().redo()
        self._is_typed = False

    def _recompute_cursor_offset(self) -> None:
        """Do nothing for a cursor below the last line: undo has just removed lines, and moves the
        cursor next.
        """
        if self.cursor_location[0] < self.document.line_count:
            super()._recompute_cursor_offset()  # type: ignore[no-untyped-call]

    def get_cursor_left_location(self) -> Location:
        """Return the cursor one character to the left; joined code points count as one character."""
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        if not before:
            return super().get_cursor_left_location()
        return row, column - len(last_character(before))

    def get_cursor_right_location(self) -> Location:
        """Return the cursor one character to the right; joined code points count as one character."""
        row, column = self.cursor_location
        after = self.document.get_line(row)[column:]
        if not after:
            return super().get_cursor_right_location()
        return row, column + len(first_character(after))

    def _delete_via_keyboard(self, start: Location, end: Location) -> EditResult | None:
        """Delete a folded paste as a whole, since half of its word stands for nothing."""
        start, end = sorted((start, end))
        for paste in (
            _FOLDED.finditer(self.document.get_line(start[0])) if start[0] == end[0] else ()
        ):
            if (
                paste.start() < end[1]
                and start[1] < paste.end()
                and int(paste.group(1)) in self._pastes
            ):
                start, end = min(start, (start[0], paste.start())), max(end, (end[0], paste.end()))
        return super()._delete_via_keyboard(start, end)

    async def _on_key(self, event: events.Key) -> None:
        self.typed_at = 0.0 if event.key == "enter" else time.monotonic()
        if self.keys(event.key):
            event.stop()
            event.prevent_default()
            return
        edge = {"up": self.cursor_at_first_line, "down": self.cursor_at_last_line}
        if self.vi is not None and self.vi.idle:
            edge |= {"k": edge["up"], "j": edge["down"]}
        if edge.get(event.key):  # stopped: the key would move the cursor in the text that comes
            event.stop()
            event.prevent_default()
            self.wander(-1 if event.key in ("up", "k") else 1)
            return
        if self.vi is not None and self.vi.key(event):
            event.stop()
            event.prevent_default()
            self.vi_key()
            return
        if await run_bound_key(self, event.key):
            event.stop()
            event.prevent_default()
            return
        if event.character is not None and is_joiner(event.character):
            event.stop()
            event.prevent_default()
            self.insert(event.character)
            return
        await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        """Insert a paste. A long one is folded into one word and sent whole; paths of pictures
        become mentions. Some terminals paste nothing for a picture, so an empty paste looks for one
        in the clipboard.
        """
        event.stop()
        event.prevent_default()
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        text = self.paths(text) or text if text else await asyncio.to_thread(self.picture)
        lines = text.count("\n") + 1
        if lines <= PASTE_LINES and len(text) <= PASTE_CHARACTERS:
            self.insert(text)
            return
        number = len(self._pastes) + 1
        self._pastes[number] = text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        self.insert(f"[Pasted #{number}: {size}]")


class QueuedTexts(Static):
    """The messages that wait for the next result, and the queued requests. Hidden while there are
    none.
    """

    def __init__(self) -> None:
        super().__init__("", id="queue", markup=False)

    def show(self, texts: Sequence[str], messages: Sequence[str] = ()) -> None:
        """Show the first of these texts."""
        lines = [
            *(f"↳ with the next result: {_one_line(text)}" for text in messages),
            *(f"queued: {_one_line(text)}" for text in texts),
        ]
        more = [f"… and {len(lines) - SHOWN_QUEUE} more"] if len(lines) > SHOWN_QUEUE else []
        self.display = bool(lines)
        self.update("\n".join([*lines[:SHOWN_QUEUE], *more]))


SHOWN_QUEUE = 3


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]


TYPING_PAUSE = 0.7
"""Seconds without a key after which a question may take the keys."""
SECOND_PRESS_SECONDS = 2.0


class SecondPress:
    """A key that does something else when it is pressed twice within a moment."""

    def __init__(self) -> None:
        self._at = -SECOND_PRESS_SECONDS

    def again(self) -> bool:
        """Note a press. Return whether it is the second one."""
        pressed_at, before = time.monotonic(), self._at
        self._at = pressed_at
        return pressed_at - before < SECOND_PRESS_SECONDS


SHOWN_CHOICES = 8


class ChoiceList(Widget):
    """A list of choices below the prompt, hidden while it is empty."""

    def __init__(self, palette: Palette, id: str | None = None) -> None:
        super().__init__(id=id)
        self.palette = palette
        self.choices: tuple[Choice, ...] = ()
        self.at = 0
        self.display = False

    def offer(self, choices: Sequence[Choice]) -> None:
        """Show these choices with the first one marked; no choices hide the list."""
        if tuple(choices) == self.choices:
            return
        self.choices, self.at = tuple(choices), 0
        self.display = bool(choices)
        self.styles.height = min(len(choices), SHOWN_CHOICES)
        self.refresh()

    @property
    def marked(self) -> Choice | None:
        """The marked choice."""
        return self.choices[self.at] if self.choices else None

    def move(self, by: int) -> None:
        """Mark the next or previous choice; after the last comes the first."""
        if self.choices:
            self.at = (self.at + by) % len(self.choices)
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw a row, the marked one highlighted."""
        first = min(max(self.at - SHOWN_CHOICES + 1, 0), max(len(self.choices) - SHOWN_CHOICES, 0))
        index = first + y
        width = self.size.width
        if index >= len(self.choices):
            return Strip.blank(width, self.rich_style)
        choice, palette = self.choices[index], self.palette
        lead = "› " if index == self.at else "  "
        parts: list[StyledPart] = [
            (lead, palette.accent),
            (choice.shown, f"bold {palette.text}"),
            ("  ", ""),
        ]
        strip = Strip(styled_line([*parts, (choice.about, palette.dim)], width)).adjust_cell_length(
            width
        )
        if index == self.at:
            strip = strip.apply_style(parse_style(palette.cursor))
        return strip.apply_style(self.rich_style)


MOST_RESOURCES = 10
"""Resources of MCP servers that are offered, behind the files."""
CommandChoices = Callable[[str], Sequence[Choice]]
"""Return completions for the beginning of a command line."""


class PromptCompletion:
    """Offers completions for the word at the cursor. Its keys have precedence over the prompt's."""

    def __init__(
        self,
        prompt: PromptInput,
        choices: ChoiceList,
        files: FolderFiles,
        commands: CommandChoices,
        resources: Callable[[], Sequence[str]],
    ) -> None:
        self._prompt = prompt
        self._resources = resources
        self._choices = choices
        self._files = files
        self._commands = commands
        self._search = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed_at = ""
        self._offered_for = ""
        self._wished_for = ""
        prompt.keys = self.key

    def changed(self) -> None:
        """Update the completions after text or cursor changed."""
        text, word = self._prompt.text, self._prompt.word
        if text == self._offered_for and not word.startswith("@"):
            return
        self._offered_for = text
        self._search += 1
        if text == self._closed_at:
            return
        self._closed_at = ""
        if text.startswith("/") and "\n" not in text and self._prompt.cursor_at_end_of_text:
            self._choices.offer(self._commands(text))
        elif word.startswith("@"):
            task = asyncio.get_running_loop().create_task(self._find(word[1:], self._search))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._choices.offer(())

    async def _find(self, query: str, number: int) -> None:
        def work() -> list[str]:
            self._files.refresh()
            return self._files.search(query, superseded=lambda: number != self._search)

        paths = await asyncio.to_thread(work)
        named = [name for name in self._resources() if query.lower() in name.lower()]
        if number == self._search:
            self._choices.offer(
                [Choice(mention(path), path) for path in (*paths, *named[:MOST_RESOURCES])]
            )
            if self._wished_for == self._prompt.text and self._choices.marked is not None:
                self._accept(self._choices.marked)

    def key(self, key: str) -> bool:
        """Handle a key of the prompt. Return True if the list used it. Keys may come faster than
        the list is updated, so a choice for fewer letters is not taken, and Tab waits for the
        matching files. Without completions the key belongs to the prompt.
        """
        self._wished_for = ""
        if self._prompt.text != self._offered_for:
            self._choices.offer(())
            self.changed()
        marked = self._choices.marked
        if marked is None:
            if key == "tab" and self._prompt.word.startswith("@"):
                self._wished_for = self._prompt.text
                return True
            return False
        match key:
            case "up" | "ctrl+p":
                self._choices.move(-1)
            case "down" | "ctrl+n":
                self._choices.move(1)
            case "escape":
                self.close()
            case "tab":
                self._accept(marked)
            case "enter":
                return self._enter(marked)
            case _:
                return False
        return True

    def close(self) -> None:
        """Hide the list until the text changes."""
        self._closed_at = self._prompt.text
        self._choices.offer(())

    def _accept(self, choice: Choice) -> None:
        if choice.value.startswith("/"):
            self._prompt.put(choice.value)
        else:
            self._prompt.replace_word(choice.value + " ")
        self._choices.offer(())

    def _enter(self, choice: Choice) -> bool:
        """Insert a file; send a command that needs nothing more."""
        if not choice.value.startswith("/"):
            self._accept(choice)
            return True
        self._accept(choice)
        return choice.value.endswith(" ")
