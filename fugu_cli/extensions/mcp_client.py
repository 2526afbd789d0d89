"""A connected client of one MCP server.

Below mcp_servers.py, above the transports (mcp_stdio.py, mcp_http.py). The SDK is imported when a
server is started; its log is dropped. Lists of tools and results are cleaned before the SDK reads
them, because it refuses a whole list for one bad entry.
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
from fugu_cli.extensions.mcp_start import NO_SANDBOX, ServerRules
from fugu_cli.extensions.mcp_stdio import StdioTransport

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream
    from mcp import Client
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp.client.auth import OAuthClientProvider
    from mcp.client.session import ClientRequestContext, ElicitationFnT, IncomingMessage
    from mcp.shared.message import SessionMessage
    from mcp_types import Prompt, Resource, Tool

NOBODY_ASKED = "No redirect handler"
"""The SDK's error text for a server that wants a login in a session without a browser."""
BARE = {"_meta", "isError"}
"""The keys of an empty call result."""
PAGES = 20
"""The most pages of a tool list that are read."""


class McpConnectionError(Exception):
    """A connection failed. The message gives the reason."""


Relay = Callable[[str, dict[str, Any]], Awaitable[object]]
"""Send a protocol message to the named server inside the client, and return its answer.

Returns None if the client is gone.
"""


