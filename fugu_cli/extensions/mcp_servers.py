"""The MCP servers of a session: started in the background, restarted when they end, their tools as fugu's own.

Held by the session; the toolbox asks it for tools before every model call. Nothing is started before `start`, and
nothing at all where no server is declared. A task of its own holds the SDK's client for a server's whole life;
calls come from the turns' own tasks, and a call that was sent is never sent again. What does not work costs a line
that people read, never a session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fugu_cli.extensions import mcp_client
from fugu_cli.extensions.mcp_content import arguments_schema, result_of_reply, tool_names
from fugu_cli.extensions.mcp_settings import DeclaredServers, McpServer
from fugu_cli.tools.result import Say, ToolResult, truncate
from fugu_cli.tools.workspace import ForeignSpec, RawArguments, Tool, Workspace

if TYPE_CHECKING:
    from mcp_types import Tool as Listed

Tell = Callable[[str], None]
"""Takes a sentence for people."""
DESCRIPTION = 2000
"""Characters of a tool's description that agents are told."""
MOST_TOOLS = 64
"""Tools of one server that are offered: each costs tokens in every request."""
ConnectionState = Literal["starting", "ready", "failed"]
RESTART_PAUSES = (1.0, 5.0, 25.0)
"""Seconds before a server that had worked and ended is started again, the first, second and third time."""
SLACK = 2.0
"""Seconds beyond a server's time for what the SDK does not limit: writing to one that does not read."""
UNKNOWN = "Whether it did what was asked is not known, and the call was not repeated."


