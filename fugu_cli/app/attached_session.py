"""An interface to a session that another process runs. It reads the session's log and socket, and
sends what the user does to that process, which decides everything.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from fugu_cli.app import session_messages as messages
from fugu_cli.app.approval_options import PendingCall
from fugu_cli.app.approval_questions import ApprovalQuestion
from fugu_cli.app.request_queue import (
    Expand,
    QueuedRequest,
    QueueListener,
    RequestQueue,
    is_unfinished,
)
from fugu_cli.app.session_socket import PROTOCOL
from fugu_cli.errors import FuguError, InfrastructureError, UsageError
from fugu_cli.session import log
from fugu_cli.session.live_events import Waiting
from fugu_cli.session.log import LogMirror
from fugu_cli.system.bounded_json import parse_json

if TYPE_CHECKING:
    from fugu_cli.app.approval_options import ApprovalScope
    from fugu_cli.app.session_protocol import SessionProtocol
    from fugu_cli.config import Mode
    from fugu_cli.engine.environment import AskPermission, Environment, Team
    from fugu_cli.extensions.mcp_servers import McpServers
    from fugu_cli.extensions.memory import Memory
    from fugu_cli.extensions.skill_library import SkillLibrary
    from fugu_cli.messages import Call, Effort, Media, Value
    from fugu_cli.safety import policy
    from fugu_cli.session.events import Finished
    from fugu_cli.session.log import Log

LONGEST_LINE = 64 << 20
"""Bytes of one message of a session: a question holds the whole call that it is about."""
ANSWER_SECONDS = 5.0
"""Seconds that a session has to greet a follower."""
CLOSING_SECONDS = 5.0
"""Seconds to wait for a session that closed its connection to release its lock."""
ACT_SECONDS = 30.0
"""Seconds that a session has to carry out what a follower asks for: hooks may look at it first."""
MOST_RECONNECTIONS = 5
"""Reconnections one after the other, each within STABLE_SECONDS."""
STABLE_SECONDS = 60.0
RECONNECT_PAUSE_SECONDS = 0.5
POLL_SECONDS = 0.1
"""Seconds between two looks whether the process of the session has ended."""


class Connection:
    """A connection to a running session. `status` is the newest that it sent."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: messages.Status
    ) -> None:
        self._reader, self._writer = reader, writer
        self.status = status

    @classmethod
    async def open(cls, path: Path) -> Connection:
        """Connect to the process that runs the session at `path`. Raises InfrastructureError where
        it does not answer.
        """
        writer = None
        try:
            socket = log.socket_name(path)
            if not socket.startswith("/"):  # then it says why there is no socket
                raise InfrastructureError(socket or "the process that runs it has no socket")
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_unix_connection(socket, limit=LONGEST_LINE)
                status = await _read_greeting(reader, path)
            return cls(reader, writer, status)
        except TimeoutError:
            reason = f"it did not answer within {ANSWER_SECONDS:.0f} s"
        except OSError as error:
            reason = error.strerror or str(error)
        except InfrastructureError as error:
            reason = str(error)
        if writer is not None:
            writer.close()
        raise InfrastructureError(
            f"cannot attach to {path.stem}: {reason}",
            hint=f"`fugu trace {path.stem}` shows what it did so far",
        )

    def send(self, message: Value) -> None:
        """Send a message. Raises UsageError once the connection is closed."""
        if self._writer.is_closing():
            raise UsageError("the connection to the session is closed", hint="nothing was sent")
        self._writer.write(messages.encode_message(message))

    async def messages(self) -> AsyncIterator[messages.SessionMessage]:
        """Yield the messages until the connection ends. Raises InfrastructureError for one that
        cannot be read.
        """
        while (message := await _read_message(self._reader)) is not None:
            yield message

    def close(self) -> None:
        """Close the connection. The session goes on."""
        self._writer.close()


