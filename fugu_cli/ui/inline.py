"""The inline mode: the same session in the terminal's own scrollback, with a prompt below it.
Loaded when the mode is opened, and prompt-toolkit with it.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import (
    Condition,
    has_selection,
    is_searching,
    vi_mode,
    vi_navigation_mode,
)
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.styles import Style

from fugu_cli.app.approval_options import ApprovalScope, approval_options
from fugu_cli.app.preferences import InputHistory, PreferencesFile
from fugu_cli.app.session_protocol import InterfaceOptions, SessionOpener
from fugu_cli.errors import UsageError
from fugu_cli.ui import drawing
from fugu_cli.ui.diff_lines import option_lines
from fugu_cli.ui.drawing import styled_line
from fugu_cli.ui.graphemes import last_character
from fugu_cli.ui.hyperlinks import LinkFinder
from fugu_cli.ui.inline_view import InlineScreen, LinePrinter, Scrollback
from fugu_cli.ui.tui import project_folder, session_status, themes
from fugu_cli.ui.tui.commands import all_commands, command_choices, is_request, run_input
from fugu_cli.ui.tui.project_folder import FolderFiles, mention
from fugu_cli.ui.tui.prompt import CommandChoices, SecondPress
from fugu_cli.ui.tui.session_controller import SessionController, choose_mode, steer
from fugu_cli.ui.tui.status_line import draw_status
from fugu_cli.ui.tui.terminal_input import InputDecoder
from fugu_cli.ui.tui.user_programs import edit_text, start_program


@dataclass(frozen=True)
class KeyActions:
    """The actions of keys.

    `asked` returns whether a question waits for an answer. `picture` returns a mention of the
    picture in the clipboard; it runs in a thread. `paths` returns mentions of pasted paths.
    `background` gets whether the terminal's background is dark.
    """

    above: Callable[[], str]
    below: Callable[[], str]
    is_asking: Callable[[], bool]
    answer: Callable[[ApprovalScope], None]
    answer_key: Callable[[str], None]
    stop: Callable[[], None]
    leave: Callable[[], bool]
    mode: Callable[[], None]
    steer: Callable[[str], None]
    queue: Callable[[str], None]
    is_working: Callable[[], bool]
    masked: Callable[[], bool]
    background: Callable[[bool], None]
    picture: Callable[[], str]
    paths: Callable[[str], str]


class InlineCompleter(Completer):
    """`/` commands and `@` files."""

    def __init__(self, commands: CommandChoices, files: FolderFiles) -> None:
        self._commands = commands
        self._files = files

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield the completions for the text before the cursor."""
        text = document.text_before_cursor
        if text.startswith("/") and "\n" not in text:
            for choice in self._commands(text):
                yield Completion(
                    choice.value,
                    -len(text),
                    display=choice.shown.strip(),
                    display_meta=choice.about,
                )
            return
        word = document.get_word_before_cursor(WORD=True)
        if word.startswith("@"):
            self._files.refresh()
            for path in self._files.search(word[1:]):
                yield Completion(mention(path), -len(word), display=path)


class TypedText:
    """Records whether all text of the prompt was typed. A key adds one character; a paste, the
    history or an editor adds more at once.
    """

    def __init__(self) -> None:
        self.is_typed = True
        self._length = 0

    def changed(self, buffer: Buffer) -> None:
        """Compare the text after a change with its length before."""
        length = len(buffer.text)
        if length <= 1:
            self.is_typed = True
        elif length > self._length + 1:
            self.is_typed = False
        self._length = length

    def take(self) -> bool:
        """Return whether the text that was sent was typed, and begin with an empty one."""
        is_typed, self.is_typed, self._length = self.is_typed, True, 0
        return is_typed


class PromptHistory(InMemoryHistory):
    """The history of typed texts, without those typed while `masked` is true."""

    def __init__(self, masked: Callable[[], bool]) -> None:
        super().__init__()
        self._masked = masked

    def append_string(self, string: str) -> None:
        """Remember a text."""
        if not self._masked():
            super().append_string(string)


