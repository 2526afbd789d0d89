"""Screens that are laid over the main one: a long text or a turn in full, a list to choose from, a
yes or no; and the application of `fugu trace`, which is the trace with the same pages. Imported
behind the first paint.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen, Screen, ScreenResultType
from textual.widgets import Input, Static

from fugu_cli.app.preferences import PreferencesFile
from fugu_cli.app.session_protocol import InterfaceOptions
from fugu_cli.session.events import Recorded
from fugu_cli.ui import diff_drawing
from fugu_cli.ui.column import Fragment
from fugu_cli.ui.drawing import Palette, StyledLine, StyledPart, justified_line, styled_line
from fugu_cli.ui.hyperlinks import FilePlace
from fugu_cli.ui.session_totals import FoldedSession
from fugu_cli.ui.tui.pager import Pager, TextPager
from fugu_cli.ui.tui.panels import NARROW_COLUMNS, Trace, TurnAction
from fugu_cli.ui.tui.prompt import TYPING_PAUSE, PromptInput, SearchInput
from fugu_cli.ui.tui.screen_protocol import (
    Choice,
    KeyAnswer,
    PickedChoice,
    Preview,
    answer_keys,
)
from fugu_cli.ui.tui.terminal_app import SHORT_LINES, TerminalApp
from fugu_cli.ui.tui.user_programs import place_command, run_editor
from fugu_cli.ui.turn_page import (
    DEFAULT_SOURCES,
    PageAt,
    Section,
    TurnPages,
    TurnSources,
    section_title,
)

UNREAD_SECONDS = 0.4
"""Seconds for which a question stands there before a key answers it."""
WORD_SECONDS = 0.3
"""Seconds within which the next letter of a word follows."""
MOVES = {"up": -1, "ctrl+p": -1, "down": 1, "ctrl+n": 1, "pageup": -10, "pagedown": 10}
"""Keys that mark another choice, and how many rows away."""


class AnsweredOnce(Screen[ScreenResultType]):
    """A screen that gives one answer. If two keys come in one read, the second finds the screen
    closed and has no effect.
    """

    _answered = False
    _result: ScreenResultType | None = None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Accept keys only after the screen was drawn, so that text typed before it appeared
        answers nothing. It may be left at any time.
        """
        return not self._answered and (self._is_mounted or action == "leave")

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Leave with the first answer."""
        if self._answered:
            return AwaitComplete()
        self._answered, self._result = True, result
        if self._is_mounted and self.is_active:
            return super().dismiss(result)
        self.call_later(self._leave)  # its parts are still to come, or another screen lies above
        return AwaitComplete()

    def on_screen_resume(self) -> None:
        """Close now if that was asked for while another screen was on top."""
        if self._answered:
            self.call_later(self._leave)

    def _leave(self) -> None:
        if self.is_active:
            super().dismiss(self._result)


class Confirm(AnsweredOnce[bool], ModalScreen[bool]):
    """Shows a patch and asks. Escape is no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "leave", show=False, priority=True),
        Binding("y", "agree", show=False),
        Binding("n,escape,q", "leave", show=False),
    ]

    def __init__(self, palette: Palette, question: str, patch: str) -> None:
        super().__init__()
        self.palette = palette
        self._question = question
        self._patch = patch

    def compose(self) -> ComposeResult:
        """Yield the question, the patch and the keys."""
        with Vertical(id="confirm"):
            yield Static(self._question, id="confirm-question", markup=False)
            yield TextPager(self.palette, id="confirm-text")
            yield Static("y yes · n no · ↑ ↓ scroll", id="confirm-keys", markup=False)

    def on_mount(self) -> None:
        """Fill in the patch."""
        _lay_out(self, self.app.size)
        pager = self.query_one(Pager)
        patch = self._patch or "(no file would change)"
        pager.column.put(
            0,
            [
                Fragment(
                    lambda width, palette: diff_drawing.patch_lines(patch, width, palette), patch
                )
            ],
        )
        pager.grew()
        pager.focus()

    def on_resize(self, event: events.Resize) -> None:
        """Lay out the dialog for the new size."""
        _lay_out(self, event.size)

    def action_agree(self) -> None:
        """Answer yes."""
        self.dismiss(True)

    def action_leave(self) -> None:
        """Answer no."""
        self.dismiss(False)


