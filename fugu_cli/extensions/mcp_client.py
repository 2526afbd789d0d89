"""A connected client of one MCP server: the SDK, which is imported when a server is started.

Below mcp_servers.py, above the two ways to a server (mcp_stdio.py, mcp_http.py). What the SDK logs
goes nowhere. Lists of tools and results are looked at before the SDK reads them: it refuses a whole
one for a part that is not as it should be.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fugu_cli import __version__
from fugu_cli.extensions.mcp_content import readable_blocks, usable_tools
from fugu_cli.extensions.mcp_http import HttpTransport
from fugu_cli.extensions.mcp_settings import ClientServer, McpServer, RemoteServer, StdioServer
from fugu_cli.extensions.mcp_stdio import StdioTransport

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream
    from mcp import Client
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp.client.auth import OAuthClientProvider
    from mcp.client.session import ElicitationFnT, IncomingMessage
    from mcp.shared.message import SessionMessage
    from mcp_types import Prompt, Resource, Tool

NOBODY_ASKED = "No redirect handler"
"""What the SDK says where a login is wanted and nobody is to be asked for one."""
BARE = {"_meta", "isError"}
"""Keys of the result of a call that returned nothing."""
PAGES = 20
"""Pages of a server's list of tools that are read."""


class McpConnectionError(Exception):
    """A server that could not be connected to, in words."""


Relay = Callable[[str, dict[str, Any]], Awaitable[object]]
"""Takes a message of the protocol to the client's server of that name; its answer, None where the
client is gone.
"""


class ClientTransport:
    """The way to a server inside of the client: an async context manager, entered once."""

    def __init__(self, name: str, relay: Relay | None) -> None:
        self._name = name
        self._relay = relay
        self._said: set[asyncio.Task[None]] = set()
        self.ended = asyncio.Event()
        """The client is gone, or has no such server."""

    async def __aenter__(self) -> TransportStreams:
        import anyio
        from mcp.shared.message import SessionMessage

        to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        self._streams = (to_session, from_server, to_server, from_session)
        self._working = asyncio.create_task(self._pass_on(from_session))
        return from_server, to_server

    async def __aexit__(self, *exception: object) -> None:
        tasks = (self._working, *self._said)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for one in self._streams:
            one.close()

    async def why(self) -> str:
        """Why nothing more comes; "" where nothing is known."""
        return "the client answers nothing for it" if self.ended.is_set() else ""

    async def _pass_on(self, from_session: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Each message by itself: a call that takes long holds up no other."""
        async for message in from_session:
            task = asyncio.create_task(self._exchange(message))
            self._said.add(task)
            task.add_done_callback(self._said.discard)

    async def _exchange(self, message: SessionMessage) -> None:
        import mcp_types
        from mcp.shared.message import SessionMessage

        frame = message.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
        answer = await self._relay(self._name, frame) if self._relay is not None else None
        if not isinstance(answer, dict):
            self.ended.set()
            self._streams[0].close()
        elif "id" in frame:
            read = mcp_types.jsonrpc_message_adapter.validate_python(answer, by_name=False)
            await self._streams[0].send(SessionMessage(read))


@dataclass(frozen=True)
class McpLink:
    """A living server. `left_out`: tools of its newest list that cannot be used, each with the
    reason.
    """

    client: Client
    transport: StdioTransport | HttpTransport | ClientTransport
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def ended(self) -> asyncio.Event:
        """It says nothing more."""
        return self.transport.ended

    async def why(self) -> str:
        """How it ended."""
        return await self.transport.why() or "the connection was closed"


@dataclass(frozen=True)
class ClientCallbacks:
    """What is called when a server says something of its own accord: its tools, prompts or
    resources are others now, or it asks the user something; and `relay`, with what is to be said to
    a server inside of the client."""

    changed: Callable[[], None]
    elicit: ElicitationFnT | None = None
    relay: Relay | None = None


def load_sdk() -> None:
    """Import it: about a second. Meant for a thread."""
    logging.getLogger("mcp").addHandler(logging.NullHandler())
    logging.getLogger("mcp").propagate = False
    for name in ("mcp", "jsonschema"):
        importlib.import_module(name)


@asynccontextmanager
async def connect(
    server: McpServer, root: Path, called: ClientCallbacks, auth: OAuthClientProvider | None = None
) -> AsyncIterator[McpLink]:
    """The server, started in `root` and greeted. `auth` puts a login into its requests.

    The handshake that all servers know comes first; a server that refuses it is asked in the newer
    way. Raises McpConnectionError.
    """
    from mcp import MCPError

    async with AsyncExitStack() as stack:
        link = _link(server, root, called, auth)
        try:
            await _greet(stack, server, link)
        except MCPError as error:
            if not is_refusal(error) or await link.transport.why():
                raise McpConnectionError(
                    await describe_error(error, server.patience, link)
                ) from error
            link = _link(server, root, called, auth, mode="auto")
            try:
                await _greet(stack, server, link)
            except sdk_errors() as again:
                raise McpConnectionError(
                    await describe_error(again, server.patience, link)
                ) from again
        except sdk_errors() as error:
            raise McpConnectionError(await describe_error(error, server.patience, link)) from error
        yield link


async def _greet(stack: AsyncExitStack, server: McpServer, link: McpLink) -> None:
    async with asyncio.timeout(server.patience):
        await stack.enter_async_context(link.client)


def _link(
    server: McpServer,
    root: Path,
    called: ClientCallbacks,
    auth: OAuthClientProvider | None,
    *,
    mode: str = "legacy",
) -> McpLink:
    import mcp_types
    from mcp import Client
    from mcp_types import Implementation

    news = (
        mcp_types.ToolListChangedNotification,
        mcp_types.PromptListChangedNotification,
        mcp_types.ResourceListChangedNotification,
    )

    async def heard(message: IncomingMessage) -> None:
        if isinstance(message, news):
            called.changed()

    way = server.way
    transport: StdioTransport | HttpTransport | ClientTransport
    match way:
        case StdioServer():
            transport = StdioTransport(way, root)
        case RemoteServer():
            transport = HttpTransport(way, auth)
        case ClientServer():
            transport = ClientTransport(server.name, called.relay)
    left_out: dict[str, str] = {}
    client = Client(
        _checked(transport, left_out),
        mode=mode,
        read_timeout_seconds=server.patience,
        message_handler=heard,
        elicitation_callback=called.elicit,
        client_info=Implementation(name="fugu", version=__version__),
        cache=None,
    )
    return McpLink(client, transport, left_out)


@asynccontextmanager
async def _checked(
    transport: StdioTransport | HttpTransport | ClientTransport, left_out: dict[str, str]
) -> AsyncIterator[TransportStreams]:
    async with transport as (received, sent):
        yield _CheckedStream(received, left_out), sent


class _CheckedStream:
    """A server's messages. Of a list of tools it passes on those that can be used, and keeps why
    the others cannot.
    """

    def __init__(
        self, received: ReadStream[SessionMessage | Exception], left_out: dict[str, str]
    ) -> None:
        self._received = received
        self._left_out = left_out

    async def receive(self) -> SessionMessage | Exception:
        message = await self._received.receive()
        result = (
            None if isinstance(message, Exception) else getattr(message.message, "result", None)
        )
        if isinstance(result, dict) and isinstance(listed := result.get("tools"), list):
            result["tools"], faults = usable_tools(listed)
            self._left_out.update(faults)
        # servers leave the content out where they have none, and TypeScript's SDK takes that for an
        # empty one
        if isinstance(result, dict) and (
            {"content", "structuredContent"} & result.keys() or result.keys() <= BARE
        ):
            result["content"] = readable_blocks(result.get("content"))
        return message

    async def aclose(self) -> None:
        await self._received.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        import anyio

        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()


async def list_tools(link: McpLink) -> list[Tool]:
    """The server's tools, the first pages of them. Raises one of `sdk_errors`."""
    link.left_out.clear()
    found: list[Tool] = []
    cursor: str | None = None
    for _ in range(PAGES):
        page = await link.client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


@dataclass
class McpListing:
    """What a server has beside tools. `templates`: it has resources that it does not list one by
    one.
    """

    prompts: list[Prompt] = field(default_factory=list)
    resources: list[Resource] = field(default_factory=list)
    templates: bool = False


async def list_more(link: McpLink) -> McpListing:
    """The first pages; nothing of what the server cannot list."""
    able, found = link.client.server_capabilities, McpListing()
    if able.prompts is not None:
        with suppress(*sdk_errors()):
            found.prompts = (await link.client.list_prompts()).prompts
    if able.resources is not None:
        with suppress(*sdk_errors()):
            found.resources = (await link.client.list_resources()).resources
            found.templates = bool((await link.client.list_resource_templates()).resource_templates)
    return found


def sdk_errors() -> tuple[type[Exception], ...]:
    """What a server, its process or the way to it can make the SDK raise."""
    import anyio
    import httpx2
    from mcp import MCPError
    from mcp.client.auth import OAuthFlowError

    # RuntimeError and ValueError: a result that is not what the protocol or the tool's own schema
    # says.
    wrong = (RuntimeError, ValueError)
    gone = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream)
    return (
        MCPError,
        OAuthFlowError,
        OSError,
        httpx2.HTTPError,
        httpx2.InvalidURL,
        ExceptionGroup,
        *wrong,
        *gone,
    )


