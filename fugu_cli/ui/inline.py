"""The inline mode: the same session in the terminal's own scrollback, with a prompt below it.

For those who want no full screen, and for terminals that have none. A second front of the same room: the same commands,
the same drawing (ui/tui/draw), the same approvals.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Coroutine
from dataclasses import replace

from fugu_cli.errors import FuguError, UsageError
from fugu_cli.ui.tui.commands.command import choices
from fugu_cli.ui.tui.commands.obeying import is_request, obey
from fugu_cli.ui.tui.commands.own import every
from fugu_cli.ui.tui.draw import ansi
from fugu_cli.ui.tui.draw.detail import Sources, sections
from fugu_cli.ui.tui.draw.lines import Part, line
from fugu_cli.ui.tui.draw.palette import PALETTES
from fugu_cli.ui.tui.draw.rows import TurnRow
from fugu_cli.ui.tui.draw.standing import status
from fugu_cli.ui.tui.front import SCOPES, scopes
from fugu_cli.ui.tui.keeping import History, look
from fugu_cli.ui.tui.printing import Printing, Terminal
from fugu_cli.ui.tui.room import Room
from fugu_cli.ui.tui.scrollback import Scrollback
from fugu_cli.ui.tui.session import Desk, Options
from fugu_cli.ui.tui.typing import Above, Acts, prompt

TAIL = 4
"""Lines of what is under way that are shown above the prompt."""
TWICE = 2.0
QUIET = 0.4
"""Seconds a question stands there before a key answers it."""
TYPING = "ctrl+c, then y or n"
"""What answers a question while something is typed."""


class Inline:
    """The prompt, and what its keys do."""

    def __init__(self, desk: Desk, options: Options) -> None:
        left = look(options.state)
        palette = PALETTES.get(options.theme) or PALETTES.get(left.theme) or PALETTES["dark"]
        history = History(options.state)
        history.load()
        terminal = Terminal(
            self._width,
            self._redraw,
            self._typed,
            self._insert,
            self._open_turn,
            self._end,
            lambda text: self._terminal.send(text),
        )
        self.feed = Scrollback(lambda text: self._terminal.print(text), self._width, palette, self._redraw)
        self.front = Printing(self.feed, terminal, left, options.state)
        self.room = Room(self.front, desk, options, history)
        acts = Acts(
            above=self._above,
            below=self._below,
            asked=self._asked,
            answer=self.room.answer,
            stop=self._stop,
            leave=self._twice,
            mode=self.room.next_mode,
            steer=self._steer,
        )
        self._prompt = prompt(acts, lambda text: choices(every(self.room), self.room, text), desk.root, history.texts)
        self._terminal = Above(self._prompt)
        self._wanted: asyncio.Future[str] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._early: list[str] = []
        self.parting = ""
        self._pressed = 0.0

    async def run(self) -> None:
        """Until the user leaves."""
        self._spawn(self._start())
        ticking = asyncio.create_task(self._tick())
        try:
            while True:
                self.enter(await self._prompt.prompt_async())
        except (EOFError, KeyboardInterrupt):
            ticking.cancel()
            self.parting = self.room.parting()
            await self.room.close()

    def enter(self, text: str) -> None:
        """A typed line: what a question waits for, or what `obey` makes of it once there is a session."""
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(text.strip())
        elif not self.room.started:
            self._early.append(text.strip())
        else:
            self._spawn(self._obey(text.strip()))

    async def _start(self) -> None:
        await asyncio.to_thread(self.room.desk.prepare)
        await self.room.start()
        self.room.show()
        if self.room.options.prompt and self.room.work.session is not None:
            self._spawn(self.room.send(self.room.options.prompt))
        for text in self._early:
            self.enter(text)

    async def _obey(self, text: str) -> None:
        try:
            await obey(self.room, text)
        except FuguError as error:
            self.room.failed(error)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        """In the background; a bug in it ends the mode instead of being lost."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._prompt.app.exit(exception=error)

    async def _tick(self) -> None:
        """The clock of the status line; it redraws only while something is under way."""
        while True:
            await asyncio.sleep(1.0)
            self.room.show()
            if self.front.standing.doing:
                self._redraw()

    # What the front needs of the terminal.

    def _width(self) -> int:
        return min(shutil.get_terminal_size().columns - 1, 140)

    def _redraw(self) -> None:
        if self._prompt.app.is_running:
            self._prompt.app.invalidate()

    async def _typed(self) -> str:
        self._wanted = asyncio.get_running_loop().create_future()
        try:
            return await self._wanted
        finally:
            self._wanted = None

    def _insert(self, text: str) -> None:
        self._prompt.default_buffer.insert_text(text)

    def _end(self) -> None:
        self._prompt.app.exit(exception=EOFError)

    def _open_turn(self, turn: str) -> None:
        rows = [row for row in self.feed.rows.rows if isinstance(row, TurnRow) and str(row.assigned.turn) == turn]
        if not rows:
            self.room.say(f"there is no turn {turn}", "warn")
            return
        session = self.room.session
        sources = Sources(session.prompt, self.room.patches.of)
        self.front.read(f"turn {turn}", sections(session.log.records, rows[-1], sources))

    # What the prompt shows and its keys do.

    def _above(self) -> str:
        """The lines of what is under way, then the mark; while something is asked, its answers."""
        system, palette = ansi.colours(), self.feed.palette
        lines = [line([(f"  {text}", palette.dim)], self._width()) for text in self.feed.tail(TAIL)]
        tail = ansi.text(lines, system)
        if self._asked() and (question := self.room.asking.question) is not None:
            answers: list[Part] = []
            for scope in scopes(question.judgement.every_time):
                key, _, word = SCOPES[scope]
                answers += [(f"{key} ", f"bold {palette.accent}"), (f"{word}  ", palette.text)]
            return tail + ansi.text([line(answers, self._width())], system).rstrip("\n")
        return tail + ansi.text([line([("› ", f"bold {palette.accent}")], self._width())], system).rstrip("\n")

    def _below(self) -> str:
        standing = self.front.standing
        if self.room.asking.question is not None and self._prompt.default_buffer.text:
            standing = replace(standing, key=TYPING)
        made = status(standing, time.time(), self._width(), self.feed.palette)
        return ansi.text([made], ansi.colours()).rstrip("\n")

    def _asked(self) -> bool:
        """A question waits, and nobody is typing: half a word must not be an answer."""
        asked = self.room.asking.question is not None and not self._prompt.default_buffer.text
        return asked and time.monotonic() - self.front.asked_at > QUIET

    def _stop(self) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result("")
        else:
            self.room.interrupt()

    def _twice(self) -> bool:
        """Ctrl-C on an empty prompt: stop what runs; pressed twice, leave."""
        now, before = time.monotonic(), self._pressed
        self._pressed = now
        if now - before < TWICE:
            return True
        self.room.interrupt()
        return False

    def _steer(self, text: str) -> None:
        text = text.strip()
        if self.room.work.running and (not text or is_request(self.room, text)):
            self.room.steer(text)
        elif text:
            self.enter(text)
        else:
            self._spawn(self.room.work.send_queued())


def run_inline(desk: Desk, options: Options) -> int:
    """The inline mode in this terminal, until the user leaves. Raises UsageError without a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the inline mode needs a terminal", hint='use `fugu run "..."` in scripts and pipes')
    inline = Inline(desk, options)
    asyncio.run(inline.run())
    if inline.parting:
        print(inline.parting, file=sys.stderr)
    return 0
