"""Screens that are laid over the main one: a long text or a turn in full, a list to choose from, a yes or no; and the
application of `fugu trace`, which is the trace with the same pages. Imported when the first is opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.geometry import Size
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, Static

from fugu_cli.session.events import Recorded
from fugu_cli.ui import diff_drawing
from fugu_cli.ui.column import Fragment
from fugu_cli.ui.drawing import Palette, StyledLine, StyledPart, justified_line, styled_line
from fugu_cli.ui.session_totals import SessionTotals
from fugu_cli.ui.trace_drawing import DEFAULT_SOURCES, Section, TurnSources, section_title, turn_sections
from fugu_cli.ui.trace_rows import TraceRows, TurnRow
from fugu_cli.ui.tui.panels import Pager, Trace
from fugu_cli.ui.tui.preferences import PreferencesFile
from fugu_cli.ui.tui.prompt import SearchInput
from fugu_cli.ui.tui.screen_protocol import Choice, PickedChoice, Preview
from fugu_cli.ui.tui.session_protocol import InterfaceOptions
from fugu_cli.ui.tui.terminal_app import NARROW_COLUMNS, SHORT_LINES, TerminalApp


class Confirm(ModalScreen[bool]):
    """Shows a patch and asks. Escape is no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "answer(False)", show=False, priority=True),
        Binding("y,enter", "answer(True)", show=False),
        Binding("n,escape,q", "answer(False)", show=False),
    ]

    def __init__(self, palette: Palette, question: str, patch: str) -> None:
        super().__init__()
        self.palette = palette
        self._question = question
        self._patch = patch

    def compose(self) -> ComposeResult:
        """The question, the patch, the keys."""
        with Vertical(id="confirm"):
            yield Static(self._question, id="confirm-question", markup=False)
            yield Pager(self.palette, id="confirm-text")
            yield Static("y yes · n no · ↑ ↓ scroll", id="confirm-keys", markup=False)

    def on_mount(self) -> None:
        """Fill in the patch."""
        self.set_class(self.app.size.width < NARROW_COLUMNS, "-narrow")
        pager = self.query_one(Pager)
        patch = self._patch or "(no file would change)"
        pager.column.put(0, [Fragment(lambda width, palette: diff_drawing.patch_lines(patch, width, palette), patch)])
        pager.grew()
        pager.focus()

    def on_resize(self, event: events.Resize) -> None:
        """Where it is narrow, there is no room for anything beside it."""
        self.set_class(event.size.width < NARROW_COLUMNS, "-narrow")

    def action_answer(self, yes: bool) -> None:
        """The answer."""
        self.dismiss(yes)


