"""The transport to a server's process: one JSON message a line, in both directions.

Below mcp_client.py; mcp_start.py says how the process is started. The launcher of commands starts
it, so that it ends with the session even when fugu is killed. Output that is not a message is
dropped; the end of it is kept for the user.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli.extensions.mcp_settings import StdioServer
from fugu_cli.extensions.mcp_start import ServerRules, ServerStart, plan_start
from fugu_cli.safety import process_cleanup
from fugu_cli.safety.process_cleanup import LaunchedProcess, StandardStreams, start_process
from fugu_cli.system.processes import wait_for_exit
from fugu_cli.tools.result import plain_text

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

LARGEST = 32 * 1024 * 1024
"""The most bytes of one message. A server that sends a longer one is ended."""
KEPT = 2000
"""Bytes kept from the end of standard error."""
EXIT_SECONDS = 1.0
"""Seconds a server has to end by itself once its input is closed."""


class StdioTransport:
    """An async context manager, entered once. Yields the streams of messages from and to the
    process.
    """

    def __init__(self, name: str, settings: StdioServer, root: Path, rules: ServerRules) -> None:
        self._name = name
        self._settings = settings
        self._root = root
        self._rules = rules
        self._start: ServerStart | None = None
        self._call_mark = uuid.uuid4().hex
        self._running: LaunchedProcess | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False
        self._errors = b""
        self._noise = ""
        self._flooded = False
        self._code: int | None = None
        self.ended = asyncio.Event()
        """Set when the process has closed its output."""

    async def __aenter__(self) -> TransportStreams:
        """Start the process. Raises OSError."""
        import anyio
        from mcp.shared.message import SessionMessage

        start = await asyncio.to_thread(
            plan_start, self._name, self._settings, self._root, self._rules
        )
        self._start = start
        pipe = asyncio.subprocess.PIPE
        variables = {**start.environment, process_cleanup.CALL_VARIABLE: self._call_mark}
        self._running = await start_process(
            start.words,
            start.folder,
            variables,
            StandardStreams(pipe, pipe, errors=pipe),
            start.launch,
        )
        to_session, from_process = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_process, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        self._streams = (to_session, from_process, to_process, from_session)
        for work in (self._read(to_session), self._write(from_session), self._read_errors()):
            self._tasks.append(asyncio.create_task(work))
        return from_process, to_process

    async def __aexit__(self, *exception: object) -> None:
        """Close the server's input, give the server time to end, then end it and everything it
        started.
        """
        assert self._running is not None
        process = self._running.process
        for stream in self._streams[1:3]:
            stream.close()
        try:
            await self._note_exit_code()
            self._closing = True
            assert process.stdin is not None
            process.stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), EXIT_SECONDS)
        finally:
            self._closing = True
            try:
                await self._running.end(self._call_mark)
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                for stream in self._streams:
                    stream.close()
                await wait_for_exit(process)

    async def why(self) -> str:
        """Describe how the process ended or what is odd about its output, "" if nothing is known."""
        if self._flooded:
            return f"it said more than {LARGEST >> 20} MB in one message"
        await self._note_exit_code()
        parts: list[str] = []
        if self._code is not None and self._code < 0:
            parts.append(f"it ended by signal {-self._code}")
        elif self._code is not None:
            parts.append(f"it ended with exit code {self._code}")
        errors = plain_text(self._errors.decode("utf-8", "replace")).strip().splitlines()
        if errors:
            parts.append(f"its last words: {errors[-1].strip()[:300]}")
        elif self._noise:
            parts.append(f"it wrote what is no message: {self._noise}")
        launch = self._start.launch if self._start is not None else None
        if parts and launch is not None:
            network = "with" if launch.settings.network else "without"
            parts.append(f"it ran in the sandbox, {network} network (`fugu help mcp`)")
        return "; ".join(parts)

    async def _note_exit_code(self) -> None:
        """Note the exit code of a process that ended by itself. The code of a process that fugu
        ends is not noted.
        """
        if self.ended.is_set() and not self._closing and self._running is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._running.process.wait(), EXIT_SECONDS)
            self._code = self._running.process.returncode

    async def _read(self, to_session: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Pass messages from the process to the session until it closes its output."""
        import anyio

        assert self._running is not None and self._running.process.stdout is not None
        stream, pieces, size = self._running.process.stdout, [b""], 0
        try:
            while chunk := await stream.read(1 << 16):
                first, *lines = chunk.split(b"\n")
                pieces.append(first)
                size += len(first)
                for line in lines:
                    if not self._closing:
                        with contextlib.suppress(
                            anyio.BrokenResourceError, anyio.ClosedResourceError
                        ):
                            await self._pass_line(b"".join(pieces), to_session)
                    pieces, size = [line], len(line)
                if size > LARGEST:
                    self._flooded, pieces, size = True, [b""], 0
                    break
        finally:
            self.ended.set()
            to_session.close()
        while await stream.read(1 << 16):  # so that it can come to its end
            pass

    async def _pass_line(
        self, line: bytes, to_session: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        if not line.strip():
            return
        try:
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                # half a surrogate pair: the server cut a text in the middle of an emoji
                text = json.dumps(json.loads(line), ensure_ascii=False)
                message = jsonrpc_message_adapter.validate_json(
                    text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"),
                    by_name=False,
                )
        except (ValueError, RecursionError):
            self._noise = plain_text(line[:KEPT].decode("utf-8", "replace")).strip()[:200]
            return
        self._noise = ""
        await to_session.send(SessionMessage(message))

    async def _write(self, from_session: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Pass messages from the session to the process. Stops when the process closes its input."""
        assert self._running is not None and self._running.process.stdin is not None
        pipe = self._running.process.stdin
        with contextlib.suppress(ConnectionError):
            async for message in from_session:
                pipe.write(
                    message.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
                    + b"\n"
                )
                await pipe.drain()

    async def _read_errors(self) -> None:
        """Keep the end of standard error."""
        assert self._running is not None and self._running.process.stderr is not None
        while chunk := await self._running.process.stderr.read(1 << 16):
            self._errors = (self._errors + chunk)[-KEPT:]
