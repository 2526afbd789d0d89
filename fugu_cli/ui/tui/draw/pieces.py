"""A block as pieces, each painted alone and only when it is seen.

Between story.py and column.py. A message is many pieces (its chunks), a folded tool call is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from fugu_cli.ui.tui.draw import blocks
from fugu_cli.ui.tui.draw.block import Block, Ended, Heading, Note, Plan, Request, Speech, Thought, ToolUse, Welcome
from fugu_cli.ui.tui.draw.chunks import Chunk
from fugu_cli.ui.tui.draw.lines import BLANK
from fugu_cli.ui.tui.draw.markdown import painted
from fugu_cli.ui.tui.draw.piece import Piece

_Whole = Request | Heading | Thought | ToolUse | Note | Plan | Ended | Welcome


def of_chunk(chunk: Chunk) -> Piece:
    """A piece of Markdown."""
    return Piece(lambda width, palette: painted(chunk, width, palette), chunk.text)


GAP = Piece(lambda width, palette: [BLANK], exact=1)
"""A blank line between two blocks."""


def apart(blocks: Sequence[Block], index: int) -> bool:
    """There is a gap before this block: what follows a row of tool calls is set off from them."""
    block = blocks[index]
    if isinstance(block, ToolUse | Request) or _empty(block):
        return False
    before = next((blocks[at] for at in range(index - 1, -1, -1) if not _empty(blocks[at])), None)
    return isinstance(before, ToolUse)


def _empty(block: Block) -> bool:
    """Nothing was said in it (a reply that was only calls), or thought."""
    if isinstance(block, Thought):
        return not block.text
    return isinstance(block, Speech) and not block.chunker.done and block.chunker.tail is None


def of_block(block: Block, *, unfolded: bool) -> list[Piece]:
    """A block's pieces. Those of a growing Speech come from a `Growth`, which keeps what is done."""
    if isinstance(block, Speech):
        return Growth(block).pieces()
    return [] if _empty(block) else [_single(block, unfolded)]


def _single(block: _Whole, unfolded: bool) -> Piece:
    match block:
        case Request():
            return Piece(lambda width, palette: blocks.request(block, width, palette), block.text)
        case Heading():
            return Piece(lambda width, palette: blocks.heading(block, width, palette), exact=1)
        case Thought():
            return Piece(lambda width, palette: blocks.thought(block, width, palette, unfolded), exact=2)
        case ToolUse():
            return Piece(lambda width, palette: blocks.tool(block, width, palette, unfolded), exact=1)
        case Note():
            return Piece(lambda width, palette: blocks.note(block, width, palette), block.text + block.detail)
        case _:
            return _other(block)


def _other(block: Plan | Ended | Welcome) -> Piece:
    match block:
        case Plan():
            return Piece(lambda width, palette: blocks.plan(block, width, palette), "\n" * len(block.planned.steps))
        case Ended():
            return Piece(lambda width, palette: blocks.ended(block, width, palette), exact=2)
        case Welcome():
            return Piece(lambda width, palette: blocks.welcome(block, width, palette), exact=4)
        case _:
            assert_never(block)


class Growth:
    """The pieces of one Speech while it grows: those of finished chunks stay, the tail's lines are kept where equal."""

    def __init__(self, speech: Speech) -> None:
        self.chunker = speech.chunker
        self._done: list[Piece] = []
        self._tail: Piece | None = None

    def pieces(self) -> list[Piece]:
        """All of them, as the Speech is now."""
        new = [of_chunk(chunk) for chunk in self.chunker.done[len(self._done) :]]
        if new and self._tail is not None:
            new[0].resemble(self._tail)
            self._tail = None
        self._done += new
        tail = self.chunker.tail
        if tail is None:
            return list(self._done)
        piece = of_chunk(tail)
        if self._tail is not None:
            piece.resemble(self._tail)
        self._tail = piece
        return [*self._done, piece]


def of_blocks(every: Sequence[Block], *, unfolded: bool) -> list[Piece]:
    """All pieces of a finished text."""
    pieces: list[Piece] = []
    for index, block in enumerate(every):
        pieces += [GAP] if apart(every, index) else []
        pieces += of_block(block, unfolded=unfolded)
    return pieces


def foldable(block: Block) -> bool:
    """There is more to see when it is unfolded."""
    return isinstance(block, ToolUse | Thought) and not _empty(block)