class TextEntry(ModalScreen[str]):
    """Asks for a line, masked where it is secret. Escape gives none."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c,escape", "leave", show=False, priority=True),
    ]

    def __init__(self, heading: str, *, secret: bool) -> None:
        super().__init__()
        self._heading = heading
        self._secret = secret

    def compose(self) -> ComposeResult:
        """The heading, the field, the keys."""
        with Vertical(id="entry-box"):
            yield Static(self._heading, id="entry-heading", markup=False)
            yield Input(password=self._secret, id="entry-line", compact=True)
            yield Static("enter sends · esc goes back", id="entry-keys", markup=False)

    def on_mount(self) -> None:
        """The field gets the keyboard focus."""
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """That is it."""
        self.dismiss(event.value)

    def action_leave(self) -> None:
        """None."""
        self.dismiss("")


class Picker(ModalScreen[PickedChoice | None]):
    """`keys` are further ways to choose, with a word about each: {"ctrl+f": "fork"}."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "leave", show=False, priority=True),
        Binding("escape", "leave", show=False),
        Binding("enter", "typed('choose', 'enter')", show=False, priority=True),
        Binding("up,ctrl+p", "typed('mark', -1)", show=False, priority=True),
        Binding("down,ctrl+n", "typed('mark', 1)", show=False, priority=True),
        Binding("pageup", "typed('mark', -10)", show=False, priority=True),
        Binding("pagedown", "typed('mark', 10)", show=False, priority=True),
        Binding("ctrl+f", "typed('choose', 'ctrl+f')", show=False, priority=True),
        Binding("ctrl+e", "typed('choose', 'ctrl+e')", show=False, priority=True),
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
        self._shown: list[Choice] = list(choices)
        self._preview = preview
        self._looked_at: str | None = None
        self._keys = keys or {}
        self._typed = ""

    def compose(self) -> ComposeResult:
        """A field, the list, the preview, the keys."""
        with Vertical(id="picker"):
            yield Static(self._heading, id="picker-heading", markup=False)
            yield SearchInput(placeholder="type to search", id="picker-search", compact=True)
            with Horizontal(id="picker-body"):
                yield Pager(self.palette, id="picker-list")
                if self._preview is not None:
                    yield Pager(self.palette, lead="│ ", id="picker-preview")
            more = "".join(f" · {key} {words}" for key, words in self._keys.items())
            yield Static(f"enter chooses{more} · esc closes", id="picker-keys", markup=False)

    def on_mount(self) -> None:
        """Everything, the first one marked."""
        self._lay_out(self.app.size)
        self._fill()
        self.query_one(SearchInput).focus()

    def on_resize(self, event: events.Resize) -> None:
        """Another size."""
        self._lay_out(event.size)

    def _lay_out(self, size: Size) -> None:
        """Where it is narrow, the preview stands below the list; where it is short as well, nowhere."""
        self.set_class(size.width < NARROW_COLUMNS, "-narrow")
        self.set_class(size.height < SHORT_LINES, "-short")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Fewer, or more."""
        self._narrow()

    def _narrow(self) -> None:
        typed = self.query_one(SearchInput).value
        if typed != self._typed:
            self._typed = typed
            self._shown = [choice for choice in self._every if _matches(choice, typed.lower().split())]
            self._fill()

    def action_leave(self) -> None:
        """Nothing was chosen."""
        self.dismiss(None)

    def action_typed(self, action: str, argument: str | int) -> None:
        """What depends on what is shown, once all that was typed before has narrowed it."""
        self.query_one(SearchInput).call_later(self._typed_before, getattr(self, f"_{action}"), argument)

    def _typed_before(self, act: Callable[[str | int], None], argument: str | int) -> None:
        self._narrow()
        act(argument)

    def _choose(self, key: str) -> None:
        """The marked one, in this way."""
        at = self.query_one("#picker-list", Pager).chosen
        if key != "enter" and key not in self._keys:
            return
        self.dismiss((key, self._shown[at].value) if at is not None and at < len(self._shown) else None)

    def _mark(self, by: int) -> None:
        """Mark another one."""
        pager = self.query_one("#picker-list", Pager)
        if self._shown:
            pager.chosen = min(max((pager.chosen or 0) + by, 0), len(self._shown) - 1)
            pager.show_block(pager.chosen)
            pager.refresh()
            self._look()

    def on_pager_clicked(self, event: Pager.Clicked) -> None:
        """Mark what was clicked; a second click chooses it."""
        if event.pager.id != "picker-list":
            return
        if event.pager.chosen == event.block:
            self._choose("enter")
            return
        event.pager.chosen = event.block
        event.pager.refresh()
        self._look()

    def _fill(self) -> None:
        pager = self.query_one("#picker-list", Pager)
        pager.column.cut(0)
        for index, choice in enumerate(self._shown):
            pager.column.put(index, [_choice_fragment(choice)])
        pager.chosen = 0 if self._shown else None
        pager.action_top()
        pager.grew()
        self._look()

    def _look(self) -> None:
        if self._preview is None:
            return
        at = self.query_one("#picker-list", Pager).chosen
        value = self._shown[at].value if at is not None else None
        if value != self._looked_at:
            self._looked_at = value
            self.run_worker(self._previewed(self._preview, value), exclusive=True)

    async def _previewed(self, preview: Preview, value: str | None) -> None:
        """In a thread: it may read a long file. A newer mark makes an older preview stop."""
        pieces = list(await asyncio.to_thread(preview, value)) if value is not None else []
        pager = self.query_one("#picker-preview", Pager)
        pager.column.cut(0)
        pager.column.put(0, pieces)
        pager.action_top()
        pager.grew()


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


PageAt = Callable[[int], tuple[str, Sequence[Section]] | None]
"""The page some steps away from the one that is shown, with its title; None where there is none."""


class Reader(Screen[None]):
    """Shows one page; left and right turn to the ones beside it, where there are any."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "leave", show=False, priority=True),
        Binding("escape,q", "leave", show=False),
        Binding("left,h", "turn(-1)", show=False),
        Binding("right,l", "turn(1)", show=False),
        *(Binding(str(number), f"section({number})", show=False) for number in range(1, 10)),
    ]

    def __init__(self, palette: Palette, page: PageAt) -> None:
        super().__init__()
        self.palette = palette
        self._page = page
        self._starts: list[int] = []

    def compose(self) -> ComposeResult:
        """A title, the text, what the keys do."""
        yield Static("", id="reader-title", markup=False)
        yield Pager(self.palette, id="reader-text")
        yield Static("", id="reader-keys", markup=False)

    def on_mount(self) -> None:
        """The first page."""
        self.action_turn(0)
        self.query_one(Pager).focus()

    def action_leave(self) -> None:
        """Back to where it was opened."""
        self.dismiss()

    def action_turn(self, by: int) -> None:
        """Another page."""
        found = self._page(by)
        if found is None:
            return
        text, sections = found
        self.query_one("#reader-title", Static).update(text)
        pager = self.query_one(Pager)
        pager.column.cut(0)
        self._starts = []
        for section in sections:
            self._starts.append(len(pager.column))
            if section.title:
                pager.column.put(len(pager.column), [section_title(f"{len(self._starts)} {section.title}")])
            pager.column.put(len(pager.column), section.pieces)
        keys = f"esc closes · 1-{min(len(sections), 9)} sections" if len(sections) > 1 else "esc closes"
        beside = " · ← → other turns" if self._page(0) is not None and len(sections) > 1 else ""
        self.query_one("#reader-keys", Static).update(f"{keys}{beside} · ↑ ↓ page up/down")
        pager.action_top()
        pager.grew()

    def action_section(self, number: int) -> None:
        """To a section."""
        if number <= len(self._starts):
            pager = self.query_one(Pager)
            pager.go_to(self._starts[number - 1])


