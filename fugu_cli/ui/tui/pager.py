"""A scrolling view of a column, and the pager that uses it.

The conversation and the trace are two such views (panels.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events, on
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from fugu_cli.ui.column import Column
from fugu_cli.ui.drawing import Palette, StyledLine, parse_style, plain_text

if TYPE_CHECKING:
    from fugu_cli.ui.hyperlinks import LinkFinder

KEPT_STRIPS = 800
"""Lines of the screen that are kept ready."""


class ColumnView(Widget, can_focus=True):
    """Draws `column` from line `top` on. `lead` is the text before every line; `chosen` is the
    marked block. A click does not take the keyboard focus: text typed after it is meant for the
    prompt, and some letters would act on the marked turn.
    """

    FOCUS_ON_CLICK: ClassVar[bool] = False

    def __init__(self, palette: Palette, lead: str, id: str | None) -> None:
        super().__init__(id=id)
        self.column = Column(palette=palette)
        self.chosen: int | None = None
        self.links: LinkFinder | None = None
        """Makes links of addresses and files; None for no links."""
        self.top = 0
        """The first line that is seen."""
        self.needle = ""
        """The text that is searched for, in lower case."""
        self.match_line: int | None = None
        """The line of the match that was shown last."""
        self._lead = lead
        self._ground: Style | None = None
        self._strips: dict[tuple[int, int, bool, bool], tuple[StyledLine, Strip]] = {}

    def render_lines(self, crop: Region) -> list[Strip]:
        """Render lines for the compositor. Bypasses the widget's style cache, which costs more than
        a line.
        """
        background = self.background_colors[1]
        filters = self.get_line_filters()
        size = self.size
        bar = _bar_rows(self.column.stack.total, self.top, size.height)
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
        """Draw one line, to find out what is under the mouse."""
        size = self.size
        return self._strip(
            y, size.width, y in _bar_rows(self.column.stack.total, self.top, size.height)
        )

    def notify_style_update(self) -> None:
        """Redraw after a change of colours, focus or visibility."""
        super().notify_style_update()
        self._forget()

    def _forget(self) -> None:
        self._ground = None
        self._strips.clear()

    def _strip(self, y: int, width: int, bar: bool) -> Strip:
        """Draw a line of the screen with lead, text and scroll bar, once for a line and position."""
        at = self.top + y
        line = self.column.line(at)
        chosen = self.chosen is not None and self.column.block_at(at) == self.chosen
        selection = self.text_selection
        key = (id(line), at, chosen, bar)
        if selection is None and line is not None and (kept := self._strips.get(key)) is not None:
            return kept[1]
        available = max(width - len(self._lead) - 1, 0)
        strip = Strip(
            self.links.linked(line, available) if line and self.links else line or ()
        ).adjust_cell_length(available)
        if chosen:
            strip = strip.apply_style(parse_style(self.column.stack.palette.cursor))
        if self.needle and line:
            is_current = at == self.match_line
            style = "reverse bold" if is_current else "reverse"
            strip = _highlighted(strip, plain_text(line), self.needle, parse_style(style))
        if selection is not None and (span := selection.get_span(at)) is not None:
            start, end = span
            selected_style = self.screen.get_component_rich_style("screen--selection")
            strip = _restyled(strip, start, strip.cell_length if end == -1 else end, selected_style)
        strip = strip.apply_offsets(0, at)
        ends = parse_style(self.column.stack.palette.dim)
        lead, tail = (
            Segment(self._lead, parse_style(self.column.stack.palette.dim)),
            Segment("▐" if bar else " ", ends),
        )
        strip = Strip.join([Strip([lead], len(self._lead)), strip, Strip([tail], 1)])
        self._ground = self._ground or self.rich_style
        strip = strip.apply_style(self._ground)
        if selection is None and line is not None:
            if len(self._strips) > KEPT_STRIPS:
                self._strips.clear()
            self._strips[key] = (line, strip)  # the line is kept too: its identity is the key
        return strip

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the selected lines as text."""
        first = selection.start.y if selection.start else self.top
        last = selection.end.y if selection.end else self.top + self._height - 1
        lines = []
        for y in range(first, last + 1):
            start = selection.start.x if selection.start and y == first else 0
            end = selection.end.x if selection.end and y == last else None
            lines.append(copied_text(self.column.line(y) or [], start, end))
        return "\n".join(lines), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Redraw with the new selection."""
        self.refresh()

    @property
    def _height(self) -> int:
        return max(self.size.height, 1)


def _bar_rows(total: int, top: int, height: int) -> range:
    """Return the rows of the scroll bar's handle."""
    if total <= height:
        return range(0)
    size = max(height * height // total, 1)
    start = round(top / (total - height) * (height - size))
    return range(start, start + size)


def copied_text(line: StyledLine, start: int, end: int | None) -> str:
    """Return the characters of a line from `start` to `end` without the gutter of a diff."""
    copied, at = [], 0
    for segment in line:
        text = segment.text
        if segment.style is None or not segment.style.meta.get("gutter"):
            stop = None if end is None else max(end - at, 0)
            copied.append(text[max(start - at, 0) : stop])
        at += len(text)
    return "".join(copied).rstrip() if end is None else "".join(copied)


def _highlighted(strip: Strip, text: str, needle: str, style: Style) -> Strip:
    """Return the line with each occurrence of the text in another style."""
    lowered = text.lower()
    start = lowered.find(needle) if len(lowered) == len(text) else -1
    while start >= 0:
        end = start + len(needle)
        strip = _restyled(strip, cell_len(text[:start]), cell_len(text[:end]), style)
        start = lowered.find(needle, end)
    return strip


def _restyled(strip: Strip, start: int, end: int, style: Style) -> Strip:
    inside = Strip(
        Segment(segment.text, (segment.style or Style()) + style, segment.control)
        for segment in strip.crop(start, end)
    )
    return Strip.join([strip.crop(0, start), inside, strip.crop(end, strip.cell_length)])


WHEEL_LINES = 3


class Pager(ColumnView):
    """Shows `column`. `following`: the end stays visible while the text grows. `lead` is the text
    before every line.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll(-1)", show=False),
        Binding("down", "scroll(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "go(0)", show=False),
        Binding("end", "end", show=False),
    ]

    @dataclass
    class Clicked(Message):
        """A line was clicked; `block` is the one it belongs to."""

        pager: Pager
        block: int

    def __init__(
        self, palette: Palette, *, following: bool = False, lead: str = " ", id: str | None = None
    ) -> None:
        super().__init__(palette, lead, id)
        self.following = self._follows = following
        self._total = 0

    def grew(self) -> None:
        """Update the view after the column changed."""
        before, total = self.top, self._total
        if self.following:
            self.top = self.column.paint_end(self._height)
        else:
            self.top = self.column.paint_window(
                min(self.top, self.column.last_top(self._height)), self._height
            )
        self._total = self.column.stack.total
        changed = self.column.stack.take_changed() - self.top
        if (
            self.top != before
            or changed <= 0
            or (self._total != total and self._total > self._height)
        ):
            self.refresh()
        elif changed < self._height:
            self.refresh(Region(0, changed, self.size.width, self._height - changed))

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Keep the line at the top in place inside the block, while pieces are exchanged."""
        block = None if self.following else self.column.block_at(self.top)
        within = 0 if block is None else self.top - self.column.top_of(block)
        yield
        if block is not None:
            self.top = self.column.top_of(block) + within
        self.grew()

    def repaint(self, palette: Palette) -> None:
        """Change the palette."""
        self._forget()
        self.top = self.column.stack.fit(
            max(self.size.width - len(self._lead) - 1, 1), palette, self.top
        )
        self.grew()

    def show_block(self, block: int) -> None:
        """Scroll to a block."""
        top = self.column.top_of(block)
        if not self.top <= top < self.top + self._height:
            self.action_go(max(top - self._height // 3, 0))

    def action_scroll(self, by: int) -> None:
        """Move by some lines."""
        self.action_go(self.column.move(self.top, by))

    def action_page(self, pages: int) -> None:
        """Scroll by pages, each one line shorter than the view."""
        self.action_scroll(pages * max(self._height - 1, 1))

    def action_go(self, top: int) -> None:
        """Scroll to a line."""
        last = self.column.last_top(self._height)
        self.top = self.column.paint_window(min(max(top, 0), last), self._height)
        self.following = self._follows and self.top >= self.column.last_top(self._height)
        self.refresh()

    def action_end(self) -> None:
        """Scroll to the end and stay there."""
        self.top = self.column.paint_end(self._height)
        self.following = self._follows
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        """Fold the text again; what was at the top stays there."""
        self.repaint(self.column.stack.palette)

    @on(events.MouseScrollUp)
    @on(events.MouseScrollDown)
    def turn_wheel(self, event: events.MouseEvent) -> None:
        """Scroll by the mouse wheel."""
        event.stop()
        self.action_scroll(-WHEEL_LINES if isinstance(event, events.MouseScrollUp) else WHEEL_LINES)

    def on_click(self, event: events.Click) -> None:
        """Handle a click: on the scroll bar it scrolls there, on the text it reports the block."""
        if self.text_selection is not None:  # something was selected, nothing clicked
            return
        if event.x >= self.size.width - 1:
            self.action_go(event.y * self.column.stack.total // max(self._height, 1))
        elif (block := self.column.block_at(self.top + event.y)) is not None:
            self.post_message(self.Clicked(self, block))


class EntryPager(Pager):
    """A pager whose blocks can be searched."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "find(1)", show=False),
        Binding("N", "find(-1)", show=False),
    ]

    @dataclass
    class MatchWanted(Message):
        """The user wants to see the next match (1) or the previous one (-1)."""

        by: int

    @property
    def entry_count(self) -> int:
        """The number of blocks; 0 unless a subclass has some."""
        return 0

    def entry_text(self, entry: int) -> str:
        """Return the text of a block, with its folded parts."""
        return ""

    def reveal(self, entry: int, needle: str) -> None:
        """Unfold the block if the text is in a folded part."""

    @property
    def last_seen(self) -> int:
        """The block at the lower edge of the view."""
        block = self.column.block_at(min(self.top + self._height, self.column.stack.total) - 1)
        return block if block is not None else 0

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Handle n and N only during a search."""
        return action != "find" or self.screen.has_class("-finding")

    def action_find(self, by: int) -> None:
        """Ask for the next match."""
        self.post_message(self.MatchWanted(by))

    def highlight(self, needle: str) -> None:
        """Highlight a text from now on, "" for none."""
        self.needle, self.match_line = needle, None
        self._forget()
        self.refresh()

    def show_match(self, entry: int, needle: str, *, from_end: bool = False) -> None:
        """Scroll to the first line of the block that contains the text, or to the last one."""
        self.reveal(entry, needle)
        lines = self._lines_with(entry, needle) or [self.column.top_of(entry)]
        self._show_line(lines[-1 if from_end else 0])

    def step_within(self, entry: int, needle: str, by: int) -> bool:
        """Scroll to the next line of the block that contains the text, or to the previous one (-1).
        Return False if there is none.
        """
        line = self.match_line
        if line is None or not by:
            return False
        others = [at for at in self._lines_with(entry, needle) if (at - line) * by > 0]
        if others:
            self._show_line(min(others, key=lambda at: abs(at - line)))
        return bool(others)

    def _lines_with(self, entry: int, needle: str) -> list[int]:
        lines = self.column.block_lines(entry)
        top = self.column.top_of(entry)
        return [
            top + index for index, line in enumerate(lines) if needle in plain_text(line).lower()
        ]

    def _show_line(self, line: int) -> None:
        self.match_line = line
        self._forget()
        if self.top <= line < self.top + self._height:
            self.refresh()
        else:
            self.action_go(max(line - self._height // 3, 0))


class TextPager(Pager):
    """The pager of a dialog, in which nothing is typed: space turns the page."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "page(1)", show=False)]
