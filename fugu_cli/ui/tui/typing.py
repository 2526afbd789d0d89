"""The prompt of the inline mode: keys, completion, the lines above and below. prompt-toolkit is imported here only.

Under ui/inline.py, which says what each key does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from fugu_cli.ui.tui.completing import CommandChoices
from fugu_cli.ui.tui.files import Files, mention
from fugu_cli.ui.tui.front import SCOPES, Scope


@dataclass(frozen=True)
class Acts:
    """What keys do. `asked` says whether a question waits for its answer."""

    above: Callable[[], str]
    below: Callable[[], str]
    asked: Callable[[], bool]
    answer: Callable[[Scope], None]
    stop: Callable[[], None]
    leave: Callable[[], bool]
    mode: Callable[[], None]
    steer: Callable[[str], None]


class Offers(Completer):
    """`/` commands and `@` files."""

    def __init__(self, commands: CommandChoices, files: Files) -> None:
        self._commands = commands
        self._files = files

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What fits the text before the cursor."""
        text = document.text_before_cursor
        if text.startswith("/") and "\n" not in text:
            for choice in self._commands(text):
                yield Completion(choice.value, -len(text), display=choice.shown.strip(), display_meta=choice.about)
            return
        word = document.get_word_before_cursor(WORD=True)
        if word.startswith("@"):
            self._files.refresh()
            for path in self._files.search(word[1:]):
                yield Completion(mention(path), -len(word), display=path)


def prompt(acts: Acts, commands: CommandChoices, root: Path, texts: Iterable[str]) -> PromptSession[str]:
    """A prompt with fugu's keys. `texts` is what was typed before, the newest last."""
    history = InMemoryHistory()
    for text in texts:
        history.append_string(text)
    session: PromptSession[str] = PromptSession(
        message=lambda: ANSI(acts.above()),
        bottom_toolbar=lambda: ANSI(acts.below()),
        completer=ThreadedCompleter(Offers(commands, Files(root))),
        complete_while_typing=True,
        history=history,
        key_bindings=_keys(acts),
        multiline=True,
        enable_open_in_editor=True,
        enable_suspend=True,  # Ctrl+Z stops the process, as in any program of the shell
        erase_when_done=True,
        prompt_continuation="  ",
    )
    # Escape alone is a key here: do not wait long for the rest of a key, nor for another key, as in Escape B
    session.app.ttimeoutlen = session.app.timeoutlen = 0.05
    return session


class Above:
    """Prints above a prompt; while an editor has the terminal, it waits.

    The terminal stays raw: prompt-toolkit's own way leaves raw mode while it prints, and a key that comes meanwhile is
    echoed, Enter even becomes a new line.
    """

    def __init__(self, session: PromptSession[str]) -> None:
        self._app = session.app
        self._late = ""

    def print(self, text: str) -> None:
        """Lines, now or as soon as the terminal is ours again."""
        self._late += text
        if self._app._running_in_terminal:  # prompt-toolkit has no public word for it
            return
        text, self._late = self._late.replace("\n", "\r\n"), ""
        running = self._app.is_running
        if running:
            self._app.renderer.erase()
        self.send(text)
        if running:
            self._app.renderer.reset()
            self._app.renderer.request_absolute_cursor_position()
            self._app.invalidate()

    def send(self, sequence: str) -> None:
        """A sequence as it is."""
        self._app.output.write_raw(sequence)
        self._app.output.flush()


def _keys(acts: Acts) -> KeyBindings:
    keys = KeyBindings()
    asked = Condition(acts.asked)
    _writing(keys, asked)
    _acting(keys, asked, acts)
    for scope, (key, _words, _word) in SCOPES.items():
        _answers(keys, asked, key, partial(acts.answer, scope))
    _answers(keys, asked, "enter", partial(acts.answer, "once"))
    _answers(keys, asked, "escape", partial(acts.answer, "no"))
    return keys


def _writing(keys: KeyBindings, asked: Condition) -> None:
    """Keys that change the text. While the history is searched, all keys are prompt-toolkit's."""

    @keys.add("enter", filter=~asked & ~is_searching)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        elif buffer.text.strip():
            buffer.validate_and_handle()

    @keys.add("c-j", filter=~is_searching)
    @keys.add("escape", "enter", filter=~asked & ~is_searching)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-g", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.open_in_editor()


def _acting(keys: KeyBindings, asked: Condition, acts: Acts) -> None:
    """Keys that do something."""

    @keys.add("escape", filter=~asked & ~is_searching)
    def _(event: KeyPressEvent) -> None:
        acts.stop()

    @keys.add("s-tab")
    def _(event: KeyPressEvent) -> None:
        acts.mode()

    @keys.add("c-s", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        text = event.current_buffer.text
        event.current_buffer.reset()
        acts.steer(text)

    @keys.add("c-c", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        elif acts.leave():
            event.app.exit(exception=EOFError)


def _answers(keys: KeyBindings, asked: Condition, key: str, act: Callable[[], None]) -> None:
    @keys.add(key, filter=asked, eager=True)
    def _(event: KeyPressEvent) -> None:
        act()
