"""Serves a running session on a Unix socket. Followers see what happens, and may answer questions,
send messages and interrupt, just as the interface that runs the session may.

Without followers it costs one socket. A follower that does not read in time is dropped: it finds
everything that was recorded in the log.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from fugu_cli import __version__
from fugu_cli.app import session_socket
from fugu_cli.errors import FuguError, InfrastructureError, UsageError
from fugu_cli.session.events import Recorded
from fugu_cli.session.live_events import OutputStreamed, TextStreamed, ThoughtStreamed
from fugu_cli.system.bounded_json import parse_json

if TYPE_CHECKING:
    from pathlib import Path

    from fugu_cli.app.approval_options import ApprovalScope
    from fugu_cli.app.approval_questions import ApprovalQuestion, ApprovalQuestions
    from fugu_cli.app.session_messages import Act, SendHow, Status
    from fugu_cli.app.session_protocol import SessionProtocol
    from fugu_cli.messages import Value
    from fugu_cli.session.live_events import Live
    from fugu_cli.session.log import Log

MOST_FOLLOWERS = 64
MOST_UNREAD_BYTES = 1 << 20
"""Bytes that wait for a follower before it is dropped."""
MOST_PIECES, MOST_CHARACTERS = 4000, 100_000
"""Limits of the streamed text that a new follower is sent, which is less than MOST_UNREAD_BYTES."""
READ_REASON_SECONDS = 5.0
"""Seconds that a dropped follower has to read why."""


class HostedWork(Protocol):
    """The work of a session: the part of RequestQueue (app/request_queue.py) that is served."""

    approvals: ApprovalQuestions
    session: SessionProtocol | None
    pinned: str | None

    @property
    def running(self) -> bool:
        """A request is being worked on."""

    @property
    def stopping(self) -> bool:
        """True if the running work was interrupted and is still ending its processes."""

    @property
    def queued_texts(self) -> list[str]:
        """The requests in the queue, as the user typed them."""

    async def send(self, text: str, how: SendHow, pin: str = "") -> None:
        """Give a text to the agents at work, or make it a request. Raises UsageError."""

    def answer(self, question: ApprovalQuestion, scope: ApprovalScope, feedback: str = "") -> str:
        """Answer a question. Return a sentence about what is remembered. Raises UsageError."""

    def interrupt(self, *, steering: bool = False) -> bool:
        """Interrupt the running work. Return False when nothing runs."""

    def begin_going_on(self, *, queued: bool) -> None:
        """Finish the request that was cut off, or run those in the queue, in the background."""

    def changed(self) -> None:
        """Tell the interface and the followers that something changed."""


class Follower:
    """One connection of a follower."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._is_dropped = False

    def send(self, line: bytes) -> None:
        """Send a message without waiting. Drop the follower if it has not read what came before."""
        if self._is_dropped or self._writer.is_closing():
            return
        if self._writer.transport.get_write_buffer_size() > MOST_UNREAD_BYTES:
            self.drop("it did not read in time", again=True)
        else:
            self._writer.write(line)

    def drop(self, why: str, *, again: bool = False) -> None:
        """Send the reason after the messages that wait, then close the connection."""
        from fugu_cli.app.session_messages import Dropped, encode_message

        if self._is_dropped:
            return
        self._is_dropped = True
        self._writer.write(encode_message(Dropped(why=why, again=again)))
        self._writer.close()
        asyncio.get_running_loop().call_later(READ_REASON_SECONDS, self._writer.transport.abort)