def build_prompt(
    acts: KeyActions,
    commands: CommandChoices,
    root: Path,
    texts: Iterable[str],
    options: InterfaceOptions,
) -> PromptSession[str]:
    """Build a prompt with fugu's keys and vi's. `texts` were typed before, the newest last."""
    history = PromptHistory(acts.masked)
    for text in texts:
        history.append_string(text)
    session: PromptSession[str] = PromptSession(
        message=lambda: ANSI(acts.above()),
        bottom_toolbar=lambda: ANSI(acts.below()),
        completer=ThreadedCompleter(InlineCompleter(commands, FolderFiles(root, options.added))),
        complete_while_typing=True,
        history=history,
        key_bindings=_keys(acts),
        multiline=True,
        enable_suspend=True,  # Ctrl+Z stops the process, as in any program of the shell
        erase_when_done=True,
        prompt_continuation="  ",
        is_password=Condition(acts.masked),
        vi_mode=options.vi,
        style=Style.from_dict({"bottom-toolbar": "noreverse"}),
        input=_input(acts.background),
        output=_output(),
    )
    # Escape alone is a key here: do not wait long for the rest of a key, nor for another key, as in
    # Escape B
    session.app.ttimeoutlen = session.app.timeoutlen = 0.05
    return session


def _input(report_dark: Callable[[bool], None]) -> Input:
    """Return what is typed, without the terminal's answers."""
    source, decoder = create_input(), InputDecoder(_is_input, reader_waits=True)
    if not isinstance(source, Vt100Input):
        return source
    read = source.stdin_reader.read

    def typed(count: int = 1024) -> str:
        text = decoder.feed_text(read(count)) + decoder.flush()
        if decoder.dark is not None:
            report_dark(decoder.dark)
            decoder.dark = None
        return text

    source.stdin_reader.read = typed  # type: ignore[method-assign]
    return source


def _output() -> Output:
    """Return the terminal as an output that counts no free rows below the cursor.

    prompt-toolkit would ask the terminal for the cursor's row, and fill the screen from there to its
    end. The answer is old when it comes, so text printed meanwhile would be scrolled away.
    """
    output = create_output()
    output.get_rows_below_cursor_position = lambda: 1  # type: ignore[method-assign]
    return output


_MOUSE_OR_CURSOR = re.compile(r"\x1b\[(?:\d+;\d+R|<\d+;\d+;\d+[Mm])")


def _is_input(sequence: str) -> bool:
    return sequence in ANSI_SEQUENCES or bool(_MOUSE_OR_CURSOR.fullmatch(sequence))


class PromptTerminal:
    """The terminal with its prompt: prints above it, and waits for a line that is typed there.

    While an editor has the terminal, printing waits. The terminal stays raw: prompt-toolkit's own
    way leaves raw mode while it prints, and a key that comes meanwhile is echoed, Enter even
    becomes a new line.
    """

    def __init__(self) -> None:
        self.prompt: PromptSession[str] | None = None
        """Set before anything is printed."""
        self.masked = False
        self._typed_line: asyncio.Future[str] | None = None
        self._letters = ""
        """The answers that the open question takes, "" where it takes any line."""
        self._late = ""
        self.typed_text = TypedText()

    @property
    def session(self) -> PromptSession[str]:
        """The prompt."""
        assert self.prompt is not None
        return self.prompt

    @property
    def is_waiting(self) -> bool:
        """True if a question waits for a typed line."""
        return self._typed_line is not None and not self._typed_line.done()

    def width(self) -> int:
        """Return the columns for text. In the last one some terminals begin a new line."""
        return shutil.get_terminal_size().columns - 1

    def redraw(self) -> None:
        """Redraw the lines around the prompt."""
        if self.prompt is not None and self.prompt.app.is_running:
            self.prompt.app.invalidate()

    def print(self, text: str) -> None:
        """Print lines, now or as soon as the terminal is ours again."""
        app = self.session.app
        self._late += text
        if app._running_in_terminal:  # prompt-toolkit has no public word for it
            return
        text, self._late = self._late.replace("\n", "\r\n"), ""
        running = app.is_running
        if running:
            app.renderer.erase()
        self.send(text)
        if running:
            app.renderer.reset()
            app.invalidate()

    def send(self, sequence: str) -> None:
        """Send a sequence unchanged."""
        self.session.app.output.write_raw(sequence)
        self.session.app.output.flush()

    async def typed(self, secret: bool) -> str:
        """Return the next typed line, masked if `secret`."""
        self._typed_line, self.masked = asyncio.get_running_loop().create_future(), secret
        self.redraw()
        try:
            return await self._typed_line
        finally:
            self._typed_line, self.masked = None, False
            self.redraw()

    async def typed_answer(self, letters: str) -> str:
        """Return the first of these letters that is typed as a line, "" if the user gives none."""
        self._letters = letters
        try:
            return (await self.typed(secret=False)).lower()
        finally:
            self._letters = ""

    def answer(self, text: str) -> bool:
        """Answer the waiting question. Return False if there is none, or the line is no answer to it."""
        if self._typed_line is None or self._typed_line.done():
            return False
        if text and self._letters and text.lower() not in list(self._letters):
            return False
        self._typed_line.set_result(text)
        return True

    def insert(self, text: str) -> bool:
        """Put a text into the prompt if it is empty. Return whether it was."""
        buffer = self.session.default_buffer
        empty = not buffer.text
        if empty:
            buffer.insert_text(text)
        return empty

    async def run(self, words: Sequence[str]) -> None:
        """Give the terminal to a program until it ends."""
        await run_in_terminal(lambda: start_program(words), in_executor=True)

    def end(self) -> None:
        """End the prompt loop."""
        self.session.app.exit(exception=EOFError)


