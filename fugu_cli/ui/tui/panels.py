"""The body of the main screen: the conversation, which draws blocks of the log, the trace, which
draws its rows, and the edge between them. It is there before the first paint: what draws is
imported with the first block or row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message

from fugu_cli.app.preferences import PreferencesFile
from fugu_cli.ui.column import Fragment
from fugu_cli.ui.drawing import Palette, StyledLine, parse_style
from fugu_cli.ui.tui.pager import EntryPager, Pager

if TYPE_CHECKING:
    from fugu_cli.ui.block_drawing import ReplyFragments
    from fugu_cli.ui.blocks import Block
    from fugu_cli.ui.markdown_chunks import MarkdownChunker
    from fugu_cli.ui.session_totals import SessionTotals
    from fugu_cli.ui.trace_rows import TraceRow, TraceRows, TurnRow
    from fugu_cli.ui.transcript import Transcript


class MarkMoved(Message):
    """Another block or row is marked, or none."""


CARD_COMMANDS = {
    "d": "/diff",
    "u": "/undo",
    "c": "/commit -r",
    "b": "/blame",
    "t": "/trace last",
}
"""The commands by the keys of the newest outcome, while it is marked."""
EARLIER_CARD_COMMANDS = {"d": "/diff {request}", "t": "/trace {request}.last"}
"""The same of the outcome of an earlier request."""
CARD_HINT = "d diff · u undo · c commit · b blame · t why"
EARLIER_CARD_HINT = "d diff · t why · ↑ ↓ mark · esc back"
FIND_HINT = "n next · N previous · ctrl+f another text · esc closes"


class Conversation(EntryPager):
    """The blocks of a session. `chosen` is the marked block."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "mark(-1)", show=False),
        Binding("down", "mark(1)", show=False),
        Binding("enter,right", "turn", show=False),
        *(Binding(key, f"run_card_command('{key}')", show=False) for key in CARD_COMMANDS),
    ]

    @dataclass
    class CommandChosen(Message):
        """A key of the marked outcome stands for this command."""

        command: str

    @dataclass
    class Followed(Message):
        """A link was clicked with Ctrl."""

        link: str

    def __init__(self, palette: Palette, id: str = "conversation") -> None:
        super().__init__(palette, following=True, id=id)
        self._transcript: Transcript | None = None
        self._unfolded = False
        self._turned: set[int] = set()
        """Blocks that are folded where others are not, or the other way round."""
        self._revealed: int | None = None
        """The block that the search unfolded last."""
        self._growing: dict[MarkdownChunker, ReplyFragments] = {}

    @property
    def hint(self) -> str:
        """The hint with the keys for the marked block."""
        if self.screen.has_class("-finding"):
            return FIND_HINT
        if self.chosen is None:
            return "↑ ↓ mark · esc back"
        if self.chosen == self.card:
            return CARD_HINT
        if self._is_card(self.chosen):
            return EARLIER_CARD_HINT
        return "↑ ↓ mark · enter unfolds · esc back"

    @property
    def card(self) -> int | None:
        """The index of the newest request's outcome, None where there is no card."""
        blocks = self._transcript.blocks if self._transcript is not None else []
        if not blocks:
            return None
        from fugu_cli.ui.blocks import (
            EndBlock,
            NoteBlock,
            WelcomeBlock,
        )  # not before the first paint

        for index in range(len(blocks) - 1, -1, -1):
            block = blocks[index]
            if isinstance(block, EndBlock):
                return index if block.is_card else None
            if not isinstance(block, NoteBlock | WelcomeBlock):
                return None  # another request is under way
        return None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Accept letters as keys only while an outcome is marked."""
        if action == "run_card_command":
            return not self.screen.has_class("-finding") and parameters[0] in self._card_commands()
        return super().check_action(action, parameters)

    @property
    def entry_count(self) -> int:
        """The number of blocks."""
        return len(self._transcript.blocks) if self._transcript is not None else 0

    def entry_text(self, entry: int) -> str:
        """Return all that unfolding the block would show."""
        from fugu_cli.ui.search_text import block_text

        assert self._transcript is not None
        return block_text(self._transcript.blocks[entry])

    def reveal(self, entry: int, needle: str) -> None:
        """Unfold the block if a folded part contains the text, and fold the block that was unfolded
        for the previous match.
        """
        from fugu_cli.ui.block_drawing import foldable

        assert self._transcript is not None
        revealed = self._revealed
        if revealed is not None and self._line_start(revealed) != self._line_start(entry):
            self._revealed = None
            if not self._unfolded and self._line_start(revealed) in self._turned:
                self.fold(revealed)
        is_folded = self._unfolded == (self._line_start(entry) in self._turned)
        if not is_folded or not foldable(self._transcript.blocks[entry]):
            return
        lines = sum(needle in line for line in self.entry_text(entry).lower().split("\n"))
        if len(self._lines_with(entry, needle)) < lines:
            self.fold(entry)
            self._revealed = entry

    def action_run_card_command(self, key: str) -> None:
        """Run the command of a key of the marked outcome."""
        self.post_message(self.CommandChosen(self._card_commands()[key]))

    def _card_commands(self) -> Mapping[str, str]:
        """Return the commands of the marked outcome by their keys; none if no outcome is marked."""
        if self.chosen is None or not self._is_card(self.chosen):
            return {}
        if self.chosen == self.card:
            return CARD_COMMANDS
        number = self._request_number(self.chosen)
        return {
            key: command.format(request=number) for key, command in EARLIER_CARD_COMMANDS.items()
        }

    def _is_card(self, index: int) -> bool:
        """Return whether the block is the outcome of a request, drawn as a card."""
        from fugu_cli.ui.blocks import EndBlock

        block = self._transcript.blocks[index] if self._transcript is not None else None
        return isinstance(block, EndBlock) and block.is_card

    def _request_number(self, index: int) -> int:
        """Return the number of the request that the block belongs to."""
        from fugu_cli.ui.blocks import RequestBlock

        assert self._transcript is not None
        return sum(
            isinstance(block, RequestBlock) and not block.given_to
            for block in self._transcript.blocks[:index]
        )

    def show(self, transcript: Transcript) -> None:
        """Show another session."""
        self._transcript, self.chosen = transcript, None
        self._growing.clear()
        self._turned.clear()
        self._revealed = None
        self.column.cut(0)
        self.changed(0)
        self.action_end()

    def changed(self, first: int) -> None:
        """Redraw the blocks from `first` on, and the calls whose line it shares."""
        blocks = self._transcript.blocks if self._transcript is not None else []
        if first < len(blocks):
            first = self._line_start(first)
        for index in range(first, len(blocks)):
            self.column.put(index, self._pieces(index))
        self.grew()

    def inserted(self, at: int) -> None:
        """Shift the remembered indices after a block was inserted."""
        self._turned = {index + (index >= at) for index in self._turned}
        if self._revealed is not None and self._revealed >= at:
            self._revealed += 1
        if self.chosen is not None and self.chosen >= at:
            self.chosen += 1

    def _pieces(self, index: int) -> list[Fragment]:
        from fugu_cli.ui.block_drawing import GAP, ReplyFragments, fragments_at, has_gap_before
        from fugu_cli.ui.blocks import ReplyBlock

        assert self._transcript is not None
        blocks = self._transcript.blocks
        block = blocks[index]
        if not isinstance(block, ReplyBlock):
            unfolded = self._unfolded != (self._line_start(index) in self._turned)
            return fragments_at(
                blocks, index, unfolded=unfolded, terminal=lambda: self.app.size.width
            )
        gap = [GAP] if has_gap_before(blocks, index) else []
        if block.chunker not in self._growing:
            self._growing[block.chunker] = ReplyFragments(block)
        return [*gap, *self._growing[block.chunker].pieces()]

    def _line_start(self, index: int) -> int:
        """Return the index of the first call on the block's line."""
        from fugu_cli.ui.call_groups import group_kind, group_start

        assert self._transcript is not None
        blocks = self._transcript.blocks
        return group_start(blocks, index) if group_kind(blocks[index]) else index

    def _line_indexes(self, block: int) -> list[int]:
        """Return the indexes of the calls that share the block's line, the block's own included."""
        from fugu_cli.ui.call_groups import grouped_calls

        assert self._transcript is not None
        blocks, start = self._transcript.blocks, self._line_start(block)
        calls = grouped_calls(blocks, start)
        if not calls:
            return [block]
        last = self._transcript.placed.index(calls[-1])
        return list(range(start, last + 1))

    def fold(self, block: int | None = None) -> None:
        """Unfold a block, or fold it again; without one, all of them."""
        from fugu_cli.ui.block_drawing import foldable

        blocks = self._transcript.blocks if self._transcript is not None else []
        candidates = range(len(blocks)) if block is None else self._line_indexes(block)
        indexes = [index for index in candidates if foldable(blocks[index])]
        if block is None:
            self._unfolded = not self._unfolded
            self._turned.clear()
        else:
            self._turned ^= set(indexes)
        with self.steady():
            for index in indexes:
                if index < len(self.column):  # newer blocks come with the next frame
                    self.column.put(index, self._pieces(index))

    def next_block(self, at: int | None, by: int, is_wanted: Callable[[Block], bool]) -> int | None:
        """Return the next wanted block after `at`, with -1 the one before it. None means the end."""
        blocks = self._transcript.blocks if self._transcript is not None else []
        at = (len(blocks) if at is None else at) + by
        while 0 <= at < len(blocks) and not is_wanted(blocks[at]):
            at += by
        return at if 0 <= at < len(blocks) else None

    def on_click(self, event: events.Click) -> None:
        """Open a link on Ctrl and click."""
        if event.ctrl and event.style.link:
            event.prevent_default()
            self.post_message(self.Followed(event.style.link))

    def on_pager_clicked(self, event: Pager.Clicked) -> None:
        """Unfold the clicked tool call."""
        event.stop()
        self.fold(event.block)

    def action_mark(self, by: int) -> None:
        """Mark the next (or previous) block that can be unfolded or is an outcome with keys, and
        scroll to it. Scroll by lines if there is none.
        """
        from fugu_cli.ui.block_drawing import foldable
        from fugu_cli.ui.blocks import EndBlock

        def has_keys(block: Block) -> bool:
            return foldable(block) or (isinstance(block, EndBlock) and block.is_card)

        block = self.next_block(self.chosen, by, has_keys)
        while block is not None and not self.column.block_lines(block):
            block = self.next_block(block, by, has_keys)
        if block is None:
            self._mark(None if by > 0 else self.chosen)
            self.action_scroll(by)
            return
        self._mark(block)
        self.show_block(block)

    def _mark(self, block: int | None) -> None:
        self.chosen = block
        self.refresh()
        self.post_message(MarkMoved())

    def action_turn(self) -> None:
        """Unfold the marked block, or fold it again."""
        if self.chosen is not None:
            self.fold(self.chosen)

    def on_focus(self) -> None:
        """Mark the newest request's outcome, if its end is in sight."""
        if self.following and self.card is not None and not self.screen.has_class("-finding"):
            self._mark(self.card)

    def on_blur(self) -> None:
        """Remove the mark when the focus is lost."""
        self._mark(None)


