"""Prints the log in the inline mode: each block once it is final, and everything that the full
screen shows in dialogs.

The counterpart of tui/screen_feed.py and tui/overlays.py.
"""

from __future__ import annotations

import base64
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from fugu_cli.app.approval_options import MOST_LISTED
from fugu_cli.app.preferences import PreferencesFile
from fugu_cli.formatting import flatten
from fugu_cli.session.events import Finished, Recorded, ToolRan
from fugu_cli.session.live_events import Live, Retried
from fugu_cli.ui import block_drawing, diff_drawing, diff_lines, drawing, trace_drawing
from fugu_cli.ui.block_drawing import (
    GAP,
    block_fragments,
    chunk_fragment,
    fragments_at,
    has_gap_before,
)
from fugu_cli.ui.blocks import Block, NoteBlock, ReplyBlock, ThinkingBlock, ToolBlock
from fugu_cli.ui.column import Fragment
from fugu_cli.ui.drawing import Palette, StyledLine, StyledPart, plain_text, styled_line
from fugu_cli.ui.markdown_chunks import MarkdownChunk
from fugu_cli.ui.session_totals import FoldedSession
from fugu_cli.ui.tui import themes
from fugu_cli.ui.tui.screen_protocol import (
    Choice,
    KeyAnswer,
    PickedChoice,
    Preview,
    StatusLine,
    UpdateNote,
    answer_keys,
)
from fugu_cli.ui.tui.user_programs import place_command
from fugu_cli.ui.turn_page import Section, TurnPages, section_title

if TYPE_CHECKING:
    from fugu_cli.app.approval_options import Pending
    from fugu_cli.app.approval_questions import ApprovalQuestion
    from fugu_cli.ui.first_screen import FirstScreen
    from fugu_cli.ui.hyperlinks import FilePlace, LinkFinder
    from fugu_cli.ui.tui.screen_protocol import ScreenProtocol

RESUMED_BLOCKS = 40
"""Blocks of an earlier session that are printed when it is resumed."""
PROMPT_LINES = 10
"""Lines of the terminal that the prompt, and what stands around it, may take."""

Width = Callable[[], int]
Write = Callable[[str], object]


