"""The agent's side of the protocol: an editor's requests, each a method, and its open sessions.

Called by the SDK's connection, which reads the parameters. A FuguError becomes the error of that
one request.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from acp.agent.connection import AgentSideConnection
from acp.exceptions import RequestError
from acp.meta import PROTOCOL_VERSION
from acp.schema import (
    AgentCapabilities,
    AuthenticateResponse,
    AuthMethodAgent,
    AvailableCommandsUpdate,
    ClientCapabilities,
    CloseSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionConfigOptionSelect,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
    TerminalAuthMethod,
)

from fugu_cli import __version__
from fugu_cli.acp import session_settings
from fugu_cli.acp.client_session import ClientSession, replay
from fugu_cli.acp.prompts import PromptBlock
from fugu_cli.acp.session_settings import GivenServer
from fugu_cli.errors import FuguError, UsageError
from fugu_cli.extensions.mcp_settings import McpServer
from fugu_cli.safety.paths import is_folder
from fugu_cli.system.stdio_frames import LAST_FRAMES_SECONDS

if TYPE_CHECKING:
    from acp.interfaces import Client

    from fugu_cli.app.session_protocol import SessionOpener
    from fugu_cli.session.store import SessionSummary
    from fugu_cli.system.stdio_frames import StdioFrames

LOGIN = "fugu-login"
"""The id of the one way to log in."""
INVALID_PARAMS, INTERNAL_ERROR = -32602, -32603
PAGE = 50
"""Sessions on one page of a list."""


class SessionFolders(Protocol):
    """Opens and lists sessions. All methods are called in threads."""

    def folder(
        self, path: Path, servers: Sequence[McpServer]
    ) -> tuple[SessionOpener, tuple[str, ...]]:
        """Return the opener of a folder's sessions, with these MCP servers added to its own, and
        messages for people. Raises FuguError.
        """

    def listed(self, path: Path | None, first: int, count: int) -> Sequence[SessionSummary]:
        """Return `count` sessions of a folder, or of all, newest first, from number `first` on."""

    def check_pool(self) -> None:
        """Raise ConfigError, with what to do, if no agent can be asked."""


@contextmanager
def _answering_errors() -> Iterator[None]:
    """Turn a FuguError into the protocol's error."""
    try:
        yield
    except FuguError as error:
        code = INVALID_PARAMS if isinstance(error, UsageError) else INTERNAL_ERROR
        message = "; ".join(part for part in (str(error), error.hint) if part)
        raise RequestError(code, message, {"hint": error.hint} if error.hint else None) from error


class OpenSessions:
    """The open sessions of one editor."""

    def __init__(self, folders: SessionFolders) -> None:
        self.client: Client | None = None
        """The connection to the editor; None before it is made."""
        self.folders = folders
        self.capabilities = ClientCapabilities()
        """The capabilities that the editor has declared."""
        self._open: dict[str, ClientSession] = {}
        self._greetings: set[asyncio.Task[None]] = set()
        self._prompts: set[asyncio.Task[Any]] = set()
        """The tasks of the connection that answer a prompt and send the answer."""

    def find(self, id: str) -> ClientSession:
        """Return the open session with this id. Raises UsageError."""
        if id not in self._open:
            raise UsageError(
                f"there is no open session {id!r}", hint="open one with session/new or session/load"
            )
        return self._open[id]

    async def open(
        self,
        cwd: str,
        servers: list[GivenServer] | None,
        more: dict[str, Any],
        id: str | None = None,
    ) -> ClientSession:
        """Open a new session, or the one with this id. Its commands and notes are sent after the
        answer. Raises FuguError.
        """
        if more.get("additional_directories"):
            raise UsageError(
                "a session works in one repository", hint="leave additionalDirectories out"
            )
        folder = _existing_folder(cwd)
        editor_servers = session_settings.given_servers(servers or ())
        opener, notes = await asyncio.to_thread(self.folders.folder, folder, editor_servers)
        if id in self._open:
            if self._open[id].busy:
                raise UsageError(
                    f"the session {id} is answering a prompt", hint="wait for its end, or cancel it"
                )
            await self.close(id)
        assert self.client is not None
        session = ClientSession(self.client, opener, self.capabilities.elicitation)
        try:
            if id is None:
                await session.open(opener.begin)
            else:
                await session.open(lambda ask: opener.resume(id, ask))
            if id is not None and session.id != id:  # `id` was a part of an id, or a path
                raise UsageError(f"there is no session {id!r}", hint="session/list names them")
            if id is not None:
                session_settings.restore_mode(session.work)
        except BaseException:  # a cancellation too: the lock of the session must not stay
            await session.close()
            raise
        self._open[session.id] = session
        greeting = asyncio.create_task(_send_greeting(session, notes))
        self._greetings.add(greeting)
        greeting.add_done_callback(self._greetings.discard)
        return session

    async def close(self, id: str) -> None:
        """Stop everything in a session, and close it. Raises UsageError."""
        session = self.find(id)
        del self._open[id]
        await session.close()

    def keep_prompt(self, task: asyncio.Task[Any]) -> None:
        """Let `close_all` wait until this task has sent the answer to a prompt."""
        self._prompts.add(task)
        task.add_done_callback(self._prompts.discard)

    async def close_all(self) -> None:
        """Close all sessions, and answer their prompts."""
        sessions, self._open = list(self._open.values()), {}
        for greeting in self._greetings:
            greeting.cancel()
        await asyncio.gather(*(session.close() for session in sessions))
        if self._prompts:
            await asyncio.wait(self._prompts, timeout=LAST_FRAMES_SECONDS)