TurnAction = Literal["open", "pin", "exclude", "retry"]


class Trace(EntryPager):
    """The rows of turns. `chosen` is the marked row."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "mark(-1)", show=False),
        Binding("down", "mark(1)", show=False),
        Binding("enter,right", "wish('open')", show=False),
        Binding("p", "wish('pin')", show=False),
        Binding("x", "wish('exclude')", show=False),
        Binding("r", "wish('retry')", show=False),
        Binding("left_square_bracket", "wider(4)", show=False),
        Binding("right_square_bracket", "wider(-4)", show=False),
    ]

    @dataclass
    class Wished(Message):
        """The user wants an action on a turn."""

        wish: TurnAction
        row: TurnRow

    @dataclass
    class Resized(Message):
        """The panel was made wider or narrower."""

        by: int

    def __init__(self, palette: Palette, id: str = "trace") -> None:
        super().__init__(palette, following=True, lead="│ ", id=id)
        self.has_no_rows = True
        """There is no row yet."""
        self._rows: TraceRows | None = None
        self._tally: SessionTotals | None = None

    def show(self, rows: TraceRows, tally: SessionTotals) -> None:
        """Show another session."""
        self._rows, self._tally, self.chosen = rows, tally, None
        self.column.cut(0)
        self.changed(0)

    def changed(self, first: int) -> None:
        """Redraw the rows from `first` on."""
        rows, tally = self._rows, self._tally
        if rows is None or tally is None:
            return
        from fugu_cli.ui import trace_drawing  # brings the log with it: not before the first paint

        was_empty, self.has_no_rows = self.has_no_rows, len(rows.rows) == 0
        if was_empty != self.has_no_rows:
            self.post_message(self.Resized(0))
        self.column.cut(first)
        for index in range(len(self.column), len(rows.rows)):
            self.column.put(index, [_row_fragment(rows.rows[index])])
        if not rows.rows:
            self.column.put(0, [Fragment(trace_drawing.empty_trace_lines, exact=2)])
            self.grew()
            return
        last, height = len(rows.rows), self._height

        def paint(width: int, palette: Palette) -> list[StyledLine]:
            free = height - self.column.top_of(last)
            # where rows fill the panel, the older ones scroll away
            return trace_drawing.panel_lines(tally, width, palette, max(free, height // 2))

        self.column.put(last, [Fragment(paint, exact=0)])
        self.grew()

    def on_resize(self, event: events.Resize) -> None:
        """Redraw after a change of size."""
        super().on_resize(event)
        self.changed(len(self._rows.rows) if self._rows is not None else 0)

    @property
    def hint(self) -> str:
        """The hint with the keys for the marked turn."""
        if self.screen.has_class("-finding"):
            return FIND_HINT
        if self.chosen is None:
            return "↑ ↓ mark a turn · enter opens the newest · esc back"
        return "enter opens · p pins · x excludes · r retries · [ ] resize"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Accept letters as keys only while a turn is marked."""
        if action == "wider" or (action == "wish" and parameters != ("open",)):
            return self.chosen is not None and not self.screen.has_class("-finding")
        return super().check_action(action, parameters)

    @property
    def entry_count(self) -> int:
        """The number of rows."""
        return len(self._rows.rows) if self._rows is not None else 0

    def entry_text(self, entry: int) -> str:
        """Return what a row says in words."""
        from fugu_cli.ui.search_text import row_text

        assert self._rows is not None
        return row_text(self._rows.rows[entry])

    def _lead_style(self) -> Style:
        palette = self.column.stack.palette
        return parse_style(palette.accent if self.has_focus else palette.dim)

    @property
    def row(self) -> TurnRow | None:
        """The marked turn, or the newest if none is marked."""
        from fugu_cli.ui.trace_rows import TurnRow

        every = self._rows.rows if self._rows else []
        if self.chosen is not None and self.chosen < len(every):
            marked = every[self.chosen]
            return marked if isinstance(marked, TurnRow) else None
        return next((row for row in reversed(every) if isinstance(row, TurnRow)), None)

    def action_mark(self, by: int) -> None:
        """Mark the next or the previous turn."""
        from fugu_cli.ui.trace_rows import TurnRow

        every = self._rows.rows if self._rows else []
        at = self.chosen if self.chosen is not None else len(every)
        at += by
        while 0 <= at < len(every) and not isinstance(every[at], TurnRow):
            at += by
        if 0 <= at < len(every):
            self.chosen = at
            self.show_block(at)
            self.refresh()
            self.post_message(MarkMoved())

    def action_wish(self, wish: TurnAction) -> None:
        """Request an action on the marked turn."""
        if self.row is not None:
            self.post_message(self.Wished(wish, self.row))

    def action_wider(self, by: int) -> None:
        """Move the panel's edge."""
        self.post_message(self.Resized(by))

    def on_pager_clicked(self, event: Pager.Clicked) -> None:
        """Mark what was clicked; a second click opens it."""
        event.stop()
        again = self.chosen == event.block
        self.chosen = event.block
        self.refresh()
        self.post_message(MarkMoved())
        if again:
            self.action_wish("open")