class McpConnection:
    """A server of the session in `root`. `tools` stay while it is started again, and go when that is given up."""

    def __init__(self, server: McpServer, root: Path, loaded: Awaitable[None], tell: Tell) -> None:
        self.server = server
        self.state: ConnectionState = "starting"
        self.why = "it is being started"
        self.tools: tuple[Tool[RawArguments], ...] = ()
        self.settled = asyncio.Event()
        """It is known whether it works."""
        self._root = root
        self._tell = tell
        self._told: set[str] = set()
        self._link: mcp_client.McpLink | None = None
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._live(loaded))

    async def close(self) -> None:
        """End it, with all it has started."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _live(self, loaded: Awaitable[None]) -> None:
        try:
            await loaded
            for pause in (*RESTART_PAUSES, None):
                worked = await self._once()
                if not worked or pause is None:
                    self._tell(f"the MCP server {self.server.name} does not work: {self.why}")
                    break
                self._tell(f"the MCP server {self.server.name} is started again: {self.why}")
                self.state = "starting"
                await asyncio.sleep(pause)
        except ImportError as error:
            self.why = f"the SDK cannot be imported: {error}"
            self._tell(f"the MCP server {self.server.name} does not work: {self.why}")
        finally:
            self.state, self.tools = "failed", ()
            self.settled.set()

    async def _once(self) -> bool:
        """The server from its start to its end. Whether it had worked."""
        worked = False
        try:
            async with mcp_client.connect(self.server, self._root, self._news.set) as link:
                try:
                    self._offer(await mcp_client.list_tools(link), link.left_out)
                    worked, self._link, self.state = True, link, "ready"
                    self.settled.set()
                    await self._attend(link)
                    self.why = await link.why()
                except mcp_client.sdk_errors() as error:
                    self.why = await mcp_client.describe_error(error, self.server.patience, link)
        except mcp_client.McpConnectionError as error:
            self.why = str(error)
        except mcp_client.sdk_errors() as error:  # while it was being left
            self.why = f"{error}"
        finally:
            self._link = None
        return worked

    async def _attend(self, link: mcp_client.McpLink) -> None:
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
                    self._offer(await mcp_client.list_tools(link), link.left_out)
        finally:
            ended.cancel()

    def _offer(self, listed: list[Listed], left_out: Mapping[str, str]) -> None:
        for tool, why in left_out.items():
            if tool not in self._told:
                self._told.add(tool)
                self._tell(f"the tool {tool} of the MCP server {self.server.name} is left out: {why}")
        known = {tool.name: tool for tool in listed[:MOST_TOOLS]}
        names = tool_names(self.server.name, known)
        self.tools = tuple(
            Tool(
                name=name,
                effect="runs",
                arguments=RawArguments,
                run=partial(self._run, theirs),
                foreign=ForeignSpec(
                    description=truncate(known[theirs].description or theirs, DESCRIPTION),
                    schema=arguments_schema(known[theirs].input_schema),
                ),
            )
            for name, theirs in names.items()
        )

    async def _run(self, tool: str, arguments: RawArguments, workspace: Workspace, say: Say) -> ToolResult:
        """Call a tool. Whatever goes wrong is the result."""
        del say
        name, link = self.server.name, self._link
        if workspace.root != self._root:
            text = f"The MCP server `{name}` works in {self._root} and not in this step's own copy: it was not called."
            return ToolResult(text=text, ok=False)
        if link is None or link.ended.is_set():
            again = "It is being started again." if self.state != "failed" else "It is not started again."
            return ToolResult(text=f"The MCP server `{name}` is not running: {self.why}. {again}", ok=False)
        try:
            async with asyncio.timeout(self.server.timeout + SLACK):
                given = await link.client.call_tool(tool, dict(arguments.values), self.server.timeout)
                return await asyncio.to_thread(result_of_reply, given, workspace.whole_secrets)
        except mcp_client.sdk_errors() as error:
            if mcp_client.is_refusal(error):
                return ToolResult(text=truncate(f"The MCP server `{name}` refused the call: {error}"), ok=False)
            if mcp_client.is_closed(error):
                link.ended.set()
            why = await mcp_client.describe_error(error, self.server.timeout, link)
            return ToolResult(text=truncate(f"The call of the MCP server `{name}` failed: {why}. {UNKNOWN}"), ok=False)


FIRST_CALL_WAIT_SECONDS = 3.0
"""Seconds the first model call waits, in all, for servers that are still being started. Their tools join later."""


class McpServers:
    """The servers of a session in `root`. `tell` is told what does not work, whenever that shows."""

    def __init__(self, declared: DeclaredServers, root: Path, tell: Tell = lambda _: None) -> None:
        self.notes = declared.notes
        """Sentences for people: what is left out and why."""
        self.declared = declared.servers
        self._root = root
        self._tell = tell
        self._running: tuple[McpConnection, ...] = ()
        self._patience = FIRST_CALL_WAIT_SECONDS

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
        loading = asyncio.create_task(asyncio.to_thread(mcp_client.load_sdk))
        self._running = tuple(
            McpConnection(one, self._root, asyncio.shield(loading), self._tell) for one in self.declared
        )

    def tools(self) -> tuple[Tool[RawArguments], ...]:
        """The tools of the servers that are ready, in the files' order; the first one of a name counts."""
        found: dict[str, Tool[RawArguments]] = {}
        for connection in self._running:
            for tool in connection.tools:
                found.setdefault(tool.name, tool)
        return tuple(found.values())

    async def settled(self, waits: Callable[[str], None]) -> None:
        """Wait until it is known of each whether it works: FIRST_CALL_WAIT_SECONDS in the whole session. `waits` is
        told meanwhile, people afterwards where some are not ready."""
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
            late = ", ".join(one.server.name for one in slow if not one.settled.is_set())
            self._tell(f"not ready yet, so their tools join later: the MCP servers {late}")
        else:
            self._patience -= clock() - began

    async def tried(self) -> tuple[McpConnection, ...]:
        """Each of them once its state is known. For `fugu doctor`: it starts them."""
        self.start()
        await asyncio.gather(*(one.settled.wait() for one in self._running))
        return self._running

    async def close(self) -> None:
        """End them, with all they have started."""
        running, self._running = self._running, ()
        await asyncio.gather(*(one.close() for one in running))


CHECK_SECONDS = 30.0
"""Seconds a server may take to answer while somebody waits for the report."""

ServerCheck = tuple[str, bool, str]
"""A server's name, whether it works, and its tools or why it does not, with what is run."""


def check_servers(declared: DeclaredServers, root: Path) -> Sequence[ServerCheck]:
    """What each does now. Without servers nothing is imported."""
    if not declared.servers:
        return ()
    hurried = tuple(server.model_copy(update={"patience": CHECK_SECONDS}) for server in declared.servers)
    servers = McpServers(DeclaredServers(hurried), root)
    return asyncio.run(_check_servers(servers))


async def _check_servers(servers: McpServers) -> Sequence[ServerCheck]:
    try:
        found: list[ServerCheck] = []
        for one in await servers.tried():
            file = f" ({one.server.said}, from {one.server.source})"
            works = one.state == "ready"
            names = ", ".join(tool.name.rpartition("__")[2] for tool in one.tools) or "none"
            found.append((one.server.name, works, (f"tools: {names}" if works else one.why) + file))
        return found
    finally:
        await servers.close()
