"""One session of an editor: its requests run one after the other, what the log says is sent, and
what policy asks is asked there.

Over ui/tui/request_queue.py, which drives the session as it does for the terminal. Below agent.py,
which speaks the protocol's methods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from acp.schema import PromptResponse, StopReason, Usage

from fugu_cli import messages
from fugu_cli.acp import session_settings
from fugu_cli.acp.permissions import EditorForm, answer_of_editor, elicited_by_editor
from fugu_cli.acp.prompts import PromptBlock, read_prompt
from fugu_cli.acp.updates import LogUpdates, Update, merged, message, meta, thought
from fugu_cli.app import event_text
from fugu_cli.app.approval_questions import ApprovalQuestion
from fugu_cli.app.request_queue import RequestQueue, request_from_text
from fugu_cli.engine import undo
from fugu_cli.errors import FuguError, InfrastructureError, UsageError
from fugu_cli.extensions.skill_library import parse_headless_request
from fugu_cli.session import views
from fugu_cli.ui.json_output import result_object, run_ending

if TYPE_CHECKING:
    from acp.interfaces import Client
    from acp.schema import ElicitationCapabilities

    from fugu_cli.app.session_protocol import SessionOpener, SessionProtocol
    from fugu_cli.engine.environment import AskPermission
    from fugu_cli.session.events import Recorded
    from fugu_cli.session.live_events import Live


class EditorOutbox:
    """Sends an editor what a session's log says, in its order, and what else the session has to
    say.
    """

    def __init__(self, client: Client, caught_up: Callable[[], Awaitable[None]]) -> None:
        """`caught_up` waits until everything in the log was put."""
        self._client = client
        self._caught_up = caught_up
        self._id = ""
        self._items: asyncio.Queue[Recorded | Live] = asyncio.Queue()
        self._sending: asyncio.Task[None] | None = None
        self._noted: set[str] = set()

    def begin(self, id: str, updates: LogUpdates) -> None:
        """Send what is put from now on, to the session that the editor knows by `id`."""
        self._id = id
        self._sending = asyncio.create_task(self._send(updates))

    def put(self, item: Recorded | Live) -> None:
        """One more item of the log."""
        self._items.put_nowait(item)

    async def _send(self, updates: LogUpdates) -> None:
        while True:
            items = [await self._items.get()]
            while not self._items.empty():
                items.append(self._items.get_nowait())
            for item in merged(items):
                for update in await updates.of(item):
                    await self.tell(update)
            for _ in items:
                self._items.task_done()

    async def tell(self, update: Update) -> None:
        """Send this at once."""
        with suppress(ConnectionError):  # the editor is gone: the session is about to be closed
            await self._client.session_update(session_id=self._id, update=update)

    async def note(self, notes: Sequence[str]) -> None:
        """Say each of these sentences once."""
        for note in notes:
            if note not in self._noted:
                self._noted.add(note)
                await self.tell(thought(note))

    async def flush(self) -> None:
        """Wait until everything in the log was sent. What broke the sending is raised here."""
        assert self._sending is not None
        await self._caught_up()
        empty = asyncio.create_task(self._items.join())
        await asyncio.wait({empty, self._sending}, return_when=asyncio.FIRST_COMPLETED)
        if self._sending.done():
            empty.cancel()
            self._sending.result()

    async def close(self) -> None:
        """Send no more."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)


