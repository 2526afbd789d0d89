"""JSON-RPC frames over two file descriptors: one JSON object per line. A malformed line is answered
with an error, and the next one is read.

This is the transport of `fugu acp` and `fugu mcp serve`. Reading and writing have a thread each,
because they block, so any kind of file works. It knows no method of a protocol.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from fugu_cli.system.bounded_json import parse_json

PORTION = 65536
LONGEST_FRAME = 64 * 1024 * 1024
"""Bytes of the longest line that is read as a frame."""
LAST_FRAMES_SECONDS = 5.0
"""Seconds that the reader has at the end to take the frames that were sent."""
PARSE_ERROR, INVALID_REQUEST, INTERNAL_ERROR = -32700, -32600, -32603
Frame = dict[str, Any]


class FrameError(Exception):
    """A malformed line. `reply` is the answer to it."""

    def __init__(self, code: int, reason: str, id: str | int | float | None = None) -> None:
        super().__init__(reason)
        self.reply: Frame = {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": reason}}


def parse_frame(line: bytes) -> Frame:
    """Parse a line as a request, a notification or a response. Raises FrameError."""
    try:
        frame = parse_json(line)
    except ValueError as error:
        raise FrameError(PARSE_ERROR, f"Parse error: {error}") from error
    if not isinstance(frame, dict):
        raise FrameError(INVALID_REQUEST, "Invalid request: a frame is one JSON object")
    id = frame.get("id")
    if id is not None and (isinstance(id, bool) or not isinstance(id, str | int | float)):
        raise FrameError(INVALID_REQUEST, "Invalid request: the id is neither text nor a number")
    if "method" in frame:
        if not isinstance(frame["method"], str):
            raise FrameError(INVALID_REQUEST, "Invalid request: the method is not text", id)
        if not isinstance(frame.get("params", {}), dict | None):
            raise FrameError(INVALID_REQUEST, "Invalid request: params is not an object", id)
    elif "result" not in frame and not isinstance(frame.get("error"), dict):
        raise FrameError(
            INVALID_REQUEST, "Invalid request: neither a method, a result nor an error", id
        )
    return frame


class StdioFrames:
    """Reads frames from `source` and writes frames to `sink`. If `sink` is closed by its reader,
    reading ends as well.
    """

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | FrameError | None] = asyncio.Queue()
        self._frames: SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = SimpleQueue()
        self._all_written: asyncio.Future[None] = self._loop.create_future()
        for file in (source, sink):
            os.set_blocking(file, True)
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True).start()

    async def receive(self) -> Frame | None:
        """Return the next frame, None at the end."""
        while (line := await self._lines.get()) is not None:
            try:
                if isinstance(line, FrameError):
                    raise line
                if line.strip():
                    return parse_frame(line)
            except FrameError as error:
                await self.send(error.reply)
        return None

    async def send(self, message: Frame) -> None:
        """Write a frame, in the order of the calls. Returns when it is written, or when `sink` was
        closed.
        """
        written: asyncio.Future[None] = self._loop.create_future()
        data = json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n"
        self._frames.put((data, written))
        await written

    async def close(self) -> None:
        """Stop writing after the frames that were sent already. Their reader has LAST_FRAMES_SECONDS
        to take them.
        """
        self._frames.put(None)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._all_written), LAST_FRAMES_SECONDS)

    def _read(self) -> None:
        line, is_too_long = bytearray(), False
        with suppress(OSError):
            while data := os.read(self._source, PORTION):
                first, *others = data.split(b"\n")
                line += first
                for piece in others:
                    self._put_line(_too_long_error() if is_too_long else bytes(line))
                    line, is_too_long = bytearray(piece), False
                if len(line) > LONGEST_FRAME:
                    line, is_too_long = bytearray(), True
        if line:
            self._put_line(bytes(line))
        self._put_line(None)

    def _put_line(self, line: bytes | FrameError | None) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)

    def _write(self) -> None:
        closed = False
        while (item := self._frames.get()) is not None:
            data, written = item
            try:
                rest = memoryview(data)
                while rest and not closed:
                    rest = rest[os.write(self._sink, rest) :]
            except OSError:
                closed = True
                self._put_line(None)
            self._report_written(written)
        self._report_written(self._all_written)

    def _report_written(self, written: asyncio.Future[None]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(_set_done, written)


def _set_done(written: asyncio.Future[None]) -> None:
    if not written.done():
        written.set_result(None)


def _too_long_error() -> FrameError:
    return FrameError(
        INVALID_REQUEST, f"Invalid request: a frame is at most {LONGEST_FRAME:,} bytes long"
    )
