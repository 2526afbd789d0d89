"""One MCP server of a session: started, restarted when it ends, its tools, resources and prompts.

Below mcp_servers.py. A task of its own holds the SDK's client for a server's whole life; calls come
from the turns' own tasks, and a call that was sent is never sent again. What does not work costs a
line that people read, never a session.
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
from fugu_cli.tools.mentions import resource_tool
from fugu_cli.tools.result import Say, ToolResult, truncate
from fugu_cli.tools.workspace import ForeignSpec, RawArguments, Tool, Workspace

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client.session import ClientRequestContext
    from mcp_types import ElicitRequestParams, ElicitResult
    from mcp_types import Tool as Listed

Tell = Callable[[str], None]
"""Takes a sentence for people."""
Elicit = Callable[[str, "ElicitRequestParams"], Awaitable["ElicitResult"]]
"""What the user answers to the question of the server of that name."""
Given = TypeVar("Given")

DESCRIPTION = 2000
"""Characters of a tool's description that agents are told."""
ConnectionState = Literal["starting", "ready", "failed"]
RESTART_PAUSES = (1.0, 5.0, 25.0)
"""Seconds before a server that had worked and ended is started again, the first, second and third
time.
"""
UNLIMITED = 1e6
"""Seconds for the SDK, whose clock does not stop while the user is asked something: ours limits
calls.
"""
READ_SCHEMA = '{"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]}'
UNKNOWN = "Whether it did what was asked is not known, and the call was not repeated."


@dataclass(frozen=True)
class ConnectionParts:
    """What the connections of a session share. `logins`: where logins at servers are kept; `relay`:
    the way to servers inside of the client."""

    root: Path
    tell: Tell
    elicit: Elicit
    logins: LoginStore | None = None
    relay: mcp_client.Relay | None = None


