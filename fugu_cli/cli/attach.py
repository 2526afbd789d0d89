"""`fugu attach`: opens a session that another process runs, in the interface or the scrollback."""

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
            "attaching needs a terminal", hint="`fugu sessions --all` says what waits for an answer"
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
            f"the folder of the session, {root}, is gone", hint="`fugu trace` reads it"
        )
    of_folder = current_config(quiet=True, folder=root)
    # the process that runs the session has asked about trust and shown its notes
    of_folder = replace(of_folder, ignored=(), notes=())
    opener = RunningSession(of_folder, os.environ, path=path)
    options = replace(interface_options(of_folder.config), attached=True)
    return open_interface(opener, options, inline=inline)


def running_sessions(data: Path) -> list[Path]:
    """Return the sessions that a process has open, the newest first."""
    return [path for path in store.session_paths(data) if log.is_open(path)]


def _choose_session(data: Path) -> Path:
    """Let the user choose among the running sessions. Raises UsageError where there is none."""
    from fugu_cli.cli.sessions import standing_lines

    paths = running_sessions(data)
    if not paths:
        raise UsageError("no session is running", hint="`fugu sessions --all` lists all")
    if len(paths) == 1:
        return paths[0]
    for number, line in enumerate(standing_lines(store.session_summaries(paths)), start=1):
        print_clean(f"{number:>3}  {line}")
    say("which one? its number, or Enter for none")
    typed = sys.stdin.readline().strip()
    if not typed.isdigit() or not 1 <= int(typed) <= len(paths):
        raise UsageError("no session was chosen", hint="fugu attach ID")
    return paths[int(typed) - 1]


class NoSetup(UserSetup):
    """The models of a session that another process runs: nothing is missing here."""

    def lacking(self) -> tuple[str, ...]:
        """Return nothing."""
        return ()


@dataclass
class RunningSession(FolderSessions):
    """One session of a folder that another process runs. Fulfils SessionOpener."""

    path: Path = Path()

    @property
    def setup(self) -> NoSetup:
        return NoSetup(self.loaded.config, self.environ)

    async def begin(  # type: ignore[override]  # a session of the other process
        self, ask: AskPermission
    ) -> AttachedSession:
        """Connect to the process, then read the log. Raises FuguError."""
        from fugu_cli.app.attached_session import Connection

        connection = await Connection.open(self.path)
        try:
            return await asyncio.to_thread(self._build, connection, ask)
        except BaseException:
            connection.close()
            raise

    def _build(self, connection: Connection, ask: AskPermission) -> AttachedSession:
        from fugu_cli import wiring
        from fugu_cli.app.attached_session import AttachedSession
        from fugu_cli.engine.environment import Team
        from fugu_cli.safety import saved_permissions

        config, mirror = self.loaded.config, LogMirror(self.path)
        workspace = wiring.build_workspace(config, self.root, logs=[self.path])
        members = mirror.state.pool
        # the team is shown, and decides nothing here
        without_model = config.model_copy(update={"coordinator": "cascade", "tier": "fugu"})
        coordinator, _, _ = wiring.build_coordinator(without_model, tuple(members.values()))
        return AttachedSession(
            log=mirror,
            path=self.path,
            connection=connection,
            environment=wiring.build_environment(config, workspace, ask),
            team=Team(members, {}, coordinator),
            library=self.loaded.library,
            permissions_file=str(saved_permissions.permissions_file(config.data, self.root)),
        )
