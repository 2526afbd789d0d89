"""A server's process behind its pipes: one JSON message a line, both ways.

Below mcp_client.py. The launcher that starts commands starts it too (without confinement), so that
it and everything it started end with the session, also when fugu is killed. Output that is no
message is not passed on; the last of it is kept for people.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli.extensions.mcp_settings import StdioServer
from fugu_cli.safety import process_cleanup
from fugu_cli.safety.paths import expand_home, search_path_outside
from fugu_cli.safety.process_cleanup import LaunchedProcess, StandardStreams, start_process
from fugu_cli.system.processes import wait_for_exit
from fugu_cli.tools.result import plain_text

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

LARGEST = 32 * 1024 * 1024
"""Bytes of one message. A server that says more without an end is ended."""
KEPT = 2000
"""Bytes kept of the end of its error output."""
EXIT_SECONDS = 1.0
"""Seconds a server has to end by itself once its input is closed."""
PASSED = frozenset(
    {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "LANG", "LANGUAGE"}
)
"""Variables a server gets beside LC_* and those its entry names. No keys of providers are among
them.
"""


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
        how = (
            ""
            if code is None
            else f"it ended by signal {-code}"
            if code < 0
            else f"it ended with exit code {code}"
        )
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
                        with contextlib.suppress(
                            anyio.BrokenResourceError, anyio.ClosedResourceError
                        ):
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

    async def _take(
        self, line: bytes, out: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        if not line.strip():
            return
        try:
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except (
                ValueError
            ):  # half of a character, as a text has that was cut in the middle of an emoji
                message = jsonrpc_message_adapter.validate_json(
                    _with_whole_characters(line), by_name=False
                )
        except (ValueError, RecursionError):
            self._noise = plain_text(line[:KEPT].decode("utf-8", "replace")).strip()[:200]
            return
        self._noise = ""
        await out.send(SessionMessage(message))

    async def _write(self, given: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """From the session to the process. One that does not take its input has ended, or is waited
        for in vain.
        """
        assert self._running is not None and self._running.process.stdin is not None
        pipe = self._running.process.stdin
        with contextlib.suppress(ConnectionError):
            async for message in given:
                pipe.write(
                    message.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
                    + b"\n"
                )
                await pipe.drain()

    async def _listen(self) -> None:
        """Keep the end of what it complains of."""
        assert self._running is not None and self._running.process.stderr is not None
        while chunk := await self._running.process.stderr.read(1 << 16):
            self._errors = (self._errors + chunk)[-KEPT:]


def _with_whole_characters(line: bytes) -> str:
    """JSON with a replacement character for each half of one. Raises ValueError for what is no
    JSON.
    """
    text = json.dumps(json.loads(line), ensure_ascii=False)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def server_environment(given: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """What a server is started with: little, and what its entry names."""
    return {
        **{
            name: value
            for name, value in environ.items()
            if name in PASSED or name.startswith("LC_")
        },
        **given,
    }


async def _start(way: StdioServer, root: Path, mark: str) -> LaunchedProcess:
    """Start the process in `root`. Raises OSError."""
    surroundings = server_environment(way.env, {**os.environ, "PATH": search_path_outside(root)})
    words = [_program(way.command, root, surroundings["PATH"]), *way.args]
    pipe = asyncio.subprocess.PIPE
    variables = {**surroundings, process_cleanup.CALL_VARIABLE: mark}
    return await start_process(
        words, root, variables, StandardStreams(pipe, pipe, errors=pipe), None
    )


def _program(command: str, root: Path, path: str) -> str:
    """The file that is run. Raises OSError where there is none."""
    if "/" in command:
        found: str | None = str(root / expand_home(command))
    else:
        found = shutil.which(command, path=path)
    if found is None or not os.access(found, os.X_OK) or Path(found).is_dir():
        raise FileNotFoundError(2, f"there is no program {command!r} that could be run")
    return found