class SessionHost:
    """The socket of one open session."""

    def __init__(self, work: HostedWork, log: Log) -> None:
        self._work, self._log = work, log
        self._path: Path | None = None
        self._server: asyncio.Server | None = None
        self._followers: set[Follower] = set()
        self._status: Status | None = None
        self._unrecorded: deque[TextStreamed | ThoughtStreamed | OutputStreamed] = deque()
        self._unrecorded_characters = 0

    async def open(self) -> str:
        """Listen, and write the socket's path into the session's lock. If the session cannot
        listen, it works all the same: return the reason, which the lock then says.
        """
        if self._log.path is None:
            return "it has no file"
        reason = ""
        try:
            path = session_socket.socket_path(self._log.path)
            # asyncio removes the socket that a killed process left
            self._server = await asyncio.start_unix_server(
                self._serve, path, limit=session_socket.LONGEST_LINE
            )
        except InfrastructureError as error:
            reason = f"no socket: {error}"
        except OSError as error:
            reason = f"no socket: {error.strerror or error}"
        else:
            self._path = path
            self._log.listen(self._handle_item)
        self._log.name_socket(reason or str(self._path))
        return reason

    def changed(self) -> None:
        """Send the followers the status if it changed."""
        if not self._followers:
            return
        status = self._present_status()
        if status != self._status:
            self._status = status
            self._send(status)

    async def close(self) -> None:
        """Say goodbye to the followers and remove the socket. May be called twice."""
        if self._server is None or self._path is None:
            return
        self._server.close()
        self._server = None
        self._log.stop_listening(self._handle_item)
        with suppress(OSError):
            self._path.unlink()
        for follower in tuple(self._followers):
            follower.drop("the session has been closed")

    def _present_status(self) -> Status:
        from fugu_cli.app.session_messages import AskedCall, OpenQuestion, Status

        work, session = self._work, self._work.session
        questions = []
        for question in work.approvals.questions:
            if question.answer.done():
                continue
            after = [
                AskedCall(call=later.call, judgement=later.judgement) for later in question.after
            ]
            open_question = OpenQuestion(
                number=question.number,
                asked=AskedCall(call=question.call, judgement=question.judgement),
                before=question.before,
                after=tuple(after),
            )
            questions.append(open_question)
        return Status(
            running=work.running,
            stopping=work.stopping,
            mode=session.environment.rules.mode if session is not None else "edit",
            tier=session.tier if session is not None else "",
            pinned=work.pinned or "",
            queued=tuple(work.queued_texts),
            questions=tuple(questions),
        )

    def _send(self, message: Value) -> None:
        from fugu_cli.app.session_messages import encode_message

        line = encode_message(message)
        for follower in tuple(self._followers):
            follower.send(line)

    def _handle_item(self, item: Recorded | Live | None) -> None:
        """Send an item of the log. Followers read recorded lines from the file themselves."""
        self._keep_unrecorded(item)
        if not self._followers:
            return
        from fugu_cli.app.session_messages import Grown, Told

        if isinstance(item, Recorded):
            self._send(Grown(lines=item.seq + 1))
            self.changed()
        elif item is not None:
            self._send(Told(item=item))

    def _keep_unrecorded(self, item: Recorded | Live | None) -> None:
        """Keep the streamed text of a turn until an event of that turn is recorded."""
        match item:
            case TextStreamed() | ThoughtStreamed() | OutputStreamed():
                self._unrecorded.append(item)
                self._unrecorded_characters += len(item.text)
            case Recorded(event=event) if self._unrecorded:
                turn = getattr(event, "turn", None)
                rest = [piece for piece in self._unrecorded if piece.turn != turn]
                self._unrecorded = deque(rest)
                self._unrecorded_characters = sum(len(piece.text) for piece in rest)
        while len(self._unrecorded) > MOST_PIECES or self._unrecorded_characters > MOST_CHARACTERS:
            self._unrecorded_characters -= len(self._unrecorded.popleft().text)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one follower until it leaves."""
        from fugu_cli.app.session_messages import Grown, Hello, Told, encode_message

        follower = Follower(writer)
        if not session_socket.is_same_user(writer.get_extra_info("socket")):
            writer.transport.abort()
            return
        if len(self._followers) >= MOST_FOLLOWERS:
            follower.drop(f"the session has {MOST_FOLLOWERS} followers already, and takes no more")
            return
        self.changed()
        self._status = self._present_status()
        self._followers.add(follower)
        hello = Hello(
            session=self._log.path.stem if self._log.path is not None else "",
            log=os.path.realpath(self._log.path or ""),
            version=__version__,
            protocol=session_socket.PROTOCOL,
        )
        streamed = [Told(item=item) for item in self._unrecorded]
        for message in (hello, Grown(lines=len(self._log.records)), self._status, *streamed):
            follower.send(encode_message(message))
        try:
            while line := await reader.readline():
                await self._handle_line(follower, line)
        except ValueError:  # asyncio's: the line has no end within the limit
            follower.drop(f"it sent a message of more than {session_socket.LONGEST_LINE:,} bytes")
        except ConnectionError:
            pass
        finally:
            self._followers.discard(follower)
            writer.close()

    async def _handle_line(self, follower: Follower, line: bytes) -> None:
        """Carry out a follower's message, and tell this follower what came of it."""
        from pydantic import ValidationError

        from fugu_cli.app.session_messages import ACT, Done, Refused, encode_message

        try:
            note = await self._carry_out(ACT.validate_python(parse_json(line)))
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]["msg"]
            why = f"the session does not understand this message: {fault}"
            follower.send(encode_message(Refused(why=why)))
        except ValueError as error:
            follower.send(encode_message(Refused(why=f"the message is not JSON: {error}")))
        except FuguError as error:
            follower.send(encode_message(Refused(why=str(error), hint=error.hint)))
        else:
            follower.send(encode_message(Done(note=note)))

    async def _carry_out(self, act: Act) -> str:
        """Do what a follower asks for. Return a sentence about it, "" for none. Raises FuguError."""
        from fugu_cli.app import session_messages as messages

        work = self._work
        match act:
            case messages.Send():
                await work.send(act.text, act.how, act.pin)
            case messages.Answer():
                for question in work.approvals.questions:
                    if question.number == act.question and question.call.id == act.call:
                        return work.answer(question, act.scope, act.feedback)
                raise UsageError(
                    "this question has been answered already, or was withdrawn",
                    hint="the first answer counts",
                )
            case messages.Interrupt():
                if not work.interrupt(steering=act.steering):
                    raise UsageError("nothing is being worked on")
            case messages.GoOn():
                work.begin_going_on(queued=act.queued)
            case messages.ChangeMode():
                if work.session is not None:
                    work.session.set_mode(act.mode)
                    work.changed()
        return ""
