"""One session of an editor: its requests run one after the other, its log is sent, and policy's
questions are asked there.

It drives the session through app/request_queue.py, as the terminal does. agent.py, above it, speaks
the protocol's methods.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from acp.schema import (
    ConfigOptionUpdate,
    CurrentModeUpdate,
    PromptResponse,
    StopReason,
    Usage,
)

from fugu_cli import messages
from fugu_cli.acp import session_settings
from fugu_cli.acp.permissions import (
    EditorForm,
    ask_for_words_in_editor,
    ask_permission_in_editor,
    elicit_in_editor,
)
from fugu_cli.acp.prompts import PromptBlock, read_prompt
from fugu_cli.acp.updates import LogUpdates, Update, merged, message, meta, thought
from fugu_cli.app import event_text
from fugu_cli.app.approval_options import ACCEPT_PLAN, question_choices
from fugu_cli.app.approval_questions import ApprovalQuestion
from fugu_cli.app.request_queue import RequestQueue, request_from_text
from fugu_cli.engine import undo
from fugu_cli.errors import FuguError, InfrastructureError, UsageError
from fugu_cli.extensions.skill_library import parse_headless_request
from fugu_cli.session import costs
from fugu_cli.session.events import Asked, Recorded
from fugu_cli.session.tool_facts import ASK_USER
from fugu_cli.system.stdio_frames import LAST_FRAMES_SECONDS
from fugu_cli.ui.json_output import result_object, run_ending

if TYPE_CHECKING:
    from acp.interfaces import Client
    from acp.schema import ElicitationCapabilities

    from fugu_cli.app.session_protocol import SessionOpener, SessionProtocol
    from fugu_cli.engine.environment import AskPermission
    from fugu_cli.session.live_events import Live


class EditorOutbox:
    """Sends an editor the updates of a session's log in their order, and notes of the session
    itself.
    """

    def __init__(self, client: Client, caught_up: Callable[[], Awaitable[None]]) -> None:
        """`caught_up` waits until every item of the log was put."""
        self._client = client
        self._caught_up = caught_up
        self._id = ""
        self._items: asyncio.Queue[Recorded | Live] = asyncio.Queue()
        self._sending: asyncio.Task[None] | None = None
        self._noted: set[str] = set()

    def begin(self, id: str, updates: LogUpdates) -> None:
        """Start sending items to the session that the editor knows by `id`."""
        self._id = id
        self._sending = asyncio.create_task(self._send(updates))

    def put(self, item: Recorded | Live) -> None:
        """Add an item of the log."""
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
        """Send an update at once."""
        with suppress(ConnectionError):  # the editor is gone: the session is about to be closed
            await self._client.session_update(session_id=self._id, update=update)

    async def note(self, notes: Sequence[str]) -> None:
        """Send each of these sentences once."""
        for note in notes:
            if note not in self._noted:
                self._noted.add(note)
                await self.tell(thought(note))

    async def flush(self) -> None:
        """Wait until every item of the log was sent. Raises the error that ended the sending, if
        any.
        """
        assert self._sending is not None
        await self._caught_up()
        empty = asyncio.create_task(self._items.join())
        await asyncio.wait({empty, self._sending}, return_when=asyncio.FIRST_COMPLETED)
        if self._sending.done():
            empty.cancel()
            self._sending.result()

    async def close(self) -> None:
        """Stop sending."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)


