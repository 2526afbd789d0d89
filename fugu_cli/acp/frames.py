"""Protocol frames over two file descriptors: one JSON object a line. A line that is no frame gets
an error as its answer, and the next one is read.

Below the SDK's connection, as its transport. Reading and writing have a thread each: they block,
and every kind of file will do. Knows no method of the protocol.
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
"""Bytes of a line that is still read as a frame."""
PARSE_ERROR, INVALID_REQUEST = -32700, -32600
Frame = dict[str, Any]


class FrameError(Exception):
    """Why a line is no frame. `reply` is the answer to it."""

    def __init__(self, code: int, why: str, id: str | int | float | None = None) -> None:
        super().__init__(why)
        self.reply: Frame = {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}}


def parse_frame(line: bytes) -> Frame:
    """A line as a request, a notification or a response. Raises FrameError."""
    try:
        found = parse_json(line)
    except ValueError as error:
        raise FrameError(PARSE_ERROR, f"Parse error: {error}") from error
    if not isinstance(found, dict):
        raise FrameError(INVALID_REQUEST, "Invalid request: a frame is one JSON object")
    id = found.get("id")
    if id is not None and (isinstance(id, bool) or not isinstance(id, str | int | float)):
        raise FrameError(INVALID_REQUEST, "Invalid request: the id is neither text nor a number")
    if "method" in found:
        if not isinstance(found["method"], str):
            raise FrameError(INVALID_REQUEST, "Invalid request: the method is not text", id)
        if not isinstance(found.get("params", {}), dict | None):
            raise FrameError(INVALID_REQUEST, "Invalid request: params is not an object", id)
    elif "result" not in found and not isinstance(found.get("error"), dict):
        raise FrameError(
            INVALID_REQUEST, "Invalid request: neither a method, a result nor an error", id
        )
    return found


class StdioFrames:
    """Frames read from `source` and written to `sink`. Where nobody reads them any more, reading
    ends as well.
    """

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | FrameError | None] = asyncio.Queue()
        self._frames: SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = SimpleQueue()
        for file in (source, sink):
            os.set_blocking(file, True)
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True).start()

    async def receive(self) -> Frame | None:
        """The next frame; None at the end."""
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
        """Write a frame, in the order of the calls. Returns when it is written, or nobody reads it
        any more.
        """
        written: asyncio.Future[None] = self._loop.create_future()
        self._frames.put(
            (json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n", written)
        )
        await written

    async def close(self) -> None:
        """Nothing is sent any more."""
        self._frames.put(None)

    def _read(self) -> None:
        line, long = bytearray(), False
        with suppress(OSError):
            while data := os.read(self._source, PORTION):
                first, *others = data.split(b"\n")
                line += first
                for piece in others:
                    self._hear(_too_long() if long else bytes(line))
                    line, long = bytearray(piece), False
                if len(line) > LONGEST_FRAME:
                    line, long = bytearray(), True
        if line:
            self._hear(bytes(line))
        self._hear(None)

    def _hear(self, line: bytes | FrameError | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)

    def _write(self) -> None:
        gone = False
        while (item := self._frames.get()) is not None:
            data, written = item
            try:
                rest = memoryview(data)
                while rest and not gone:
                    rest = rest[os.write(self._sink, rest) :]
            except OSError:
                gone = True
                self._hear(None)
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_settle, written)


def _settle(written: asyncio.Future[None]) -> None:
    if not written.done():
        written.set_result(None)


def _too_long() -> FrameError:
    return FrameError(
        INVALID_REQUEST, f"Invalid request: a frame is at most {LONGEST_FRAME:,} bytes long"
    )
