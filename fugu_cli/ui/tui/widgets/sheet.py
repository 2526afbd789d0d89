"""The lines of a column that are seen, drawn as fast as Textual allows.

Under pager.py, which scrolls. It goes around the compositor's cache of styles and keeps finished lines itself: while a
reply streams in, the screen is drawn twenty times a second, and most of its lines were drawn before.
"""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from fugu_cli.ui.tui.draw.column import Column
from fugu_cli.ui.tui.draw.lines import Line, plain, style
from fugu_cli.ui.tui.draw.palette import Palette

KEPT = 800
"""Lines of the screen that are kept ready."""


class Sheet(Widget, can_focus=True):
    """Draws `column` from line `top` on. `lead`: what every line begins with; `chosen`: the marked block.

    A click leaves the keys where they are: what is typed after it (to bring the window to the front, to copy) is meant
    for the prompt, and some letters would act on the marked turn.
    """

    FOCUS_ON_CLICK: ClassVar[bool] = False

    def __init__(self, palette: Palette, lead: str, id: str | None) -> None:
        super().__init__(id=id)
        self.column = Column(palette=palette)
        self.chosen: int | None = None
        self._lead = lead
        self._top = 0
        self._ground: Style | None = None
        self._strips: dict[tuple[int, int, bool, bool], tuple[Line, Strip]] = {}

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
        strip = Strip(line or ()).adjust_cell_length(max(width - len(self._lead) - 1, 0))
        if chosen:
            strip = strip.apply_style(style(self.column.palette.cursor))
        if selection is not None and (span := selection.get_span(at)) is not None:
            strip = self._selected(strip, span)
        strip = strip.apply_offsets(0, at)
        ends = style(self.column.palette.dim)
        lead, tail = Segment(self._lead, self._lead_style()), Segment("▐" if bar else " ", ends)
        strip = Strip.join([Strip([lead], len(self._lead)), strip, Strip([tail], 1)])
        strip = strip.apply_style(self._base_style())
        if selection is None and line is not None:
            if len(self._strips) > KEPT:
                self._strips.clear()
            self._strips[key] = (line, strip)  # the line is kept too: its identity is the key
        return strip

    def _lead_style(self) -> Style:
        return style(self.column.palette.dim)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected lines as text."""
        first = selection.start.y if selection.start else self._top
        last = selection.end.y if selection.end else self._top + self._height - 1
        lines = [plain(self.column.line(y) or []) for y in range(first, last + 1)]
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