def single_page(text: str, sections: Sequence[Section]) -> PageAt:
    """A reader's only page."""
    return lambda by: (text, sections) if by == 0 else None


def turn_pages(
    rows: TraceRows,
    row: TurnRow,
    records: Sequence[Recorded],
    sources: TurnSources = DEFAULT_SOURCES,
) -> PageAt:
    """Beginning with `row`. A turn that still runs is shown as far as it has come when its page is turned to."""
    every = [known for known in rows.rows if isinstance(known, TurnRow)]
    at = next((index for index, known in enumerate(every) if known is row), len(every) - 1)

    def page(by: int) -> tuple[str, Sequence[Section]] | None:
        nonlocal at
        if not 0 <= at + by < len(every):
            return None
        at += by
        shown = every[at]
        return _turn_title(shown), turn_sections(records, shown, sources)

    return page


def _turn_title(row: TurnRow) -> str:
    return f"request {row.request.number}, turn {row.assigned.turn}: {row.assigned.agent} as {row.assigned.role}"


TRACE_KEYS = "↑ ↓ mark a turn · enter opens it · q leaves"


class TraceScreen(Screen[None]):
    """The rows over the whole terminal."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape", "app.quit", show=False),
        Binding("ctrl+c", "app.quit", show=False, priority=True),
    ]

    def __init__(self, records: Sequence[Recorded], title: str, palette: Palette, sources: TurnSources) -> None:
        super().__init__()
        self._sources = sources
        self._records = records
        self._title = title
        self.palette = palette
        self._rows = TraceRows()

    def compose(self) -> ComposeResult:
        """A title, the rows, what the keys do."""
        yield Static(self._title, id="reader-title", markup=False)
        yield Trace(self.palette, id="turns")
        yield Static(TRACE_KEYS, id="reader-keys", markup=False)

    def on_mount(self) -> None:
        """Fold the log."""
        tally = SessionTotals()
        for record in self._records:
            self._rows.take(record)
            tally.take(record, record.at)
        trace = self.query_one(Trace)
        trace.show(self._rows, tally)
        trace.focus()

    def on_trace_wished(self, event: Trace.Wished) -> None:
        """Open a turn; nothing else can be done with a finished one."""

        if event.wish == "open":
            self.app.push_screen(Reader(self.palette, turn_pages(self._rows, event.row, self._records, self._sources)))


class TraceApp(TerminalApp):
    """The trace of one log."""

    CSS_PATH = "app.tcss"
    TITLE = "fugu trace"
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self, records: Sequence[Recorded], title: str, options: InterfaceOptions, sources: TurnSources = DEFAULT_SOURCES
    ) -> None:
        super().__init__(options.theme or PreferencesFile(options.state).left.theme)
        self._viewing = TraceScreen(records, title, self.palette, sources)

    def get_default_screen(self) -> TraceScreen:
        """The only screen there is at first."""
        return self._viewing