def _row_fragment(row: TraceRow) -> Fragment:
    from fugu_cli.ui import trace_drawing

    return Fragment(
        lambda width, palette: trace_drawing.trace_row_lines(row, width, palette), exact=2
    )


NARROW_COLUMNS = 90
"""Columns below which parts stand one below the other, or are left out."""
PANEL_WIDTHS = (28, 100)
"""The panel's least and greatest width."""


class Body(Horizontal):
    """Conversation and trace, and the edge between them."""

    def __init__(self, palette: Palette, preferences: PreferencesFile) -> None:
        super().__init__(Conversation(palette), Trace(palette), id="body")
        self._preferences = preferences
        self._narrow_panel = False
        """The trace is shown where there is room for one of the two. Not remembered: the
        conversation comes first.
        """

    def lay_out(self, columns: int) -> None:
        """Arrange the parts for a terminal of so many columns."""
        narrow, left = columns < NARROW_COLUMNS, self._preferences.current
        self.screen.set_class(narrow, "-narrow")
        wide = left.panel if left.panel is not None else columns >= 110
        self.screen.set_class(self._narrow_panel if narrow else wide, "-panel")
        self.widen(0)

    def toggle_trace(self) -> None:
        """Show or hide the trace. In a wide terminal it stands beside the conversation, and that is
        remembered; in a narrow one it replaces it.
        """
        shown, narrow = not self.screen.has_class("-panel"), self.screen.has_class("-narrow")
        self.screen.set_class(shown, "-panel")
        if narrow:
            self._narrow_panel = shown
        else:
            self._preferences.keep(panel=shown)
        trace = self.query_one(Trace)
        if shown and narrow:
            trace.focus()
        elif not shown and trace.has_focus:
            self.screen.query_one("#prompt").focus()

    def on_trace_resized(self, event: Trace.Resized) -> None:
        """Move the panel's edge."""
        self.widen(event.by)

    def widen(self, by: int) -> None:
        """Move the edge between conversation and trace, and remember it."""
        least, greatest = PANEL_WIDTHS
        columns = self.screen.size.width
        width = self._preferences.current.panel_width or max(min(columns * 2 // 5, 56), least)
        width = min(max(width + by, least), min(greatest, max(columns - 30, least)))
        if self.query_one(Trace).has_no_rows:
            width = least
        if not self.screen.has_class("-narrow"):
            self.query_one(Trace).styles.width = width
        if by:
            self._preferences.keep(panel_width=width)
