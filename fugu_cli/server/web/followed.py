"""A session as the page shows it, kept up to date from its log and, while it runs, its socket."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from fugu_cli.app import session_messages as messages
from fugu_cli.app.approval_questions import ApprovalQuestions
from fugu_cli.app.attached_session import Connection, approval_question
from fugu_cli.app.patches import approval_patch
from fugu_cli.app.session_standing import session_standings
from fugu_cli.errors import FuguError
from fugu_cli.formatting import flatten, plural, with_tilde
from fugu_cli.server.web import session_parts
from fugu_cli.server.web.markup import Markup, element
from fugu_cli.session import log, store
from fugu_cli.session.events import Recorded
from fugu_cli.session.live_events import Live
from fugu_cli.session.log import LogMirror
from fugu_cli.ui.session_totals import FoldedSession

MOST_BLOCKS = 400
"""The newest blocks of the conversation that the page shows."""
MOST_DECISIONS = 200
"""The newest turns in the table of decisions."""
POLL_SECONDS = 1.0
"""Seconds between two looks at a session that does not run."""
LINGER_SECONDS = 20.0
"""Seconds that a session is kept in memory after the last page of it was closed."""
FIRST_LOOK_SECONDS = 6.0
"""Seconds that a page waits for a running session to answer."""
HEADING = "heading"
CONVERSATION = "block-"
"""Beginning of the ids of the blocks."""


class FollowedSession:
    """A session that pages look at. `parts` are the parts of its page by their ids."""

    def __init__(self, path: Path, action: str) -> None:
        """Read the log. `action` is the address of the page's forms. Raises StorageError."""
        self.path = path
        self.is_known = asyncio.Event()
        """Set once the state of the session is known."""
        self._action = action
        self._mirror = LogMirror(path)
        self._folded = FoldedSession(self._mirror.records)
        self._block_parts: list[Markup] = []
        self._changed_block = 0
        self._status: messages.Status | None = None
        self._standing = ""
        self._problem = ""
        self._approvals = ApprovalQuestions(lambda: None)
        self._patches: dict[int, str] = {}
        self._shown: dict[str, Markup] = {}
        self._is_changed = True
        self._mirror.listen(self._add_item)

    @property
    def title(self) -> str:
        """The text of the first request, or the session's id before there is one."""
        requests = self._mirror.state.requests
        first = requests[0].asked if requests else None
        return flatten(first.said, 80) if first is not None else self.path.stem

    @property
    def parts(self) -> dict[str, Markup]:
        """The parts of the page, in order, each an element with its key as its id."""
        if self._is_changed:
            self._is_changed = False
            self._shown = self._render()
        return self._shown

    async def keep_up(self) -> None:
        """Follow the session until cancelled."""
        while True:
            try:
                if await asyncio.to_thread(log.is_open, self.path):
                    await self._follow_running()
                await self._look_at_closed()
                self._problem = ""
            except FuguError as error:
                self._show_problem(error)
            self.is_known.set()
            await asyncio.sleep(POLL_SECONDS)

    async def _follow_running(self) -> None:
        """Follow the process that runs the session until it closes the connection."""
        connection = await Connection.open(self.path)
        try:
            self._problem = ""
            await self._apply_status(connection.status)
            self.is_known.set()
            async for message in connection.messages():
                match message:
                    case messages.Grown():
                        self._mirror.catch_up()
                    case messages.Told():
                        self._add_item(message.item)
                    case messages.Status():
                        await self._apply_status(message)
                    case _:
                        continue
        finally:
            connection.close()
            self._status = None
            self._approvals.questions.clear()
            self._is_changed = True

    async def _look_at_closed(self) -> None:
        """Read what is new, and how the session ended, if no process has it open."""
        if await asyncio.to_thread(log.is_open, self.path):
            return
        lines = len(self._mirror.records)
        self._mirror.catch_up()
        if self._standing and len(self._mirror.records) == lines:
            return
        summary = await asyncio.to_thread(store.session_summary, self.path)
        if summary is not None:
            (standing,) = await asyncio.to_thread(session_standings, [summary])
            parts = [standing.state, standing.waits_for]
            self._standing = ": ".join(part for part in parts if part)
        self._folded.activity.doing = ""
        self._folded.transcript.end_open_calls()
        self._changed_block, self._is_changed = 0, True

    def _show_problem(self, error: FuguError) -> None:
        problem = f"{error}; {error.hint}" if error.hint else str(error)
        if problem != self._problem:
            self._problem, self._is_changed = problem, True

    def _add_item(self, item: Recorded | Live | None) -> None:
        if item is None:
            return
        at = item.at if isinstance(item, Recorded) else time.time()
        changed_block, _ = self._folded.add_item(item, at)
        if changed_block is not None:
            self._changed_block = min(self._changed_block, changed_block)
        self._is_changed = True

    async def _apply_status(self, status: messages.Status) -> None:
        """Show a status of the running session, with the diffs that its questions are about."""
        root = self._root
        patches: dict[int, str] = {}
        for question in status.questions:
            if question.number in self._patches:
                patches[question.number] = self._patches[question.number]
            else:
                call = question.asked.call
                patches[question.number] = await asyncio.to_thread(approval_patch, call, root)
        self._patches, self._status = patches, status
        self._approvals.questions = deque(map(approval_question, status.questions))
        self._standing = ""
        self._is_changed = True

    @property
    def _root(self) -> Path:
        opened = self._mirror.state.opened
        return Path(opened.repo if opened is not None else ".")

    def _render(self) -> dict[str, Markup]:
        totals = self._folded.totals
        parts = {
            HEADING: element("div", *self._heading(), id=HEADING, role="status"),
            "questions": self._questions(),
            "actions": self._actions(),
            "send": self._send(),
            "decisions": element(
                "div",
                session_parts.decisions_table(self._folded.rows.rows[-MOST_DECISIONS:]),
                id="decisions",
            ),
            "agents": element("div", session_parts.agents_table(totals), id="agents"),
        }
        return parts | self._blocks()

    def _heading(self) -> Sequence[str]:
        totals, status = self._folded.totals, self._status
        doing = ""
        if status is None:
            state = self._standing
        elif self._approvals.questions:
            state = f"waits for {plural(len(self._approvals.questions), 'answer')}"
        elif status.stopping:
            state = "stopping"
        elif status.running:
            state, doing = "running", self._folded.activity.doing
        else:
            state = "idle: waits for a request"
        facts = [state, doing, session_parts.cost_text(totals)]
        if status is not None:
            facts.append(f"mode {status.mode}")
        lines = [
            element("p", " · ".join(fact for fact in facts if fact), class_="state"),
            element("p", with_tilde(flatten(str(self._root))), class_="dim"),
        ]
        changes = session_parts.changes_text(totals)
        if changes:
            lines.append(element("p", changes, class_="dim"))
        if status is not None and status.queued:
            queued = "; ".join(flatten(text, 80) for text in status.queued)
            lines.append(element("p", f"queued: {queued}", class_="dim"))
        if status is not None and status.running:
            for message in self._mirror.state.request.ungiven_steering:
                text = f"not read by an agent yet: {flatten(message.said, 200)}"
                lines.append(element("p", text, class_="dim"))
        if self._problem:
            lines.append(element("p", self._problem, class_="note bad"))
        return lines

    def _questions(self) -> Markup:
        questions = []
        for question in self._approvals.questions:
            options = self._approvals.options(question)
            patch = self._patches.get(question.number, "")
            questions.append(session_parts.question_markup(question, options, patch, self._action))
        heading = [element("h2", "Questions")] if questions else []
        return element(
            "div",
            *heading,
            *questions,
            id="questions",
            role="region",
            aria_label="Questions",
            aria_live="assertive",
        )

    def _actions(self) -> Markup:
        """Return the button that interrupts, while there is something to interrupt."""
        status = self._status
        is_busy = status is not None and (status.running or bool(status.questions))
        if not is_busy:
            return element("div", id="actions")
        act = element("input", type="hidden", name="act", value="interrupt")
        button = element("button", "Interrupt", class_="stop")
        form = element("form", act, button, method="post", action=self._action)
        return element("div", form, id="actions")

    def _send(self) -> Markup:
        """Return the form for messages. It never changes while the session runs, because the browser
        would lose what the user is typing into it.
        """
        if self._status is None:
            closed = "No process runs this session, so nothing can be sent to it."
            return element("div", element("p", closed, class_="dim"), id="send")
        return element("div", session_parts.send_form(self._action), id="send")

    def _blocks(self) -> dict[str, Markup]:
        """Return the newest blocks. Those before the first changed one are not made again."""
        blocks = self._folded.transcript.blocks
        first_shown = max(len(blocks) - MOST_BLOCKS, 0)
        del self._block_parts[self._changed_block :]
        for index in range(len(self._block_parts), len(blocks)):
            content = Markup()
            if index >= first_shown:
                content = session_parts.block_markup(blocks[index])
            self._block_parts.append(content)
        self._changed_block = len(blocks)
        parts = {}
        if first_shown:
            earlier = plural(first_shown, "earlier block")
            text = f"{earlier}: `fugu trace {self.path.stem}` has them"
            parts["earlier"] = element("p", text, id="earlier", class_="dim")
        for index in range(first_shown, len(blocks)):
            id, content = f"{CONVERSATION}{index}", self._block_parts[index]
            # a block that shows nothing yet keeps its place: the page appends those that it lacks
            parts[id] = element("div", content, id=id, class_="block", hidden=not content)
        return parts