async def carry_out(path: Path, act: messages.Act) -> str:
    """Ask the process that runs the session at `path` to do something, and return its answer, "" if
    it gives none. Raises UsageError if it refuses and InfrastructureError if it does not answer.
    """
    connection = await Connection.open(path)
    try:
        connection.send(act)
        async with asyncio.timeout(ACT_SECONDS):
            async for message in connection.messages():
                match message:
                    case messages.Done():
                        return message.note
                    case messages.Refused():
                        raise UsageError(message.why, hint=message.hint)
                    case messages.Dropped():
                        raise InfrastructureError(message.why)
                    case _:
                        continue
    except TimeoutError:
        raise InfrastructureError(
            f"the session {path.stem} did not answer within {ACT_SECONDS:.0f} s"
        ) from None
    finally:
        connection.close()
    raise InfrastructureError(f"the session {path.stem} ended before it answered")


async def _read_message(reader: asyncio.StreamReader) -> messages.SessionMessage | None:
    """Return the next message, None at the end of the connection."""
    try:
        line = await reader.readline()
        if not line.endswith(b"\n"):
            return None
        return messages.SESSION_MESSAGE.validate_python(parse_json(line))
    except ConnectionError:
        return None
    except (ValidationError, ValueError) as error:
        raise InfrastructureError(
            "the session sent a message that this fugu does not understand",
            hint="is it another version of fugu?",
        ) from error


async def _read_greeting(reader: asyncio.StreamReader, path: Path) -> messages.Status:
    """Read messages up to the first status and return it. Raises InfrastructureError where the
    session refuses, is another one, or speaks another protocol.
    """
    while (message := await _read_message(reader)) is not None:
        match message:
            case messages.Hello():
                if message.protocol != PROTOCOL:
                    raise InfrastructureError(
                        f"fugu {message.version} runs it, which sends other messages than this fugu"
                    )
                if message.session != path.stem:
                    raise InfrastructureError(f"the session {message.session} has its socket")
            case messages.Dropped():
                raise InfrastructureError(message.why)
            case messages.Status():
                return message
            case _:
                continue
    raise InfrastructureError("it closed the connection")


def _not_here() -> UsageError:
    return UsageError(
        "another process runs this session, and this cannot be done from here",
        hint="do it in the terminal in which the session runs",
    )


@dataclass
class AttachedSession:
    """An open session of another process. Fulfils app/session_protocol.SessionProtocol."""

    log: Log
    path: Path
    connection: Connection
    environment: Environment
    team: Team
    library: SkillLibrary
    permissions_file: str
    tier: str = "fugu"
    effort: Effort = ""
    ignored: tuple[str, ...] = ()
    excluded: frozenset[str] = frozenset()
    servers: McpServers | None = None
    memory: Memory | None = None

    def warm(self) -> None:
        """Do nothing: the other process makes the decisions."""

    def notes(self) -> tuple[str, ...]:
        """Return no notes: the other terminal shows them."""
        return ()

    def set_mode(self, mode: Mode) -> None:
        """Ask the other process for another permission mode."""
        self.connection.send(messages.ChangeMode(mode=mode))

    async def ask(
        self,
        text: str,
        typed: str = "",
        skill: str = "",
        piped: str = "",
        media: tuple[Media, ...] = (),
    ) -> None:
        """Refuse: requests are sent by the queue."""
        raise _not_here()

    async def steer(self, text: str, typed: str = "", media: tuple[Media, ...] = ()) -> bool:
        """Refuse: messages are sent by the queue."""
        raise _not_here()

    can_change_plan = False

    async def change_plan(self, text: str, typed: str = "", media: tuple[Media, ...] = ()) -> None:
        """Refuse: messages are sent by the queue."""
        raise _not_here()

    async def accept_plan(self, mode: Mode) -> None:
        """Refuse: the answer is sent by the queue."""
        raise _not_here()

    async def run(self) -> Finished:
        """Refuse: the other process runs."""
        raise _not_here()

    def go_on(self) -> bool:
        """Refuse: the queue asks for it."""
        raise _not_here()

    def pin(self, name: str | None) -> None:
        """Refuse: only the process that runs the session can do this."""
        raise _not_here()

    def set_tier(self, tier: str) -> None:
        """Refuse: only the process that runs the session can do this."""
        raise _not_here()

    def exclude(self, names: frozenset[str]) -> None:
        """Refuse: only the process that runs the session can do this."""
        raise _not_here()

    def allow_always(self, call: Call, judgement: policy.Judgement) -> str:
        """Refuse: the answer is sent by the queue."""
        raise _not_here()

    async def compact(self) -> None:
        """Refuse: only the process that runs the session can do this."""
        raise _not_here()

    async def close(self) -> None:
        """Leave. The session goes on."""
        self.connection.close()
        self.log.close()


