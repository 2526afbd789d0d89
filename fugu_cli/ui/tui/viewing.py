"""`fugu trace SESSION` on a terminal: the rows of a finished log, each of which can be opened. Nothing runs.

The same rows and the same detail view as beside a running session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static

from fugu_cli.events import Recorded
from fugu_cli.ui.tui.draw.detail import PLAIN, Sources
from fugu_cli.ui.tui.draw.palette import PALETTES, Palette
from fugu_cli.ui.tui.draw.rows import Rows
from fugu_cli.ui.tui.draw.tally import Tally
from fugu_cli.ui.tui.keeping import look
from fugu_cli.ui.tui.screens.turns import pages
from fugu_cli.ui.tui.session import Options
from fugu_cli.ui.tui.terminal import TerminalApp
from fugu_cli.ui.tui.themes import guessed, themes
from fugu_cli.ui.tui.widgets.trace import Trace

KEYS = "↑ ↓ mark a turn · enter opens it · q leaves"


class Viewing(Screen[None]):
    """The rows over the whole terminal."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape", "app.quit", show=False),
        Binding("ctrl+c", "app.quit", show=False, priority=True),
    ]

    def __init__(self, records: Sequence[Recorded], title: str, palette: Palette, sources: Sources) -> None:
        super().__init__()
        self._sources = sources
        self._records = records
        self._title = title
        self._palette = palette
        self._rows = Rows()

    def compose(self) -> ComposeResult:
        """A title, the rows, what the keys do."""
        yield Static(self._title, id="reader-title", markup=False)
        yield Trace(self._palette, id="turns")
        yield Static(KEYS, id="reader-keys", markup=False)

    def on_mount(self) -> None:
        """Fold the log."""
        tally = Tally()
        for record in self._records:
            self._rows.take(record)
            tally.take(record, record.at)
        trace = self.query_one(Trace)
        trace.show(self._rows, tally)
        trace.focus()

    def on_trace_wished(self, event: Trace.Wished) -> None:
        """Open a turn; nothing else can be done with a finished one."""
        from fugu_cli.ui.tui.screens.reader import Reader

        if event.wish == "open":
            self.app.push_screen(Reader(self._palette, pages(self._rows, event.row, self._records, self._sources)))


class TraceApp(TerminalApp):
    """The trace of one log."""

    CSS_PATH = "app.tcss"
    TITLE = "fugu trace"
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, records: Sequence[Recorded], title: str, options: Options, sources: Sources = PLAIN) -> None:
        super().__init__()
        for theme in themes():
            self.register_theme(theme)
        palette = PALETTES.get(options.theme) or PALETTES.get(look(options.state).theme) or guessed()
        self.theme = palette.name
        self._viewing = Viewing(records, title, palette, sources)

    def get_default_screen(self) -> Viewing:
        """The only screen there is at first."""
        return self._viewing
