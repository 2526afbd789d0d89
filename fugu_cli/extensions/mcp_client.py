"""A connected client of one MCP server: the SDK, imported when a server is started, and the process behind the pipes.

Below mcp_servers.py. The SDK is an extra; `missing_sdk` says so where it is not installed. What it logs goes nowhere.
A server's process gets one JSON message a line, both ways. The launcher that starts commands starts it too (without
confinement), so that it and everything it started end with the session, also when fugu is killed. Output that is no
message is not passed on; the last of it is kept for people.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import logging
import os
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli import __version__
from fugu_cli.errors import installing
from fugu_cli.extensions.mcp_settings import McpServer, RemoteServer, StdioServer
from fugu_cli.safety import process_cleanup
from fugu_cli.safety.paths import expand_home
from fugu_cli.safety.process_cleanup import LaunchedProcess, StandardStreams, start_process
from fugu_cli.system.processes import wait_for_exit
from fugu_cli.tools.git_repositories import search_path_outside
from fugu_cli.tools.result import plain_text

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp import Client
    from mcp.client._transport import Transport, TransportStreams
    from mcp.client.session import IncomingMessage
    from mcp.shared.message import SessionMessage
    from mcp_types import Tool

LARGEST = 32 * 1024 * 1024
"""Bytes of one message. A server that says more without an end is ended."""
KEPT = 2000
"""Bytes kept of the end of its error output."""
EXIT_SECONDS = 1.0
"""Seconds a server has to end by itself once its input is closed."""
PASSED = frozenset({"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "LANG", "LANGUAGE"})
"""Variables a server gets beside LC_* and those its entry names. No keys of providers are among them."""


class StdioTransport:
    """An async context manager, entered once: the streams of messages from and to the process."""

    def __init__(self, way: StdioServer, root: Path) -> None:
        self._way = way
        self._root = root
        self._mark = uuid.uuid4().hex
        self._running: LaunchedProcess | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False
        self._errors = b""
        self._noise = ""
        self._flooded = False
        self._code: int | None = None
        self.ended = asyncio.Event()
        """The process has closed its output: it will say nothing any more."""

    async def __aenter__(self) -> TransportStreams:
        """Start it. Raises OSError."""
        import anyio
        from mcp.shared.message import SessionMessage

        self._running = await _start(self._way, self._root, self._mark)
        to_session, from_process = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_process, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        self._streams = (to_session, from_process, to_process, from_session)
        for work in (self._read(to_session), self._write(from_session), self._listen()):
            self._tasks.append(asyncio.create_task(work))
        return from_process, to_process

    async def __aexit__(self, *exception: object) -> None:
        """End it: its input closed first, then asked, then ended, with all it has started."""
        assert self._running is not None
        process = self._running.process
        for stream in self._streams[1:3]:
            stream.close()
        try:
            await self._look()
            self._closing = True
            assert process.stdin is not None
            process.stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), EXIT_SECONDS)
        finally:
            self._closing = True
            try:
                await self._running.end(self._mark)
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                for one in self._streams:
                    one.close()
                await wait_for_exit(process)

    async def why(self) -> str:
        """How it ended, or what is odd about it, in words; "" where nothing is known."""
        if self._flooded:
            return f"it said more than {LARGEST >> 20} MB in one message"
        await self._look()
        code = self._code
        how = "" if code is None else f"it ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
        last = plain_text(self._errors.decode("utf-8", "replace")).strip().splitlines()
        said = f"its last words: {last[-1].strip()[:300]}" if last else ""
        noise = f"it wrote what is no message: {self._noise}" if self._noise and not said else ""
        return "; ".join(part for part in (how, said, noise) if part)

    async def _look(self) -> None:
        """Note the exit code of one that has ended by itself: not the one that ending it makes."""
        if self.ended.is_set() and not self._closing and self._running is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._running.process.wait(), EXIT_SECONDS)
            self._code = self._running.process.returncode

    async def _read(self, out: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """From the process to the session, until the process has nothing more to say."""
        import anyio

        assert self._running is not None and self._running.process.stdout is not None
        stream, kept, size = self._running.process.stdout, [b""], 0
        try:
            while chunk := await stream.read(1 << 16):
                first, *others = chunk.split(b"\n")
                kept.append(first)
                size += len(first)
                for line in others:
                    if not self._closing:
                        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                            await self._take(b"".join(kept), out)
                    kept, size = [line], len(line)
                if size > LARGEST:
                    self._flooded, kept, size = True, [b""], 0
                    break
        finally:
            self.ended.set()
            out.close()
        while await stream.read(1 << 16):  # so that it can come to its end
            pass

    async def _take(self, line: bytes, out: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        if not line.strip():
            return
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            self._noise = plain_text(line[:KEPT].decode("utf-8", "replace")).strip()[:200]
            return
        self._noise = ""
        await out.send(SessionMessage(message))

    async def _write(self, given: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """From the session to the process. One that does not take its input has ended, or is waited for in vain."""
        assert self._running is not None and self._running.process.stdin is not None
        pipe = self._running.process.stdin
        with contextlib.suppress(ConnectionError):
            async for message in given:
                pipe.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await pipe.drain()

    async def _listen(self) -> None:
        """Keep the end of what it complains of."""
        assert self._running is not None and self._running.process.stderr is not None
        while chunk := await self._running.process.stderr.read(1 << 16):
            self._errors = (self._errors + chunk)[-KEPT:]


def server_environment(given: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """What a server is started with: little, and what its entry names."""
    return {**{name: value for name, value in environ.items() if name in PASSED or name.startswith("LC_")}, **given}


async def _start(way: StdioServer, root: Path, mark: str) -> LaunchedProcess:
    """Start the process in `root`. Raises OSError."""
    surroundings = server_environment(way.env, {**os.environ, "PATH": search_path_outside(root)})
    words = [_program(way.command, root, surroundings["PATH"]), *way.args]
    pipe = asyncio.subprocess.PIPE
    variables = {**surroundings, process_cleanup.CALL_VARIABLE: mark}
    return await start_process(words, root, variables, StandardStreams(pipe, pipe, errors=pipe), None)


def _program(command: str, root: Path, path: str) -> str:
    """The file that is run. Raises OSError where there is none."""
    if "/" in command:
        found: str | None = str(root / expand_home(command))
    else:
        found = shutil.which(command, path=path)
    if found is None or not os.access(found, os.X_OK) or Path(found).is_dir():
        raise FileNotFoundError(2, f"there is no program {command!r} that could be run")
    return found


PAGES = 20
"""Pages of a server's list of tools that are read."""


