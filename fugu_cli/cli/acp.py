"""`fugu acp`: takes standard input and output for the protocol, and serves sessions of any folder
to an editor.

The sessions are opened as for the terminal interface (session_opening.py).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli.cli.command_flags import AcpFlags
from fugu_cli.cli.flags import check_empty, settings_of
from fugu_cli.errors import UsageError
from fugu_cli.extensions.mcp_settings import DeclaredServers, McpServer

if TYPE_CHECKING:
    from fugu_cli.app.session_protocol import SessionOpener
    from fugu_cli.session.store import SessionSummary


def work_for_editor(flags: AcpFlags) -> int:
    """Serve an editor until it closes. With --login, ask for a key instead."""
    check_empty(agent=flags.agent, append_system_prompt=flags.append_system_prompt)
    if flags.login:
        return _log_in()
    from fugu_cli.cli.current_folder import say
    from fugu_cli.cli.output import take_standard_streams

    if sys.stdin is not None and sys.stdin.isatty():
        say(
            "this is for an editor, which starts it and speaks the Agent Client Protocol to it "
            "(`fugu help acp`)"
        )
    return asyncio.run(_answer(flags, *take_standard_streams()))


def _log_in() -> int:
    """Ask for a provider and its key; an editor runs this in a terminal."""
    from fugu_cli.cli.login import login
    from fugu_cli.config.agent_pool import SERVICES

    print(f"providers: {', '.join(service.name for service in SERVICES)}")
    print("provider: ", end="", flush=True)
    provider = sys.stdin.buffer.readline().decode("utf-8", "replace").strip()  # the key follows it
    if not provider:
        raise UsageError("no provider was named", hint="`fugu login PROVIDER` keeps its key, too")
    return login(provider)


async def _answer(flags: AcpFlags, source: int, sink: int) -> int:
    from fugu_cli.acp.agent import answer_editor
    from fugu_cli.cli.output import watch_client
    from fugu_cli.cli.session_opening import import_wiring
    from fugu_cli.system import signals
    from fugu_cli.system.stdio_frames import StdioFrames

    stopped = watch_client(sink)
    # while the editor is being greeted
    preparing = asyncio.create_task(asyncio.to_thread(import_wiring))
    await answer_editor(StdioFrames(source, sink), _Folders(flags), stopped)
    await preparing
    signals.exit_on_signals(asyncio.get_running_loop(), 0)
    return 0


@dataclass(frozen=True)
class _Folders:
    """Fulfils acp/agent.py's SessionFolders."""

    flags: AcpFlags

    def folder(
        self, path: Path, servers: Sequence[McpServer]
    ) -> tuple[SessionOpener, tuple[str, ...]]:
        from fugu_cli.cli.current_folder import current_config
        from fugu_cli.cli.session_opening import FolderSessions

        flags = self.flags
        loaded = current_config(
            settings_of(flags), trust=flags.trust, appended=flags.append_system_prompt, folder=path
        )
        declared = loaded.servers.joined(DeclaredServers(tuple(servers)))
        return FolderSessions(replace(loaded, servers=declared), os.environ), loaded.notes

    def listed(self, path: Path | None, first: int, count: int) -> Sequence[SessionSummary]:
        from fugu_cli.cli.current_folder import current_config
        from fugu_cli.session import store

        loaded = current_config(folder=path)
        summaries = store.session_summaries(
            store.session_paths(loaded.config.data, loaded.root if path else None)
        )
        return summaries[first : first + count]

    def check_pool(self) -> None:
        from fugu_cli.cli.current_folder import current_config, current_path
        from fugu_cli.config.agent_pool import usable_pool

        usable_pool(
            current_config(settings_of(self.flags), folder=current_path()).config, os.environ
        )


if TYPE_CHECKING:
    from fugu_cli.acp.agent import SessionFolders

    def _fits(folders: _Folders) -> SessionFolders:
        return folders
