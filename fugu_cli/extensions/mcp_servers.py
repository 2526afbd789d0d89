"""The MCP servers of a session, started in the background. Their tools and prompts become fugu's
own.

The session holds this object, and the toolbox asks it for tools before every model call. Nothing
starts before `start`, and nothing at all if no server is declared. mcp_connection.py runs each
server. If there are too many tools to offer with every call, find_tools searches them by words, and
an agent may then call those that a result of find_tools names (`SessionState.found_tools`).
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
from fugu_cli.extensions.mcp_start import NO_SANDBOX, ServerRules
from fugu_cli.extensions.skill_library import MCP_PROMPT
from fugu_cli.session.tool_facts import FIND_TOOLS
from fugu_cli.tools.mentions import reading_call, resource_tool
from fugu_cli.tools.result import Say, ToolResult, truncate
from fugu_cli.tools.workspace import ForeignSpec, RawArguments, Tool, Workspace

if TYPE_CHECKING:
    from mcp_types import ElicitRequestParams, ElicitResult

FIRST_CALL_WAIT_SECONDS = 3.0
"""Seconds that the first model call waits for all servers together. Slower ones join later."""


class McpServers:
    """The servers of a session in `root`. `tell` shows the user what does not work."""

    def __init__(
        self,
        declared: DeclaredServers,
        root: Path,
        tell: Tell = lambda _: None,
        logins: LoginStore | None = None,
        rules: ServerRules = NO_SANDBOX,
    ) -> None:
        self.notes = declared.notes
        """Sentences for the user: the entries that are left out, and why."""
        self.declared = declared.servers
        self._tell = tell
        self._parts = ConnectionParts(root, tell, self._elicit, logins, rules=rules)
        self._running: tuple[McpConnection, ...] = ()
        self._patience = FIRST_CALL_WAIT_SECONDS
        self._asking = asyncio.Lock()
        self.ask_line: AskLine = nobody
        """Ask the user for a line that a server wants. The interface sets it."""
        self.answer: Callable[[str, ElicitRequestParams], Awaitable[ElicitResult | None]] | None = (
            None
        )
        """Answer a server's question instead of the user. Returns None if it cannot."""
        self.relay: mcp_client.Relay | None = None
        """The connection to servers inside the client, set before they are started."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the declared servers."""
        return tuple(server.name for server in self.declared)

    def start(self) -> None:
        """Start the servers in the background and return at once.

        May be called twice. Needs a running event loop.
        """
        if self._running or not self.declared:
            return
        loading = asyncio.create_task(asyncio.to_thread(mcp_client.load_sdk))
        parts = replace(self._parts, relay=self.relay)
        self._running = tuple(
            McpConnection(server, asyncio.shield(loading), parts) for server in self.declared
        )

    def tools(self) -> tuple[Tool[RawArguments], ...]:
        """Return the tools of all ready servers, in the files' order. The first of a name counts.

        If there are many, find_tools comes first and the others are deferred.
        """
        tools: dict[str, Tool[RawArguments]] = {}
        for connection in self._running:
            for tool in connection.tools:
                tools.setdefault(tool.name, tool)
        return _deferred(tuple(tools.values()), self.starting)

    def starting(self) -> tuple[str, ...]:
        """Return the names of the servers that are still being started."""
        return tuple(
            connection.server.name
            for connection in self._running
            if not connection.settled.is_set()
        )

    async def settled(self, show_status: Callable[[str], None]) -> None:
        """Wait until each server works or has failed, FIRST_CALL_WAIT_SECONDS in the whole session.

        `show_status` gets a line meanwhile. The user is told of servers that are still not ready.
        """
        slow = [connection for connection in self._running if not connection.settled.is_set()]
        if not slow or self._patience <= 0:
            return
        names = ", ".join(connection.server.name for connection in slow)
        show_status(f"the MCP servers {names} are being started")
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(self._patience):
                for connection in slow:
                    await connection.settled.wait()
        except TimeoutError:
            self._patience = 0.0
            late = ", ".join(
                connection.server.name for connection in slow if not connection.settled.is_set()
            )
            self._tell(f"not ready yet, so their tools join later: the MCP servers {late}")
        else:
            self._patience -= clock() - began

    @property
    def prompts(self) -> tuple[tuple[str, PromptUsage], ...]:
        """The prompts of ready servers with their arguments, named `/mcp:SERVER:PROMPT`."""
        return tuple(
            (f"{MCP_PROMPT}{connection.server.name}:{usage.name}", usage)
            for connection in self._running
            for usage in connection.prompts
        )

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources of ready servers for `@`, as `SERVER:URI`."""
        return tuple(
            f"{connection.server.name}:{uri}"
            for connection in self._running
            for uri in connection.resources
        )

    async def prompt(self, line: str) -> FilledPrompt:
        """Return the prompt for a line `/mcp:SERVER:PROMPT ARGUMENTS`. Raises UsageError."""
        word, _, rest = line.removeprefix(MCP_PROMPT).partition(" ")
        server, _, name = word.partition(":")
        connection = await self.connected(server)
        usage = next((prompt for prompt in connection.prompts if prompt.name == name), None)
        if usage is None and connection.prompts:
            names = ", ".join(prompt.name for prompt in connection.prompts)
            raise UsageError(
                f"the MCP server {server} has no prompt {name!r}", hint=f"it has: {names}"
            )
        try:
            words = shlex.split(rest)
        except ValueError:
            words = rest.split()
        return await connection.prompt(name, usage.arguments_of(words) if usage is not None else {})

    async def ready_for(self, mentioned: Sequence[str]) -> None:
        """Wait for the servers whose resources `mentioned` names as `SERVER:URI`; other names are
        files.

        Raises UsageError if a server does not work or has no resources.
        """
        tools = {name: resource_tool(name) for name in self.names}
        for mention in mentioned:
            if (call := reading_call(self._parts.root, mention, "")).tool not in tools.values():
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
                    f"the MCP server {server} has no resources", hint=f"ask without @{mention}"
                )

    async def connected(self, name: str) -> McpConnection:
        """Start the server, wait until it works or has failed, and return it. Raises UsageError."""
        self.start()
        for connection in self._running:
            if connection.server.name == name:
                await connection.settled.wait()
                return connection
        if self.names:
            hint = f"there are: {', '.join(self.names)}"
        else:
            hint = "`fugu mcp add` adds one"
        raise UsageError(f"there is no MCP server {name!r}", hint=hint)

    async def _elicit(self, server: str, params: ElicitRequestParams) -> ElicitResult:
        """Answer a server's question; one question at a time."""
        from fugu_cli.extensions.mcp_elicitation import answer_of_user

        async with self._asking:
            if self.answer is not None:
                answer = await self.answer(server, params)
                if answer is not None:
                    return answer
            if self.ask_line is nobody:
                self._tell(
                    f"the MCP server {server} asks something, and nobody can answer here: "
                    f"{params.message}"
                )
            return await answer_of_user(server, params, self.ask_line)

    async def close(self) -> None:
        """End all servers and everything they started."""
        running, self._running = self._running, ()
        await asyncio.gather(*(connection.close() for connection in running))


