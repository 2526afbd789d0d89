"""Everything that scrolls: a view of a column, the pager on it, and the two pagers of the main screen, conversation
and trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from fugu_cli.ui.column import Column, Fragment
from fugu_cli.ui.drawing import Palette, StyledLine, parse_style, plain_text

if TYPE_CHECKING:
    from fugu_cli.ui.hyperlinks import LinkFinder
    from fugu_cli.ui.session_totals import SessionTotals
    from fugu_cli.ui.trace_rows import TraceRow, TraceRows, TurnRow

KEPT_STRIPS = 800
"""Lines of the screen that are kept ready."""


class ColumnView(Widget, can_focus=True):
    """Draws `column` from line `top` on. `lead`: what every line begins with; `chosen`: the marked block.

    A click leaves the keys where they are: what is typed after it (to bring the window to the front, to copy) is meant
    for the prompt, and some letters would act on the marked turn.
    """

    FOCUS_ON_CLICK: ClassVar[bool] = False

    def __init__(self, palette: Palette, lead: str, id: str | None) -> None:
        super().__init__(id=id)
        self.column = Column(palette=palette)
        self.chosen: int | None = None
        self.links: LinkFinder | None = None
        """What makes links of addresses and files; None where there are none."""
        self._lead = lead
        self._top = 0
        self._ground: Style | None = None
        self._strips: dict[tuple[int, int, bool, bool], tuple[StyledLine, Strip]] = {}

    @property
    def top(self) -> int:
        """The first line that is seen."""
        return self._top

    def render_lines(self, crop: Region) -> list[Strip]:
        """What the compositor asks for. Goes around the widget's own cache of styles, which costs more than a line."""
        background = self.background_colors[1]
        filters = self.get_line_filters()
        size = self.size
        bar = self._bar(size.height)
        strips = []
        for y in crop.line_range:
            strip = self._strip(y, size.width, y in bar)
            for line_filter in filters:
                strip = strip.apply_filter(line_filter, background)
            strips.append(strip)
        if crop.column_span == (0, size.width):
            return strips
        return [strip.crop(*crop.column_span) for strip in strips]

    def render_line(self, y: int) -> Strip:
        """One line; asked for to find out what is under the mouse."""
        size = self.size
        return self._strip(y, size.width, y in self._bar(size.height))

    def _base_style(self) -> Style:
        if self._ground is None:
            self._ground = self.rich_style
        return self._ground

    def notify_style_update(self) -> None:
        """Colours, focus or visibility changed."""
        super().notify_style_update()
        self._forget()

    def _forget(self) -> None:
        self._ground = None
        self._strips.clear()

    def _strip(self, y: int, width: int, bar: bool) -> Strip:
        """A line of the screen: the lead, the text, the scroll bar. Made once for a line at its place."""
        at = self._top + y
        line = self.column.line(at)
        chosen = self.chosen is not None and self.column.block_at(at) == self.chosen
        selection = self.text_selection
        key = (id(line), at, chosen, bar)
        if selection is None and line is not None and (kept := self._strips.get(key)) is not None:
            return kept[1]
        room = max(width - len(self._lead) - 1, 0)
        strip = Strip(self.links.linked(line, room) if line and self.links else line or ()).adjust_cell_length(room)
        if chosen:
            strip = strip.apply_style(parse_style(self.column.palette.cursor))
        if selection is not None and (span := selection.get_span(at)) is not None:
            strip = self._selected(strip, span)
        strip = strip.apply_offsets(0, at)
        ends = parse_style(self.column.palette.dim)
        lead, tail = Segment(self._lead, self._lead_style()), Segment("▐" if bar else " ", ends)
        strip = Strip.join([Strip([lead], len(self._lead)), strip, Strip([tail], 1)])
        strip = strip.apply_style(self._base_style())
        if selection is None and line is not None:
            if len(self._strips) > KEPT_STRIPS:
                self._strips.clear()
            self._strips[key] = (line, strip)  # the line is kept too: its identity is the key
        return strip

    def _lead_style(self) -> Style:
        return parse_style(self.column.palette.dim)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected lines as text."""
        first = selection.start.y if selection.start else self._top
        last = selection.end.y if selection.end else self._top + self._height - 1
        lines = [plain_text(self.column.line(y) or []) for y in range(first, last + 1)]
        if lines and selection.end:
            lines[-1] = lines[-1][: selection.end.x]
        if lines and selection.start:
            lines[0] = lines[0][selection.start.x :]
        return "\n".join(lines), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Show it."""
        self.refresh()

    @property
    def _room(self) -> int:
        """Columns of the text."""
        return max(self.size.width - len(self._lead) - 1, 1)

    @property
    def _height(self) -> int:
        return max(self.size.height, 1)

    def _bar(self, height: int) -> range:
        """The rows of the scroll bar's handle."""
        total = self.column.total
        if total <= height:
            return range(0)
        size = max(height * height // total, 1)
        start = round(self._top / (total - height) * (height - size))
        return range(start, start + size)

    def _selected(self, strip: Strip, span: tuple[int, int]) -> Strip:
        start, end = span[0], strip.cell_length if span[1] == -1 else span[1]
        words = self.screen.get_component_rich_style("screen--selection")
        inside = strip.crop(start, end).apply_style(words)
        return Strip.join([strip.crop(0, start), inside, strip.crop(end, strip.cell_length)])


WHEEL_LINES = 3


class Pager(ColumnView):
    """Shows `column`. `following`: the end stays in sight while the text grows. `lead`: what every line begins with."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll(-1)", show=False),
        Binding("down", "scroll(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("home", "top", show=False),
        Binding("end", "end", show=False),
    ]

    @dataclass
    class Clicked(Message):
        """A line was clicked; `block` is the one it belongs to."""

        pager: Pager
        block: int

    def __init__(self, palette: Palette, *, following: bool = False, lead: str = " ", id: str | None = None) -> None:
        super().__init__(palette, lead, id)
        self.following = self._follows = following
        self._total = 0

    def grew(self) -> None:
        """The column is not what it was: look again, and draw what changed."""
        before, total = self._top, self._total
        if self.following:
            self._top = self.column.look_at_end(self._height)
        else:
            self._top = self.column.look(min(self._top, self._last_top()), self._height)
        self._total = self.column.total
        changed = self.column.take_changed() - self._top
        if self._top != before or changed <= 0 or (self._total != total and self._total > self._height):
            self.refresh()
        elif changed < self._height:
            self.refresh(Region(0, changed, self.size.width, self._height - changed))

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Blocks are exchanged meanwhile; what stands at the top stays there."""
        block = None if self.following else self.column.block_at(self._top)
        within = 0 if block is None else self._top - self.column.top_of(block)
        yield
        if block is not None:
            self._top = self.column.top_of(block) + within
        self.grew()

    def repaint(self, palette: Palette) -> None:
        """Another palette."""
        self._forget()
        self._top = self.column.fit(self._room, palette, self._top)
        self.grew()

    def show_block(self, block: int) -> None:
        """Bring a block into sight."""
        top = self.column.top_of(block)
        if not self._top <= top < self._top + self._height:
            self._go(max(top - self._height // 3, 0))

    def go_to(self, block: int) -> None:
        """A block at the top of what is seen."""
        self._go(self.column.top_of(block))

    def action_scroll(self, by: int) -> None:
        """Move by some lines."""
        self._go(self.column.move(self._top, by))

    def action_page(self, pages: int) -> None:
        """Move by pages, one line less than is seen."""
        self.action_scroll(pages * max(self._height - 1, 1))

    def action_top(self) -> None:
        """To the beginning."""
        self._go(0)

    def action_end(self) -> None:
        """To the end, and stay there."""
        self._top = self.column.look_at_end(self._height)
        self.following = self._follows
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        """Fold the text again; what was at the top stays there."""
        self._forget()
        self._top = self.column.fit(self._room, self.column.palette, self._top)
        self.grew()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel."""
        event.stop()
        self.action_scroll(-WHEEL_LINES)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel."""
        event.stop()
        self.action_scroll(WHEEL_LINES)

    def on_click(self, event: events.Click) -> None:
        """A click on the scroll bar goes there, one on the text tells which block it was."""
        if self.text_selection is not None:  # something was selected, nothing clicked
            return
        if event.x >= self.size.width - 1:
            self._go(event.y * self.column.total // max(self._height, 1))
        elif (block := self.column.block_at(self._top + event.y)) is not None:
            self.post_message(self.Clicked(self, block))

    def _last_top(self) -> int:
        return max(self.column.total - self._height, 0)

    def _go(self, top: int) -> None:
        top = min(max(top, 0), self._last_top())
        self._top = self.column.look(top, self._height)
        self.following = self._follows and self._top >= self._last_top()
        self.refresh()


class Conversation(Pager):
    """`chosen` is the marked block."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "mark(-1)", show=False),
        Binding("down,j", "mark(1)", show=False),
        Binding("enter,right", "turn", show=False),
    ]

    @dataclass
    class Followed(Message):
        """A link was clicked with Ctrl."""

        link: str

    @dataclass
    class Marking(Message):
        """The next (or previous) block that can be unfolded is to be marked."""

        by: int

    def __init__(self, palette: Palette, id: str = "conversation") -> None:
        super().__init__(palette, following=True, id=id)

    def on_click(self, event: events.Click) -> None:
        """With Ctrl a link is opened."""
        if event.ctrl and event.style.link:
            event.prevent_default()
            self.post_message(self.Followed(event.style.link))

    def action_mark(self, by: int) -> None:
        """Mark another one."""
        self.post_message(self.Marking(by))

    def action_turn(self) -> None:
        """Unfold the marked one, or fold it again."""
        if self.chosen is not None:
            self.post_message(self.Clicked(self, self.chosen))

    def mark(self, block: int | None, by: int) -> None:
        """Mark this block and bring it into sight; with none to mark, scroll."""
        if block is None:
            self.chosen = None if by > 0 else self.chosen
            self.action_scroll(by)
            return
        self.chosen = block
        self.show_block(block)
        self.refresh()

    def on_blur(self) -> None:
        """Without the keys there is nothing to mark."""
        self.chosen = None
        self.refresh()


TurnAction = Literal["open", "pin", "exclude", "retry"]


class Trace(Pager):
    """Rows of turns. `chosen` is the marked one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "mark(-1)", show=False),
        Binding("down,j", "mark(1)", show=False),
        Binding("enter,right", "wish('open')", show=False),
        Binding("p", "wish('pin')", show=False),
        Binding("x", "wish('exclude')", show=False),
        Binding("r", "wish('retry')", show=False),
        Binding("left_square_bracket", "wider(4)", show=False),
        Binding("right_square_bracket", "wider(-4)", show=False),
    ]

    @dataclass
    class Wished(Message):
        """What the user wants with a turn."""

        wish: TurnAction
        row: TurnRow

    @dataclass
    class Resized(Message):
        """The panel was made wider or narrower."""

        by: int

    def __init__(self, palette: Palette, id: str = "trace") -> None:
        super().__init__(palette, following=True, lead="│ ", id=id)
        self._rows: TraceRows | None = None
        self._tally: SessionTotals | None = None

    def show(self, rows: TraceRows, tally: SessionTotals) -> None:
        """Another session."""
        self._rows, self._tally, self.chosen = rows, tally, None
        self.column.cut(0)
        self.changed(0)

    def changed(self, first: int) -> None:
        """Rows from this one on are not what they were."""
        rows, tally = self._rows, self._tally
        if rows is None or tally is None:
            return
        from fugu_cli.ui import trace_drawing  # brings the log with it: not before the first paint

        self.column.cut(first)
        for index in range(len(self.column), len(rows.rows)):
            self.column.put(index, [_row_fragment(rows.rows[index], self._room)])
        if not rows.rows:
            self.column.put(0, [Fragment(trace_drawing.empty_trace_lines, exact=2)])
            self.grew()
            return
        last, height = len(rows.rows), self._height

        def paint(width: int, palette: Palette) -> list[StyledLine]:
            return trace_drawing.panel_lines(tally, width, palette, height - self.column.top_of(last))

        self.column.put(last, [Fragment(paint, exact=0)])
        self.grew()

    def on_resize(self, event: events.Resize) -> None:
        """There is more or less room below the rows."""
        super().on_resize(event)
        self.changed(len(self._rows.rows) if self._rows is not None else 0)

    def _lead_style(self) -> Style:
        palette = self.column.palette
        return parse_style(palette.accent if self.has_focus else palette.dim)

    @property
    def row(self) -> TurnRow | None:
        """The marked turn, the newest where none is marked."""
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

    def action_wish(self, wish: TurnAction) -> None:
        """Something with the marked turn."""
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
        if again:
            self.action_wish("open")


def _row_fragment(row: TraceRow, room: int) -> Fragment:
    from fugu_cli.ui import trace_drawing

    guessed = 1 if room >= trace_drawing.ONE_LINE else 2
    return Fragment(lambda width, palette: trace_drawing.trace_row_lines(row, width, palette), exact=guessed)