class ClientSession:
    """An open session, and its editor. `shows`: which questions of MCP servers the editor can
    ask.
    """

    def __init__(
        self, client: Client, opener: SessionOpener, shows: ElicitationCapabilities | None = None
    ) -> None:
        self.busy = False
        """A prompt is being answered."""
        self.id = ""
        """The session's id, once it is open: its log's name."""
        self.work = RequestQueue(self)
        self.outbox = EditorOutbox(client, self.work.following.caught_up)
        self._client = client
        self._opener = opener
        self._shows = shows
        self._cancelled = False
        self._failure: FuguError | None = None
        self._updates: LogUpdates | None = None
        self._asking: list[tuple[ApprovalQuestion, asyncio.Task[None]]] = []

    @property
    def session(self) -> SessionProtocol:
        """The open session."""
        assert self.work.session is not None
        return self.work.session

    async def open(self, opening: Callable[[AskPermission], Awaitable[SessionProtocol]]) -> None:
        """Open it; its models and MCP servers begin to load. Raises FuguError."""
        if not await self.work.open(opening):
            assert self._failure is not None
            raise self._failure
        assert self.session.log.path is not None
        self.id = self.session.log.path.stem
        self._updates = LogUpdates(self.session, self.session.log.events)
        self.outbox.begin(self.id, self._updates)
        if self.session.servers is not None:
            form = EditorForm(self._client, self.id, self._shows, self.outbox.flush)
            self.session.servers.answer = partial(elicited_by_editor, form)
        self.session.warm()

    async def prompt(self, blocks: Sequence[PromptBlock]) -> PromptResponse:
        """Carry a request out, or a command of fugu's own. Raises FuguError for one that cannot be,
        or that failed.
        """
        if self.busy:
            raise UsageError(
                "a prompt of this session is being answered", hint="wait for its end, or cancel it"
            )
        self.busy, self._cancelled, self._failure = True, False, None
        since = len(self.session.log.records)
        try:
            work = await self._work(blocks)
            if not self._cancelled:
                await work()
            await self.outbox.flush()
        finally:
            self.busy = False
        if self._cancelled:
            return PromptResponse(stop_reason="cancelled")
        if self._failure is not None:
            raise self._failure
        return _response(self, since)

    async def _work(self, blocks: Sequence[PromptBlock]) -> Callable[[], Awaitable[None]]:
        """What a prompt asks for. Raises FuguError. In threads: it looks at the disk."""
        session, root = self.session, self.session.environment.workspace.root
        lacking = await asyncio.to_thread(self._opener.setup.lacking)
        said, beside, media = await asyncio.to_thread(read_prompt, blocks, root)
        if (
            command := said.strip().removeprefix("/")
        ) in session_settings.COMMANDS and said.strip() != command:
            return partial(_carry_out, self, command)
        await asyncio.to_thread(parse_headless_request, said, session.library)
        wanted = await asyncio.to_thread(request_from_text, session, said)
        await self.outbox.note((*lacking, *await asyncio.to_thread(session.notes)))
        return lambda: self.work.submit(replace(wanted, piped=beside, media=media))

    def cancel(self) -> None:
        """Cut what is under way, with all it has started."""
        self._cancelled = self.busy
        self.work.interrupt()

    async def close(self) -> None:
        """End what runs, and close the session."""
        self._cancelled = self.busy
        await self.work.close()
        for _, task in self._asking:
            task.cancel()
        await asyncio.gather(*(task for _, task in self._asking), return_exceptions=True)
        await self.outbox.close()

    # What the session at work tells (request_queue.QueueListener).

    def replayed(self, records: Sequence[Recorded]) -> None:
        """It was opened: `replay` sends them where the editor wants them."""

    def heard(self, item: Recorded | Live) -> None:
        """One more item of the log."""
        self.outbox.put(item)

    def failed(self, error: FuguError) -> None:
        """What the prompt is answered with."""
        self._failure = error

    def changed(self) -> None:
        """Ask what is not asked yet."""
        known = [question for question, _ in self._asking]
        for question in self.work.approvals.questions:
            if not any(question is one for one in known):
                task = asyncio.create_task(self._ask(question))
                question.answer.add_done_callback(lambda _, task=task: task.cancel())  # type: ignore[misc]
                self._asking.append((question, task))
        self._asking = [(question, task) for question, task in self._asking if not task.done()]

    async def _ask(self, question: ApprovalQuestion) -> None:
        await self.outbox.flush()
        assert self._updates is not None
        call, judgement = question.asked
        scope = await answer_of_editor(
            self._client, self.session, self._updates.calls.asked_about(call).id, question
        )
        if scope == "always":
            try:
                rule = self.session.allow_always(call, judgement)
                await self.outbox.tell(thought(f"from now on allowed in this project: {rule}"))
            except FuguError as error:
                await self.outbox.tell(thought(f"{error}; {error.hint}"))
        if not question.answer.done():
            question.answer.set_result("session" if scope == "always" else scope or "headless")


async def replay(client: ClientSession) -> None:
    """Send the editor the whole conversation so far."""
    updates = LogUpdates(client.session)
    for record in tuple(client.session.log.records):
        for update in await updates.of(record, replayed=True):
            await client.outbox.tell(update)


async def _carry_out(client: ClientSession, command: str) -> None:
    """One of the commands in the list that editors get."""
    session = client.session
    if command == "compact":
        await session.compact()
    elif command == "continue":
        if not await client.work.go_on():
            raise UsageError("the session has no unfinished request", hint="ask something new")
    else:
        undoing = session.log, session.environment.workspace
        if command == "redo":
            undone = await undo.redo_request(*undoing)
        elif unclaimed := await undo.unclaimed_paths(*undoing):
            raise UsageError(
                f"these files changed while a command ran and may be yours: {', '.join(unclaimed)}",
                hint="`fugu undo` in a terminal asks for each; `fugu undo --yes` takes them back",
            )
        else:
            undone = await undo.undo_request(*undoing)
        await client.outbox.tell(message(event_text.undo_text(undone)))


def _response(client: ClientSession, since: int) -> PromptResponse:
    """How the request ended, and what it took. Raises InfrastructureError where it failed."""
    records = client.session.log.records
    events = [record.event for record in records]
    end = run_ending(events)
    if end.reason == "failed":
        raise InfrastructureError(f"the request failed: {end.message}")
    used = sum(views.usage(events[since:]).values(), messages.Usage())
    usage = Usage(
        total_tokens=used.input + used.output,
        input_tokens=used.input,
        output_tokens=used.output,
        cached_read_tokens=used.cached,
        cached_write_tokens=used.written,
    )
    ignored = client.session.ignored
    result = result_object(records, client.id, end, since=since, ignored=ignored)
    limited = end.reason in ("turn_limit", "budget", "time_limit")
    reason: StopReason = "max_turn_requests" if limited else "end_turn"
    return PromptResponse(stop_reason=reason, usage=usage, field_meta=meta(result))


if TYPE_CHECKING:
    from fugu_cli.app.request_queue import QueueListener

    def _fits(session: ClientSession) -> QueueListener:
        return session