ANSWER_KEYS = "ysantYN1234567"
"""The keys of approval_options.py; one of an answer that is not offered does nothing."""


def _keys(acts: KeyActions) -> KeyBindings:
    keys = KeyBindings()
    asking = Condition(acts.is_asking)
    _bind_text_keys(keys, asking, acts)
    _bind_action_keys(keys, asking, acts)
    for key in ANSWER_KEYS:
        _bind_answer_key(keys, asking, key, partial(acts.answer_key, key))
    _bind_answer_key(keys, asking, "enter", partial(acts.answer, "once"))
    _bind_answer_key(keys, asking, "escape", partial(acts.answer, "no"))
    return keys


def _bind_text_keys(keys: KeyBindings, asking: Condition, acts: KeyActions) -> None:
    """Bind the keys that edit the text. During a search of the history all keys belong to prompt-
    toolkit.
    """

    @keys.add("enter", filter=~asking & ~is_searching)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        elif buffer.text.strip():
            buffer.validate_and_handle()

    @keys.add("backspace", filter=~asking & ~is_searching & ~vi_navigation_mode & ~has_selection)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        for _ in range(event.arg):
            size = len(last_character(buffer.document.text_before_cursor))
            buffer.delete_before_cursor(max(size, 1))

    @keys.add("c-j", filter=~is_searching)
    @keys.add("escape", "enter", filter=~asking & ~is_searching)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-v", filter=~is_searching)
    async def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text(await asyncio.to_thread(acts.picture))

    @keys.add(Keys.BracketedPaste, filter=~is_searching)
    async def _(event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        text = acts.paths(text) or text if text else await asyncio.to_thread(acts.picture)
        event.current_buffer.insert_text(text)

    @keys.add("c-g", filter=~is_searching)
    @keys.add("c-x", "c-e", filter=~is_searching)
    @keys.add("v", filter=vi_navigation_mode)
    def _(event: KeyPressEvent) -> None:
        event.app.create_background_task(_edit(event.current_buffer))


async def _edit(buffer: Buffer) -> None:
    """Let the user write in an editor; the prompt stays where none can be started."""

    async def run(words: Sequence[str]) -> None:
        await run_in_terminal(lambda: start_program(words), in_executor=True)

    text = await edit_text(buffer.text, run)
    if text is not None:
        buffer.document = Document(text)


@Condition
def is_completing() -> bool:
    """Return whether a command or a file is being typed, which Tab completes."""
    document = get_app().current_buffer.document
    word = document.get_word_before_cursor(WORD=True)
    return document.text.startswith("/") or word.startswith("@") or not document.text.strip()


def _bind_action_keys(keys: KeyBindings, asking: Condition, acts: KeyActions) -> None:
    """Bind the keys that run actions."""

    @keys.add("escape", filter=~asking & ~is_searching & (~vi_mode | vi_navigation_mode))
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

    @keys.add("tab", filter=~asking & ~is_searching & Condition(acts.is_working) & ~is_completing)
    def _(event: KeyPressEvent) -> None:
        text = event.current_buffer.text
        event.current_buffer.reset()
        acts.queue(text)

    @keys.add("c-c", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        elif acts.leave():
            event.app.exit(exception=EOFError)


def _bind_answer_key(
    keys: KeyBindings, asking: Condition, key: str, act: Callable[[], None]
) -> None:
    @keys.add(key, filter=asking, eager=True)
    def _(event: KeyPressEvent) -> None:
        act()


TAIL_LINES = 4
"""Lines of what is under way that are shown above the prompt."""
UNREAD_SECONDS = 0.4
"""Seconds a question stands there before a key answers it."""
ANSWER_HINT = "ctrl+c, then y or n"
"""The hint for answering a question while the prompt holds text."""


class PromptLines:
    """The lines around the prompt."""

    def __init__(
        self, view: InlineScreen, terminal: PromptTerminal, controller: SessionController
    ) -> None:
        self._view, self._terminal, self._controller = view, terminal, controller

    def above(self) -> str:
        """Return the lines of the current activity and the prompt mark; while a question is open,
        its answers.
        """
        system, palette = drawing.terminal_colours(), self._view.printer.palette
        lines = [
            styled_line([(f"  {text}", palette.dim)], self._terminal.width())
            for text in self._view.feed.tail(TAIL_LINES)
        ]
        tail = drawing.ansi_text(lines, system)
        if self.is_asking() and (question := self._controller.asking.question) is not None:
            options = approval_options(*question.asked, self._controller.asking.pending)
            return tail + drawing.ansi_text(
                option_lines(options, self._terminal.width(), palette), system
            )
        return tail + drawing.ansi_text(
            [styled_line([("› ", f"bold {palette.accent}")], self._terminal.width())], system
        ).rstrip("\n")

    def below(self) -> str:
        """Return the status line and the lines of the user's own command."""
        standing = self._view.standing
        if (
            self._controller.asking.question is not None
            and self._terminal.session.default_buffer.text
        ):
            standing = replace(standing, key=ANSWER_HINT)
        if self._controller.options.vi:
            normal = self._terminal.session.app.vi_state.input_mode == InputMode.NAVIGATION
            self._controller.vi_mode = "NORMAL" if normal else "INSERT"
            standing = replace(standing, vi=self._controller.vi_mode)
        line = draw_status(
            standing, time.time(), self._terminal.width(), self._view.printer.palette
        )
        return "\n".join(
            [drawing.ansi_text([line], drawing.terminal_colours()).rstrip("\n"), *standing.own]
        )

    def is_asking(self) -> bool:
        """Return whether a question waits and nobody is typing, since letters of a word must not
        answer it.
        """
        waiting = (
            self._controller.asking.question is not None
            and not self._terminal.session.default_buffer.text
        )
        waiting = waiting and not self._terminal.is_waiting
        return waiting and time.monotonic() - self._view.asked_at > UNREAD_SECONDS


class InlineApp:
    """The prompt, and what its keys do."""

    def __init__(self, opener: SessionOpener, options: InterfaceOptions) -> None:
        preferences = PreferencesFile(options.state)
        chosen = themes.find_palette(options.theme or preferences.current.theme)
        history = InputHistory(options.state)
        history.load()
        terminal = self._terminal = PromptTerminal()
        palette = chosen or themes.guess_palette()
        printer = LinePrinter(terminal.print, terminal.width, palette, terminal.redraw)
        printer.links = LinkFinder(opener.root)
        self.view = InlineScreen(Scrollback(printer), terminal, preferences, auto=chosen is None)
        self.controller = SessionController(self.view, opener, options, history)
        lines = PromptLines(self.view, terminal, self.controller)
        acts = KeyActions(
            above=lines.above,
            below=lines.below,
            is_asking=lines.is_asking,
            answer=self.controller.answer,
            answer_key=self.controller.answer_key,
            stop=self._stop,
            leave=self._twice,
            mode=self._mode,
            steer=self._steer,
            queue=lambda text: self._spawn(run_input(self.controller, text.strip(), queued=True)),
            is_working=lambda: self.controller.work.running,
            masked=lambda: terminal.masked,
            background=self.view.follow_background,
            picture=partial(project_folder.mention_of_clipboard, opener.root, options.state),
            paths=partial(project_folder.mentions_of_paths, opener.root),
        )
        terminal.prompt = self._prompt = build_prompt(
            acts,
            lambda text: command_choices(all_commands(self.controller), self.controller, text),
            opener.root,
            history.texts,
            options,
        )
        self._prompt.default_buffer.on_text_changed += terminal.typed_text.changed
        self._tasks: set[asyncio.Task[None]] = set()
        self._early: list[tuple[str, bool]] = []
        """Lines that were entered before there is a session, and whether each was typed."""
        self.parting = ""
        self._leaving = SecondPress()

    async def run(self) -> None:
        """Run until the user leaves."""
        asyncio.get_running_loop().set_exception_handler(self._end_with_error)
        self._spawn(self._start())
        ticking = asyncio.create_task(self._tick())
        try:
            while True:
                text = await self._prompt.prompt_async(set_exception_handler=False)
                self.enter(text, typed=self._terminal.typed_text.take())
        except (EOFError, KeyboardInterrupt):
            self.parting = session_status.parting_words(self.controller)
        finally:
            ticking.cancel()
            await self.controller.close()

    def enter(self, text: str, *, typed: bool = False) -> None:
        """Handle a line of the prompt: the answer to a question, or input for `run_input` as soon as
        there is a session. `typed`: every character came from the keyboard.
        """
        line = text.strip()
        if self._terminal.answer(line):
            return
        if self._terminal.is_waiting:
            self.controller.say("this is sent after the question; type one of its letters")
        if self.controller.started:
            self._spawn(run_input(self.controller, line, typed=typed))
        else:
            self._early.append((line, typed))

    async def _start(self) -> None:
        await asyncio.to_thread(self.controller.opener.prepare)
        self.view.ask_background()
        await self.controller.start()
        self.controller.show()
        if self.controller.options.prompt and self.controller.work.session is not None:
            self.enter(self.controller.options.prompt)
        for text, typed in self._early:
            self.enter(text, typed=typed)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run work in the background. A bug in it ends the mode instead of being lost."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._prompt.app.exit(exception=error)

    def _end_with_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """End the mode if a callback of the event loop failed, since keys are handled in such
        callbacks.
        """
        error = context.get("exception")
        if "handle" in context and isinstance(error, Exception) and self._prompt.app.is_running:
            self._prompt.app.exit(exception=error)
        else:
            loop.default_exception_handler(context)

    async def _tick(self) -> None:
        """Update the status line every second. Redraws only while something is running."""
        while True:
            await asyncio.sleep(1.0)
            self.controller.show()
            if self.view.standing.doing:
                self._terminal.redraw()

    def _stop(self) -> None:
        if self._terminal.is_waiting:
            self._terminal.answer("")
        else:
            self.controller.interrupt()

    def _mode(self) -> None:
        """Switch to the next permission mode and show its meaning."""
        if message := choose_mode(self.controller):
            self.view.standing = replace(self.view.standing, remark=message)
            self._terminal.redraw()

    def _twice(self) -> bool:
        """Handle Ctrl-C on an empty prompt: interrupt the work. Return True, to leave, if it is
        pressed twice.
        """
        if self._leaving.again():
            return True
        self.controller.interrupt()
        return False

    def _steer(self, text: str) -> None:
        text = text.strip()
        if self._terminal.is_waiting:
            self.enter(text)
        elif self.controller.work.running and (not text or is_request(self.controller, text)):
            steer(self.controller, text)
        elif text:
            self.enter(text)
        else:
            self._spawn(self.controller.work.send_queued())


def run_inline(opener: SessionOpener, options: InterfaceOptions) -> int:
    """Run the inline mode in this terminal until the user leaves. Raises UsageError without a
    terminal.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "the inline mode needs a terminal", hint='use `fugu run "..."` in scripts and pipes'
        )
    inline = InlineApp(opener, options)
    asyncio.run(inline.run())
    if inline.parting:
        print(inline.parting, file=sys.stderr)
    return 0