class ClientSession:
    """An open session and its editor. `elicitation` names the questions of MCP servers that the
    editor can show.
    """

    def __init__(
        self,
        client: Client,
        opener: SessionOpener,
        elicitation: ElicitationCapabilities | None = None,
    ) -> None:
        self.busy = False
        """True while a prompt is being answered."""
        self.id = ""
        """The session's id, which is its log's name; "" before it is open."""
        self.work = RequestQueue(self)
        self.outbox = EditorOutbox(client, self.work.following.caught_up)
        self._client = client
        self._opener = opener
        self._elicitation = elicitation
        self._cancelled = False
        self._ended: asyncio.Future[PromptResponse]
        """The answer to the prompt that is being carried out."""
        self._failure: FuguError | None = None
        self._updates: LogUpdates | None = None
        self._telling_settings: asyncio.Task[None] | None = None
        self._asking: list[tuple[ApprovalQuestion, asyncio.Task[None]]] = []

    @property
    def session(self) -> SessionProtocol:
        """The open session. Raises UsageError once it is being closed."""
        if self.work.session is None:
            raise UsageError("this session is closed", hint="load it again, or open another one")
        return self.work.session

    async def open(self, opening: Callable[[AskPermission], Awaitable[SessionProtocol]]) -> None:
        """Open the session, and start loading its models and MCP servers. Raises FuguError."""
        if not await self.work.open(opening):
            assert self._failure is not None
            raise self._failure
        assert self.session.log.path is not None
        self.id = self.session.log.path.stem
        self._updates = LogUpdates(self.session, self.session.log.events)
        self.outbox.begin(self.id, self._updates)
        if self.session.servers is not None:
            form = EditorForm(self._client, self.id, self._elicitation, self.outbox.flush)
            self.session.servers.answer = partial(elicit_in_editor, form)
        self.session.warm()

    async def prompt(self, blocks: Sequence[PromptBlock]) -> PromptResponse:
        """Carry out a request or one of fugu's commands. While one is being worked on, the prompt is
        a message for its agents, and returns with it. Raises FuguError if it is invalid, or failed.
        """
        while self.busy:
            ended = self._ended
            if await self._steer(blocks):
                return await asyncio.shield(ended)
            await asyncio.wait({ended})
        self._ended = ended = asyncio.get_running_loop().create_future()
        try:
            response = await self._carry_out(blocks)
        except BaseException as error:  # a cancellation too: whoever waits for this end is told
            if isinstance(error, Exception):
                ended.set_exception(error)
                ended.exception()  # nobody may be waiting for it
            else:
                ended.cancel()
            raise
        ended.set_result(response)
        return response

    async def _steer(self, blocks: Sequence[PromptBlock]) -> bool:
        """Give a prompt to the agents at work. Return False where it is a request of its own."""
        root = self.session.environment.workspace.root
        text, context, media = await asyncio.to_thread(read_prompt, blocks, root)
        if text.strip().removeprefix("/") in session_settings.COMMANDS:
            raise UsageError(
                "a prompt of this session is being answered", hint="wait for its end, or cancel it"
            )
        request = await asyncio.to_thread(request_from_text, self.session, text)
        return await self.work.steer(replace(request, piped=context, media=media)) is None

    async def _carry_out(self, blocks: Sequence[PromptBlock]) -> PromptResponse:
        self.busy, self._cancelled, self._failure = True, False, None
        first_record = len(self.session.log.records)
        try:
            run = await self._parse_prompt(blocks)
            if not self._cancelled:
                await run()
            await self.outbox.flush()
        finally:
            self.busy = False
        if self._cancelled:
            return PromptResponse(stop_reason="cancelled")
        if self._failure is not None:
            raise self._failure
        return _response(self, first_record)

    async def _parse_prompt(self, blocks: Sequence[PromptBlock]) -> Callable[[], Awaitable[None]]:
        """Return a function that carries the prompt out. Raises FuguError."""
        session, root = self.session, self.session.environment.workspace.root
        lacking = await asyncio.to_thread(self._opener.setup.lacking)
        text, context, media = await asyncio.to_thread(read_prompt, blocks, root)
        if text.strip().startswith("/"):
            command = text.strip().removeprefix("/")
            if command in session_settings.COMMANDS:
                return partial(_run_command, self, command)
        await asyncio.to_thread(parse_headless_request, text, session.library)
        request = await asyncio.to_thread(request_from_text, session, text)
        notes = await asyncio.to_thread(session.notes)
        await self.outbox.note((*lacking, *notes))
        return lambda: self.work.submit(replace(request, piped=context, media=media))

    def cancel(self) -> None:
        """Cancel the running prompt, with everything it has started."""
        self._cancelled = self.busy
        self.work.interrupt()

    async def close(self) -> None:
        """Stop everything, send what the log has got, and close the session."""
        self._cancelled = self.busy
        await self.work.close()
        if self.busy:
            await asyncio.wait({self._ended}, timeout=LAST_FRAMES_SECONDS)
        for _, task in self._asking:
            task.cancel()
        await asyncio.gather(*(task for _, task in self._asking), return_exceptions=True)
        await self.outbox.close()

    # The methods of request_queue.QueueListener.

    def replayed(self, records: Sequence[Recorded]) -> None:
        """Do nothing: `replay` sends the records if the editor wants them."""

    def handle_item(self, item: Recorded | Live) -> None:
        """Send an item of the log."""
        self.outbox.put(item)
        if isinstance(item, Recorded) and isinstance(item.event, Asked) and item.event.plan:
            # the accepted plan changed the mode
            self._telling_settings = asyncio.create_task(self.tell_settings())

    async def tell_settings(self) -> None:
        """Send the editor the present mode and options."""
        options = session_settings.config_options(self.session, self.work.pinned)
        mode = self.session.environment.rules.mode
        await self.outbox.tell(
            CurrentModeUpdate(session_update="current_mode_update", current_mode_id=mode)
        )
        await self.outbox.tell(
            ConfigOptionUpdate(session_update="config_option_update", config_options=list(options))
        )

    def failed(self, error: FuguError) -> None:
        """Keep the error, which becomes the answer to the prompt."""
        self._failure = error

    def changed(self) -> None:
        """Ask the questions that were not asked yet."""
        known_questions = [question for question, _ in self._asking]
        for question in self.work.approvals.questions:
            if not any(question is earlier for earlier in known_questions):
                self._asking.append((question, asyncio.create_task(self._ask(question))))
        self._asking = [(question, task) for question, task in self._asking if not task.done()]

    async def _ask(self, question: ApprovalQuestion) -> None:
        await self.outbox.flush()
        assert self._updates is not None
        shown = self._updates.calls.asked_about(question.call)
        call = question.call
        if call.tool == ASK_USER.name and not question_choices(call):
            form = EditorForm(self._client, self.id, self._elicitation, self.outbox.flush)
            words = asyncio.ensure_future(ask_for_words_in_editor(form, call))
            question.answer.add_done_callback(lambda _: words.cancel())
            with contextlib.suppress(asyncio.CancelledError):
                answer = await words
                if not question.answer.done():
                    question.answer.set_result(answer)
            return
        asking = asyncio.ensure_future(
            ask_permission_in_editor(self._client, self.session, shown.id, question)
        )
        # the question may be answered elsewhere meanwhile
        question.answer.add_done_callback(lambda _: asking.cancel())
        try:
            scope = await asking
        except asyncio.CancelledError:
            asking.cancel()
            if not question.answer.done():
                raise
            scope = None
        if question.call.tool == ACCEPT_PLAN:  # no event ends this call
            await self.outbox.tell(self._updates.calls.ended(shown))
        if question.answer.done():
            return
        if scope is None:
            question.answer.set_result("headless")
            return
        try:
            note = self.work.answer(question, scope)
        except FuguError as error:
            note = f"{error}; {error.hint}"
        if note:
            await self.outbox.tell(thought(note))


