"""Long text that is painted only where it is seen: fragments, and the column of blocks that they
make. Over drawing.py; knows nothing of the log and nothing of Textual.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence

from fugu_cli.ui.drawing import DARK, Palette, StyledLine

Paint = Callable[[int, Palette], list[StyledLine]]


class Fragment:
    """A part of a column that draws itself. Its height is guessed from `text`, unless `exact` gives
    it.
    """

    __slots__ = (
        "_breaks",
        "_characters",
        "_exact",
        "_measured",
        "_paint",
        "_painted_for",
        "_previous_lines",
        "lines",
    )

    def __init__(self, paint: Paint, text: str = "", exact: int | None = None) -> None:
        self._paint = paint
        self._characters = len(text)
        self._breaks = text.count("\n")
        self._exact = exact
        self._painted_for: tuple[int, Palette] | None = None
        self._measured: tuple[int, int] = (0, 0)
        self._previous_lines: list[StyledLine] = []
        self.lines: list[StyledLine] | None = None

    def resemble(self, previous: Fragment) -> None:
        """Take over the drawings of lines that are equal to those of `previous`, an earlier version
        of this fragment.
        """
        self._previous_lines = previous.lines or []

    def height(self, width: int) -> int:
        """Return the number of lines: exact if it was painted for this width, else a guess."""
        if self._measured[0] == width:
            return self._measured[1]
        if self._exact is not None:
            return self._exact
        return self._breaks + self._characters // max(width, 1) + 2

    def painted(self, width: int, palette: Palette) -> list[StyledLine]:
        """Return its lines, painted once for a width and palette."""
        if self.lines is None or self._painted_for != (width, palette):
            self.lines = self._paint(width, palette)
            for index, (before, line) in enumerate(
                zip(self._previous_lines, self.lines, strict=False)
            ):
                if before == line:
                    self.lines[index] = before
            self._previous_lines = []
            self._painted_for = (width, palette)
            self._measured = (width, len(self.lines))
        return self.lines

    def forget(self) -> None:
        """Drop the lines, not their number; they are painted again when they are seen again."""
        self.lines = None


MOST_PAINTED = 1500
"""Pieces whose lines are kept."""


class FragmentStack:
    """Pieces one below the other, with one width and palette: the first line of each, and their
    lines, which are painted when needed. Pieces that were not seen for long keep only their height.
    """

    def __init__(self, width: int, palette: Palette) -> None:
        self.width = width
        self.palette = palette
        self.pieces: list[Fragment] = []
        self._tops: list[int] = [0]
        self._changed = 0
        self._recently_painted: OrderedDict[int, Fragment] = OrderedDict()

    @property
    def total(self) -> int:
        """The number of all lines, partly guessed."""
        return self.top(len(self.pieces))

    def splice(self, start: int, end: int, pieces: Sequence[Fragment]) -> None:
        """Replace some pieces by others."""
        self.pieces[start:end] = pieces
        self._stale(start)

    def fit(self, width: int, palette: Palette, y: int = 0) -> int:
        """Change width or palette; pieces are repainted when they are seen. Return the new index of
        line `y`.
        """
        if (width, palette) == (self.width, self.palette):
            return y
        index = within = old_height = 0
        if self.pieces:
            index, within = self.place(y)
            old_height = self.pieces[index].height(self.width)
        self.width, self.palette = width, palette
        for piece in self._recently_painted.values():
            piece.forget()
        self._recently_painted.clear()
        self._stale(0)
        if not self.pieces:
            return 0
        new_height = len(self.paint(index))
        return self.top(index) + within * new_height // max(old_height, 1)

    def place(self, y: int) -> tuple[int, int]:
        """Return the index of the piece at line `y`, and the line in it. The stack must not be
        empty.
        """
        self._add_up()
        index = min(bisect_right(self._tops, max(y, 0)) - 1, len(self.pieces) - 1)
        while index > 0 and self._tops[index + 1] == self._tops[index]:
            index -= 1
        return index, y - self._tops[index]

    def top(self, index: int) -> int:
        """Return the first line of a piece."""
        self._add_up()
        return self._tops[index]

    def paint(self, index: int) -> list[StyledLine]:
        """Return the lines of a piece."""
        piece = self.pieces[index]
        guessed = piece.height(self.width)
        lines = piece.painted(self.width, self.palette)
        if len(lines) != guessed or len(self._tops) - 1 <= index:
            self._stale(index)
        self._recently_painted[id(piece)] = piece
        self._recently_painted.move_to_end(id(piece))
        if len(self._recently_painted) > MOST_PAINTED:
            self._recently_painted.popitem(last=False)[1].forget()
        return lines

    def take_changed(self) -> int:
        """Return the first line that changed since the last call."""
        changed, self._changed = self._changed, len(self.pieces)
        return self.top(min(changed, len(self.pieces)))

    def _stale(self, index: int) -> None:
        del self._tops[index + 1 :]
        self._changed = min(self._changed, index)

    def _add_up(self) -> None:
        """Compute the first lines of the remaining pieces."""
        y = self._tops[-1]
        for piece in self.pieces[len(self._tops) - 1 :]:
            y += piece.height(self.width)
            self._tops.append(y)


class Column:
    """Blocks of pieces, and the windows that show them. Lines and blocks count from 0."""

    def __init__(self, width: int = 80, palette: Palette = DARK) -> None:
        self.stack = FragmentStack(width, palette)
        self._owners: list[int] = []
        self._starts: list[int] = []

    def __len__(self) -> int:
        return len(self._starts)

    def put(self, block: int, pieces: Sequence[Fragment]) -> None:
        """Replace a block's pieces, or add the next block. Pieces that stay at its beginning keep
        their lines.
        """
        existing = self.stack.pieces
        if block == len(self._starts):
            self._starts.append(len(existing))
        start = self._starts[block]
        end = self._starts[block + 1] if block + 1 < len(self._starts) else len(existing)
        same = 0
        while same < len(pieces) and start + same < end and existing[start + same] is pieces[same]:
            same += 1
        self.stack.splice(start + same, end, pieces[same:])
        self._owners[start + same : end] = [block] * (len(pieces) - same)
        moved = len(pieces) - (end - start)
        for later in range(block + 1, len(self._starts) if moved else 0):
            self._starts[later] += moved

    def cut(self, block: int) -> None:
        """Drop this block and all after it."""
        if block < len(self._starts):
            start = self._starts[block]
            self.stack.splice(start, len(self._owners), ())
            del self._owners[start:], self._starts[block:]

    def block_at(self, y: int) -> int | None:
        """Return the block at line `y`."""
        return (
            self._owners[self.stack.place(y)[0]]
            if self._owners and 0 <= y < self.stack.total
            else None
        )

    def top_of(self, block: int) -> int:
        """Return the first line of a block; the end for one that was not put yet."""
        if block >= len(self._starts):
            return self.stack.total
        return self.stack.top(self._starts[block])

    def block_lines(self, block: int) -> list[StyledLine]:
        """Return all lines of a block; none for one that was not put yet."""
        if block >= len(self._starts):
            return []
        start = self._starts[block]
        end = self._starts[block + 1] if block + 1 < len(self._starts) else len(self._owners)
        return [line for index in range(start, end) for line in self.stack.paint(index)]

    def paint_window(self, y: int, height: int) -> int:
        """Paint a window of `height` lines at `y`. Return where the line that was at `y` is now."""
        if not self._owners:
            return 0
        anchor, within = self.stack.place(y)
        index, shown = anchor, -within
        while index < len(self._owners) and shown < height:
            shown += len(self.stack.paint(index))
            index += 1
        return self.stack.top(anchor) + min(within, max(len(self.stack.paint(anchor)) - 1, 0))

    def move(self, y: int, by: int) -> int:
        """Return the line `by` lines away from `y`. Before moving up, the pieces on the way are
        painted, so that the distance is exact.
        """
        if not self._owners or by >= 0:
            return y + by
        anchor, within = self.stack.place(y)
        index, above = anchor, within
        while index > 0 and above < -by:
            index -= 1
            above += len(self.stack.paint(index))
        return max(self.stack.top(anchor) + within + by, 0)

    def paint_end(self, height: int) -> int:
        """Paint the last `height` lines. Returns the window's top, 0 where all fits."""
        index, shown = len(self._owners), 0
        while index > 0 and shown < height:
            index -= 1
            shown += len(self.stack.paint(index))
        return self.last_top(height)

    def last_top(self, height: int) -> int:
        """Return the largest top line for a window of this height."""
        return max(self.stack.total - height, 0)

    def line(self, y: int) -> StyledLine | None:
        """Return line `y`, None beyond the end. Paints its piece if necessary."""
        if not self._owners or not 0 <= y < self.stack.total:
            return None
        index, within = self.stack.place(y)
        lines = self.stack.pieces[index].lines
        if lines is None or within >= len(lines):
            lines = self.stack.paint(index)
        return lines[within] if within < len(lines) else []