class EditorAgent:
    """Answers the editor's requests. The names of methods and parameters are the SDK's."""

    def __init__(self, sessions: OpenSessions) -> None:
        self._sessions = sessions

    async def initialize(
        self, protocol_version: int, client_capabilities: ClientCapabilities | None = None, **_: Any
    ) -> InitializeResponse:
        """Return what this agent can do. It does not use the editor's files and terminals: see
        `fugu help acp`.
        """
        del protocol_version  # there is one version, and an editor that has another one leaves
        self._sessions.capabilities = client_capabilities or self._sessions.capabilities
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="fugu", title="fugu", version=__version__),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(
                    image=True, audio=False, embedded_context=True
                ),
                mcp_capabilities=McpCapabilities(http=True, sse=True),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                ),
            ),
            auth_methods=[_login_method(self._sessions.capabilities)],
        )

    async def authenticate(self, method_id: str, **_: Any) -> AuthenticateResponse:
        """Look whether an agent can be asked, after the user has run `fugu login`."""
        with _answering_errors():
            if method_id != LOGIN:
                raise UsageError(f"there is no way to log in {method_id!r}", hint=f"use {LOGIN!r}")
            await asyncio.to_thread(self._sessions.folders.check_pool)
            return AuthenticateResponse()

    async def new_session(
        self, cwd: str, mcp_servers: list[GivenServer] | None = None, **more: Any
    ) -> NewSessionResponse:
        """Open a new session in the repository that holds `cwd`."""
        with _answering_errors():
            session = await self._sessions.open(cwd, mcp_servers, more)
            return NewSessionResponse(session_id=session.id, **_settings(session))

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: list[GivenServer] | None = None, **more: Any
    ) -> LoadSessionResponse:
        """Continue a session; the conversation so far is sent first."""
        with _answering_errors():
            session = await self._sessions.open(cwd, mcp_servers, more, session_id)
            await replay(session)
            return LoadSessionResponse(**_settings(session))

    async def resume_session(
        self, cwd: str, session_id: str, mcp_servers: list[GivenServer] | None = None, **more: Any
    ) -> ResumeSessionResponse:
        """Continue a session that the editor already shows."""
        with _answering_errors():
            session = await self._sessions.open(cwd, mcp_servers, more, session_id)
            return ResumeSessionResponse(**_settings(session))

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> ListSessionsResponse:
        """List the sessions of a folder, or of all, newest first."""
        with _answering_errors():
            if cursor and not cursor.isdecimal():
                raise UsageError("the cursor is none of this agent's", hint="leave it out")
            first = int(cursor or 0)
            folder = None if cwd is None else _existing_folder(cwd)
            summaries = await asyncio.to_thread(
                self._sessions.folders.listed, folder, first, PAGE + 1
            )
        return ListSessionsResponse(
            sessions=[_info(summary) for summary in summaries[:PAGE]],
            next_cursor=str(first + PAGE) if len(summaries) > PAGE else None,
        )

    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:
        """Stop everything in a session, and close it; its log stays."""
        with _answering_errors():
            await self._sessions.close(session_id)
            return CloseSessionResponse()

    async def set_session_mode(
        self, session_id: str, mode_id: str, **_: Any
    ) -> SetSessionModeResponse:
        """Set the permission mode."""
        with _answering_errors():
            await _set_option(self._sessions.find(session_id), "mode", mode_id)
            return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> SetSessionConfigOptionResponse:
        """Set the mode, agent, tier or effort."""
        with _answering_errors():
            options = await _set_option(self._sessions.find(session_id), config_id, str(value))
            return SetSessionConfigOptionResponse(config_options=list(options))

    async def prompt(self, session_id: str, prompt: list[PromptBlock], **_: Any) -> PromptResponse:
        """Carry out a request, and return when it has ended."""
        task = asyncio.current_task()
        assert task is not None
        self._sessions.keep_prompt(task)
        with _answering_errors():
            return await self._sessions.find(session_id).prompt(prompt)

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Cancel everything that a session is doing."""
        with suppress(UsageError):
            self._sessions.find(session_id).cancel()


def _login_method(capabilities: ClientCapabilities) -> TerminalAuthMethod | AuthMethodAgent:
    """Return how the user keeps a key: in a terminal that the editor opens, where it can."""
    if capabilities.auth is not None and capabilities.auth.terminal:
        return TerminalAuthMethod(
            type="terminal",
            id=LOGIN,
            name="fugu login",
            description="Asks for a provider and its key.",
            args=["--login"],
        )
    return AuthMethodAgent(
        id=LOGIN,
        name="fugu login",
        description="Run `fugu login PROVIDER` in a terminal. Local models need no key.",
    )


def _settings(session: ClientSession) -> dict[str, Any]:
    options = session_settings.config_options(session.session, session.work.pinned)
    return {"modes": session_settings.mode_state(session.session), "config_options": options}


async def _set_option(
    client: ClientSession, name: str, value: str
) -> list[SessionConfigOptionSelect]:
    """Set an option, and send the editor the new mode and options. Raises UsageError."""
    if name == "tier" and client.busy:
        raise UsageError(
            "the tier is changed between requests", hint="wait for this one's end, or cancel it"
        )
    session_settings.set_option(client.work, name, value)
    await client.tell_settings()
    return session_settings.config_options(client.session, client.work.pinned)


async def _send_greeting(client: ClientSession, notes: Sequence[str]) -> None:
    """Send the editor a session's commands and notes."""
    commands = session_settings.available_commands(client.session.library)
    await client.outbox.tell(
        AvailableCommandsUpdate(
            session_update="available_commands_update", available_commands=commands
        )
    )
    await client.outbox.note(notes)