class CallClock:
    """Limits calls to so many `seconds`; it is stopped while the user is asked something."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._limits: set[asyncio.Timeout] = set()

    async def within_limit(self, call: Awaitable[Given]) -> Given:
        """The server's answer. Raises TimeoutError."""
        async with asyncio.timeout(self._seconds) as limit:
            self._limits.add(limit)
            try:
                return await call
            finally:
                self._limits.discard(limit)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Every call has all its time again afterwards."""
        for limit in self._limits:
            limit.reschedule(None)
        try:
            yield
        finally:
            again = asyncio.get_running_loop().time() + self._seconds
            for limit in self._limits:
                if not limit.expired():
                    limit.reschedule(again)


class McpConnection:
    """A server of a session. `tools` stay while it is started again, and go when that is given
    up.
    """

    def __init__(self, server: McpServer, loaded: Awaitable[None], parts: ConnectionParts) -> None:
        self.server = server
        self.state: ConnectionState = "starting"
        self.why = "it is being started"
        self.tools: tuple[Tool[RawArguments], ...] = ()
        self.prompts: tuple[PromptUsage, ...] = ()
        self.resources: tuple[str, ...] = ()
        self.settled = asyncio.Event()
        """It is known whether it works, and what it has."""
        self._root = parts.root
        self._tell = parts.tell
        self._elicit = parts.elicit
        self._logins = parts.logins
        self._relay = parts.relay
        self._told: set[str] = set()
        self._clock = CallClock(server.timeout)
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
            self.state, self.tools, self.prompts, self.resources = "failed", (), (), ()
            self.settled.set()

    async def _once(self) -> bool:
        """The server from its start to its end. Whether it had worked."""
        worked = False
        try:
            auth = await asyncio.to_thread(session_auth, self.server, self._logins)
            called = mcp_client.ClientCallbacks(self._news.set, self._ask, self._relay)
            async with mcp_client.connect(self.server, self._root, called, auth) as link:
                try:
                    self._offer(await mcp_client.list_tools(link), link)
                    worked, self._link, self.state = True, link, "ready"
                    await self._offer_more(link)
                    self.settled.set()
                    await self._attend(link)
                    self.why = await link.why()
                except mcp_client.sdk_errors() as error:
                    self.why = await mcp_client.describe_error(error, self.server.patience, link)
        except mcp_client.McpConnectionError as error:
            wanted = (
                f": `fugu mcp login {shlex.quote(self.server.name)}`"
                if str(error) == WANTS_LOGIN
                else ""
            )
            self.why = f"{error}{wanted}"
        except StorageError as error:
            self.why = f"{error}; {error.hint}"
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
                    self._offer(await mcp_client.list_tools(link), link)
                    await self._offer_more(link)
        finally:
            ended.cancel()

    def _offer(self, listed: list[Listed], link: mcp_client.McpLink) -> None:
        for tool, why in link.left_out.items():
            if tool not in self._told:
                self._told.add(tool)
                self._tell(
                    f"the tool {tool} of the MCP server {self.server.name} is left out: {why}"
                )
        known = {tool.name: tool for tool in listed}
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

    async def _offer_more(self, link: mcp_client.McpLink) -> None:
        """Its prompts and resources, and the tool that reads those where there are any."""
        listed = await mcp_client.list_more(link)
        self.prompts = tuple(PromptUsage.of(prompt) for prompt in listed.prompts)
        self.resources = tuple(one.uri for one in listed.resources)
        reader = Tool(
            name=resource_tool(self.server.name),
            effect="runs",
            arguments=RawArguments,
            run=self._read,
            foreign=ForeignSpec(
                f"Read a resource of the MCP server {self.server.name} by its uri.", READ_SCHEMA
            ),
        )
        if (self.resources or listed.templates) and all(
            tool.name != reader.name for tool in self.tools
        ):
            self.tools = (*self.tools, reader)

    async def _run(
        self, tool: str, arguments: RawArguments, workspace: Workspace, say: Say
    ) -> ToolResult:
        """Call a tool. Whatever goes wrong is the result."""
        del say
        given = dict(arguments.values)
        return await self._result(
            workspace,
            lambda client: client.call_tool(tool, given, UNLIMITED),
            lambda reply: result_of_reply(reply, workspace.whole_secrets),
        )

    async def _read(self, arguments: RawArguments, workspace: Workspace, say: Say) -> ToolResult:
        """Read a resource. Whatever goes wrong is the result."""
        del say
        uri = str(arguments.values.get("uri", ""))
        return await self._result(
            workspace,
            lambda client: client.read_resource(uri),
            lambda reply: result_of_contents(reply.contents, workspace.whole_secrets),
        )

    async def _result(
        self,
        workspace: Workspace,
        call: Callable[[Client], Awaitable[Given]],
        told: Callable[[Given], ToolResult],
    ) -> ToolResult:
        name, link = self.server.name, self._link
        if workspace.root != self._root:
            text = (
                f"The MCP server `{name}` works in {self._root} and not in this step's own copy: "
                f"it was not called."
            )
            return ToolResult(text=text, ok=False)
        if link is None or link.ended.is_set():
            again = (
                "It is being started again."
                if self.state != "failed"
                else "It is not started again."
            )
            return ToolResult(
                text=f"The MCP server `{name}` is not running: {self.why}. {again}", ok=False
            )
        try:
            return await asyncio.to_thread(told, await self._clock.within_limit(call(link.client)))
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
        """The server asks the user something."""
        del context
        with self._clock.stopped():
            return await self._elicit(self.server.name, params)

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> FilledPrompt:
        """A prompt filled in by the server. Raises UsageError."""
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
            refused = mcp_client.is_refusal(error)
            why = (
                f"{error}"
                if refused
                else await mcp_client.describe_error(error, self.server.timeout, link)
            )
            raise UsageError(
                f"the MCP server {self.server.name} gave no prompt {name!r}: {why}"
            ) from error