def is_refusal(error: Exception) -> bool:
    """The server answered, and what it answered is that it did not do it."""
    from mcp import MCPError

    return isinstance(error, MCPError) and not is_closed(error) and not _is_timeout(error)


def is_closed(error: Exception) -> bool:
    """The connection is gone."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(error, MCPError) and (error.code, error.message) == (
        CONNECTION_CLOSED,
        "Connection closed",
    )


def _is_timeout(error: Exception) -> bool:
    from mcp import MCPError
    from mcp_types import REQUEST_TIMEOUT

    return isinstance(error, TimeoutError) or (
        isinstance(error, MCPError) and error.code == REQUEST_TIMEOUT
    )


async def describe_error(error: Exception, limit: float, link: McpLink) -> str:
    """What happened, for people and agents: half a sentence. `limit`: the seconds there were."""
    from mcp.client.auth import OAuthFlowError

    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    known = await link.transport.why()
    if isinstance(error, OAuthFlowError) and NOBODY_ASKED not in str(error):
        said, known = f"{error}".splitlines()[0][:300], ""
    elif _is_timeout(error):
        said = f"it did not answer within {limit:g} s"
    elif known and (link.ended.is_set() or isinstance(link.transport, HttpTransport)):
        said = ""
    elif link.ended.is_set() and isinstance(link.transport, StdioTransport):
        said = "it ended"
    elif isinstance(error, OSError) and error.strerror:
        said = error.strerror
    else:
        said = (f"{error}".splitlines() or [type(error).__name__])[0][:300]
    return "; ".join(part for part in (said, known) if part)