async def replay(client: ClientSession) -> None:
    """Send the editor the whole conversation so far."""
    updates = LogUpdates(client.session)
    for record in tuple(client.session.log.records):
        for update in await updates.of(record, replayed=True):
            await client.outbox.tell(update)


async def _run_command(client: ClientSession, command: str) -> None:
    session = client.session
    if command == "compact":
        await session.compact()
        return
    if command == "continue":
        if not await client.work.go_on():
            raise UsageError("the session has no unfinished request", hint="ask something new")
        return
    log, workspace = session.log, session.environment.workspace
    if command == "redo":
        undone = await undo.redo_request(log, workspace)
    else:
        unclaimed = await undo.unclaimed_paths(log, workspace)
        if unclaimed:
            raise UsageError(
                f"these files changed while a command ran and may be yours: {', '.join(unclaimed)}",
                hint="`fugu undo` in a terminal asks for each; `fugu undo --yes` takes them back",
            )
        undone = await undo.undo_request(log, workspace)
    await client.outbox.tell(message(event_text.undo_text(undone)))


def _response(client: ClientSession, first_record: int) -> PromptResponse:
    """Return how the request ended, and its usage. Raises InfrastructureError if it failed."""
    state, records = client.session.log.state, client.session.log.records
    end = run_ending(state)
    if end.reason == "failed":
        raise InfrastructureError(f"the request failed: {end.message}")
    total = sum(costs.usage(state.events[first_record:]).values(), messages.Usage())
    usage = Usage(
        total_tokens=total.input + total.output,
        input_tokens=total.input,
        output_tokens=total.output,
        cached_read_tokens=total.cached,
        cached_write_tokens=total.written,
    )
    ignored = client.session.ignored
    result = result_object(state, records, client.id, end, since=first_record, ignored=ignored)
    limited = end.reason in ("turn_limit", "budget", "time_limit")
    reason: StopReason = "max_turn_requests" if limited else "end_turn"
    return PromptResponse(stop_reason=reason, usage=usage, field_meta=meta(result))
