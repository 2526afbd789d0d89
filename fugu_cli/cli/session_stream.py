"""An open session for programs: its requests run one after the other, and all its events are sent
as the objects of `stream-json`.

It uses app/request_queue.py as the terminal does, and is used by sdk.py and python_api.py. Who
reads the objects is up to its caller.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING

from fugu_cli.app.request_queue import QueuedRequest, RequestQueue
from fugu_cli.cli.output import session_name
from fugu_cli.cli.session_opening import FolderSessions
from fugu_cli.errors import FuguError
from fugu_cli.session.events import Asked, Recorded, Steered
from fugu_cli.session.live_events import TextStreamed, ThoughtStreamed
from fugu_cli.session.state import SessionState
from fugu_cli.ui import headless, json_output
from fugu_cli.ui.json_output import Object, RunEnding

if TYPE_CHECKING:
    from fugu_cli.app.open_session import Session
    from fugu_cli.config.loader import LoadedConfig
    from fugu_cli.engine.environment import AskPermission, Permission
    from fugu_cli.extensions.mcp_client import Relay
    from fugu_cli.messages import Call
    from fugu_cli.safety.policy import Judgement
    from fugu_cli.session.live_events import Live

CUT = RunEnding("interrupted", "the request was interrupted")


class SessionStream:
    """One session and its reader."""

    def __init__(
        self,
        send: Callable[[Object], None],
        answer: AskPermission,
        *,
        partial: bool = False,
        relay: Relay | None = None,
    ) -> None:
        """Create the stream.

        `send` gets every object. `answer` answers permission questions. `partial`: pieces of text
        are sent, too. `relay` reaches MCP servers inside the client.
        """
        self.work = RequestQueue(self, ask=self._ask)
        self._send = send
        self._answer = answer
        self._partial = partial
        self._relay = relay
        self._state = SessionState()
        self._failure: FuguError | None = None
        self._opened: Session | None = None

    @property
    def session(self) -> Session:
        """The open session."""
        assert self._opened is not None
        return self._opened

    @property
    def id(self) -> str:
        """The session's id: its log's name."""
        return session_name(self.session.log)

    @property
    def is_working(self) -> bool:
        """True if an agent works on the request, so that it can be given a message."""
        return self.work.running and bool(self.session.log.state.request.turns)

    async def open(
        self,
        loaded: LoadedConfig,
        environ: MutableMapping[str, str],
        resume: str | None = None,
        *,
        fork: bool = False,
    ) -> None:
        """Open a new session, or resume one. Raises FuguError."""
        folder = FolderSessions(loaded, environ)

        async def opening(_: AskPermission) -> Session:
            if resume is None:
                self._opened = await folder.begin(self._ask)
            else:
                self._opened = await (folder.fork if fork else folder.resume)(resume, self._ask)
            return self._opened

        if not await self.work.open(opening):
            assert self._failure is not None
            raise self._failure
        if self.session.servers is not None:
            self.session.servers.relay = self._relay
        self.session.warm()

    async def request(self, request: QueuedRequest | None) -> Object:
        """Run a request, or the unfinished one, and return the result object. It also reports
        failures of the outside world.
        """
        since, started, self._failure = len(self.session.log.records), time.monotonic(), None
        if request is None:
            await self.work.go_on()
        else:
            await self.work.submit(request)
        await self.work.following.caught_up()
        milliseconds = int((time.monotonic() - started) * 1000)
        state, records = self.session.log.state, self.session.log.records
        was_recorded = request is None or any(
            isinstance(record.event, Asked | Steered) for record in records[since:]
        )
        if self._failure is not None or not was_recorded:
            failure = self._failure or FuguError("interrupted before the request was recorded")
            reason = "failed" if self._failure is not None else "interrupted"
            return json_output.refused_object(failure, reason, milliseconds, self.id)
        end = json_output.run_ending(state, CUT)
        log = str(self.session.log.path)
        ignored = self.session.ignored
        report = headless.RunReport(self.id, log, since, milliseconds, ignored=ignored)
        return headless.final_object(state, records, report, end)

    async def close(self) -> None:
        """End what runs, and close the session."""
        await self.work.close()

    async def _ask(self, call: Call, judgement: Judgement) -> Permission:
        """Ask the program and the session's followers. The first answer counts."""
        await self.work.following.caught_up()  # what led to the question is sent before it
        program = asyncio.ensure_future(self._answer(call, judgement))
        followers = asyncio.ensure_future(self.work.ask(call, judgement))
        try:
            await asyncio.wait({program, followers}, return_when=asyncio.FIRST_COMPLETED)
            return program.result() if program.done() else followers.result()
        finally:
            program.cancel()
            followers.cancel()

    # What the session at work tells (request_queue.QueueListener).

    def replayed(self, records: Sequence[Recorded]) -> None:
        """Note the events of the opened session, which are not sent again."""
        self._state = SessionState.of_records(records)

    def handle_item(self, item: Recorded | Live) -> None:
        """Send the object of an item of the log."""
        if isinstance(item, Recorded):
            self._state.add(item.event)
            message = json_output.event_object(item, self._state.request, self.id)
        elif isinstance(item, TextStreamed | ThoughtStreamed):
            message = json_output.text_object(item, self.id) if self._partial else None
        else:
            message = json_output.live_object(item, self.id)
        if message is not None:
            self._send(message)

    def failed(self, error: FuguError) -> None:
        """Answer the request with an error."""
        self._failure = error

    def changed(self) -> None:
        """Do nothing, since the stream does not show the queue."""
