"""One server: started, spoken to, started again when it ends, and its tools as long as it lives.

Under servers.py. A task of its own holds the SDK's client for its whole life; calls come from the turns' own tasks. A
call that was sent is never sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fugu_cli.tools import Foreign, Tool, Unread
from fugu_cli.tools.clip import clip
from fugu_cli.tools.mcp import offering, sdk
from fugu_cli.tools.mcp.declared import Server
from fugu_cli.tools.result import Result, Say
from fugu_cli.tools.workspace import Workspace

if TYPE_CHECKING:
    from mcp_types import Tool as Listed

State = Literal["starting", "ready", "failed"]
PAUSES = (1.0, 5.0, 25.0)
"""Seconds before a server that had worked and ended is started again, the first, second and third time."""
SLACK = 2.0
"""Seconds beyond a server's time for what the SDK does not limit: writing to one that does not read."""
UNKNOWN = "Whether it did what was asked is not known, and the call was not repeated."


class Connection:
    """A server of the session in `root`. `tools` stay while it is started again, and go when that is given up."""

    def __init__(self, server: Server, root: Path, loaded: Awaitable[None]) -> None:
        self.server = server
        self.state: State = "starting"
        self.why = "it is being started"
        self.tools: tuple[Tool[Unread], ...] = ()
        self.settled = asyncio.Event()
        """It is known whether it works."""
        self._root = root
        self._link: sdk.Link | None = None
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._live(loaded))

    async def close(self) -> None:
        """End it, with all it has started."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _live(self, loaded: Awaitable[None]) -> None:
        try:
            await loaded
            for pause in (*PAUSES, None):
                if not await self._once() or pause is None:
                    break
                self.state = "starting"
                await asyncio.sleep(pause)
        except ImportError as error:
            self.why = f"the SDK cannot be imported: {error}"
        finally:
            self.state, self.tools = "failed", ()
            self.settled.set()

    async def _once(self) -> bool:
        """The server from its start to its end. Whether it had worked."""
        worked = False
        try:
            async with sdk.connected(self.server, self._root, self._news.set) as link:
                try:
                    self._offer(await sdk.listed(link))
                    worked, self._link, self.state = True, link, "ready"
                    self.settled.set()
                    await self._attend(link)
                    self.why = await link.why()
                except sdk.failures() as error:
                    self.why = await sdk.words(error, self.server.patience, link)
        except sdk.Unanswered as error:
            self.why = str(error)
        except sdk.failures() as error:  # while it was being left
            self.why = f"{error}"
        finally:
            self._link = None
        return worked

    async def _attend(self, link: sdk.Link) -> None:
        """Until it ends; its tools are asked for again when it says that they are others."""
        ended = asyncio.create_task(link.ended.wait())
        try:
            while not link.ended.is_set():
                news = asyncio.create_task(self._news.wait())
                try:
                    await asyncio.wait((ended, news), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    news.cancel()
                if self._news.is_set() and not link.ended.is_set():
                    self._news.clear()
                    self._offer(await sdk.listed(link))
        finally:
            ended.cancel()

    def _offer(self, listed: list[Listed]) -> None:
        known = {tool.name: tool for tool in listed[: offering.MOST]}
        names = offering.named(self.server.name, known)
        self.tools = tuple(
            Tool(
                name=name,
                effect="runs",
                arguments=Unread,
                run=partial(self._run, theirs),
                foreign=Foreign(
                    description=clip(known[theirs].description or theirs, offering.DESCRIPTION),
                    schema=offering.schema(known[theirs].input_schema),
                ),
            )
            for name, theirs in names.items()
        )

    async def _run(self, tool: str, arguments: Unread, workspace: Workspace, say: Say) -> Result:
        """Call a tool. Whatever goes wrong is the result."""
        del say
        name, link = self.server.name, self._link
        if workspace.root != self._root:
            text = f"The MCP server `{name}` works in {self._root} and not in this step's own copy: it was not called."
            return Result(text=text, ok=False)
        if link is None or link.ended.is_set():
            again = "It is being started again." if self.state != "failed" else "It is not started again."
            return Result(text=f"The MCP server `{name}` is not running: {self.why}. {again}", ok=False)
        try:
            async with asyncio.timeout(self.server.timeout + SLACK):
                given = await link.client.call_tool(tool, dict(arguments.values), self.server.timeout)
                return offering.result(given, workspace.whole_secrets)
        except sdk.failures() as error:
            if sdk.refused(error):
                return Result(text=clip(f"The MCP server `{name}` refused the call: {error}"), ok=False)
            if sdk.closed(error):
                link.ended.set()
            why = await sdk.words(error, self.server.timeout, link)
            return Result(text=clip(f"The call of the MCP server `{name}` failed: {why}. {UNKNOWN}"), ok=False)
