"""A command's process started, and ended with all it has started: by the launcher on Linux, by reaping.py elsewhere.

Under process.py. The launcher (sandbox/launch.py) is asked over a socket; when fugu is killed the socket closes, and it
ends the command. A launcher that is itself killed is replaced by what reaping.py finds.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fugu_cli.processes import ended
from fugu_cli.sandbox.box import Launch
from fugu_cli.sandbox.means import launcher
from fugu_cli.tools import reaping

LAUNCHED = sys.platform == "linux"
PATIENCE = 5.0
"""Seconds the launcher may take to end everything at once."""


class Ends(NamedTuple):
    """Descriptors: what a command reads as its input, and where its outputs go: both to one, or `errors` apart."""

    input: int
    output: int
    errors: int | None = None


@dataclass
class Running:
    """A command's first process; `control` reaches its launcher, None where there is none."""

    process: asyncio.subprocess.Process
    control: socket.socket | None

    async def end(self, mark: str) -> int:
        """End all of the command's processes, those that asked for it politely first; how many were left. Cancelled, it
        ends them at once, and takes the first one's exit code before it lets the cancellation through."""
        try:
            return await self._end(mark)
        except BaseException:
            await ended(self.process)
            raise

    async def _end(self, mark: str) -> int:
        if self.control is None:
            return await reaping.end(mark, self.process.pid)
        try:
            if self.process.returncode is None:
                self._order(b"T")
                await self.process.wait()
        except BaseException:
            self._order(b"K")
            self.control.settimeout(PATIENCE)
            self._heard()
            raise
        else:
            return self._heard()
        finally:
            self.control.close()
            reaping.kill(mark, self.process.pid)

    def _order(self, word: bytes) -> None:
        try:
            self._control.send(word)
        except OSError:
            return  # it has just ended

    def _heard(self) -> int:
        """What the launcher says in the end: how many processes had been left. 0 when it was killed."""
        try:
            said = self._control.recv(64).split()
        except OSError:
            return 0
        return int(said[1]) if len(said) == 2 else 0

    @property
    def _control(self) -> socket.socket:
        assert self.control is not None
        return self.control


async def start(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], ends: Ends, launch: Launch | None
) -> Running:
    """Start `command` in `folder`. Raises OSError."""
    if not LAUNCHED:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, env=environment, start_new_session=True, stdin=ends.input,
            stdout=ends.output, stderr=ends.output if ends.errors is None else ends.errors,
        )  # fmt: skip
        return Running(process, None)
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            number = theirs.fileno()
            bare = [*launcher(), "--control", str(number), "--", *command]
            words = bare if launch is None else launch.wrapped(command, folder, number)
            process = await spawn(
                ours, words, cwd=folder, env=environment, start_new_session=True, stdin=ends.input,
                stdout=ends.output, stderr=ends.output if ends.errors is None else ends.errors, pass_fds=[number],
            )  # fmt: skip
    except BaseException:
        ours.close()
        raise
    return Running(process, ours)


async def spawn(ours: socket.socket, words: Sequence[str], **options: Any) -> asyncio.subprocess.Process:
    """A launcher's process, controlled by `ours`. Raises OSError.

    Cancelled meanwhile, it is told to end when it is there: asyncio would kill it, and leave its command running.
    """
    making = asyncio.ensure_future(asyncio.create_subprocess_exec(*words, **options))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        ours.close()
        while not making.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((making,))
        if not making.cancelled() and making.exception() is None:
            await ended(making.result())
        raise
