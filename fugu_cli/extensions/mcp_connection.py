"""One MCP server of a session: its process, restarts, tools, resources and prompts.

Below mcp_servers.py. One task holds the SDK's client for the server's whole life; calls come from
the turns' tasks, and a call that was sent is never sent again. A fault is shown to the user in one
line and never ends a session.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from fugu_cli.errors import StorageError, UsageError
from fugu_cli.extensions import mcp_client
from fugu_cli.extensions.mcp_content import (
    FilledPrompt,
    PromptUsage,
    arguments_schema,
    prompt_text,
    result_of_contents,
    result_of_reply,
    tool_names,
)
from fugu_cli.extensions.mcp_http import WANTS_LOGIN
from fugu_cli.extensions.mcp_login import LoginStore, session_auth
from fugu_cli.extensions.mcp_settings import McpServer
from fugu_cli.extensions.mcp_start import NO_SANDBOX, ServerRules
from fugu_cli.tools.mentions import resource_tool
from fugu_cli.tools.result import Say, ToolResult, truncate
from fugu_cli.tools.workspace import ForeignSpec, RawArguments, Tool, Workspace

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client.session import ClientRequestContext
    from mcp_types import ElicitRequestParams, ElicitResult
    from mcp_types import Tool as Listed

Tell = Callable[[str], None]
"""Show the user a sentence."""
Elicit = Callable[[str, "ElicitRequestParams"], Awaitable["ElicitResult"]]
"""Ask the user a question of the named server."""
Result = TypeVar("Result")

DESCRIPTION = 2000
"""The most characters of a tool's description that agents see."""
ConnectionState = Literal["starting", "ready", "failed"]
RESTART_PAUSES = (1.0, 5.0, 25.0)
"""Seconds before each restart of a server that had worked and ended."""
UNLIMITED = 1e6
"""The SDK's timeout in seconds. CallClock limits calls, since it stops while the user is asked."""
READ_SCHEMA = '{"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]}'
UNKNOWN = "Whether it did what was asked is not known, and the call was not repeated."


@dataclass(frozen=True)
class ConnectionParts:
    """Everything that the connections of a session share.

    `logins` keeps logins at servers. `relay` reaches servers inside the client. `rules` say how
    programs are started.
    """

    root: Path
    tell: Tell
    elicit: Elicit
    logins: LoginStore | None = None
    relay: mcp_client.Relay | None = None
    rules: ServerRules = NO_SANDBOX