class AttachedQueue(RequestQueue):
    """The requests and questions of a session that another process runs."""

    def __init__(self, listener: QueueListener, expand: Expand = nullcontext) -> None:
        super().__init__(listener, expand)
        self._following: asyncio.Task[None] | None = None
        self._status: messages.Status | None = None

    @property
    def running(self) -> bool:
        """A request is being worked on."""
        return self._status is not None and self._status.running

    @property
    def stopping(self) -> bool:
        """True if the running work was interrupted and is still ending its processes."""
        return self._status is not None and self._status.stopping

    @property
    def queued_texts(self) -> list[str]:
        """The requests in the queue, as the user typed them."""
        return list(self._status.queued) if self._status is not None else []

    async def open(self, opening: Callable[[AskPermission], Awaitable[SessionProtocol]]) -> bool:
        """Show the session of another process. False when it does not answer."""
        if not await super().open(opening):
            return False
        self._following = asyncio.create_task(self._follow(self._attached))
        return True

    async def answer_followers(self, log: Log) -> str:
        """Show the status. Followers are answered by the process that runs the session."""
        self._apply(self._attached.connection.status)
        return ""

    @property
    def _attached(self) -> AttachedSession:
        assert isinstance(self.session, AttachedSession)
        return self.session

    async def submit(self, typed: QueuedRequest) -> None:
        """Send a request. It is queued while another one is running."""
        self._send_request(typed, "queue")

    async def steer(self, message: QueuedRequest) -> QueuedRequest | None:
        """Send a message for the agents at work. While nothing runs it becomes a request."""
        self._send_request(message, "steer")
        return None

    def send_at_once(self, request: QueuedRequest) -> None:
        """Send a request that replaces the running one."""
        self._send_request(request, "at_once")

    def _send_request(self, request: QueuedRequest, how: messages.SendHow) -> None:
        with self._expand(request.shown) as text:
            if len(text) > messages.LONGEST_TEXT:
                raise UsageError(
                    f"the text has more than {messages.LONGEST_TEXT:,} characters",
                    hint="write it into a file and name the file",
                )
            message = messages.Send(text=text, how=how, pin=request.pin or "")
            self._attached.connection.send(message)

    async def send_queued(self) -> None:
        """Ask for the queued requests to be run."""
        self._attached.connection.send(messages.GoOn(queued=True))

    async def go_on(self) -> bool:
        """Ask for the request that was cut off to be finished. False when there is none."""
        if self.running or not is_unfinished(self._attached):
            return False
        self._attached.connection.send(messages.GoOn())
        return True

    async def answer_open_plan(self) -> None:
        """Do nothing: the process that runs the session asks about the plan."""

    def interrupt(self, *, steering: bool = False) -> bool:
        """Ask for an end of the running work. Return False when nothing runs."""
        if self.stopping or not (self.running or self.approvals.questions):
            return False
        self._attached.connection.send(messages.Interrupt(steering=steering))
        return True

    def answer(self, question: ApprovalQuestion, scope: ApprovalScope, feedback: str = "") -> str:
        """Send the answer to a question. If it was answered before, the session refuses it."""
        self._attached.connection.send(
            messages.Answer(
                question=question.number, call=question.call.id, scope=scope, feedback=feedback
            )
        )
        return ""

    def pin(self, name: str | None) -> None:
        """Refuse: only the process that runs the session can do this."""
        raise _not_here()

    async def close(self) -> None:
        """Leave. The session goes on."""
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        session, self.session = self.session, None
        await self.following.close()
        if session is not None:
            await session.close()

    def _queue_unread(self, session: object) -> None:
        """Do nothing: the process that runs the session queues them."""

    async def _follow(self, session: AttachedSession) -> None:
        """Show the session until it ends, connecting again when the connection is lost."""
        clock = asyncio.get_running_loop().time
        reconnections, connected_at = 0, clock()
        while True:
            try:
                is_closed = await self._follow_connection(session)
                session.connection.close()
                if is_closed or not log.is_open(session.path):
                    break
                if clock() - connected_at > STABLE_SECONDS:
                    reconnections = 0
                if reconnections == MOST_RECONNECTIONS:
                    break
                reconnections += 1
                await asyncio.sleep(RECONNECT_PAUSE_SECONDS)
                session.connection = await Connection.open(session.path)
                connected_at = clock()
                self._catch_up(session)
                self._apply(session.connection.status)
            except FuguError as error:
                self._listener.failed(error)
                break
        await self._show_end(session)

    async def _follow_connection(self, session: AttachedSession) -> bool:
        """Show messages until the connection ends. Return True if connecting again is useless."""
        async for message in session.connection.messages():
            match message:
                case messages.Grown():
                    if message.lines > len(session.log.records):
                        self._catch_up(session)
                case messages.Told():
                    session.log.tell(message.item)
                case messages.Status():
                    self._apply(message)
                case messages.Refused():
                    self._listener.failed(UsageError(message.why, hint=message.hint))
                case messages.Done():
                    if message.note:
                        session.log.tell(Waiting(why=message.note, notice=True))
                case messages.Dropped():
                    return not message.again
                case messages.Hello():
                    continue
        return False

    def _catch_up(self, session: AttachedSession) -> None:
        assert isinstance(session.log, LogMirror)
        session.log.catch_up()

    async def _show_end(self, session: AttachedSession) -> None:
        """Show the rest of the log once its process has closed it, and how the session ended."""
        for _ in range(int(CLOSING_SECONDS / POLL_SECONDS)):
            if not log.is_open(session.path):
                break
            await asyncio.sleep(POLL_SECONDS)
        try:
            self._catch_up(session)
        except FuguError as error:
            self._listener.failed(error)
        if self._status is not None:
            nothing_left = {"running": False, "stopping": False, "questions": (), "queued": ()}
            self._apply(self._status.model_copy(update=nothing_left))
        id = session.path.stem
        resuming = f"`fugu --resume {id}` goes on with it"
        if log.is_open(session.path):
            message = f"the connection to the session {id} is lost; its process still runs"
            hint = f"`fugu attach {id}` connects again"
            self._listener.failed(InfrastructureError(message, hint=hint))
        elif log.socket_name(session.path):
            message = f"the process that ran the session {id} was killed"
            self._listener.failed(InfrastructureError(message, hint=resuming))
        else:
            message = f"the session {id} has been closed; {resuming}"
            session.log.tell(Waiting(why=message, notice=True))

    def _apply(self, status: messages.Status) -> None:
        """Take over the newest status of the session and show it."""
        session, self._status = self._attached, status
        self.pinned = status.pinned or None
        session.tier = status.tier or session.tier
        rules = session.environment.rules.model_copy(update={"mode": status.mode})
        session.environment = replace(session.environment, rules=rules)
        shown = {question.number: question for question in self.approvals.questions}
        self.approvals.questions = deque()
        for open_question in status.questions:
            question = shown.pop(open_question.number, None)
            if question is None:
                question = approval_question(open_question)
            self.approvals.questions.append(question)
        for closed_question in shown.values():
            closed_question.answer.cancel()
        self.changed()


def approval_question(question: messages.OpenQuestion) -> ApprovalQuestion:
    """Return the question as the interface shows it. Cancelling `answer` takes it off the screen."""
    return ApprovalQuestion(
        call=question.asked.call,
        judgement=question.asked.judgement,
        answer=asyncio.get_running_loop().create_future(),
        before=question.before,
        after=tuple(PendingCall(later.call, later.judgement) for later in question.after),
        number=question.number,
    )
