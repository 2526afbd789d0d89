"""The MCP servers of a session: started in the background, their tools while they have any, ended with the session.

Held by the session; the toolbox asks it for tools before every model call. Nothing is imported or started before
`start`, and nothing at all where no server is declared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli.tools import Tool, Unread
from fugu_cli.tools.mcp.declared import Declared, Server

if TYPE_CHECKING:
    from fugu_cli.tools.mcp.connection import Connection

PATIENCE = 20.0
"""Seconds the first model call waits, in all, for servers that are still being started."""


class Servers:
    """The servers of a session in `root`."""

    def __init__(self, declared: Declared, root: Path) -> None:
        from fugu_cli.tools.mcp import sdk

        lacking = sdk.lacking() if declared.servers else ""
        names = ", ".join(server.name for server in declared.servers)
        self.notes = (*declared.notes, *([f"the MCP servers {names} are not started: {lacking}"] if lacking else ()))
        """Sentences for people: what is left out and why."""
        self.declared: tuple[Server, ...] = () if lacking else declared.servers
        self._root = root
        self._running: tuple[Connection, ...] = ()
        self._patience = PATIENCE

    @property
    def names(self) -> tuple[str, ...]:
        """The servers that are started."""
        return tuple(server.name for server in self.declared)

    def behind(self, warm: Callable[[], None]) -> Callable[[], None]:
        """What loads in the background, and these with it."""

        def both() -> None:
            warm()
            self.start()

        return both

    def start(self) -> None:
        """Start them in the background; returns at once. May be called twice. Needs a running event loop."""
        if self._running or not self.declared:
            return
        from fugu_cli.tools.mcp import sdk
        from fugu_cli.tools.mcp.connection import Connection

        loading = asyncio.create_task(asyncio.to_thread(sdk.load))
        self._running = tuple(Connection(one, self._root, asyncio.shield(loading)) for one in self.declared)

    def tools(self) -> tuple[Tool[Unread], ...]:
        """The tools of the servers that are ready, in the files' order; the first one of a name counts."""
        found: dict[str, Tool[Unread]] = {}
        for connection in self._running:
            for tool in connection.tools:
                found.setdefault(tool.name, tool)
        return tuple(found.values())

    async def settled(self, waits: Callable[[str], None]) -> None:
        """Wait until it is known of each whether it works, PATIENCE seconds in the whole session; `waits` is told."""
        slow = [one for one in self._running if not one.settled.is_set()]
        if not slow or self._patience <= 0:
            return
        waits(f"the MCP servers {', '.join(one.server.name for one in slow)} are being started")
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(self._patience):
                for one in slow:
                    await one.settled.wait()
        except TimeoutError:
            self._patience = 0.0
        else:
            self._patience -= clock() - began

    async def tried(self) -> tuple[Connection, ...]:
        """Each of them once its state is known. For `fugu doctor`: it starts them."""
        self.start()
        await asyncio.gather(*(one.settled.wait() for one in self._running))
        return self._running

    async def close(self) -> None:
        """End them, with all they have started."""
        running, self._running = self._running, ()
        await asyncio.gather(*(one.close() for one in running))