MOST_SHOWN = 40
"""With more tools than this, none is offered with every call: agents search them."""
MOST_FOUND = 8
LONGEST_LINE = 200
"""Characters of a description in a search result. From then on the whole one is offered."""
FIND_SCHEMA = (
    '{"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}'
)


def _deferred(
    tools: Sequence[Tool[RawArguments]], starting: Callable[[], tuple[str, ...]]
) -> tuple[Tool[RawArguments], ...]:
    """Return the tools. If there are many, most are hidden until the tool that finds them shows
    them. `starting` names the servers whose tools are not known yet.
    """
    if len(tools) <= MOST_SHOWN:
        return tuple(tools)
    counts = Counter(tool.name.split("__")[1] for tool in tools)
    servers = ", ".join(f"{name} ({count})" for name, count in counts.items())
    find_tool = Tool(
        **vars(FIND_TOOLS),
        arguments=RawArguments,
        run=partial(_find, tools, starting),
        foreign=ForeignSpec(
            prompts.fill(prompts.load(f"tools/{FIND_TOOLS.name}"), servers=servers), FIND_SCHEMA
        ),
    )
    hidden = (
        replace(tool, foreign=replace(tool.foreign, deferred=True))
        for tool in tools
        if tool.foreign is not None
    )
    return (find_tool, *hidden)


async def _find(
    tools: Sequence[Tool[RawArguments]],
    starting: Callable[[], tuple[str, ...]],
    arguments: RawArguments,
    workspace: Workspace,
    say: Say,
) -> ToolResult:
    """Return the best matches with their descriptions. Whole words of a name count most."""
    del workspace, say
    names = ", ".join(starting())
    soon = f"\n(still starting, and not searched: the MCP servers {names})" if names else ""
    words = re.findall(r"[^\W_]+", str(arguments.values.get("query", "")).casefold())
    weights = {tool.name: _weight(tool, words) for tool in tools}
    best = sorted(
        (tool for tool in tools if weights[tool.name]), key=lambda tool: -weights[tool.name]
    )[:MOST_FOUND]
    if not best:
        return ToolResult(text=f"No tool fits. Try other words, or the name of a server.{soon}")
    return ToolResult(
        text="\n".join(_line(tool) for tool in best) + soon,
        found=tuple(tool.name for tool in best),
    )


def _weight(tool: Tool[RawArguments], words: Sequence[str]) -> int:
    name = tool.name.casefold()
    description = tool.foreign.description.casefold() if tool.foreign is not None else ""
    parts = set(re.findall(r"[^\W_]+", name))
    weight = 0
    for word in words:
        if word in parts:
            weight += 8
        elif word in name:
            weight += 4
        elif word in description:
            weight += 1
    return weight


def _line(tool: Tool[RawArguments]) -> str:
    about = " ".join(tool.foreign.description.split()) if tool.foreign is not None else ""
    return f"{tool.name}: {truncate(about, LONGEST_LINE)}"


CHECK_SECONDS = 30.0
"""Seconds that a server may take to start when the user waits for `check_servers`."""

ServerCheck = tuple[str, bool, str]
"""Name, whether it works, and its tools or the error, with the command that is run."""


def check_servers(
    declared: DeclaredServers,
    root: Path,
    logins: LoginStore | None = None,
    rules: ServerRules = NO_SANDBOX,
) -> Sequence[ServerCheck]:
    """Start each server and report its state. Imports nothing if there are none."""
    if not declared.servers:
        return ()
    hurried = tuple(
        server.model_copy(update={"patience": CHECK_SECONDS}) for server in declared.servers
    )
    servers = McpServers(DeclaredServers(hurried), root, logins=logins, rules=rules)
    return asyncio.run(_check_servers(servers))


async def _check_servers(servers: McpServers) -> Sequence[ServerCheck]:
    try:
        checks: list[ServerCheck] = []
        for name in servers.names:
            connection = await servers.connected(name)
            works = connection.state == "ready"
            if works:
                tools = [tool.name.rpartition("__")[2] for tool in connection.tools]
                result = f"tools: {', '.join(tools) or 'none'}"
            else:
                result = connection.why
            server = connection.server
            checks.append((name, works, f"{result} ({server.description}, from {server.source})"))
        return checks
    finally:
        await servers.close()