class ClientTransport:
    """The transport to a server inside the client: an async context manager, entered once."""

    def __init__(self, name: str, relay: Relay | None) -> None:
        self._name = name
        self._relay = relay
        self._exchanges: set[asyncio.Task[None]] = set()
        self.ended = asyncio.Event()
        """Set when the client is gone or has no such server."""

    async def __aenter__(self) -> TransportStreams:
        import anyio
        from mcp.shared.message import SessionMessage

        to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        self._streams = (to_session, from_server, to_server, from_session)
        self._forwarding = asyncio.create_task(self._forward(from_session))
        return from_server, to_server

    async def __aexit__(self, *exception: object) -> None:
        tasks = (self._forwarding, *self._exchanges)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for stream in self._streams:
            stream.close()

    async def why(self) -> str:
        """Return why the transport ended, or "" if that is unknown."""
        return "the client answers nothing for it" if self.ended.is_set() else ""

    async def _forward(self, from_session: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Handle each message in its own task, so that a slow call delays no other."""
        async for message in from_session:
            task = asyncio.create_task(self._exchange(message))
            self._exchanges.add(task)
            task.add_done_callback(self._exchanges.discard)

    async def _exchange(self, message: SessionMessage) -> None:
        import mcp_types
        from mcp.shared.message import SessionMessage

        frame = message.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
        answer = await self._relay(self._name, frame) if self._relay is not None else None
        if not isinstance(answer, dict):
            self.ended.set()
            self._streams[0].close()
        elif "id" in frame:
            reply = mcp_types.jsonrpc_message_adapter.validate_python(answer, by_name=False)
            await self._streams[0].send(SessionMessage(reply))


@dataclass(frozen=True)
class McpLink:
    """A running server. `left_out` maps each unusable tool of its newest list to the reason."""

    client: Client
    transport: StdioTransport | HttpTransport | ClientTransport
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def ended(self) -> asyncio.Event:
        """Set when the server sends nothing more."""
        return self.transport.ended

    async def why(self) -> str:
        """Return how the server ended."""
        return await self.transport.why() or "the connection was closed"


@dataclass(frozen=True)
class ClientCallbacks:
    """Functions called when a server acts on its own.

    `changed`: its tools, prompts or resources changed. `elicit`: it asks the user something.
    `relay`: it is inside the client, and a message must be sent there.
    """

    changed: Callable[[], None]
    elicit: ElicitationFnT | None = None
    relay: Relay | None = None


def load_sdk() -> None:
    """Import the SDK, which takes about a second. Meant for a thread."""
    logging.getLogger("mcp").addHandler(logging.NullHandler())
    logging.getLogger("mcp").propagate = False
    for name in ("mcp", "jsonschema"):
        importlib.import_module(name)


@asynccontextmanager
async def connect(
    server: McpServer,
    root: Path,
    callbacks: ClientCallbacks,
    auth: OAuthClientProvider | None = None,
    rules: ServerRules = NO_SANDBOX,
) -> AsyncIterator[McpLink]:
    """Start the server of the repository `root`, connect, and yield the link. `auth` adds a login to
    its requests; `rules` say how a program is started.

    The handshake that all servers know is tried first, then the newer one. Raises
    McpConnectionError.
    """
    from mcp import MCPError

    async with AsyncExitStack() as stack:
        link = _new_link(server, root, callbacks, auth, rules)
        try:
            await _greet(stack, server, link)
        except MCPError as error:
            if not is_refusal(error) or await link.transport.why():
                raise McpConnectionError(
                    await describe_error(error, server.patience, link)
                ) from error
            link = _new_link(server, root, callbacks, auth, rules, mode="auto")
            try:
                await _greet(stack, server, link)
            except sdk_errors() as second_error:
                raise McpConnectionError(
                    await describe_error(second_error, server.patience, link)
                ) from second_error
        except sdk_errors() as error:
            raise McpConnectionError(await describe_error(error, server.patience, link)) from error
        yield link


async def _greet(stack: AsyncExitStack, server: McpServer, link: McpLink) -> None:
    async with asyncio.timeout(server.patience):
        await stack.enter_async_context(link.client)


def _new_link(
    server: McpServer,
    root: Path,
    callbacks: ClientCallbacks,
    auth: OAuthClientProvider | None,
    rules: ServerRules,
    *,
    mode: str = "legacy",
) -> McpLink:
    import mcp_types
    from mcp import Client
    from mcp_types import Implementation
    from pydantic import FileUrl

    list_changes = (
        mcp_types.ToolListChangedNotification,
        mcp_types.PromptListChangedNotification,
        mcp_types.ResourceListChangedNotification,
    )

    async def handle_message(message: IncomingMessage) -> None:
        if isinstance(message, list_changes):
            callbacks.changed()

    async def list_roots(context: ClientRequestContext) -> mcp_types.ListRootsResult:
        del context
        repository = mcp_types.Root(uri=FileUrl(root.as_uri()), name=root.name)
        return mcp_types.ListRootsResult(roots=[repository])

    target = server.way
    transport: StdioTransport | HttpTransport | ClientTransport
    match target:
        case StdioServer():
            transport = StdioTransport(server.name, target, root, rules)
        case RemoteServer():
            transport = HttpTransport(target, auth)
        case ClientServer():
            transport = ClientTransport(server.name, callbacks.relay)
    left_out: dict[str, str] = {}
    client = Client(
        _checked_streams(transport, left_out),
        mode=mode,
        read_timeout_seconds=server.patience,
        message_handler=handle_message,
        elicitation_callback=callbacks.elicit,
        list_roots_callback=list_roots,
        client_info=Implementation(name="fugu", version=__version__),
        cache=None,
    )
    return McpLink(client, transport, left_out)


@asynccontextmanager
async def _checked_streams(
    transport: StdioTransport | HttpTransport | ClientTransport, left_out: dict[str, str]
) -> AsyncIterator[TransportStreams]:
    async with transport as (received, sent):
        yield _CheckedStream(received, left_out), sent


class _CheckedStream:
    """Messages of a server, with unusable tools removed and recorded in `left_out`."""

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
    """Return the server's tools, up to PAGES pages. Raises one of `sdk_errors`."""
    link.left_out.clear()
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(PAGES):
        page = await link.client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools


@dataclass
class McpListing:
    """The prompts and resources of a server. `templates`: it also has resources that it does not
    list.
    """

    prompts: list[Prompt] = field(default_factory=list)
    resources: list[Resource] = field(default_factory=list)
    templates: bool = False


async def list_more(link: McpLink) -> McpListing:
    """Return the first pages of prompts and resources. Errors of the server count as empty lists."""
    capabilities = link.client.server_capabilities
    listing = McpListing()
    if capabilities.prompts is not None:
        with suppress(*sdk_errors()):
            listing.prompts = (await link.client.list_prompts()).prompts
    if capabilities.resources is not None:
        with suppress(*sdk_errors()):
            listing.resources = (await link.client.list_resources()).resources
            templates = (await link.client.list_resource_templates()).resource_templates
            listing.templates = bool(templates)
    return listing


def sdk_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that a server, its process or its connection can make the SDK raise."""
    import anyio
    import httpx2
    from mcp import MCPError
    from mcp.client.auth import OAuthFlowError

    return (
        MCPError,
        OAuthFlowError,
        OSError,
        httpx2.HTTPError,
        httpx2.InvalidURL,
        ExceptionGroup,
        # a result that violates the protocol or the tool's own schema
        RuntimeError,
        ValueError,
        # a closed connection
        anyio.ClosedResourceError,
        anyio.BrokenResourceError,
        anyio.EndOfStream,
    )


def is_refusal(error: Exception) -> bool:
    """Return whether the error is the answer of a server that refuses a request."""
    from mcp import MCPError

    return isinstance(error, MCPError) and not is_closed(error) and not _is_timeout(error)


def is_closed(error: Exception) -> bool:
    """Return whether the connection is gone."""
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
    """Describe the error in half a sentence. `limit` is the timeout in seconds."""
    from mcp.client.auth import OAuthFlowError

    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    cause = await link.transport.why()
    if isinstance(error, OAuthFlowError) and NOBODY_ASKED not in str(error):
        return str(error).splitlines()[0][:300]
    if _is_timeout(error):
        summary = f"it did not answer within {limit:g} s"
    elif cause and (link.ended.is_set() or isinstance(link.transport, HttpTransport)):
        summary = ""
    elif link.ended.is_set() and isinstance(link.transport, StdioTransport):
        summary = "it ended"
    elif isinstance(error, OSError) and error.strerror:
        summary = error.strerror
    else:
        summary = (str(error).splitlines() or [type(error).__name__])[0][:300]
    return "; ".join(part for part in (summary, cause) if part)
