"""The MCP servers of a session: started in the background, their tools as fugu's own, their prompts
as requests.

Held by the session; the toolbox asks it for tools before every model call. Nothing is started
before `start`, and nothing at all where no server is declared. Each server's life is
mcp_connection.py's. Where they have too many tools to be offered with every call, find_tools finds
them by words; which ones an agent may call then follows from the log (session/views.py): those that
a result of find_tools names.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli import prompts
from fugu_cli.errors import UsageError
from fugu_cli.extensions import mcp_client
from fugu_cli.extensions.mcp_connection import ConnectionParts, McpConnection, Tell
from fugu_cli.extensions.mcp_content import FilledPrompt, PromptUsage
from fugu_cli.extensions.mcp_elicitation import AskLine, nobody
from fugu_cli.extensions.mcp_login import LoginStore
from fugu_cli.extensions.mcp_settings import DeclaredServers
from fugu_cli.extensions.skill_library import MCP_PROMPT
from fugu_cli.session.views import FIND_TOOLS
from fugu_cli.tools.mentions import reading_call, resource_tool
from fugu_cli.tools.result import Say, ToolResult, truncate
from fugu_cli.tools.workspace import ForeignSpec, RawArguments, Tool, Workspace

if TYPE_CHECKING:
    from mcp_types import ElicitRequestParams, ElicitResult

FIRST_CALL_WAIT_SECONDS = 3.0
"""Seconds the first model call waits, in all, for servers that are still being started. Their tools
join later.
"""


class McpServers:
    """The servers of a session in `root`. `tell` is told what does not work, whenever that
    shows.
    """

    def __init__(
        self,
        declared: DeclaredServers,
        root: Path,
        tell: Tell = lambda _: None,
        logins: LoginStore | None = None,
    ) -> None:
        self.notes = declared.notes
        """Sentences for people: what is left out and why."""
        self.declared = declared.servers
        self._tell = tell
        self._parts = ConnectionParts(root, tell, self._elicit, logins)
        self._running: tuple[McpConnection, ...] = ()
        self._patience = FIRST_CALL_WAIT_SECONDS
        self._asking = asyncio.Lock()
        self.ask_line: AskLine = nobody
        """Asks the user for a line: what servers want to know. The interface sets it."""
        self.answer: Callable[[str, ElicitRequestParams], Awaitable[ElicitResult | None]] | None = (
            None
        )
        """Who answers what a server asks, in the place of lines that are typed; it answers None
        where it cannot.
        """
        self.relay: mcp_client.Relay | None = None
        """The way to servers inside of the client, set before they are started."""

    @property
    def names(self) -> tuple[str, ...]:
        """The servers that are started."""
        return tuple(server.name for server in self.declared)

    def start(self) -> None:
        """Start them in the background; returns at once. May be called twice. Needs a running event
        loop.
        """
        if self._running or not self.declared:
            return
        loading = asyncio.create_task(asyncio.to_thread(mcp_client.load_sdk))
        parts = replace(self._parts, relay=self.relay)
        self._running = tuple(
            McpConnection(one, asyncio.shield(loading), parts) for one in self.declared
        )

    def tools(self) -> tuple[Tool[RawArguments], ...]:
        """The tools of the servers that are ready, in the files' order; the first one of a name
        counts. Where there are many, a tool that finds them stands before them."""
        found: dict[str, Tool[RawArguments]] = {}
        for connection in self._running:
            for tool in connection.tools:
                found.setdefault(tool.name, tool)
        return _deferred(tuple(found.values()))

    async def settled(self, waits: Callable[[str], None]) -> None:
        """Wait until it is known of each whether it works: FIRST_CALL_WAIT_SECONDS in the whole
        session. `waits` is told meanwhile, people afterwards where some are not ready."""
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

    @property
    def prompts(self) -> tuple[tuple[str, PromptUsage], ...]:
        """What `/` and its arguments name: the prompts of the servers that are ready, as
        `/mcp:SERVER:PROMPT`.
        """
        return tuple(
            (f"{MCP_PROMPT}{one.server.name}:{usage.name}", usage)
            for one in self._running
            for usage in one.prompts
        )

    @property
    def resources(self) -> tuple[str, ...]:
        """What `@` names: the resources that servers list, as `SERVER:URI`."""
        return tuple(f"{one.server.name}:{uri}" for one in self._running for uri in one.resources)

    async def prompt(self, line: str) -> FilledPrompt:
        """The prompt that a line `/mcp:SERVER:PROMPT ARGUMENTS` stands for. Raises UsageError."""
        word, _, rest = line.removeprefix(MCP_PROMPT).partition(" ")
        server, _, name = word.partition(":")
        connection = await self.connected(server)
        usage = next((one for one in connection.prompts if one.name == name), None)
        if usage is None and connection.prompts:
            known = ", ".join(one.name for one in connection.prompts)
            raise UsageError(
                f"the MCP server {server} has no prompt {name!r}", hint=f"it has: {known}"
            )
        try:
            words = shlex.split(rest)
        except ValueError:
            words = rest.split()
        return await connection.prompt(name, usage.arguments_of(words) if usage is not None else {})

    async def ready_for(self, mentioned: Sequence[str]) -> None:
        """Wait until the servers are ready whose resources are named, `SERVER:URI`. Raises
        UsageError for one that has none, or does not work. Other names are files."""
        tools = {name: resource_tool(name) for name in self.names}
        for named in mentioned:
            if (call := reading_call(self._parts.root, named, "")).tool not in tools.values():
                continue
            server = next(name for name, tool in tools.items() if tool == call.tool)
            connection = await self.connected(server)
            if connection.state == "failed":
                raise UsageError(
                    f"the MCP server {server} does not work: {connection.why}",
                    hint="ask without it",
                )
            if call.tool not in {tool.name for tool in connection.tools}:
                raise UsageError(
                    f"the MCP server {server} has no resources", hint=f"ask without @{named}"
                )

    async def connected(self, name: str) -> McpConnection:
        """The server, started, once it is known whether it works. Raises UsageError where there is
        none.
        """
        self.start()
        connection = next((one for one in self._running if one.server.name == name), None)
        if connection is None:
            known = (
                f"there are: {', '.join(self.names)}" if self.names else "`fugu mcp add` adds one"
            )
            raise UsageError(f"there is no MCP server {name!r}", hint=known)
        await connection.settled.wait()
        return connection

    async def _elicit(self, server: str, params: ElicitRequestParams) -> ElicitResult:
        """One question at a time."""
        from fugu_cli.extensions.mcp_elicitation import answer_of_user

        async with self._asking:
            if (
                self.answer is not None
                and (answered := await self.answer(server, params)) is not None
            ):
                return answered
            if self.ask_line is nobody:
                self._tell(
                    f"the MCP server {server} asks something, and nobody can answer here: "
                    f"{params.message}"
                )
            return await answer_of_user(server, params, self.ask_line)

    async def close(self) -> None:
        """End them, with all they have started."""
        running, self._running = self._running, ()
        await asyncio.gather(*(one.close() for one in running))


MOST_SHOWN = 40
"""Tools of all servers together that are offered with every call. With more all of them have to be
found.
"""
MOST_FOUND = 8
LONGEST_LINE = 200
"""Characters of a description that a result shows; the whole one is offered from then on."""
FIND_SCHEMA = (
    '{"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}'
)


def _deferred(tools: Sequence[Tool[RawArguments]]) -> tuple[Tool[RawArguments], ...]:
    """The tools, offered only once they were found, behind the one that finds them. As they are
    where they are few.
    """
    if len(tools) <= MOST_SHOWN:
        return tuple(tools)
    counts = Counter(tool.name.split("__")[1] for tool in tools)
    servers = ", ".join(f"{name} ({count})" for name, count in counts.items())
    found = Tool(
        name=FIND_TOOLS,
        effect="reads",
        arguments=RawArguments,
        run=partial(_find, tools),
        foreign=ForeignSpec(
            prompts.fill(prompts.load(f"tools/{FIND_TOOLS}"), servers=servers), FIND_SCHEMA
        ),
        worker=True,
    )
    hidden = (
        replace(one, foreign=replace(one.foreign, deferred=True))
        for one in tools
        if one.foreign is not None
    )
    return (found, *hidden)


async def _find(
    tools: Sequence[Tool[RawArguments]], arguments: RawArguments, workspace: Workspace, say: Say
) -> ToolResult:
    """The tools that fit best, each with what it does. Whole words of a name count most."""
    del workspace, say
    words = re.findall(r"[^\W_]+", str(arguments.values.get("query", "")).casefold())
    weights = {tool.name: _weight(tool, words) for tool in tools}
    best = sorted(
        (tool for tool in tools if weights[tool.name]), key=lambda tool: -weights[tool.name]
    )[:MOST_FOUND]
    if not best:
        return ToolResult(text="No tool fits. Try other words, or the name of a server.")
    return ToolResult(
        text="\n".join(_line(tool) for tool in best), found=tuple(tool.name for tool in best)
    )


def _weight(tool: Tool[RawArguments], words: Sequence[str]) -> int:
    name, about = (
        tool.name.casefold(),
        tool.foreign.description.casefold() if tool.foreign is not None else "",
    )
    parts = set(re.findall(r"[^\W_]+", name))
    return sum(
        8 if word in parts else 4 if word in name else 1 if word in about else 0 for word in words
    )


def _line(tool: Tool[RawArguments]) -> str:
    about = " ".join(tool.foreign.description.split()) if tool.foreign is not None else ""
    return f"{tool.name}: {truncate(about, LONGEST_LINE)}"


CHECK_SECONDS = 30.0
"""Seconds a server may take to answer while somebody waits for the report."""

ServerCheck = tuple[str, bool, str]
"""A server's name, whether it works, and its tools or why it does not, with what is run."""


def check_servers(
    declared: DeclaredServers, root: Path, logins: LoginStore | None = None
) -> Sequence[ServerCheck]:
    """What each does now. Without servers nothing is imported."""
    if not declared.servers:
        return ()
    hurried = tuple(
        server.model_copy(update={"patience": CHECK_SECONDS}) for server in declared.servers
    )
    servers = McpServers(DeclaredServers(hurried), root, logins=logins)
    return asyncio.run(_check_servers(servers))


async def _check_servers(servers: McpServers) -> Sequence[ServerCheck]:
    try:
        found: list[ServerCheck] = []
        for name in servers.names:
            one = await servers.connected(name)
            file = f" ({one.server.said}, from {one.server.source})"
            works = one.state == "ready"
            names = ", ".join(tool.name.rpartition("__")[2] for tool in one.tools) or "none"
            found.append((name, works, (f"tools: {names}" if works else one.why) + file))
        return found
    finally:
        await servers.close()