class McpConnectionError(Exception):
    """A server that could not be connected to, in words."""


@dataclass(frozen=True)
class McpLink:
    """A living server. `pipes` are those of a process, None for a server elsewhere; `ended`: it says nothing more."""

    client: Client
    pipes: StdioTransport | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def why(self) -> str:
        """How it ended."""
        return (await self.pipes.why() if self.pipes is not None else "") or "the connection was closed"


def missing_sdk() -> str:
    """Why servers cannot be started here, "" where they can."""
    if all(importlib.util.find_spec(name) for name in ("mcp", "mcp_types")):
        return ""
    return f"the Python package `mcp` is not installed ({installing('mcp>=2')})"


def load_sdk() -> None:
    """Import it: about a second. Meant for a thread."""
    logging.getLogger("mcp").addHandler(logging.NullHandler())
    logging.getLogger("mcp").propagate = False
    importlib.import_module("mcp")


@asynccontextmanager
async def connect(server: McpServer, root: Path, changed: Callable[[], None]) -> AsyncIterator[McpLink]:
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
            if not is_refusal(error):
                raise McpConnectionError(await describe_error(error, server.patience, link)) from error
            link = _link(server, root, changed, "auto")
            try:
                await _greet(stack, server, link)
            except sdk_errors() as again:
                raise McpConnectionError(await describe_error(again, server.patience, link)) from again
        except sdk_errors() as error:
            raise McpConnectionError(await describe_error(error, server.patience, link)) from error
        yield link


async def _greet(stack: AsyncExitStack, server: McpServer, link: McpLink) -> None:
    async with asyncio.timeout(server.patience):
        await stack.enter_async_context(link.client)


def _link(server: McpServer, root: Path, changed: Callable[[], None], mode: str) -> McpLink:
    from mcp import Client
    from mcp_types import Implementation, ToolListChangedNotification

    async def heard(message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed()

    transport: Transport = (
        _remote_streams(server.way) if isinstance(server.way, RemoteServer) else StdioTransport(server.way, root)
    )
    client = Client(
        transport,
        mode=mode,
        read_timeout_seconds=server.patience,
        message_handler=heard,
        client_info=Implementation(name="fugu", version=__version__),
        cache=None,
    )
    return McpLink(client, transport, transport.ended) if isinstance(transport, StdioTransport) else McpLink(client)


@asynccontextmanager
async def _remote_streams(way: RemoteServer) -> AsyncIterator[TransportStreams]:
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


async def list_tools(link: McpLink) -> list[Tool]:
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


def sdk_errors() -> tuple[type[Exception], ...]:
    """What a server, its process or the way to it can make the SDK raise."""
    import anyio
    import httpx2
    from mcp import MCPError

    # RuntimeError and ValueError: a result that is not what the protocol or the tool's own schema says.
    wrong = (RuntimeError, ValueError)
    gone = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream)
    return (MCPError, OSError, httpx2.HTTPError, httpx2.InvalidURL, ExceptionGroup, *wrong, *gone)


def is_refusal(error: Exception) -> bool:
    """The server answered, and what it answered is that it did not do it."""
    from mcp import MCPError

    return isinstance(error, MCPError) and not is_closed(error) and not _is_timeout(error)


def is_closed(error: Exception) -> bool:
    """The connection is gone."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(error, MCPError) and (error.code, error.message) == (CONNECTION_CLOSED, "Connection closed")


def _is_timeout(error: Exception) -> bool:
    from mcp import MCPError
    from mcp_types import REQUEST_TIMEOUT

    return isinstance(error, TimeoutError) or (isinstance(error, MCPError) and error.code == REQUEST_TIMEOUT)


async def describe_error(error: Exception, limit: float, link: McpLink) -> str:
    """What happened, for people and agents: half a sentence. `limit`: the seconds there were."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if _is_timeout(error):
        said = f"it did not answer within {limit:g} s"
    elif link.ended.is_set() and link.pipes is not None:
        said = ""
    elif isinstance(error, OSError) and error.strerror:
        said = error.strerror
    else:
        said = (f"{error}".splitlines() or [type(error).__name__])[0][:300]
    known = await link.pipes.why() if link.pipes is not None else ""
    return "; ".join(part for part in (said, known) if part) or "it ended"
