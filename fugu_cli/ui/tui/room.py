"""The session in its room: what the screen, the commands and the session at work have in common.

A front (the full screen, or the scrollback) shows it and passes on what is typed; commands act through it. It opens
sessions, sends requests, says things, and turns what the log tells into what is shown. It holds no facts.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from fugu_cli import views
from fugu_cli.errors import FuguError
from fugu_cli.events import Live, Recorded, ToolRan
from fugu_cli.ui.tui import place
from fugu_cli.ui.tui.asking import Asking
from fugu_cli.ui.tui.draw.block import Note, Tone
from fugu_cli.ui.tui.front import Scope, Standing, scopes
from fugu_cli.ui.tui.keeping import History
from fugu_cli.ui.tui.patches import Patches
from fugu_cli.ui.tui.requesting import meant
from fugu_cli.ui.tui.shelling import Shell
from fugu_cli.ui.tui.working import MODES, Work

if TYPE_CHECKING:
    from fugu_cli.loop.environment import Ask
    from fugu_cli.policy import Mode
    from fugu_cli.ui.tui.front import Front, Shows
    from fugu_cli.ui.tui.session import Desk, Options, Session

FETCHED = 40
"""Changes of a resumed session whose contents are fetched at once."""


class Room:
    """One folder, one session at a time."""

    def __init__(self, front: Front, desk: Desk, options: Options, history: History) -> None:
        self.front = front
        self.desk = desk
        self.options = options
        self.history = history
        self.tier = options.tier
        self.started = False
        self.shell = Shell(desk.root, front.feed)
        self.work = Work(self, self.shell.told)
        self.patches = Patches()
        self.asking = Asking(front, desk.root)
        self._branch = place.branch(desk.root)
        self._door = asyncio.Lock()
        self._left = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._early: list[FuguError] = []
        self._noted: set[str] = set()

    @property
    def feed(self) -> Shows:
        """The conversation as it is shown."""
        return self.front.feed

    @property
    def session(self) -> Session:
        """The session that is open. Only to be asked for while one is."""
        assert self.work.session is not None
        return self.work.session

    async def start(self) -> None:
        """Open the session the options name; what is typed meanwhile waits at the front. Their prompt is not sent."""
        options = self.options
        id = options.resume
        if id is None:
            opened = await self.open(self.desk.begin)
        elif options.fork:
            opened = await self.open(lambda ask: self.desk.fork(id, ask))
        else:
            opened = await self.open(lambda ask: self.desk.resume(id, ask))
        if not opened and id is not None:
            await self.open(self.desk.begin)
        self.started = True
        self._say_early()

    async def open(self, opening: Callable[[Ask], Awaitable[Session]]) -> bool:
        """Show another session; its coordinator and models begin to load."""
        async with self._door:
            if not await self.work.open(opening):
                return False
        self.session.warm()
        self._warn(self.session.library.notes)
        if self.work.unfinished():
            self.say("this request was not finished: /continue goes on", "warn")
        return True

    async def settled(self) -> None:
        """Wait while another session is being opened: what is typed meanwhile is for that one."""
        async with self._door:
            return

    async def send(self, text: str, pin: str | None = None) -> None:
        """A request: at once, or when what is running is done."""
        if self.work.session is None:
            self.say("there is no session to send this to; /new opens one", "warn")
            return
        async with (
            self._door
        ):  # in threads: it looks at the disk and tries what the sandbox can do. In the order of typing
            try:
                lacking = await asyncio.to_thread(self.desk.lacking)
                wanted = await asyncio.to_thread(meant, self.session, self.desk.root, text, pin)
            except FuguError as error:
                self.failed(error)
                return
            notes = await asyncio.to_thread(self.session.notes)
        self._warn((*lacking, *notes))
        await self.work.submit(wanted)

    def _warn(self, notes: Sequence[str]) -> None:
        """Say each of them once."""
        for note in notes:
            if note not in self._noted:
                self._noted.add(note)
                self.say(note, "warn")

    def steer(self, text: str) -> None:
        """Cut what runs; go on with `text`, then with what waits."""
        if text:
            self.history.add(text)
            try:
                wanted = meant(self.session, self.desk.root, text)
            except FuguError as error:
                self.failed(error)
                return
            self.work.queue.insert(0, wanted)
        self.work.steer()

    def say(self, text: str, tone: Tone = "dim", detail: str = "") -> None:
        """A line in the conversation that is in no log."""
        self.feed.say(Note(text, tone, detail))

    def interrupt(self) -> bool:
        """Stop what is under way. False when nothing is."""
        return self.shell.stop() or self.work.interrupt()

    def next_mode(self) -> None:
        """The next permission mode on the ring."""
        now = self.work.mode
        at = next((index for index, mode in enumerate(MODES) if mode == now), -1)
        self.set_mode(MODES[(at + 1) % len(MODES)])

    def set_mode(self, mode: Mode) -> None:
        """Another permission mode from the next call on."""
        if self.work.session is not None:
            self.session.set_mode(mode)
            self.show()

    def answer(self, scope: Scope) -> None:
        """The user's answer to the question that is shown."""
        question = self.asking.question
        if question is None or scope not in scopes(question.judgement.every_time):
            return
        if scope == "always":
            try:
                rule = self.session.allow_always(question.call, question.judgement)
                self.say(f"from now on allowed in this project: {rule}")
            except FuguError as error:
                self.failed(error)
        self.work.answer("session" if scope == "always" else scope)

    # What the session at work tells.

    def replayed(self, records: Sequence[Recorded]) -> None:
        """A session was opened. What failed before there was one is said now: it explains why it is this one."""
        self.feed.replay(records)
        ran = [record.event for record in records if isinstance(record.event, ToolRan)]
        self._fetch([event for event in ran if event.changes][-FETCHED:])
        self._say_early()

    def heard(self, item: Recorded | Live) -> None:
        """One more item of the log."""
        if self._left:
            return
        self.feed.take(item)
        self.front.noticed(item)
        if isinstance(item, Recorded) and isinstance(item.event, ToolRan) and item.event.changes:
            self._fetch([item.event], live=True)

    def _fetch(self, ran: Sequence[ToolRan], *, live: bool = False) -> None:
        """Get the contents of what was changed, and show the diffs once they are there; of `live` calls in any case."""
        session = self.work.session
        if session is None or not ran:
            return
        blob = session.bench.workspace.blob

        async def fetch() -> None:
            for event in ran:
                if await self.patches.fetch(event, blob) or live:
                    self.feed.patched(event, self.patches.of(event))

        task = asyncio.get_running_loop().create_task(fetch())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def changed(self) -> None:
        """Running, queue, questions or mode changed."""
        if self._left:
            return
        self.asking.ask(self.work.questions)
        self.front.show_queue([typed.typed or typed.text for typed in self.work.queue])
        if not self.work.running:
            self._branch = place.branch(self.desk.root)
            hooks = self.work.session.bench.hooks if self.work.session is not None else None
            self._warn(hooks.notes if hooks is not None else ())  # those that failed in the request
        self.show()

    def failed(self, error: FuguError) -> None:
        """Something outside failed."""
        if self.work.session is None and not self.started:
            self._early.append(error)
        else:
            self.say(str(error), "bad", error.hint)

    def _say_early(self) -> None:
        early, self._early = self._early, []
        for error in early:
            self.say(str(error), "bad", error.hint)

    def show(self) -> None:
        """The status line as things stand."""
        tally, work = self.feed.tally, self.work
        running = work.running or self.shell.running
        at_work = "stopping" if work.stopping else tally.doing or "starting"
        doing = "asking you" if work.questions else self.shell.doing or at_work
        begun = self.shell.began if self.shell.running else tally.since if tally.doing else 0.0
        spent = tally.tokens
        self.front.stand(
            Standing(
                place=place.short(self.desk.root),
                branch=self._branch,
                tier=self.tier,
                mode=work.mode,
                pinned=work.pinned or "",
                context=tally.context,
                tokens=spent.input + spent.output,
                cost=tally.cost,
                unpriced=bool(tally.unpriced),
                doing=doing if running else "",
                since=(begun or time.time()) if running else 0.0,
                until=tally.until if doing == tally.doing else 0.0,
                unavailable=self._unavailable(),
                queued=len(work.queue),
                jobs=len(work.session.bench.workspace.jobs.running) if work.session is not None else 0,
            )
        )

    def _unavailable(self) -> tuple[tuple[str, float], ...]:
        """Agents that are unavailable after a failure, and when each may be tried again (epoch, in whole seconds)."""
        crew = self.work.session.crew if self.work.session is not None else None
        if crew is None or crew.breaker is None:
            return ()
        breaker, now = crew.breaker, time.time()
        return tuple((name, float(math.floor(now + breaker.seconds(name)))) for name in breaker.unavailable())

    def parting(self) -> str:
        """What is said when the user leaves: which session this was, "" when nothing was asked in it."""
        session = self.work.session
        if session is None or session.log.path is None or views.asked(session.log.events) is None:
            return ""
        id = session.log.path.stem
        return f"session {id}: `fugu trace {id}` shows who did what, `/resume` in `fugu` goes on with it"

    async def close(self) -> None:
        """Leave. What is told after this is not shown: the screen may be gone. May be called twice."""
        self._left = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.asking.close()
        self.shell.stop()
        await self.work.close()
