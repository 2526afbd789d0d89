"""The log on the full screen: hands every event to the folds, shows what changed at most some twenty times a second,
and notifies the desktop when a long request ends.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fugu_cli.session.events import Finished, Recorded, ToolRan
from fugu_cli.session.live_events import Live
from fugu_cli.ui.block_drawing import GAP, ReplyFragments, block_fragments, foldable, has_gap_before
from fugu_cli.ui.blocks import Block, NoteBlock, ReplyBlock
from fugu_cli.ui.column import Fragment
from fugu_cli.ui.formatting import escape_for_approval, flatten
from fugu_cli.ui.session_totals import SessionTotals
from fugu_cli.ui.trace_rows import TraceRows
from fugu_cli.ui.transcript import Transcript
from fugu_cli.ui.tui.panels import Pager, Trace
from fugu_cli.ui.tui.screen_protocol import UpdateNote

if TYPE_CHECKING:
    from textual.app import App

    from fugu_cli.ui.tui.approval_questions import ApprovalQuestion

LONG_REQUEST_SECONDS = 10.0
"""Seconds after which a request's end is worth a word."""


def notify_request_end(app: App[object], item: Recorded | Live, tally: SessionTotals) -> None:
    """Notify when this item ends a request that took long."""
    if app.app_focus or not isinstance(item, Recorded) or not isinstance(item.event, Finished):
        return
    if item.at - tally.asked_at >= LONG_REQUEST_SECONDS:
        send_notification(app, f"fugu: {item.event.reason.replace('_', ' ')}")


def notify_approval(app: App[object], question: ApprovalQuestion) -> None:
    """Notify when somebody is needed."""
    if not app.app_focus:
        send_notification(
            app, f"fugu asks: {flatten(escape_for_approval(question.judgement.target or question.call.tool), 100)}"
        )


def send_notification(app: App[object], text: str) -> None:
    """The sequence and the bell."""
    app.bell()
    driver = app._driver  # textual has no public way to write a sequence
    if driver is not None:
        driver.write(notification_sequence(text, tmux="TMUX" in os.environ))


def notification_sequence(text: str, *, tmux: bool) -> str:
    """OSC 9 with `text`, for a terminal or through tmux."""
    plain = "".join(letter for letter in text if letter.isprintable())
    osc = f"\x1b]9;{plain}\x07"
    return f"\x1bPtmux;\x1b{osc}\x1b\\" if tmux else osc


FRAME_SECONDS = 0.045
"""Seconds between two repaints while something streams, at least."""
PAUSE_FACTOR = 4.0
"""So many times as long as a repaint took lies between it and the next."""
LONGEST_PAUSE = 0.3


class ScreenFeed:
    """Keeps the conversation, the trace and the tally with the log."""

    def __init__(self, pager: Pager, trace: Trace, shown: Callable[[], None]) -> None:
        self.transcript = Transcript()
        self.rows = TraceRows()
        self.tally = SessionTotals()
        self.unfolded = False
        self._pager = pager
        self._trace = trace
        self._shown = shown
        self._dirty: int | None = None
        self._row: int | None = None
        self._due = False
        self._last = 0.0
        self._pause = FRAME_SECONDS
        self._grown: dict[int, ReplyFragments] = {}
        self._turned: set[int] = set()

    def replay(self, records: Sequence[Recorded]) -> None:
        """A session from its beginning."""
        self.transcript, self.rows, self.tally = Transcript(), TraceRows(), SessionTotals()
        self._grown.clear()
        self._turned.clear()
        for record in records:
            self.transcript.take(record)
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
        self._mark(self.transcript.take(item), self.rows.take(item))
        for place in self.transcript.placed.inserted:
            self._shift(place)
        self.tally.take(item, now)

    def say(self, note: NoteBlock) -> UpdateNote:
        """A note of the screen's own. Returns what shows it grown."""
        transcript, shown = self.transcript, [note]
        self._mark(transcript.say(note), None)

        def grow(grown: NoteBlock) -> None:
            if transcript is self.transcript:
                index = transcript.placed.index(shown[0])
                shown[0] = transcript.blocks[index] = grown
                self._mark(index, None)

        return grow

    def _shift(self, place: int) -> None:
        """A block was put before others: what is kept by place moves with them."""
        self._turned = {index + (index >= place) for index in self._turned}
        self._grown = {index + (index >= place): pieces for index, pieces in self._grown.items()}
        if self._pager.chosen is not None and self._pager.chosen >= place:
            self._pager.chosen += 1

    def totals_changed(self) -> None:
        """More is known of the totals than the log says."""
        self._mark(None, len(self.rows.rows))

    def patched(self, ran: ToolRan, patch: str) -> None:
        """The diff of what a call changed has become known."""
        index = self.transcript.patched(ran, patch)
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
        self._pause = min(max(FRAME_SECONDS, PAUSE_FACTOR * (time.monotonic() - self._last)), LONGEST_PAUSE)

    def _put(self, first: int) -> None:
        for index in range(first, len(self.transcript.blocks)):
            self._pager.column.put(index, self._pieces(index))

    def _pieces(self, index: int) -> list[Fragment]:
        blocks = self.transcript.blocks
        block = blocks[index]
        gap = [GAP] if has_gap_before(blocks, index) else []
        if not isinstance(block, ReplyBlock):
            unfolded = self.unfolded != (index in self._turned)
            return [*gap, *block_fragments(block, unfolded=unfolded, terminal=lambda: self._pager.app.size.width)]
        growth = self._grown.get(index)
        if growth is None or growth.chunker is not block.chunker:
            growth = self._grown[index] = ReplyFragments(block)
        return [*gap, *growth.pieces()]

    def fold(self) -> None:
        """Unfold everything, or fold everything again."""
        self.unfolded = not self.unfolded
        self._turned.clear()
        with self._pager.steady():
            for index, block in enumerate(self.transcript.blocks):
                if foldable(block):
                    self._pager.column.put(index, self._pieces(index))

    def turn(self, index: int) -> None:
        """Unfold one block, or fold it again."""
        if index < len(self.transcript.blocks) and foldable(self.transcript.blocks[index]):
            self._turned ^= {index}
            with self._pager.steady():
                self._pager.column.put(index, self._pieces(index))

    def next_block(self, at: int | None, by: int, wanted: Callable[[Block], bool]) -> int | None:
        """The next block of this kind (or the one before, with -1) from a block on; None stands for the end."""
        blocks = self.transcript.blocks
        at = (len(blocks) if at is None else at) + by
        while 0 <= at < len(blocks) and not wanted(blocks[at]):
            at += by
        return at if 0 <= at < len(blocks) else None


def _first(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)