class CallClock:
    """Limits calls to `seconds`. It is stopped while the user is asked something."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._limits: set[asyncio.Timeout] = set()

    async def within_limit(self, call: Awaitable[Result]) -> Result:
        """Return the server's answer. Raises TimeoutError."""
        async with asyncio.timeout(self._seconds) as limit:
            self._limits.add(limit)
            try:
                return await call
            finally:
                self._limits.discard(limit)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the clock. Afterwards every call has its full time again."""
        for limit in self._limits:
            limit.reschedule(None)
        try:
            yield
        finally:
            deadline = asyncio.get_running_loop().time() + self._seconds
            for limit in self._limits:
                if not limit.expired():
                    limit.reschedule(deadline)


def _only_reads(tool: Listed) -> bool:
    """Return whether the server says that a tool only reads."""
    return tool.annotations is not None and tool.annotations.read_only_hint is True


class McpConnection:
    """A server of a session. Its tools stay during a restart and go when restarts are given up."""

    def __init__(self, server: McpServer, loaded: Awaitable[None], parts: ConnectionParts) -> None:
        self.server = server
        self.state: ConnectionState = "starting"
        self.why = "it is being started"
        self.tools: tuple[Tool[RawArguments], ...] = ()
        self.prompts: tuple[PromptUsage, ...] = ()
        self.resources: tuple[str, ...] = ()
        self.settled = asyncio.Event()
        """Set when the server works or has failed, and its tools are known."""
        self._root = parts.root
        self._tell = parts.tell
        self._elicit = parts.elicit
        self._logins = parts.logins
        self._relay = parts.relay
        self._rules = parts.rules
        self._reported: set[str] = set()
        self._clock = CallClock(server.timeout)
        self._link: mcp_client.McpLink | None = None
        self._list_changed = asyncio.Event()
        self._task = asyncio.create_task(self._keep_running(loaded))

    async def close(self) -> None:
        """End the server and everything it started."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _keep_running(self, loaded: Awaitable[None]) -> None:
        try:
            await loaded
            for pause in (*RESTART_PAUSES, None):
                worked = await self._run_server()
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
            self.state, self.tools, self.prompts, self.resources = "failed", (), (), ()
            self.settled.set()

    async def _run_server(self) -> bool:
        """Run the server from start to end. Return whether it had worked."""
        worked = False
        try:
            auth = await asyncio.to_thread(session_auth, self.server, self._logins)
            callbacks = mcp_client.ClientCallbacks(self._list_changed.set, self._ask, self._relay)
            async with mcp_client.connect(
                self.server, self._root, callbacks, auth, self._rules
            ) as link:
                try:
                    self._offer(await mcp_client.list_tools(link), link)
                    worked, self._link, self.state = True, link, "ready"
                    await self._offer_more(link)
                    self.settled.set()
                    await self._watch(link)
                    self.why = await link.why()
                except mcp_client.sdk_errors() as error:
                    self.why = await mcp_client.describe_error(error, self.server.patience, link)
        except mcp_client.McpConnectionError as error:
            self.why = str(error)
            if self.why == WANTS_LOGIN:
                self.why += f": `fugu mcp login {shlex.quote(self.server.name)}`"
        except StorageError as error:
            self.why = f"{error}; {error.hint}"
        except mcp_client.sdk_errors() as error:  # while it was being left
            self.why = f"{error}"
        finally:
            self._link = None
        return worked

    async def _watch(self, link: mcp_client.McpLink) -> None:
        """Wait until the server ends, and list its tools again each time it reports a change of
        them.
        """
        ended = asyncio.create_task(link.ended.wait())
        try:
            while not link.ended.is_set():
                changed = asyncio.create_task(self._list_changed.wait())
                try:
                    await asyncio.wait((ended, changed), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
                if self._list_changed.is_set() and not link.ended.is_set():
                    self._list_changed.clear()
                    self._offer(await mcp_client.list_tools(link), link)
                    await self._offer_more(link)
        finally:
            ended.cancel()

    def _offer(self, listed: list[Listed], link: mcp_client.McpLink) -> None:
        for tool, why in link.left_out.items():
            if tool not in self._reported:
                self._reported.add(tool)
                self._tell(
                    f"the tool {tool} of the MCP server {self.server.name} is left out: {why}"
                )
        tools_by_name = {tool.name: tool for tool in listed}
        names = tool_names(self.server.name, tools_by_name)
        self.tools = tuple(
            Tool(
                name=name,
                effect="runs",
                leaves_machine=True,
                roles="all" if _only_reads(tools_by_name[server_name]) else "worker",
                arguments=RawArguments,
                run=partial(self._call_tool, server_name),
                foreign=ForeignSpec(
                    description=truncate(
                        tools_by_name[server_name].description or server_name, DESCRIPTION
                    ),
                    schema=arguments_schema(tools_by_name[server_name].input_schema),
                ),
            )
            for name, server_name in names.items()
        )

    async def _offer_more(self, link: mcp_client.McpLink) -> None:
        """Offer its prompts and resources, with a tool that reads resources if there are any."""
        listed = await mcp_client.list_more(link)
        self.prompts = tuple(PromptUsage.of(prompt) for prompt in listed.prompts)
        self.resources = tuple(resource.uri for resource in listed.resources)
        reader = Tool(
            name=resource_tool(self.server.name),
            effect="runs",
            leaves_machine=True,
            roles="all",
            arguments=RawArguments,
            run=self._read_resource,
            foreign=ForeignSpec(
                f"Read a resource of the MCP server {self.server.name} by its uri.", READ_SCHEMA
            ),
        )
        if (self.resources or listed.templates) and all(
            tool.name != reader.name for tool in self.tools
        ):
            self.tools = (*self.tools, reader)

    async def _call_tool(
        self, tool: str, arguments: RawArguments, workspace: Workspace, say: Say
    ) -> ToolResult:
        """Call a tool. An error is the result."""
        del say
        return await self._perform(
            workspace,
            lambda client: client.call_tool(tool, dict(arguments.values), UNLIMITED),
            lambda reply: result_of_reply(reply, workspace.whole_secrets),
        )

    async def _read_resource(
        self, arguments: RawArguments, workspace: Workspace, say: Say
    ) -> ToolResult:
        """Read a resource. An error is the result."""
        del say
        uri = str(arguments.values.get("uri", ""))
        return await self._perform(
            workspace,
            lambda client: client.read_resource(uri),
            lambda reply: result_of_contents(reply.contents, workspace.whole_secrets),
        )

    async def _perform(
        self,
        workspace: Workspace,
        call: Callable[[Client], Awaitable[Result]],
        to_result: Callable[[Result], ToolResult],
    ) -> ToolResult:
        """Run one call and convert its answer with `to_result`."""
        name, link = self.server.name, self._link
        if workspace.root != self._root:
            text = (
                f"The MCP server `{name}` works in {self._root} and not in this step's own copy: "
                f"it was not called."
            )
            return ToolResult(text=text, ok=False)
        if link is None or link.ended.is_set():
            outlook = "It is being started again."
            if self.state == "failed":
                outlook = "It is not started again."
            return ToolResult(
                text=f"The MCP server `{name}` is not running: {self.why}. {outlook}", ok=False
            )
        try:
            return await asyncio.to_thread(
                to_result, await self._clock.within_limit(call(link.client))
            )
        except mcp_client.sdk_errors() as error:
            if mcp_client.is_refusal(error):
                return ToolResult(
                    text=truncate(f"The MCP server `{name}` refused the call: {error}"), ok=False
                )
            if mcp_client.is_closed(error):
                link.ended.set()
            why = await mcp_client.describe_error(error, self.server.timeout, link)
            return ToolResult(
                text=truncate(f"The call of the MCP server `{name}` failed: {why}. {UNKNOWN}"),
                ok=False,
            )

    async def _ask(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult:
        """Ask the user for the server, with the calls' clocks stopped."""
        del context
        with self._clock.stopped():
            return await self._elicit(self.server.name, params)

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> FilledPrompt:
        """Return a prompt filled in by the server. Raises UsageError."""
        link = self._link
        if link is None or link.ended.is_set():
            raise UsageError(
                f"the MCP server {self.server.name} is not running: {self.why}",
                hint="ask without it",
            )
        try:
            return prompt_text(
                await self._clock.within_limit(link.client.get_prompt(name, dict(arguments)))
            )
        except mcp_client.sdk_errors() as error:
            if mcp_client.is_refusal(error):
                why = str(error)
            else:
                why = await mcp_client.describe_error(error, self.server.timeout, link)
            raise UsageError(
                f"the MCP server {self.server.name} gave no prompt {name!r}: {why}"
            ) from error