class LinePrinter:
    """Prints lines with `write`. `changed` is called when unprinted state, such as the prompt's
    lines, has changed.
    """

    def __init__(
        self,
        write: Write,
        width: Width,
        palette: Palette,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.width = width
        self.palette = palette
        self.changed = changed
        self.links: LinkFinder | None = None
        """Makes links of addresses and files; None for no links."""
        self.printed = 0
        """Lines so far."""
        self._write = write
        self._system = drawing.terminal_colours()

    def print(self, lines: Sequence[StyledLine]) -> None:
        """Print the lines."""
        self.printed += len(lines)
        width = self.width()
        linked = [self.links.linked(line, width) for line in lines] if self.links else lines
        self._write(drawing.ansi_text(linked, self._system))

    def pieces(self, pieces: Sequence[Fragment]) -> None:
        """Print the lines of the fragments."""
        self.print([line for piece in pieces for line in piece.painted(self.width(), self.palette)])

    def take_back(self, lines: int) -> None:
        """Erase the newest lines, if they are still visible."""
        rows = min(lines, max(shutil.get_terminal_size().lines - PROMPT_LINES, 0))
        self._write(f"\x1b[{rows}A\x1b[J" if rows else "")


class Scrollback:
    """Prints a session's blocks, each once it is final."""

    def __init__(self, printer: LinePrinter) -> None:
        self.folded = FoldedSession()
        self.printer = printer
        self._blocks = self.folded.transcript.blocks
        self._next = 0
        self._chunks = 0
        self._chunker: object = None
        self._call = 0
        """The first of the newest blocks that tell of a call under way: what it says, and that it
        is made again.
        """
        self._retractable: int | None = 0
        """Lines printed for them; None where others were printed since: nothing can be taken back
        then.
        """
        self._printed_before = 0
        """Lines printed when they were counted last."""
        self._printed_lines: dict[int, int] = {}
        self._thought: int | None = None
        self._unknown: list[ToolRan] = []

    def replay(self, records: Sequence[Recorded], *, is_running: bool = False) -> None:
        """Open an earlier session and print its end. `is_running`: another process runs its calls."""
        self.folded = FoldedSession(records)
        if not is_running:
            self.folded.transcript.end_open_calls()
        self._blocks = self.folded.transcript.blocks
        self._printed_lines.clear()
        self._thought = None
        self._unknown.clear()
        self._next, self._chunks = max(len(self._blocks) - RESUMED_BLOCKS, 0), 0
        self._call, self._retractable = self._next, None
        if self._next:
            self.printer.pieces([GAP])
        self._print()

    def add_item(self, item: Recorded | Live) -> None:
        """Handle one more item of the log."""
        self.folded.add_item(item, time.time())
        if isinstance(item, Retried):
            self._take_back(self.folded.transcript.placed.retries[item.turn])
        if isinstance(item, Recorded) and isinstance(item.event, ToolRan) and item.event.changes:
            self._unknown.append(item.event)
        self._print()
        self.printer.changed()

    def say(self, note: NoteBlock) -> UpdateNote:
        """Add a note that is in no log. When it grows, the new part is printed, in order."""
        transcript = self.folded.transcript
        newest_note = note
        transcript.say(note)
        self._print()

        def grow(grown: NoteBlock) -> None:
            """Put the grown note in the place of the one that is shown, unless its session was left."""
            nonlocal newest_note
            if transcript is not self.folded.transcript:
                return
            index = transcript.placed.index(newest_note)
            transcript.blocks[index] = newest_note = grown
            is_printed = index < self._next
            if is_printed:
                self._note(index, grown)

        return grow

    def _note(self, index: int, note: NoteBlock) -> None:
        """Print the part of a note that is not printed yet: whole lines while it grows, then the
        rest.
        """
        begun = index in self._printed_lines
        lines = note.detail.split("\n") if note.detail else []
        whole = lines[:-1] if note.live else lines
        rest = "\n".join(whole[max(self._printed_lines.get(index, 0) - note.dropped, 0) :])
        self._printed_lines[index] = max(
            note.dropped + len(whole), self._printed_lines.get(index, 0)
        )
        addition = NoteBlock("" if begun else note.text, note.tone, rest)
        drawn = block_drawing.note_lines(addition, self.printer.width(), self.printer.palette)
        drawn = drawn[1:] if begun else drawn
        self.printer.print(drawn[:-1] if note.live else drawn)

    def totals_changed(self) -> None:
        """Do nothing: totals are printed only on request."""

    def patched(self, ran: ToolRan, patch: str) -> None:
        """Print the diff of a call's changes. For an earlier session it comes too late."""
        if self.folded.transcript.patched(ran, patch) is not None and ran in self._unknown:
            self._unknown.remove(ran)
            self._print()
            self.printer.changed()

    def show_start(self, start: FirstScreen) -> None:
        """Print suggestions, unless something was asked meanwhile."""
        if self.folded.transcript.show_start(start) is not None:
            width, palette = self.printer.width(), self.printer.palette
            self.printer.print(block_drawing.start_lines(start, width, palette))

    def measured(self, added: int, removed: int) -> None:
        """Do nothing: the end is printed before its lines are counted."""

    def _take_back(self, note: int) -> None:
        """Erase the output of a call that is repeated, as much of it as is still above the prompt.
        `note` is the index of the block that announces the repetition.
        """
        self._chunks = 0
        self._chunker = None
        if self._retractable is not None and self._printed_before == self.printer.printed:
            self._next = self._call
            self._printed_lines = {
                index: lines for index, lines in self._printed_lines.items() if index < self._call
            }
            self.printer.take_back(self._retractable)
            self._retractable = None
        elif note < self._next:
            self.printer.pieces(block_fragments(self._blocks[note], unfolded=False))

    def tail(self, height: int) -> list[str]:
        """Return the last lines of the running activity as plain text."""
        pieces: list[Fragment] = []
        for offset, block in enumerate(self._blocks[self._next :]):
            if isinstance(block, ReplyBlock):
                chunks = block.chunker.chunks()[0 if offset else self._chunks :]
                pieces += [chunk_fragment(chunk) for chunk in chunks]
            else:
                pieces += block_fragments(block, unfolded=False)
        width, palette = self.printer.width(), self.printer.palette
        lines = [plain_text(line) for piece in pieces for line in piece.painted(width, palette)]
        while lines and not lines[-1]:
            lines.pop()
        return lines[-height:]

    def _print(self) -> None:
        """Print all blocks that have become final, in order, and count the lines that a repeated
        call may take back.
        """
        placed = self.folded.transcript.placed
        first = self._next
        while self._next < min(len(self._blocks), placed.settled):
            block = self._blocks[self._next]
            live = _tells_of_call(block) or self._next in placed.retries.values()
            if live and (self._retractable is None or self._printed_before != self.printer.printed):
                self._call, self._retractable = self._next, 0
            taken, before = self._retractable or 0, self.printer.printed
            finished = (
                self._speech(block) if isinstance(block, ReplyBlock) else self._block(block, first)
            )
            self._retractable = taken + self.printer.printed - before if live else None
            self._printed_before = self.printer.printed
            if not finished:
                break
            self._next += 1
            self._chunks, self._chunker = 0, None

    def _block(self, block: Block, first: int) -> bool:
        """Print a block. Return False if it is not final. Blocks before `first` were printed
        earlier.
        """
        if isinstance(block, ToolBlock) and (not block.over or block.result in self._unknown):
            return False
        if isinstance(block, NoteBlock):
            if has_gap_before(self._blocks, self._next):
                self.printer.pieces([GAP])
            self._note(self._next, block)
        elif isinstance(block, ThinkingBlock) and not block.text:
            self._thought = self._next
        else:
            self.printer.pieces(fragments_at(self._blocks, self._next, unfolded=False, since=first))
        return True

    def _speech(self, speech: ReplyBlock) -> bool:
        """Print the new part of a reply. Return True when it is complete.

        A reply that started again is printed from its beginning.
        """
        if self._chunker is not speech.chunker:
            again, self._chunker = self._chunker is not None, speech.chunker
            if again:
                self._chunks = 0
                self.printer.pieces(
                    block_fragments(NoteBlock("(the reply started again)"), unfolded=False)
                )
        chunks: list[MarkdownChunk] = (
            speech.chunker.done if speech.live else speech.chunker.chunks()
        )
        if chunks and not self._chunks and has_gap_before(self._blocks, self._next):
            self.printer.pieces([GAP])
        new = enumerate(chunks[self._chunks :], self._chunks)
        self.printer.pieces([chunk_fragment(chunk, speech.judged(at)) for at, chunk in new])
        self._chunks = max(self._chunks, len(chunks))
        # what was thought was not known when it had its turn
        if not speech.live and self._thought == self._next - 1:
            self.printer.pieces(block_fragments(self._blocks[self._thought], unfolded=False))
        return not speech.live


def _tells_of_call(block: Block) -> bool:
    """Return whether the block shows a running call, whose output may have to be erased."""
    return block.live if isinstance(block, ReplyBlock) else isinstance(block, ThinkingBlock)


PATCH_LINES = 60
"""Of what is undone or redone; what a call asks to change is printed whole."""
LONG_REQUEST_SECONDS = 10.0
KEY_HINT = "/help · esc to interrupt · ctrl+d leaves"


class InlineTerminal(Protocol):
    """The terminal as the inline view needs it."""

    def width(self) -> int:
        """Return the columns for text."""

    def redraw(self) -> None:
        """Redraw the lines around the prompt."""

    def send(self, sequence: str) -> None:
        """Send a sequence unchanged."""

    async def typed(self, secret: bool) -> str:
        """Return the next typed line, masked if `secret`."""

    async def typed_answer(self, letters: str) -> str:
        """Return the first of these letters that is typed as a line, "" if the question is left."""

    def insert(self, text: str) -> bool:
        """Put a text into the prompt. Return False if it holds text already, which stays."""

    async def run(self, words: Sequence[str]) -> None:
        """Give the terminal to a program until it ends."""

    def end(self) -> None:
        """End the prompt loop."""


class InlineDialogs:
    """Dialogs that are printed and answered with a typed line."""

    def __init__(self, printer: LinePrinter, terminal: InlineTerminal) -> None:
        self._printer, self._terminal = printer, terminal

    def read(self, text: str, sections: Sequence[Section]) -> None:
        """Print the whole page."""
        width, palette = self._terminal.width(), self._printer.palette
        lines: list[StyledLine] = [styled_line([(text, f"bold {palette.text}")], width)]
        for section in sections:
            lines += section_title(section.title).painted(width, palette) if section.title else []
            lines += [line for piece in section.pieces for line in piece.painted(width, palette)]
        self._printer.print(lines)

    def turn_pages(self, pages: TurnPages) -> None:
        """Print the first page."""
        if (first_page := pages(0)) is not None:
            self.read(*first_page)

    async def confirm(self, question: str, patch: str) -> bool:
        """Print the patch, then wait for a line that begins with y."""
        width, palette = self._terminal.width(), self._printer.palette
        self._printer.print(diff_drawing.patch_lines(patch, width, palette, PATCH_LINES))
        self._printer.print([styled_line([(f"{question} y or n", f"bold {palette.warn}")], width)])
        return (await self._terminal.typed(False)).lower().startswith("y")

    async def choose(
        self,
        question: str,
        meaning: str,
        answers: Sequence[KeyAnswer],
        sections: Sequence[Section] = (),
    ) -> str:
        """Print the question with its keys, then wait for a line that begins with one of them."""
        palette, width = self._printer.palette, self._terminal.width()
        keys = " · ".join(answer_keys(answers, looks=bool(sections)))
        letters = "".join(answer.key for answer in answers) + ("nd" if sections else "n")
        while True:
            self._printer.print(
                [
                    *drawing.wrap_lines(question, width, f"bold {palette.warn}"),
                    *(drawing.wrap_lines(meaning, width, palette.dim) if meaning else ()),
                    *drawing.wrap_lines(keys, width, palette.text),
                ]
            )
            key = await self._terminal.typed_answer(letters)
            if key != "d" or not sections:
                return "" if key == "n" else key
            self.read("What this is about", sections)

    async def enter_text(self, heading: str, *, secret: bool = False) -> str:
        """Print the heading, then wait for a line."""
        palette = self._printer.palette
        self._printer.print(
            drawing.wrap_lines(
                f"{heading} (esc goes back)", self._terminal.width(), f"bold {palette.warn}"
            )
        )
        return await self._terminal.typed(secret)

    async def pick(
        self,
        heading: str,
        choices: Sequence[Choice],
        preview: Preview | None = None,
        keys: dict[str, str] | None = None,
    ) -> PickedChoice | None:
        """Print the choices with numbers, then wait for one."""
        del preview
        width, palette = self._terminal.width(), self._printer.palette
        more = "".join(f" · {key[-1]} 1 {words}" for key, words in (keys or {}).items())
        lines = [
            styled_line([(heading, f"bold {palette.text}")], width),
            styled_line([(f"a number{more} · enter leaves", palette.dim)], width),
        ]
        for number, choice in enumerate(choices, start=1):
            head: list[StyledPart] = [
                (f"{number:>3} ", palette.accent),
                (flatten(choice.shown), palette.text),
                ("  ", ""),
            ]
            lines.append(styled_line([*head, (choice.about, palette.dim)], width))
        self._printer.print(lines)
        return parse_choice(await self._terminal.typed(False), choices, keys or {})

    async def edit_file(self, location: FilePlace) -> None:
        """Open a file in the user's editor."""
        await self._terminal.run(place_command(location))


class InlineScreen:
    """The screen of the inline mode, which prints into the terminal's scrollback. `standing` is the
    content of the status line.
    """

    def __init__(
        self,
        feed: Scrollback,
        terminal: InlineTerminal,
        preferences: PreferencesFile,
        *,
        auto: bool,
    ) -> None:
        """Create the screen. `auto`: the colours follow the terminal's background."""
        self.feed = feed
        self._auto = auto
        self.printer = feed.printer
        self.dialogs = InlineDialogs(feed.printer, terminal)
        self.preferences = preferences
        self.standing = StatusLine()
        self._terminal = terminal
        self.asked_at = 0.0
        self._question: ApprovalQuestion | None = None

    def stand(self, standing: StatusLine) -> None:
        """Show this status line."""
        key = "esc denies" if self._question is not None else standing.key
        self.standing = replace(standing, hint=KEY_HINT, key=key)
        self._terminal.redraw()

    def question(self, question: ApprovalQuestion | None, pending: Pending, patch: str) -> None:
        """Print a question once; the prompt shows the keys that answer it."""
        previous, self._question = self._question, question
        if question is not None and question is not previous:
            self.asked_at = time.monotonic()
            width, palette = self._terminal.width(), self.printer.palette
            target = diff_lines.approval_target_lines(*question.asked, width, palette)
            position = f"  {pending.number} of {pending.total}" if pending.total > 1 else ""
            lines = diff_lines.approval_lines(*question.asked, target, width, palette, position)
            lines += diff_lines.pending_lines(pending, width, palette, MOST_LISTED)
            lines += diff_drawing.patch_lines(patch, width, palette) if patch else []
            self.printer.print(lines)
        self._terminal.redraw()

    def show_queue(self, texts: Sequence[str], messages: Sequence[str]) -> None:
        """Do nothing: the status line says how many wait."""

    def noticed(self, item: Recorded | Live) -> None:
        """Ring the bell, if the user wants that and a request took long."""
        ended = item.at if isinstance(item, Recorded) and isinstance(item.event, Finished) else None
        if (
            self.preferences.current.notify
            and ended is not None
            and ended - self.feed.folded.totals.asked_at >= LONG_REQUEST_SECONDS
        ):
            self._terminal.send("\a")

    def type(self, text: str) -> bool:
        """Insert text into the prompt. Return False if it already holds text."""
        return self._terminal.insert(text)

    def wear(self, theme: str) -> None:
        """Change the colours of everything printed from here on."""
        palette = themes.find_palette(theme)
        self._auto = palette is None
        self.printer.palette = palette or themes.guess_palette()
        self.ask_background()
        self.preferences.keep(theme=theme)

    def ask_background(self) -> None:
        """Ask the terminal for its background colour, if the theme depends on it."""
        if self._auto and os.environ.get("TERM") not in ("linux", "dumb"):
            self._terminal.send(themes.ASK_BACKGROUND)

    def follow_background(self, dark: bool) -> None:
        """Follow the terminal's background, dark or light."""
        if self._auto and dark != self.printer.palette.dark:
            self.printer.palette = themes.palette_of_ground(dark=dark)
            self._terminal.redraw()

    def show_trace(self) -> None:
        """Print the rows of the trace and the totals."""
        width, palette, folded = self._terminal.width(), self.printer.palette, self.feed.folded
        lines = [
            line
            for row in folded.rows.rows
            for line in trace_drawing.trace_row_lines(row, width, palette)
        ]
        tally = folded.totals
        totals = trace_drawing.totals_lines(
            tally.by_agent, tally.unpriced, tally.estimated, width, palette
        )
        self.printer.print([*lines, *totals])

    def copy(self, text: str) -> None:
        """Copy to the terminal's clipboard by OSC 52, which also works over ssh."""
        self._terminal.send(
            f"\x1b]52;c;{base64.b64encode(text.encode('utf-8', 'replace')).decode()}\x07"
        )

    async def leave(self) -> None:
        """End the prompt; whoever runs it closes the session."""
        self._terminal.end()


def parse_choice(text: str, choices: Sequence[Choice], keys: dict[str, str]) -> PickedChoice | None:
    """Return the choice that a typed line means: `3`, `f 3`, a value or its beginning; None for no
    choice.
    """
    letter, _, rest = text.strip().partition(" ")
    key = next((key for key in keys if letter == key[-1] and rest), None)
    query = rest.strip() if key else text.strip()
    if query.isdigit() and 1 <= int(query) <= len(choices):
        return key or "enter", choices[int(query) - 1].value
    starting = [choice.value for choice in choices if query and choice.value.startswith(query)]
    return (key or "enter", starting[0]) if starting else None


if TYPE_CHECKING:

    def _fits(view: InlineScreen) -> ScreenProtocol:
        return view
