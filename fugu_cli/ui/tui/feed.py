"""The log on the screen: hands every item to the folds and shows what they changed, at most some twenty times a second.

Between the session at work and the widgets. A burst of tokens becomes one repaint; while nothing arrives nothing runs.
The folds (Story, Rows, Tally) hold what the log says and nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from fugu_cli.events import Live, Recorded, ToolRan
from fugu_cli.ui.tui.draw.block import Note, Speech
from fugu_cli.ui.tui.draw.piece import Piece
from fugu_cli.ui.tui.draw.pieces import GAP, Growth, apart, foldable, of_block
from fugu_cli.ui.tui.draw.rows import Rows
from fugu_cli.ui.tui.draw.story import Story
from fugu_cli.ui.tui.draw.tally import Tally
from fugu_cli.ui.tui.front import Grow
from fugu_cli.ui.tui.widgets.pager import Pager
from fugu_cli.ui.tui.widgets.trace import Trace

FRAME = 0.045
"""Seconds between two repaints while something streams, at least."""
SHARE = 4.0
"""So many times as long as a repaint took lies between it and the next."""
SLOWEST = 0.3


class Feed:
    """Keeps the conversation, the trace and the tally with the log."""

    def __init__(self, pager: Pager, trace: Trace, shown: Callable[[], None]) -> None:
        self.story = Story()
        self.rows = Rows()
        self.tally = Tally()
        self.unfolded = False
        self._pager = pager
        self._trace = trace
        self._shown = shown
        self._dirty: int | None = None
        self._row: int | None = None
        self._due = False
        self._last = 0.0
        self._pause = FRAME
        self._grown: dict[int, Growth] = {}
        self._turned: set[int] = set()

    def replay(self, records: Sequence[Recorded]) -> None:
        """A session from its beginning."""
        self.story, self.rows, self.tally = Story(), Rows(), Tally()
        self._grown.clear()
        self._turned.clear()
        for record in records:
            self.story.take(record)
            self.rows.take(record)
            self.tally.take(record, record.at)
        self.tally.doing = ""  # what was under way when the session was left is not under way now
        self._pager.column.cut(0)
        self._pager.chosen = None
        self._put(0)
        self._pager.action_end()
        self._trace.show(self.rows, self.tally)
        self._dirty = self._row = None
        self._shown()

    def take(self, item: Recorded | Live) -> None:
        """One more item of the log."""
        now = time.time()
        self._mark(self.story.take(item), self.rows.take(item))
        self.tally.take(item, now)

    def say(self, note: Note) -> Grow:
        """A note of the screen's own. Returns what shows it grown."""
        story = self.story
        index = story.say(note)
        self._mark(index, None)

        def grow(grown: Note) -> None:
            shown = story is self.story
            if shown:
                story.blocks[index] = grown
            self._mark(index if shown else None, None)

        return grow

    def patched(self, ran: ToolRan, patch: str) -> None:
        """The diff of what a call changed has become known."""
        index = self.story.patched(ran, patch)
        if index is not None:
            self._mark(index, None)

    def _mark(self, block: int | None, row: int | None) -> None:
        self._dirty = _first(self._dirty, block)
        self._row = _first(self._row, row)
        if not self._due:
            self._due = True
            wait = self._pause - (time.monotonic() - self._last)
            # not a timer of Textual's: one that is over before it has begun to wait is never called
            asyncio.get_running_loop().call_later(max(wait, 0.0), self._pager.call_next, self.flush)

    def flush(self) -> None:
        """Show what changed since the last time."""
        self._due, self._last = False, time.monotonic()
        self._pager.call_after_refresh(self._drawn)
        dirty, self._dirty = self._dirty, None
        row, self._row = self._row, None
        if dirty is not None:
            self._put(dirty)
            self._pager.grew()
        if row is not None:
            self._trace.changed(row)
        self._shown()

    def _drawn(self) -> None:
        """The screen has it. A frame that took long makes the next one wait, so that keys never do."""
        self._pause = min(max(FRAME, SHARE * (time.monotonic() - self._last)), SLOWEST)

    def _put(self, first: int) -> None:
        for index in range(first, len(self.story.blocks)):
            self._pager.column.put(index, self._pieces(index))

    def _pieces(self, index: int) -> list[Piece]:
        blocks = self.story.blocks
        block = blocks[index]
        gap = [GAP] if apart(blocks, index) else []
        if not isinstance(block, Speech):
            return [*gap, *of_block(block, unfolded=self.unfolded != (index in self._turned))]
        growth = self._grown.get(index)
        if growth is None or growth.chunker is not block.chunker:
            growth = self._grown[index] = Growth(block)
        return [*gap, *growth.pieces()]

    def fold(self) -> None:
        """Unfold everything, or fold everything again."""
        self.unfolded = not self.unfolded
        self._turned.clear()
        with self._pager.steady():
            for index, block in enumerate(self.story.blocks):
                if foldable(block):
                    self._pager.column.put(index, self._pieces(index))

    def turn(self, index: int) -> None:
        """Unfold one block, or fold it again."""
        if index < len(self.story.blocks) and foldable(self.story.blocks[index]):
            self._turned ^= {index}
            with self._pager.steady():
                self._pager.column.put(index, self._pieces(index))

    def next_foldable(self, by: int) -> int | None:
        """The next block (or the one before) that can be unfolded, from the marked one on."""
        blocks = self.story.blocks
        at = self._pager.chosen if self._pager.chosen is not None else len(blocks)
        at += by
        while 0 <= at < len(blocks) and not foldable(blocks[at]):
            at += by
        return at if 0 <= at < len(blocks) else None


def _first(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)