def _existing_folder(cwd: str) -> Path:
    path = Path(cwd)
    if "\0" in cwd or not path.is_absolute() or not is_folder(path):
        raise UsageError(
            f"{cwd} is not the absolute path of a folder",
            hint="give the folder to work in as `cwd`",
        )
    return path


def _info(summary: SessionSummary) -> SessionInfo:
    updated = datetime.fromtimestamp(summary.newest, UTC).isoformat(timespec="seconds")
    return SessionInfo(
        session_id=summary.id,
        cwd=summary.repo or os.sep,
        title=summary.title or None,
        updated_at=updated,
    )


async def answer_editor(
    frames: StdioFrames, folders: SessionFolders, stopped: asyncio.Event
) -> None:
    """Answer the editor until it is gone or `stopped` is set. Everything that was started ends as
    well.
    """
    sessions = OpenSessions(folders)
    connection = AgentSideConnection(
        EditorAgent(sessions),  # type: ignore[arg-type]
        frames,
        listening=False,
        use_unstable_protocol=True,
    )
    sessions.client = connection
    listening = asyncio.create_task(connection.listen())
    stopping = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({listening, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await sessions.close_all()
        for task in (listening, stopping):
            task.cancel()
        await connection.close()
        await sessions.close_all()  # what was being opened meanwhile
        await asyncio.gather(listening, stopping, return_exceptions=True)
