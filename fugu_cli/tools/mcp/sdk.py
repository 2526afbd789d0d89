"""The MCP SDK, imported when a server is started: a client that is connected, and what can go wrong, in words.

Under connection.py. The SDK is an extra; `lacking` says so where it is not installed. What it logs goes nowhere.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli import __version__
from fugu_cli.errors import installing
from fugu_cli.tools.mcp.declared import Remote, Server
from fugu_cli.tools.mcp.pipes import Pipes

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import Transport, TransportStreams
    from mcp.client.session import IncomingMessage
    from mcp_types import Tool

PAGES = 20
"""Pages of a server's list of tools that are read."""


class Unanswered(Exception):
    """A server that could not be connected to, in words."""


@dataclass(frozen=True)
class Link:
    """A living server. `pipes` are those of a process, None for a server elsewhere; `ended`: it says nothing more."""

    client: Client
    pipes: Pipes | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def why(self) -> str:
        """How it ended."""
        return (await self.pipes.why() if self.pipes is not None else "") or "the connection was closed"


def lacking() -> str:
    """Why servers cannot be started here, "" where they can."""
    if all(importlib.util.find_spec(name) for name in ("mcp", "mcp_types")):
        return ""
    return f"the Python package `mcp` is not installed ({installing('mcp>=2')})"


def load() -> None:
    """Import it: about a second. Meant for a thread."""
    logging.getLogger("mcp").addHandler(logging.NullHandler())
    logging.getLogger("mcp").propagate = False
    importlib.import_module("mcp")


@asynccontextmanager
async def connected(server: Server, root: Path, changed: Callable[[], None]) -> AsyncIterator[Link]:
    """The server, started in `root` and greeted. `changed` is called when it says that its tools are others now.

    The handshake that all servers know comes first; a server that refuses it is asked in the newer way. Raises
    Unanswered.
    """
    from mcp import MCPError

    async with AsyncExitStack() as stack:
        link = _link(server, root, changed, "legacy")
        try:
            await _greet(stack, server, link)
        except MCPError as error:
            if not refused(error):
                raise Unanswered(await words(error, server.patience, link)) from error
            link = _link(server, root, changed, "auto")
            try:
                await _greet(stack, server, link)
            except failures() as again:
                raise Unanswered(await words(again, server.patience, link)) from again
        except failures() as error:
            raise Unanswered(await words(error, server.patience, link)) from error
        yield link


async def _greet(stack: AsyncExitStack, server: Server, link: Link) -> None:
    async with asyncio.timeout(server.patience):
        await stack.enter_async_context(link.client)


def _link(server: Server, root: Path, changed: Callable[[], None], mode: str) -> Link:
    from mcp import Client
    from mcp_types import Implementation, ToolListChangedNotification

    async def heard(message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed()

    transport: Transport = _elsewhere(server.way) if isinstance(server.way, Remote) else Pipes(server.way, root)
    client = Client(
        transport,
        mode=mode,
        read_timeout_seconds=server.patience,
        message_handler=heard,
        client_info=Implementation(name="fugu", version=__version__),
        cache=None,
    )
    return Link(client, transport, transport.ended) if isinstance(transport, Pipes) else Link(client)


@asynccontextmanager
async def _elsewhere(way: Remote) -> AsyncIterator[TransportStreams]:
    import httpx2
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    if way.kind == "sse":
        async with sse_client(way.url, headers=dict(way.headers)) as streams:
            yield streams
        return
    times = httpx2.Timeout(30.0, read=300.0)
    async with (
        httpx2.AsyncClient(headers=dict(way.headers), timeout=times) as client,
        streamable_http_client(way.url, http_client=client) as streams,
    ):
        yield streams


async def listed(link: Link) -> list[Tool]:
    """The server's tools, the first pages of them. Raises one of `failures`."""
    found: list[Tool] = []
    cursor: str | None = None
    for _ in range(PAGES):
        page = await link.client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


def failures() -> tuple[type[Exception], ...]:
    """What a server, its process or the way to it can make the SDK raise."""
    import anyio
    import httpx2
    from mcp import MCPError

    # RuntimeError and ValueError: a result that is not what the protocol or the tool's own schema says.
    wrong = (RuntimeError, ValueError)
    gone = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream)
    return (MCPError, OSError, httpx2.HTTPError, httpx2.InvalidURL, ExceptionGroup, *wrong, *gone)


def refused(error: Exception) -> bool:
    """The server answered, and what it answered is that it did not do it."""
    from mcp import MCPError

    return isinstance(error, MCPError) and not closed(error) and not _late(error)


def closed(error: Exception) -> bool:
    """The connection is gone."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(error, MCPError) and (error.code, error.message) == (CONNECTION_CLOSED, "Connection closed")


def _late(error: Exception) -> bool:
    from mcp import MCPError
    from mcp_types import REQUEST_TIMEOUT

    return isinstance(error, TimeoutError) or (isinstance(error, MCPError) and error.code == REQUEST_TIMEOUT)


async def words(error: Exception, limit: float, link: Link) -> str:
    """What happened, for people and agents: half a sentence. `limit`: the seconds there were."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if _late(error):
        said = f"it did not answer within {limit:g} s"
    elif link.ended.is_set() and link.pipes is not None:
        said = ""
    elif isinstance(error, OSError) and error.strerror:
        said = error.strerror
    else:
        said = (f"{error}".splitlines() or [type(error).__name__])[0][:300]
    known = await link.pipes.why() if link.pipes is not None else ""
    return "; ".join(part for part in (said, known) if part) or "it ended"