class KeyQuestion(AnsweredOnce[str], ModalScreen[str]):
    """Asks a question that a key answers, with a text that the user may read first. Letters of a
    word are no answers: they go into the prompt below.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "answer('')", show=False, priority=True),
    ]

    def __init__(
        self, question: str, meaning: str, answers: Sequence[KeyAnswer], sections: Sequence[Section]
    ) -> None:
        super().__init__()
        self._question = question
        self._meaning = meaning
        self._answers = answers
        self._sections = sections
        self._shown_at = self._typed_at = time.monotonic()
        self._pressed = ""
        """The answer that was pressed and is given unless more letters follow at once."""

    def compose(self) -> ComposeResult:
        """Yield the question, the meaning of an answer and the keys."""
        with Vertical(id="key-question"):
            yield Static(self._question, id="key-question-text", markup=False)
            if self._meaning:
                yield Static(self._meaning, id="key-question-meaning", markup=False)
            keys = answer_keys(self._answers, looks=bool(self._sections))
            yield Static(" · ".join(keys), id="key-question-keys", markup=False)

    def on_key(self, event: events.Key) -> None:
        """Take a letter as an answer, or as a part of a word."""
        event.stop()
        if event.key == "escape":
            self.action_answer("")
            return
        if event.character is None or not event.is_printable:
            return
        keys = ["n", *(["d"] if self._sections else []), *(answer.key for answer in self._answers)]
        is_answer = event.character in keys and not self._pressed and not self._is_typing()
        if is_answer:
            self._pressed = event.character
            self.set_timer(WORD_SECONDS, self._give_pressed)
        else:
            self._type(event.character)

    def _is_typing(self) -> bool:
        """Return whether somebody types a word, or could not read the question yet."""
        now = time.monotonic()
        is_word = self._typed_at > self._shown_at and now - self._typed_at < TYPING_PAUSE
        return is_word or now - self._shown_at <= UNREAD_SECONDS

    def _type(self, letter: str) -> None:
        """Put a letter into the prompt, after the one that had been taken for an answer."""
        text, self._pressed = self._pressed + letter, ""
        self._typed_at = time.monotonic()
        for screen in self.app.screen_stack[:-1]:
            for prompt in screen.query(PromptInput):
                prompt.type_letter(text)

    def _give_pressed(self) -> None:
        key, self._pressed = self._pressed, ""
        if key == "d" and self._sections:
            assert isinstance(self.app, TerminalApp)
            Dialogs(self.app).read("What this is about", self._sections)
        elif key:
            self.action_answer("" if key == "n" else key)

    def action_answer(self, key: str) -> None:
        """Answer the question. A key pressed before anybody could read it does not count."""
        if self.is_current and time.monotonic() - self._shown_at > UNREAD_SECONDS:
            self.dismiss(key)


class TextEntry(AnsweredOnce[str], ModalScreen[str]):
    """Asks for a line, masked where it is secret. Escape gives none."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c,escape", "leave", show=False, priority=True),
    ]

    def __init__(self, heading: str, *, secret: bool) -> None:
        super().__init__()
        self._heading = heading
        self._secret = secret

    def compose(self) -> ComposeResult:
        """Yield the heading, the field and the keys."""
        with Vertical(id="entry-box"):
            yield Static(self._heading, id="entry-heading", markup=False)
            yield Input(password=self._secret, id="entry-line", compact=True)
            yield Static("enter sends · esc goes back", id="entry-keys", markup=False)

    def on_mount(self) -> None:
        """Give the field the keyboard focus."""
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Return the entered text."""
        self.dismiss(event.value)

    def action_leave(self) -> None:
        """Leave without a text."""
        self.dismiss("")


class ChoicePager(Pager):
    """A list to choose from. `chosen` is the marked row."""

    @dataclass
    class Marked(Message):
        """Another choice is marked, or none."""

        value: str | None

    @dataclass
    class Taken(Message):
        """The marked choice was clicked."""

    def __init__(self, palette: Palette, id: str) -> None:
        super().__init__(palette, id=id)
        self._shown: Sequence[Choice] = ()

    @property
    def value(self) -> str | None:
        """The value of the marked row."""
        return self._shown[self.chosen].value if self.chosen is not None else None

    def offer(self, choices: Sequence[Choice]) -> None:
        """Show these choices, with the first one marked."""
        self._shown = choices
        self.column.cut(0)
        for index, choice in enumerate(choices):
            self.column.put(index, [_choice_fragment(choice)])
        self.action_go(0)
        self.grew()
        self._mark(0 if choices else None)

    def move(self, by: int) -> None:
        """Mark another choice."""
        if self.chosen is not None:
            self._mark(min(max(self.chosen + by, 0), len(self._shown) - 1))
            self.show_block(self.chosen)

    def _mark(self, index: int | None) -> None:
        self.chosen = index
        self.refresh()
        self.post_message(self.Marked(self.value))

    def on_pager_clicked(self, event: Pager.Clicked) -> None:
        """Mark what was clicked; a second click chooses it."""
        event.stop()
        if event.block >= len(self._shown):  # the list was narrowed since
            return
        if self.chosen == event.block:
            self.post_message(self.Taken())
        else:
            self._mark(event.block)


class Picker(AnsweredOnce[PickedChoice | None], ModalScreen[PickedChoice | None]):
    """Lets the user choose from a list. `keys` are further keys that choose, with a description of
    each: {"ctrl+f": "fork"}.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "leave", show=False, priority=True),
        Binding("escape", "leave", show=False),
        *(
            Binding(key, f"typed('{key}')", show=False, priority=True)
            for key in ("enter", "ctrl+f", "ctrl+e", *MOVES)
        ),
    ]

    def __init__(
        self,
        palette: Palette,
        heading: str,
        choices: Sequence[Choice],
        preview: Preview | None = None,
        keys: dict[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.palette = palette
        self._heading = heading
        self._every = tuple(choices)
        self._preview = preview
        self._looked_at: str | None = None
        self._keys = keys or {}
        self._typed = ""

    def compose(self) -> ComposeResult:
        """Yield the field, the list, the preview and the keys."""
        with Vertical(id="picker"):
            yield Static(self._heading, id="picker-heading", markup=False)
            yield SearchInput(placeholder="type to search", id="picker-search", compact=True)
            with Horizontal(id="picker-body"):
                yield ChoicePager(self.palette, id="picker-list")
                if self._preview is not None:
                    yield Pager(self.palette, lead="│ ", id="picker-preview")
            more = "".join(f" · {key} {words}" for key, words in self._keys.items())
            yield Static(f"enter chooses{more} · esc closes", id="picker-keys", markup=False)

    def on_mount(self) -> None:
        """Show all choices, the first one marked."""
        _lay_out(self, self.app.size)
        self.query_one(ChoicePager).offer(self._every)
        self.query_one(SearchInput).focus()

    def on_resize(self, event: events.Resize) -> None:
        """Lay out the dialog for the new size."""
        _lay_out(self, event.size)

    def on_input_changed(self) -> None:
        """Filter the choices by the typed text."""
        typed = self.query_one(SearchInput).value
        if typed != self._typed:
            self._typed = typed
            matching = [choice for choice in self._every if _matches(choice, typed.lower().split())]
            self.query_one(ChoicePager).offer(matching)

    def action_leave(self) -> None:
        """Leave without a choice."""
        self.dismiss(None)

    def action_typed(self, key: str) -> None:
        """Run the key's action once everything typed before has narrowed the list."""
        self.query_one(SearchInput).call_later(self._do, key)

    def _do(self, key: str) -> None:
        if self._answered:
            return
        self.on_input_changed()
        pager = self.query_one(ChoicePager)
        if key in MOVES:
            pager.move(MOVES[key])
        elif key == "enter" or key in self._keys:
            self.dismiss((key, pager.value) if pager.value is not None else None)

    def on_choice_pager_taken(self) -> None:
        """Choose the clicked row."""
        self._do("enter")

    def on_choice_pager_marked(self, event: ChoicePager.Marked) -> None:
        """Show the preview of the marked choice, if there are previews."""
        if self._preview is not None and event.value != self._looked_at:
            self._looked_at = event.value
            self.run_worker(self._look(self._preview, event.value), exclusive=True)

    async def _look(self, preview: Preview, value: str | None) -> None:
        """Load the preview in a thread, because it may read a long file. A newer mark stops an
        older preview.
        """
        pieces = list(await asyncio.to_thread(preview, value)) if value is not None else []
        pager = self.query_one("#picker-preview", Pager)
        pager.column.cut(0)
        pager.column.put(0, pieces)
        pager.action_go(0)
        pager.grew()


def _lay_out(screen: Screen[Any], size: Size) -> None:
    """Show a preview beside or below the list, or none, depending on the size."""
    screen.set_class(size.width < NARROW_COLUMNS, "-narrow")
    screen.set_class(size.height < SHORT_LINES, "-short")


def _matches(choice: Choice, words: Sequence[str]) -> bool:
    text = f"{choice.shown} {choice.about} {choice.value}".lower()
    return all(word in text for word in words)


def _choice_fragment(choice: Choice) -> Fragment:
    def paint(width: int, palette: Palette) -> list[StyledLine]:
        about: list[StyledPart] = [(choice.about, palette.dim)]
        if width < 70:
            return [styled_line([(choice.shown, palette.text), ("  ", ""), *about], width)]
        return [justified_line([(choice.shown, palette.text)], about, width)]

    return Fragment(paint, exact=1)


class Reader(AnsweredOnce[None]):
    """Shows one page of text. Left and right turn to neighbouring pages, if there are any."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "leave", show=False, priority=True),
        Binding("escape,q", "leave", show=False),
        Binding("left,h", "turn(-1)", show=False),
        Binding("right,l", "turn(1)", show=False),
        *(Binding(str(number), f"section({number})", show=False) for number in range(1, 10)),
        Binding("p", "act('pin')", show=False),
        Binding("x", "act('exclude')", show=False),
        Binding("r", "act('retry')", show=False),
    ]

    def __init__(
        self,
        palette: Palette,
        page: PageAt,
        *,
        has_neighbours: bool = True,
        act: Callable[[TurnAction], None] | None = None,
    ) -> None:
        """Create the reader. `act` acts on the turn whose page is shown; None if nothing can be
        done with it.
        """
        super().__init__()
        self._act = act
        self.palette = palette
        self._page = page
        self._has_neighbours = has_neighbours
        self._starts: list[int] = []

    def compose(self) -> ComposeResult:
        """Yield the title, the text and the keys."""
        yield Static("", id="reader-title", markup=False)
        yield TextPager(self.palette, id="reader-text")
        yield Static("", id="reader-keys", markup=False)

    def on_mount(self) -> None:
        """Show the first page."""
        self.action_turn(0)
        self.query_one(Pager).focus()

    def action_leave(self) -> None:
        """Close the pages."""
        self.dismiss()

    def action_act(self, wish: TurnAction) -> None:
        """Close the pages and act on the turn."""
        if self._act is not None:
            self._act(wish)
            self.dismiss()

    def action_turn(self, by: int) -> None:
        """Turn to another page."""
        page = self._page(by)
        if page is None:
            return
        text, sections = page
        self.query_one("#reader-title", Static).update(text)
        pager = self.query_one(Pager)
        pager.column.cut(0)
        self._starts = []
        for section in sections:
            self._starts.append(len(pager.column))
            if section.title:
                pager.column.put(
                    len(pager.column), [section_title(f"{len(self._starts)} {section.title}")]
                )
            pager.column.put(len(pager.column), section.pieces)
        keys = (
            f"esc closes · 1-{min(len(sections), 9)} sections"
            if len(sections) > 1
            else "esc closes"
        )
        turns_hint = " · ← → other turns" if self._has_neighbours else ""
        actions = " · p pins · x excludes · r retries" if self._act is not None else ""
        hint = f"{keys}{turns_hint}{actions} · ↑ ↓ page up/down"
        self.query_one("#reader-keys", Static).update(hint)
        pager.action_go(0)
        pager.grew()

    def action_section(self, number: int) -> None:
        """Scroll to a section."""
        if number <= len(self._starts):
            pager = self.query_one(Pager)
            pager.action_go(pager.column.top_of(self._starts[number - 1]))


class Dialogs:
    """Dialogs over the main screen."""

    def __init__(self, app: App[Any]) -> None:
        assert isinstance(app, TerminalApp)
        self._app = app

    def read(self, text: str, sections: Sequence[Section]) -> None:
        """Show a text over the whole screen."""

        def page(by: int) -> tuple[str, Sequence[Section]] | None:
            return (text, sections) if by == 0 else None

        self._app.push_screen(Reader(self._app.palette, page, has_neighbours=False))

    def turn_pages(self, pages: TurnPages) -> None:
        """Show pages over the whole screen."""
        below = self._app.screen

        def act(wish: TurnAction) -> None:
            below.post_message(Trace.Wished(wish, pages.row))

        self._app.push_screen(Reader(self._app.palette, pages, act=act))

    async def confirm(self, question: str, patch: str) -> bool:
        """Ask for a yes or no about a patch. Only in a worker."""
        return await self._ask(Confirm(self._app.palette, question, patch))

    async def choose(
        self,
        question: str,
        meaning: str,
        answers: Sequence[KeyAnswer],
        sections: Sequence[Section] = (),
    ) -> str:
        """Ask a question that keys answer, once nobody is typing. Only in a worker."""
        for prompt in self._app.screen.query(PromptInput):
            while (wait := TYPING_PAUSE - (time.monotonic() - prompt.typed_at)) > 0:
                await asyncio.sleep(wait)
        return await self._ask(KeyQuestion(question, meaning, answers, sections))

    async def enter_text(self, heading: str, *, secret: bool = False) -> str:
        """Return the line that the user types, "" where the dialog is left."""
        line: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def keep_line(typed: str | None) -> None:
            if not line.done():  # cancelled: nobody waits for it any more
                line.set_result(typed or "")

        entry = TextEntry(heading, secret=secret)
        self._app.push_screen(entry, keep_line)
        try:
            return await line
        finally:
            entry.dismiss("")

    async def pick(
        self,
        heading: str,
        choices: Sequence[Choice],
        preview: Preview | None = None,
        keys: dict[str, str] | None = None,
    ) -> PickedChoice | None:
        """Let the user choose one of the choices. Only in a worker."""
        return await self._ask(Picker(self._app.palette, heading, choices, preview, keys))

    async def _ask(self, dialog: AnsweredOnce[ScreenResultType]) -> ScreenResultType:
        """Show `dialog` and return its answer. It is closed if whoever asked is cancelled."""
        try:
            return await self._app.push_screen_wait(dialog)
        finally:
            dialog.dismiss()

    async def edit_file(self, location: FilePlace) -> None:
        """Open a file in the user's editor."""
        await run_editor(self._app, place_command(location))


TRACE_KEYS = "↑ ↓ mark a turn · enter opens it · q leaves"


class TraceScreen(Screen[None]):
    """The trace over the whole terminal."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape", "app.quit", show=False),
        Binding("ctrl+c", "app.quit", show=False, priority=True),
    ]

    def __init__(
        self, records: Sequence[Recorded], title: str, palette: Palette, sources: TurnSources
    ) -> None:
        super().__init__()
        self._sources = sources
        self._records = records
        self._title = title
        self.palette = palette
        self._folded = FoldedSession(records)

    def compose(self) -> ComposeResult:
        """Yield the title, the rows and the keys."""
        yield Static(self._title, id="reader-title", markup=False)
        yield Trace(self.palette, id="turns")
        yield Static(TRACE_KEYS, id="reader-keys", markup=False)

    def on_mount(self) -> None:
        """Show the log."""
        trace = self.query_one(Trace)
        trace.show(self._folded.rows, self._folded.totals)
        trace.focus()

    def on_trace_wished(self, event: Trace.Wished) -> None:
        """Open a turn; nothing else can be done with a finished one."""
        if event.wish == "open":
            pages = TurnPages(self._folded.rows.rows, event.row, self._records, self._sources)
            self.app.push_screen(Reader(self.palette, pages))


class TraceApp(TerminalApp):
    """The application that shows the trace of one log."""

    CSS_PATH = "app.tcss"
    TITLE = "fugu trace"
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self,
        records: Sequence[Recorded],
        title: str,
        options: InterfaceOptions,
        sources: TurnSources = DEFAULT_SOURCES,
    ) -> None:
        super().__init__(options.theme or PreferencesFile(options.state).current.theme)
        self._viewing = TraceScreen(records, title, self.palette, sources)

    def get_default_screen(self) -> TraceScreen:
        """Return the trace screen."""
        return self._viewing
