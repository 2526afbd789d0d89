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
LOADED_AT_START = ("LD_", "DYLD_", "GCONV_PATH", "GLIBC_TUNABLES", "LOCPATH")
"""Beginnings of variables by which every program loads code."""
GRACE = 2.0
"""Seconds between asking a process to end and ending it."""
_PROC = Path("/proc")


def processes_of_call(call_id: str, leader: int) -> set[int]:
    """Return the ids of the living processes of a call, whose first process is or was `leader`.

    They carry the call's variable, or belong to the leader's group, or descend from such a process.
    Without /proc the leader stands for all.
    """
    if not _PROC.is_dir():
        return {leader} if _signal_group(leader, 0) else set()
    variable = f"{CALL_VARIABLE}={call_id}".encode()
    parents: dict[int, int] = {}
    processes: set[int] = set()
    for entry in _PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        pid = int(entry.name)
        fields = _read(entry / "stat").rpartition(b")")[2].split()
        if not fields or fields[0] in {b"Z", b"X"}:
            continue
        parents[pid] = int(fields[1])
        is_marked = variable in _read(entry / "environ").split(b"\0")
        if is_marked or pid == leader or int(fields[2]) == leader:
            processes.add(pid)
    children = processes
    while children:
        children = {pid for pid, parent in parents.items() if parent in processes} - processes
        processes |= children
    return processes


def _read(path: Path) -> bytes:
    """Read a file, b"" if the process has ended or belongs to somebody else."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _signal(call_id: str, leader: int, number: signal.Signals) -> int:
    """Send a signal to all processes of a call. Return how many there were."""
    processes = processes_of_call(call_id, leader)
    if not _PROC.is_dir():
        return int(_signal_group(leader, number))
    for pid in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return len(processes)


def _signal_group(leader: int, number: int) -> bool:
    """Signal a whole group. Return whether it exists."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_call(call_id: str, leader: int) -> None:
    """End a call's processes at once, until none is left: some may be starting others."""
    for _ in range(20):
        if not _signal(call_id, leader, signal.SIGKILL):
            return


async def end_call(call_id: str, leader: int) -> int:
    """Ask a call's processes to end, then end them; at once when cancelled. Return how many there were."""
    count = _signal(call_id, leader, signal.SIGTERM)
    if not count:
        return 0
    _signal(call_id, leader, signal.SIGCONT)  # a stopped one would not hear it
    try:
        for _ in range(int(GRACE / 0.05)):
            await asyncio.sleep(0.05)
            if not processes_of_call(call_id, leader):
                return count
    finally:
        kill_call(call_id, leader)
    return count


KILL_SECONDS = 5.0
"""Seconds the launcher may take to end everything at once."""


class StandardStreams(NamedTuple):
    """File descriptors of a command: its input and its output. Errors go to `errors`, or to
    `output` if that is None.
    """

    input: int
    output: int
    errors: int | None = None


@dataclass
class LaunchedProcess:
    """The first process of a command. `control` is the connection to its launcher, None if it has
    none.
    """

    process: asyncio.subprocess.Process
    control: socket.socket | None
    exceeded: str = ""
    """The limit for which it was ended, "" where there is none."""

    async def end(self, call_id: str) -> int:
        """End all of the command's processes and return how many were left. They are asked first;
        when this is cancelled, they are ended at once, and the first one's exit code is taken."""
        try:
            return await self._end(call_id)
        except BaseException:  # a cancellation: the exit code is taken before it goes on
            await wait_for_exit(self.process)
            raise

    async def _end(self, call_id: str) -> int:
        if self.control is None:
            return await end_call(call_id, self.process.pid)
        try:
            if self.process.returncode is None:
                self._send_order(b"T")
                await self.process.wait()
        except BaseException:  # a cancellation: no process may outlive it
            self._send_order(b"K")
            self.control.settimeout(KILL_SECONDS)
            self._read_last_message()
            raise
        else:
            return self._read_last_message()
        finally:
            self.control.close()
            kill_call(call_id, self.process.pid)

    def _send_order(self, word: bytes) -> None:
        try:
            self._control.send(word)
        except OSError:
            return  # it has just ended

    def _read_last_message(self) -> int:
        """Read the launcher's last message: the number of processes left, 0 if it was killed."""
        try:
            words = self._control.recv(64).split()
        except OSError:
            return 0
        self.exceeded = words[2].decode() if len(words) == 3 else ""
        return int(words[1]) if len(words) >= 2 else 0

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

    if launch is not None and launch.access is not None:
        command, environment = _loading_inside(command, environment)
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


def _loading_inside(
    command: Sequence[str], environment: Mapping[str, str]
) -> tuple[Sequence[str], Mapping[str, str]]:
    """Return the command and the environment with which variables that have every program load code
    are set in the sandbox only, and not for the programs that confine the command.
    """
    loading = {name for name in environment if name.startswith(LOADED_AT_START)}
    if not loading:
        return command, environment
    settings = (f"{name}={environment[name]}" for name in sorted(loading))
    rest = {name: value for name, value in environment.items() if name not in loading}
    return ["/usr/bin/env", *settings, *command], rest


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
