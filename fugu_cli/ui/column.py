"""Long text that is painted only where it is seen: fragments, and the column of blocks that they make. Over drawing.py;
knows nothing of the log and nothing of Textual.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence

from fugu_cli.ui.drawing import DARK, Palette, StyledLine

Paint = Callable[[int, Palette], list[StyledLine]]


class Fragment:
    """Paints itself. `characters` and `breaks` (newlines) are for guessing, `exact` where the height is known."""

    __slots__ = ("_before", "_breaks", "_characters", "_exact", "_for", "_measured", "_paint", "lines")

    def __init__(self, paint: Paint, text: str = "", exact: int | None = None) -> None:
        self._paint = paint
        self._characters = len(text)
        self._breaks = text.count("\n")
        self._exact = exact
        self._for: tuple[int, Palette] | None = None
        self._measured: tuple[int, int] = (0, 0)
        self._before: list[StyledLine] = []
        self.lines: list[StyledLine] | None = None

    def resemble(self, other: Fragment) -> None:
        """This is `other`, grown: lines that are equal are taken from it, so that what was made of them is kept."""
        self._before = other.lines or []

    def height(self, width: int) -> int:
        """Its number of lines: known when it was painted for this width, else a guess."""
        if self._measured[0] == width:
            return self._measured[1]
        if self._exact is not None:
            return self._exact
        return self._breaks + self._characters // max(width, 1) + 2

    def painted(self, width: int, palette: Palette) -> list[StyledLine]:
        """Its lines, painted once for a width and a palette."""
        if self.lines is None or self._for != (width, palette):
            self.lines = self._paint(width, palette)
            for index, (before, now) in enumerate(zip(self._before, self.lines, strict=False)):
                if before == now:
                    self.lines[index] = before
            self._before = []
            self._for = (width, palette)
            self._measured = (width, len(self.lines))
        return self.lines

    def forget(self) -> None:
        """Drop the lines, not their number; they are painted again when they are seen again."""
        self.lines = None


MOST_PAINTED = 1500
"""Pieces whose lines are kept."""


class Column:
    """Blocks of pieces, one below the other. Lines and blocks count from 0."""

    def __init__(self, width: int = 80, palette: Palette = DARK) -> None:
        self.width = width
        self.palette = palette
        self._pieces: list[Fragment] = []
        self._owners: list[int] = []
        self._starts: list[int] = []
        self._tops: list[int] = [0]
        self._changed = 0
        self._seen: OrderedDict[int, Fragment] = OrderedDict()

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def total(self) -> int:
        """All lines; partly guessed."""
        self._add_up()
        return self._tops[-1]

    def put(self, block: int, pieces: Sequence[Fragment]) -> None:
        """Replace a block's pieces, or add the next block. Pieces that stay at its beginning keep their lines."""
        if block == len(self._starts):
            self._starts.append(len(self._pieces))
            self._stale(len(self._pieces))
            self._pieces += pieces
            self._owners += [block] * len(pieces)
            return
        start = self._starts[block]
        last = block + 1 >= len(self._starts)
        end = len(self._pieces) if last else self._starts[block + 1]
        same = 0
        while same < len(pieces) and start + same < end and self._pieces[start + same] is pieces[same]:
            same += 1
        self._drop(start + same, end)
        self._pieces[start + same : end] = pieces[same:]
        self._owners[start + same : end] = [block] * (len(pieces) - same)
        moved = len(pieces) - (end - start)
        if not last and moved:
            for later in range(block + 1, len(self._starts)):
                self._starts[later] += moved
        self._stale(start + same)

    def cut(self, block: int) -> None:
        """Drop this block and all after it."""
        if block < len(self._starts):
            start = self._starts[block]
            self._drop(start, len(self._pieces))
            del self._pieces[start:], self._owners[start:], self._starts[block:]
            self._stale(start)

    def fit(self, width: int, palette: Palette, y: int = 0) -> int:
        """Another width or palette: everything is painted again when it is seen. Returns where line `y` is now."""
        if (width, palette) == (self.width, self.palette):
            return y
        index, within = self.place(y) if self._pieces else (0, 0)
        before = self._pieces[index].height(self.width) if self._pieces else 0
        self.width, self.palette = width, palette
        self._drop(0, len(self._pieces))
        self._stale(0)
        if not self._pieces:
            return 0
        now = len(self._paint(index))
        self._add_up()
        return self._tops[index] + within * now // max(before, 1)

    def place(self, y: int) -> tuple[int, int]:
        """The piece at line `y` and the line in it. The column must not be empty."""
        self._add_up()
        index = min(bisect_right(self._tops, max(y, 0)) - 1, len(self._pieces) - 1)
        while index > 0 and self._tops[index + 1] == self._tops[index]:
            index -= 1
        return index, y - self._tops[index]

    def block_at(self, y: int) -> int | None:
        """The block at line `y`."""
        if not self._pieces or not 0 <= y < self.total:
            return None
        return self._owners[self.place(y)[0]]

    def top_of(self, block: int) -> int:
        """The first line of a block."""
        self._add_up()
        return self._tops[self._starts[block]]

    def look(self, y: int, height: int) -> int:
        """Paint what a window of `height` lines at `y` shows. Returns where the line that was at `y` is now."""
        if not self._pieces:
            return 0
        anchor, within = self.place(y)
        index, shown = anchor, -within
        while index < len(self._pieces) and shown < height:
            shown += len(self._paint(index))
            index += 1
        self._add_up()
        return self._tops[anchor] + min(within, max(self._pieces[anchor].height(self.width) - 1, 0))

    def move(self, y: int, by: int) -> int:
        """`y` moved by some lines, upwards over what was painted first: the text moves by just as many."""
        if not self._pieces or by >= 0:
            return y + by
        anchor, within = self.place(y)
        index, above = anchor, within
        while index > 0 and above < -by:
            index -= 1
            above += len(self._paint(index))
        self._add_up()
        return max(self._tops[anchor] + within + by, 0)

    def look_at_end(self, height: int) -> int:
        """Paint the last `height` lines. Returns the window's top, 0 where all fits."""
        index, shown = len(self._pieces), 0
        while index > 0 and shown < height:
            index -= 1
            shown += len(self._paint(index))
        return max(self.total - height, 0)

    def line(self, y: int) -> StyledLine | None:
        """Line `y`, None beyond the end. Paints its piece where that was not done."""
        if not self._pieces or not 0 <= y < self.total:
            return None
        index, within = self.place(y)
        lines = self._pieces[index].lines
        if lines is None or within >= len(lines):
            lines = self._paint(index)
        return lines[within] if within < len(lines) else []

    def _paint(self, index: int) -> list[StyledLine]:
        piece = self._pieces[index]
        guessed = piece.height(self.width)
        lines = piece.painted(self.width, self.palette)
        if len(lines) != guessed or self._tops_known() <= index:
            self._stale(index)
        self._seen[id(piece)] = piece
        self._seen.move_to_end(id(piece))
        if len(self._seen) > MOST_PAINTED:
            self._forget()
        return lines

    def _forget(self) -> None:
        """Drop the lines of what was not seen for long, but not the height they showed it to have."""
        for _ in range(MOST_PAINTED // 3):
            _, piece = self._seen.popitem(last=False)
            piece.forget()

    def _drop(self, start: int, end: int) -> None:
        for piece in self._pieces[start:end]:
            if self._seen.pop(id(piece), None) is not None:
                piece.forget()

    def _tops_known(self) -> int:
        return len(self._tops) - 1

    def _stale(self, index: int) -> None:
        del self._tops[index + 1 :]
        self._changed = min(self._changed, index)

    def take_changed(self) -> int:
        """The first line that is not what it was when this was asked last."""
        self._add_up()
        changed, self._changed = self._changed, len(self._pieces)
        return self._tops[min(changed, len(self._pieces))]

    def _add_up(self) -> None:
        """Tops of the pieces after the last one that is known."""
        width, tops = self.width, self._tops
        y = tops[-1]
        for piece in self._pieces[len(tops) - 1 :]:
            y += piece.height(width)
            tops.append(y)