def version_of(parts: Mapping[str, Markup]) -> str:
    """Return a short hash of the parts."""
    digest = hashlib.sha256()
    for part in parts.values():
        digest.update(part.encode("utf-8", "replace"))
    return digest.hexdigest()[:16]


class FollowedSessions:
    """The sessions that pages look at, each followed once however many pages there are."""

    def __init__(self, action: Callable[[Path], str]) -> None:
        """`action` returns the address of the forms on the page of a session."""
        self._action = action
        self._sessions: dict[Path, FollowedSession] = {}
        self._users: dict[Path, int] = {}
        self._tasks: dict[Path, asyncio.Task[None]] = {}
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def follow(self, path: Path) -> AsyncIterator[FollowedSession]:
        """Yield the session, which is kept up to date in the block. Raises StorageError."""
        async with self._opening:
            session = self._sessions.get(path)
            if session is None:
                session = await asyncio.to_thread(FollowedSession, path, self._action(path))
                self._sessions[path], self._users[path] = session, 0
                self._tasks[path] = asyncio.create_task(session.keep_up())
            self._users[path] += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_LOOK_SECONDS):
                    await session.is_known.wait()
            yield session
        finally:
            self._users[path] -= 1
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._forget_unused, path)

    def _forget_unused(self, path: Path) -> None:
        if self._users.get(path) == 0:
            del self._sessions[path], self._users[path]
            self._tasks.pop(path).cancel()

    async def close(self) -> None:
        """Follow no session any more."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
