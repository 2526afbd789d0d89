"""`fugu attach`: opens a session that another process runs, full screen or in the scrollback."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli.cli.current_folder import current_config, print_clean, say
from fugu_cli.cli.interface import has_terminal, interface_options, open_interface
from fugu_cli.cli.session_opening import FolderSessions, UserSetup
from fugu_cli.errors import UsageError
from fugu_cli.session import log, store
from fugu_cli.session.log import LogMirror

if TYPE_CHECKING:
    from fugu_cli.app.attached_session import AttachedSession, Connection
    from fugu_cli.engine.environment import AskPermission


def attach(key: str | None, *, inline: bool) -> int:
    """Open a running session. Return the exit code once the user has left. Raises FuguError."""
    if not has_terminal():
        raise UsageError(
            "attaching needs a terminal",
            hint="`fugu sessions --all` shows which sessions wait for an answer",
        )
    loaded = current_config(quiet=True)
    data = loaded.config.data
    path = _choose_session(data) if key is None else store.find_session(data, loaded.root, key)
    if not log.is_open(path):
        ending = "was killed" if log.socket_name(path) else "is not running"
        raise UsageError(
            f"the session {path.stem} {ending}", hint=f"`fugu --resume {path.stem}` goes on with it"
        )
    state = LogMirror(path).state
    root = Path(state.opened.repo if state.opened is not None else ".")
    if not root.is_dir():
        raise UsageError(
            f"the folder of the session, {root}, is gone",
            hint=f"`fugu trace {path.stem}` shows what it did",
        )
    in_folder = current_config(quiet=True, folder=root)
    # the process that runs the session has asked about trust and shown its notes
    in_folder = replace(in_folder, ignored=(), notes=())
    opener = RunningSession(in_folder, os.environ, path=path)
    options = replace(interface_options(in_folder.config), attached=True)
    return open_interface(opener, options, inline=inline)


def running_sessions(data: Path) -> list[Path]:
    """Return the sessions that a process has open, the newest first."""
    return [path for path in store.session_paths(data) if log.is_open(path)]


def _choose_session(data: Path) -> Path:
    """Let the user choose among the running sessions. Raises UsageError where there is none."""
    from fugu_cli.cli.sessions import standing_lines

    paths = running_sessions(data)
    if not paths:
        raise UsageError("no session is running", hint="`fugu sessions --all` lists all sessions")
    if len(paths) == 1:
        return paths[0]
    for number, line in enumerate(standing_lines(store.session_summaries(paths)), start=1):
        print_clean(f"{number:>3}  {line}")
    say("Which session? Type its number, or Enter for none.")
    typed = sys.stdin.readline().strip()
    if not typed.isdigit() or not 1 <= int(typed) <= len(paths):
        raise UsageError("no session was chosen", hint="`fugu attach ID` opens one directly")
    return paths[int(typed) - 1]


class NoSetup(UserSetup):
    """The setup for a session that another process runs: this process calls no models."""

    def lacking(self) -> tuple[str, ...]:
        """Return no missing parts."""
        return ()


@dataclass
class RunningSession(FolderSessions):
    """Opens one session that another process runs. Fulfils SessionOpener."""

    path: Path = Path()

    @property
    def setup(self) -> NoSetup:
        return NoSetup(self.loaded.config, self.environ)

    async def begin(  # type: ignore[override]  # not a session of this process
        self, ask: AskPermission
    ) -> AttachedSession:
        """Connect to the process, then read the log. Raises FuguError."""
        from fugu_cli.app.attached_session import Connection

        connection = await Connection.open(self.path)
        try:
            return await asyncio.to_thread(self._read_session, connection, ask)
        except BaseException:  # a cancellation too: nobody else would close the connection
            connection.close()
            raise

    def _read_session(self, connection: Connection, ask: AskPermission) -> AttachedSession:
        from fugu_cli import wiring
        from fugu_cli.app.attached_session import AttachedSession
        from fugu_cli.engine.environment import Team
        from fugu_cli.safety import saved_permissions

        config, mirror = self.loaded.config, LogMirror(self.path)
        workspace = wiring.build_workspace(config, self.root, logs=[self.path])
        members = mirror.state.pool
        # the team is only shown here: this coordinator loads no model and never decides
        simple_config = config.model_copy(update={"coordinator": "cascade", "tier": "fugu"})
        coordinator, _, _ = wiring.build_coordinator(simple_config, tuple(members.values()))
        return AttachedSession(
            log=mirror,
            path=self.path,
            connection=connection,
            environment=wiring.build_environment(config, workspace, ask),
            team=Team(members, {}, coordinator),
            library=self.loaded.library,
            permissions_file=str(saved_permissions.permissions_file(config.data, self.root)),
        )
