"""Between the screen, the commands and the session: opens sessions, sends requests, shows approvals
with their diffs, and turns what the log says into what is shown. Holds no events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fugu_cli.app import patches
from fugu_cli.app.approval_options import ApprovalScope, scope_of_key
from fugu_cli.app.approval_questions import ApprovalQuestion, ApprovalQueue
from fugu_cli.app.attached_session import AttachedQueue
from fugu_cli.app.modes import MODE_CYCLE, MODE_HELP, modes_up_to
from fugu_cli.app.preferences import InputHistory
from fugu_cli.app.request_queue import RequestQueue, is_unfinished, request_from_text
from fugu_cli.errors import FuguError, ModelFileError, StorageError, UsageError
from fugu_cli.session.events import (
    Asked,
    FileChange,
    Finished,
    Interrupted,
    Recorded,
    Replied,
    Steered,
    SteeringGiven,
    ToolRan,
    Undone,
)
from fugu_cli.session.live_events import Live
from fugu_cli.session.state import SessionState
from fugu_cli.tools.diff import unified_diff
from fugu_cli.ui.blocks import NoteBlock, Tone
from fugu_cli.ui.first_screen import MOST_SESSIONS, FirstScreen, read_first_screen
from fugu_cli.ui.tui import folder_trust, project_folder, session_status
from fugu_cli.ui.tui.first_start import FirstStart
from fugu_cli.ui.tui.model_download import ModelDownload
from fugu_cli.ui.tui.user_programs import StatusCommand, UserShell

if TYPE_CHECKING:
    from fugu_cli.app.session_protocol import InterfaceOptions, SessionOpener, SessionProtocol
    from fugu_cli.engine.environment import AskPermission
    from fugu_cli.messages import Effort
    from fugu_cli.safety.policy import Mode
    from fugu_cli.ui.session_totals import FoldedSession
    from fugu_cli.ui.tui.screen_protocol import FeedProtocol, ScreenProtocol


FetchBlob = Callable[[str], Awaitable[bytes]]
"""The content of a hash. Raises StorageError when it is not there."""


class CallPatches:
    """The diffs of calls' changes. The contents of each change are fetched once."""

    def __init__(self) -> None:
        self._texts: dict[FileChange, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def size(self, change: FileChange) -> tuple[int, int] | None:
        """Return how many lines a change added and removed, None without its contents."""
        return patches.patch_size(self._texts[change]) if change in self._texts else None

    def of(self, ran: ToolRan) -> str:
        """Return the diff of a call's changes if their contents are known, else the diff that its
        arguments describe.
        """
        if not ran.changes:
            return ""
        if any(change not in self._texts for change in ran.changes):
            return patches.patch_of_call(ran.call)
        return "\n".join(self._texts[change].rstrip("\n") for change in ran.changes)

    async def fetch(self, changes: Sequence[FileChange], blob: FetchBlob) -> bool:
        """Fetch the contents of changes that are not known yet. Return False if there were none to
        fetch.
        """
        missing = [change for change in changes if change not in self._texts]
        for change in missing:
            try:
                before, after = (
                    await _content(change.before, blob),
                    await _content(change.after, blob),
                )
            except StorageError:
                return False
            self._texts[change] = await asyncio.to_thread(
                unified_diff, change.path, before, after, largest=patches.LARGEST
            )
        return bool(missing)

    def show(
        self,
        session: SessionProtocol,
        feed: FeedProtocol,
        ran: Sequence[ToolRan],
        *,
        live: bool = False,
    ) -> None:
        """Fetch the contents of changes and show the diffs once they are there, for `live` calls in
        any case; then update the totals.
        """

        async def fetch() -> None:
            for event in ran:
                if (
                    await self.fetch(event.changes, session.environment.workspace.history.blob)
                    or live
                ):
                    feed.patched(event, self.of(event))
            await measure_totals(feed.folded, session, self)
            feed.totals_changed()
            await self._measure_request(session, feed)

        task = asyncio.get_running_loop().create_task(fetch())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _measure_request(self, session: SessionProtocol, feed: FeedProtocol) -> None:
        """Tell the feed how many lines the newest request added and removed, once it has ended."""
        request = session.log.state.request
        changes = list(request.changes.values())
        if request.finished is None or not 0 < len(changes) <= MOST_MEASURED:
            return
        await self.fetch(changes, session.environment.workspace.history.blob)
        sizes = [size for change in changes if (size := self.size(change)) is not None]
        if len(sizes) == len(changes):
            added, removed = (sum(counts) for counts in zip(*sizes, strict=True))
            feed.measured(added, removed)

    async def close(self) -> None:
        """Stop fetching."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _content(name: str | None, blob: FetchBlob) -> bytes | None:
    return None if name is None else await blob(name)


MOST_MEASURED = 20
"""Changed files whose lines are counted at once."""
MOST_FACTS = 1500
"""Events of a session whose next prompt is measured after each request; `/context` measures any."""


async def measure_totals(
    folded: FoldedSession, session: SessionProtocol, patches: CallPatches
) -> None:
    """Compute the totals that are not in the log: the sizes of changes and, between requests, the
    parts of the context.
    """
    tally = folded.totals
    blob = session.environment.workspace.history.blob
    for change in [change for change in tally.changed.values() if change not in tally.sizes][
        -MOST_MEASURED:
    ]:
        await patches.fetch([change], blob)
        if (size := patches.size(change)) is not None:
            tally.sizes[change] = size
    events = session.log.events
    newest = next((event for event in reversed(events) if isinstance(event, Replied)), None)
    if newest is not None and not folded.activity.doing and len(events) < MOST_FACTS:
        from fugu_cli.engine.context_use import context_use

        used = await asyncio.to_thread(
            context_use, SessionState(events), session.team, session.environment, newest.agent
        )
        tally.context_parts = used[0].parts if used else {}
        if used and used[0].window:
            tally.context = used[0].tokens / used[0].window  # as `/context` and the panel say


class SessionNotes:
    """Notes in the conversation that are in no log. Errors from before a session is open are kept
    until one is.
    """

    def __init__(self, feed: FeedProtocol) -> None:
        self._feed = feed
        self._held_back: list[FuguError] | None = []
        self._warned: set[str] = set()

    def say(self, text: str, tone: Tone = "dim", detail: str = "") -> None:
        """Show a note."""
        self._feed.say(NoteBlock(text, tone, detail))

    def warn(self, notes: Sequence[str], detail: str = "") -> None:
        """Show each of these notes once in a session."""
        for note in notes:
            if note not in self._warned:
                self._warned.add(note)
                self.say(note, "warn", detail)

    def failed(self, error: FuguError) -> None:
        """Report an error of the outside world."""
        if self._held_back is not None:
            self._held_back.append(error)
        else:
            self.say(str(error), "bad", error.hint)

    def release(self) -> None:
        """Show the notes that were held back, which explain why this session, or none, is open."""
        errors, self._held_back = self._held_back or [], None
        for error in errors:
            self.failed(error)


FETCHED_ON_RESUME = 40
"""Changes of a resumed session whose contents are fetched at once."""


class SessionController:
    """Drives the interface of one folder, with one open session at a time."""

    def __init__(
        self,
        view: ScreenProtocol,
        opener: SessionOpener,
        options: InterfaceOptions,
        history: InputHistory,
    ) -> None:
        self.view = view
        self.feed = view.feed
        self.notes = SessionNotes(view.feed)
        self.say, self.failed = self.notes.say, self.notes.failed
        self.opener = opener
        self.options = options
        self.history = history
        self.tier = options.tier
        self.started = False
        self.door = asyncio.Lock()
        """Held while another session is being opened, and while a request is made ready."""
        self.shell = UserShell(opener.root, view.feed)
        self.download = ModelDownload(opener.setup, view.feed, self.show)
        queue = AttachedQueue if options.attached else RequestQueue
        self.work = queue(self, self.shell.with_outputs)
        self.status = StatusCommand(
            options.status_command,
            opener.root,
            lambda: session_status.status_input(self),
            self.show,
        )
        self.vi_mode = "INSERT" if options.vi else ""
        self.patches = CallPatches()
        self.asking = ApprovalQueue(
            opener.root,
            view.question,
            view.dialogs.enter_text,
            lambda question, text: self._answer(question, "feedback", text),
        )
        self.branch = project_folder.git_branch(opener.root)
        self.start_reading: asyncio.Task[None] | None = None
        """Reads what an empty session shows."""
        self._has_left = False

    @property
    def session(self) -> SessionProtocol:
        """The open session. Raises UsageError without one, as between two."""
        if self.work.session is None:
            raise UsageError("no session is open yet", hint="try again in a moment, or /new")
        return self.work.session

    async def start(self) -> None:
        """Open the session that the options name, and report what is missing to work in it."""
        options = self.options
        first_start = FirstStart(self.opener, self.view.dialogs, self.view.preferences)
        if not options.attached:
            await first_start.ask()
        id = options.resume
        if id is None:
            opened = await self.open(self.opener.begin)
        elif options.fork:
            opened = await self.open(lambda ask: self.opener.fork(id, ask))
        else:
            opened = await self.open(lambda ask: self.opener.resume(id, ask))
        if not opened and id is not None:
            await self.open(self.opener.begin)
        self.started = True
        self.notes.release()
        for note in first_start.notes:
            self.feed.say(note)
        if first_start.downloads:
            self.download.begin(self.failed)
        self.notes.warn(self.opener.notes)
        if self.opener.ignored:
            self.notes.warn([folder_trust.ignored_note(self.opener)])
        if self.work.session is not None:
            try:
                self.notes.warn(await asyncio.to_thread(self.opener.setup.lacking))
            except FuguError as error:
                self.notes.warn(
                    [f"No model can work yet: {error}"],
                    "/login downloads them, or takes a provider's key",
                )

    async def open(
        self,
        opening: Callable[[AskPermission], Awaitable[SessionProtocol]],
        *,
        close_first: bool = False,
    ) -> bool:
        """Show another session; its coordinator and models begin to load. `close_first`: close the
        present one before, which is needed to open the same log again.
        """
        async with self.door:
            if close_first:
                await self.work.close()
            if not await self.work.open(opening):
                return False
        if self.session.servers is not None:
            self.session.servers.ask_line = self.view.dialogs.enter_text
        self.session.warm()
        self.notes.warn(self.session.library.notes)
        turns, events = self.session.log.state.request.turns, self.session.log.events
        # the conversation ends with a note then; a lost call is recorded for no turn
        says_so = (bool(turns) and turns[-1].interrupted) or isinstance(events[-1], Interrupted)
        if is_unfinished(self.session) and not self.work.running and not says_so:
            self.say("this request was not finished: /continue goes on", "warn")
        self._plan = asyncio.get_running_loop().create_task(self.work.answer_open_plan())
        if self.session.log.state.request.asked is None and not self.options.attached:
            self.start_reading = asyncio.create_task(self._show_start(self.session))
        return True

    async def _show_start(self, session: SessionProtocol) -> None:
        """Show suggestions for this folder until something is asked."""
        environment, root = session.environment, self.opener.root

        def read() -> FirstScreen:
            own = session.log.path.stem if session.log.path is not None else ""
            return read_first_screen(
                root,
                sorted(project_folder.list_files(root), key=lambda path: (path.count("/"), path)),
                environment.workspace.test_command,
                environment.limits.budget,
                len(session.team.members),
                self.opener.recent(MOST_SESSIONS, excluding=own),
            )

        start = await asyncio.to_thread(read)
        if self.work.session is session and not self._has_left:
            self.feed.show_start(start)

    async def send(
        self,
        text: str,
        pin: str | None = None,
        effort: Effort | None = None,
        *,
        queued: bool = False,
    ) -> None:
        """Send a request. While one is running it is a message for the agents at work; with `queued`,
        or an agent, tier or effort of its own, it waits for their end.

        `effort` is for this request alone. Raises ModelFileError if no model can work.
        """
        if self.work.session is None:
            self.say("there is no session to send this to; /new opens one", "warn")
            return
        # in threads: it looks at the disk and tries what the sandbox can do. In the order of typing
        try:
            async with self.door:
                lacking = await asyncio.to_thread(self.opener.setup.lacking)
                request = await asyncio.to_thread(request_from_text, self.session, text, pin)
                notes = await asyncio.to_thread(self.session.notes)
        except ModelFileError:
            raise
        except FuguError as error:
            self.failed(error)
            return
        self.notes.warn((*lacking, *notes))
        request = replace(request, effort=effort)
        left = request if queued else await self.work.steer(request)
        if left is not None:
            await self.work.submit(left)

    def interrupt(self) -> bool:
        """Stop the running work. Return False if none runs."""
        return self.shell.stop() or self.download.stop() or self.work.interrupt()

    def answer_key(self, key: str) -> None:
        """Give the answer that a key stands for in the shown question."""
        question = self.asking.question
        if question is None:
            return
        scope = scope_of_key(self.work.approvals.options(question), key)
        if scope is not None:
            self.answer(scope)

    def answer(self, scope: ApprovalScope) -> None:
        """Give the user's answer to the shown question."""
        question = self.asking.question
        if question is None or question.answer.done():
            return
        if scope not in [option.scope for option in self.work.approvals.options(question)]:
            return
        if scope == "feedback":
            self.asking.deny_with_feedback(question)
        else:
            self._answer(question, scope)

    def _answer(self, question: ApprovalQuestion, scope: ApprovalScope, feedback: str = "") -> None:
        try:
            note = self.work.answer(question, scope, feedback)
        except FuguError as error:
            self.failed(error)
        else:
            if note:
                self.say(note)

    # What the session at work tells.

    def replayed(self, records: Sequence[Recorded]) -> None:
        """Show a newly opened session. Errors from before it are shown now, because they explain
        why it is this one.
        """
        self.feed.replay(records, is_running=self.options.attached)
        ran = [record.event for record in records if isinstance(record.event, ToolRan)]
        changing = [event for event in ran if event.changes]
        self.patches.show(self.session, self.feed, changing[-FETCHED_ON_RESUME:])
        self.notes.release()

    def handle_item(self, item: Recorded | Live) -> None:
        """Handle one more item of the log."""
        if self._has_left:
            return
        self.feed.add_item(item)
        self.view.noticed(item)
        event, session = item.event if isinstance(item, Recorded) else None, self.work.session
        if session is None:
            return
        if isinstance(event, ToolRan) and event.changes:
            self.patches.show(session, self.feed, [event], live=True)
        elif isinstance(event, Finished | Undone):
            self.patches.show(session, self.feed, [])
        elif isinstance(event, Asked | Steered | SteeringGiven):
            self.changed()

    def changed(self) -> None:
        """Update what depends on running work, queue, questions and mode."""
        if self._has_left:
            return
        self.asking.ask(self.work.approvals.questions, self.work.approvals.pending)
        messages = [message.said for message in self.work.waiting_messages]
        self.view.show_queue(self.work.queued_texts, messages)
        if not self.work.running:
            self.branch = project_folder.git_branch(self.opener.root)
            hooks = self.work.session.environment.hooks if self.work.session is not None else None
            # those that failed in the request
            self.notes.warn(hooks.runner.notes if hooks is not None else ())
        self.show()

    def show(self) -> None:
        """Update the status line."""
        self.status.refresh()
        self.notes.warn([self.status.fault] if self.status.fault else [])
        self.view.stand(session_status.status_line(self))

    async def close(self) -> None:
        """Close the session. Later items of the log are not shown, because the screen may be gone.
        May be called twice.
        """
        self._has_left = True
        await self.patches.close()
        self.asking.close()
        self.shell.stop()
        self.download.stop()
        await self.status.close()
        await self.work.close()


def steer(controller: SessionController, text: str) -> None:
    """Interrupt the running work and continue with `text`, then with the queued requests."""
    if text:
        controller.history.add(text)
        try:
            request = request_from_text(controller.session, text)
        except FuguError as error:
            controller.failed(error)
            return
        controller.work.send_at_once(request)
    else:
        controller.work.interrupt(steering=True)


def choose_mode(controller: SessionController, mode: Mode | None = None) -> str:
    """Change the permission mode from the next call on, by default to the next one. Return its
    meaning, "" where it was not changed.
    """
    if controller.work.session is None:
        return ""
    current = session_status.permission_mode(controller.work)
    allowed = modes_up_to(controller.session.environment.rules.loosest_mode)
    cycle = [name for name in MODE_CYCLE if name in allowed]
    at = next((index for index, candidate in enumerate(cycle) if candidate == current), -1)
    chosen = mode or cycle[(at + 1) % len(cycle)]
    try:
        controller.session.set_mode(chosen)
    except FuguError as error:
        controller.failed(error)
        return ""
    controller.work.changed()
    return f"{chosen}: {MODE_HELP[chosen]}"
