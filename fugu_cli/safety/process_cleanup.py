"""A command's process started, and ended with everything it started: by the launcher on Linux, by a
search elsewhere.

Below shell commands and MCP servers. The launcher (launcher.py) is asked over a socket; when fugu
is killed the socket closes, and the launcher ends the command. A launcher that is itself killed is
replaced by the search. It finds processes by their process group, by a mark in their environment
(they inherit it even when they start a session of their own), and by descent. Where there is no
/proc only the group is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fugu_cli.system.processes import wait_for_exit

if TYPE_CHECKING:
    from fugu_cli.safety.sandbox.command_limits import CommandLimits
    from fugu_cli.safety.sandbox.command_sandbox import Launch

CALL_VARIABLE = "FUGU_CALL"
"""The variable that marks a call's processes."""
GRACE = 2.0
"""Seconds between asking a process to end and ending it."""
_PROC = Path("/proc")


def processes_of_call(mark: str, leader: int) -> set[int]:
    """Return the ids of living processes of the call `mark`, whose first process is or was
    `leader`.
    """
    if not _PROC.is_dir():
        return {leader} if _group(leader, 0) else set()
    needle = f"{CALL_VARIABLE}={mark}".encode()
    parents: dict[int, int] = {}
    found: set[int] = set()
    for entry in _PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        pid = int(entry.name)
        fields = _read(entry / "stat").rpartition(b")")[2].split()
        if not fields or fields[0] in {b"Z", b"X"}:
            continue
        parents[pid] = int(fields[1])
        marked = needle in _read(entry / "environ").split(b"\0")
        if marked or pid == leader or int(fields[2]) == leader:
            found.add(pid)
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return found


def _read(path: Path) -> bytes:
    """Read a file, b"" if the process has ended or belongs to somebody else."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _signal(mark: str, leader: int, number: signal.Signals) -> int:
    """Send a signal to all of them; how many there were."""
    found = processes_of_call(mark, leader)
    if not _PROC.is_dir():
        return int(_group(leader, number))
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return len(found)


def _group(leader: int, number: int) -> bool:
    """Signal a whole group. Return whether it exists."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_call(mark: str, leader: int) -> None:
    """End them at once, again until none is left: some may be starting others."""
    for _ in range(20):
        if not _signal(mark, leader, signal.SIGKILL):
            return


async def end_call(mark: str, leader: int) -> int:
    """Ask them to end, then end them; how many there were. Cancelled, it ends them at once."""
    count = _signal(mark, leader, signal.SIGTERM)
    if not count:
        return 0
    _signal(mark, leader, signal.SIGCONT)  # a stopped one would not hear it
    try:
        for _ in range(int(GRACE / 0.05)):
            await asyncio.sleep(0.05)
            if not processes_of_call(mark, leader):
                return count
    finally:
        kill_call(mark, leader)
    return count


KILL_SECONDS = 5.0
"""Seconds the launcher may take to end everything at once."""


class StandardStreams(NamedTuple):
    """Descriptors: what a command reads as its input, and where its outputs go: both to one, or
    `errors` apart.
    """

    input: int
    output: int
    errors: int | None = None


@dataclass
class LaunchedProcess:
    """A command's first process; `control` reaches its launcher, None where there is none."""

    process: asyncio.subprocess.Process
    control: socket.socket | None
    exceeded: str = ""
    """The limit for which it was ended, "" where there is none."""

    async def end(self, mark: str) -> int:
        """End all of the command's processes, those that asked for it politely first; how many were
        left. Cancelled, it ends them at once, and takes the first one's exit code before it lets
        the cancellation through."""
        try:
            return await self._end(mark)
        except BaseException:  # a cancellation: the exit code is taken before it goes on
            await wait_for_exit(self.process)
            raise

    async def _end(self, mark: str) -> int:
        if self.control is None:
            return await end_call(mark, self.process.pid)
        try:
            if self.process.returncode is None:
                self._order(b"T")
                await self.process.wait()
        except BaseException:  # a cancellation: no process may outlive it
            self._order(b"K")
            self.control.settimeout(KILL_SECONDS)
            self._heard()
            raise
        else:
            return self._heard()
        finally:
            self.control.close()
            kill_call(mark, self.process.pid)

    def _order(self, word: bytes) -> None:
        try:
            self._control.send(word)
        except OSError:
            return  # it has just ended

    def _heard(self) -> int:
        """Read the launcher's last message: the number of processes left, 0 if it was killed."""
        try:
            said = self._control.recv(64).split()
        except OSError:
            return 0
        self.exceeded = said[2].decode() if len(said) == 3 else ""
        return int(said[1]) if len(said) >= 2 else 0

    @property
    def _control(self) -> socket.socket:
        assert self.control is not None
        return self.control


async def start_process(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    ends: StandardStreams,
    launch: Launch | None,
    limits: CommandLimits | None = None,
) -> LaunchedProcess:
    """Start `command` in `folder`, confined as `launch` says, and held to `limits` on Linux. Raises
    OSError.
    """
    from fugu_cli.safety.sandbox.mechanisms import has_launcher, launcher_command

    if not has_launcher():
        words = command if launch is None else launch.confined(command, folder, None)
        process = await asyncio.create_subprocess_exec(
            *words, cwd=folder, env=environment, start_new_session=True, stdin=ends.input,
            stdout=ends.output, stderr=ends.output if ends.errors is None else ends.errors,
        )  # fmt: skip
        return LaunchedProcess(process, None)
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            number = theirs.fileno()
            bare = [*launcher_command(), "--control", str(number), "--", *command]
            words = bare if launch is None else launch.confined(command, folder, number)
            if limits is not None:
                size = len(launcher_command())
                words = [*words[:size], *limits.options, *words[size:]]
            process = await start_launcher(
                ours, words, cwd=folder, env=environment, start_new_session=True, stdin=ends.input,
                stdout=ends.output, stderr=ends.output if ends.errors is None else ends.errors, pass_fds=[number],
            )  # fmt: skip
    except BaseException:  # a cancellation too: nobody else knows this end of the pair
        ours.close()
        raise
    return LaunchedProcess(process, ours)


async def start_launcher(
    ours: socket.socket, words: Sequence[str], **options: Any
) -> asyncio.subprocess.Process:
    """Start a launcher that is controlled by `ours`. Raises OSError.

    If cancelled meanwhile, the launcher is told to end once it exists: asyncio would kill it and
    leave its command running.
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
            await wait_for_exit(making.result())
        raise
