"""The log in the scrollback: every block is printed once, when nothing of it can change any more.

The inline mode's counterpart of feed.py, over the same folds and the same drawing. A message is printed chunk by chunk
while it is said, a tool call when its result and its diff are there; what is not printed yet is `tail`, shown above the
prompt.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence

from fugu_cli.events import Live, Recorded, Retried, ToolRan
from fugu_cli.ui.tui.draw import ansi, blocks
from fugu_cli.ui.tui.draw.block import Block, Note, Speech, Thought, ToolUse
from fugu_cli.ui.tui.draw.chunks import Chunk
from fugu_cli.ui.tui.draw.lines import Line, plain
from fugu_cli.ui.tui.draw.markdown import painted
from fugu_cli.ui.tui.draw.palette import Palette
from fugu_cli.ui.tui.draw.pieces import GAP, apart, of_block
from fugu_cli.ui.tui.draw.rows import Rows
from fugu_cli.ui.tui.draw.story import Story
from fugu_cli.ui.tui.draw.tally import Tally
from fugu_cli.ui.tui.front import Grow

SHOWN = 40
"""Blocks of an earlier session that are printed when it is resumed."""
PROMPT = 10
"""Lines of the terminal that the prompt, and what stands around it, may take."""

Width = Callable[[], int]
Write = Callable[[str], object]


class Scrollback:
    """Prints a session to `write`. `changed` is called when something that is not printed is not what it was."""

    def __init__(self, write: Write, width: Width, palette: Palette, changed: Callable[[], None]) -> None:
        self.palette = palette
        self.story, self.rows, self.tally = Story(), Rows(), Tally()
        self._write = write
        self._width = width
        self._changed = changed
        self._system = ansi.colours()
        self._next = 0
        self._chunks = 0
        self._chunker: object = None
        self._call = 0
        """The first of the newest blocks that tell of a call under way: what it says, and that it is made again."""
        self._taken: int | None = 0
        """Lines printed for them; None where others were printed since: nothing can be taken back then."""
        self._lines = 0
        self._told: dict[int, int] = {}
        self._thought: int | None = None
        self._unknown: list[ToolRan] = []

    def replay(self, records: Sequence[Recorded]) -> None:
        """An earlier session: its end is printed."""
        self.story, self.rows, self.tally = Story(), Rows(), Tally()
        for record in records:
            self.story.take(record)
            self.rows.take(record)
            self.tally.take(record, record.at)
        self.tally.doing = ""
        self._told.clear()
        self._thought = None
        self._unknown.clear()
        self._next, self._chunks = max(len(self.story.blocks) - SHOWN, 0), 0
        self._call, self._taken = self._next, None
        if self._next:
            self.print([*GAP.painted(self._width(), self.palette)])
        self._print()

    def take(self, item: Recorded | Live) -> None:
        """One more item of the log."""
        self.story.take(item)
        self.rows.take(item)
        self.tally.take(item, time.time())
        if isinstance(item, Retried):
            self._take_back(self.story.retries[item.turn])
        if isinstance(item, Recorded) and isinstance(item.event, ToolRan) and item.event.changes:
            self._unknown.append(item.event)
        self._print()
        self._changed()

    def say(self, note: Note) -> Grow:
        """A note that is in no log. As it grows, what was added is printed; before its turn nothing is."""
        story = self.story
        index = story.say(note)
        self._print()

        def grow(grown: Note) -> None:
            if story is not self.story:
                return
            story.blocks[index] = grown
            if index < self._next:
                self._note(index, grown)

        return grow

    def _note(self, index: int, note: Note) -> None:
        """What is not printed yet of a note: whole lines while it grows, then the rest."""
        begun = index in self._told
        lines = note.detail.split("\n") if note.detail else []
        whole = lines[:-1] if note.live else lines
        rest = "\n".join(whole[max(self._told.get(index, 0) - note.dropped, 0) :])
        self._told[index] = max(note.dropped + len(whole), self._told.get(index, 0))
        made = blocks.note(Note("" if begun else note.text, note.tone, rest), self._width(), self.palette)
        made = made[1:] if begun else made
        self.print(made[:-1] if note.live else made)

    def patched(self, ran: ToolRan, patch: str) -> None:
        """The diff of what a call changed. Of an earlier session it comes too late: what is printed is printed."""
        if self.story.patched(ran, patch) is not None and ran in self._unknown:
            self._unknown.remove(ran)
            self._print()
            self._changed()

    def print(self, lines: Sequence[Line]) -> None:
        """Lines, now."""
        self._taken, self._lines = None, self._lines + len(lines)
        self._write(ansi.text(lines, self._system))

    def _take_back(self, note: int) -> None:
        """A call is made again: what it printed goes, as far as it still stands right above the prompt; the block
        `note` says so."""
        self._chunks = 0
        self._chunker = None
        if self._taken is not None:
            self._next = self._call
            self._told = {index: lines for index, lines in self._told.items() if index < self._call}
            rows = min(self._taken, max(shutil.get_terminal_size().lines - PROMPT, 0))
            self._write(f"\x1b[{rows}A\x1b[J" if rows else "")
            self._taken = None
        elif note < self._next:
            self._pieces(self.story.blocks[note])

    def tail(self, height: int) -> list[str]:
        """The last lines of what is under way, as plain text."""
        lines: list[str] = []
        for block in self.story.blocks[self._next :]:
            if isinstance(block, Speech):
                rest = block.chunker.chunks()[self._chunks if block is self.story.blocks[self._next] else 0 :]
                lines += [plain(line) for chunk in rest for line in painted(chunk, self._width(), self.palette)]
            else:
                pieces = of_block(block, unfolded=False)
                lines += [plain(line) for piece in pieces for line in piece.painted(self._width(), self.palette)]
        while lines and not lines[-1]:
            lines.pop()
        return lines[-height:]

    def _print(self) -> None:
        """Everything that has become final, in order."""
        every = self.story.blocks
        while self._next < len(every) and self._whole(every[self._next]):
            self._next += 1
            self._chunks, self._chunker = 0, None

    def _whole(self, block: Block) -> bool:
        """Print what there is of a block; True when it is over. What tells of a call under way is counted."""
        empty = isinstance(block, Thought) and not block.text
        live = empty or (isinstance(block, Speech) and block.live) or self._next in self.story.retries.values()
        if live and self._taken is None:
            self._call, self._taken = self._next, 0
        taken, before = self._taken or 0, self._lines
        over = self._speech(block) if isinstance(block, Speech) else self._final(block)
        if over and not isinstance(block, Speech):
            self._gap()
            self._block(block)
        self._taken = taken + self._lines - before if live else None
        return over

    def _block(self, block: Block) -> None:
        if isinstance(block, Note):
            self._note(self._next, block)
        elif isinstance(block, Thought) and not block.text:
            self._thought = self._next
        else:
            self._pieces(block)

    def _speech(self, speech: Speech) -> bool:
        """What is new of a message; True when it is over. One that is whole and reads otherwise is printed anew."""
        if self._chunker is not speech.chunker:
            again, self._chunker = self._chunker is not None, speech.chunker
            if again:
                self._chunks = 0
                self._pieces(Note("(the reply began anew)"))
        chunks: list[Chunk] = speech.chunker.done if speech.live else speech.chunker.chunks()
        if chunks and not self._chunks:
            self._gap()
        for chunk in chunks[self._chunks :]:
            self.print(painted(chunk, self._width(), self.palette))
        self._chunks = max(self._chunks, len(chunks))
        if not speech.live and self._thought == self._next - 1:  # what was thought was not known when it had its turn
            self._pieces(self.story.blocks[self._thought])
        return not speech.live

    def _gap(self) -> None:
        if apart(self.story.blocks, self._next):
            self.print(GAP.painted(self._width(), self.palette))

    def _pieces(self, block: Block) -> None:
        pieces = of_block(block, unfolded=False)
        self.print([line for piece in pieces for line in piece.painted(self._width(), self.palette)])

    def _final(self, block: Block) -> bool:
        if not isinstance(block, ToolUse) or block.cut or not block.permitted.allowed:
            return True
        return block.result is not None and block.result not in self._unknown
