"""Starts one command, confined as its arguments say, and lets nothing of it live on: a process of
its own.

launch --control FD [--namespaces] [--no-network] [--landlock] [--hide PATH]... -- COMMAND
    launch --inner [--no-network] -- COMMAND

Between process_cleanup.py, which speaks to it over the socket FD, and the command. It stays outside
the confinement as the "subreaper" of everything the command starts, so that a daemon that left its
session and wiped its environment is still its descendant. With `--inner` it is what bubblewrap
starts: it confines itself further and becomes the command. Only the standard library's quick parts
are imported: it starts before every command.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

from fugu_cli.safety.sandbox.launcher_options import LauncherOptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import NoReturn

LINGER, GRACE = 0.3, 2.0
"""Seconds that what a command left running may take to end by itself, and to end when it is asked
to.
"""
LIMIT_SECONDS = 0.5
"""Seconds between two looks at what a command takes."""
REFUSED = 126
"""The exit code when the confinement could not be set up: the command was not started."""
PR_SET_CHILD_SUBREAPER = 36
CONFINER = b"bwrap"
"""It is not asked to end: with it, all that is in it would be killed before it could. It ends with
its command.
"""


def main(arguments: list[str]) -> None:
    """Run a command from start to end. Never returns."""
    options = LauncherOptions(arguments)
    if "--inner" in options.switches:
        start(options)
    import socket

    control = socket.socket(fileno=int(options.one("--control")))
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        control.close()
        os.setsid()
        limit_child(options)
        start(options)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    status, ordered = watch(child, control, options)
    left = end_descendants(control, ordered)
    exceeded = ordered if ordered in ("memory", "processes") else ""
    with contextlib.suppress(OSError):  # nobody may be there to hear it
        control.send(b"left %d %s\n" % (left, exceeded.encode()))
    exit_with_status(int(signal.SIGKILL) if exceeded else status)


def limit_child(options: LauncherOptions) -> None:
    """Bound what the kernel can bound: the size of files, and of all programs this is ended first
    when the system has no memory left."""
    if not options.all("--file-size"):
        return
    import resource

    with contextlib.suppress(OSError, ValueError):  # a lower limit holds already
        size = int(options.one("--file-size"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")
    if os.getuid():
        with contextlib.suppress(OSError, ValueError):
            with open("/proc/loadavg") as file:
                threads = int(file.read().split()[3].partition("/")[2])
            most = threads + int(options.one("--processes"))
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def start(options: LauncherOptions) -> NoReturn:
    """Confine this process and become the command. Never returns."""
    try:
        for number in range(1, signal.NSIG):
            if number not in {signal.SIGKILL, signal.SIGSTOP, 32, 33}:
                signal.signal(number, signal.SIG_DFL)
        if options.switches - {"--no-network"}:
            from fugu_cli.safety.sandbox import confinement

            confinement.confine(options)
        for folder in options.all("--chdir"):
            os.chdir(folder)
    except (OSError, ValueError) as error:
        os.write(
            2,
            b"fugu: the sandbox could not be set up: %s\n" % str(error).encode("utf-8", "replace"),
        )
        os._exit(REFUSED)
    try:
        os.execvp(options.command[0], options.command)
    except OSError as error:
        os.write(2, b"fugu: %s\n" % str(error).encode("utf-8", "replace"))
    os._exit(127)


def watch(child: int, control: socket.socket, options: LauncherOptions) -> tuple[int | None, str]:
    """Wait for the command, for the word to end it, or for a limit that it exceeds. Return its wait
    status (None: ended early), and the word or the limit.
    """
    ended, awake = os.pipe()
    os.set_blocking(awake, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(awake, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(ended, select.POLLIN)
    next_look = time.monotonic() + LIMIT_SECONDS
    while True:
        done = os.waitpid(child, os.WNOHANG)
        if done[0]:
            return done[1], ""
        for descriptor, _ in poll.poll(LIMIT_SECONDS * 1000 if options.all("--memory") else None):
            if descriptor == ended:
                os.read(ended, 4096)
                reap_orphans(child)
            else:
                return None, read_order(control)
        if options.all("--memory") and time.monotonic() >= next_look:
            if exceeded := exceeded_limit(options):
                return None, exceeded
            next_look = time.monotonic() + LIMIT_SECONDS


def exceeded_limit(options: LauncherOptions) -> str:
    """Return the limit that the processes of the command exceed, "" if they exceed none."""
    table = process_table()
    pids = descendants(table)
    if len(pids) > int(options.one("--processes")):
        return "processes"
    limit = int(options.one("--memory"))
    if sum(table[pid].memory for pid in pids) <= limit:
        return ""
    # forked processes share memory, which counts for each of them there and once here
    proportional = sum(proportional_memory(pid, table[pid].memory) for pid in pids)
    return "memory" if proportional > limit else ""


def proportional_memory(pid: int, otherwise: int) -> int:
    """Return the bytes of a process, those it shares with others divided among them.

    0 if it has ended, `otherwise` if the kernel does not say.
    """
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except ProcessLookupError:
        return 0
    except OSError:
        return otherwise if os.path.exists(f"/proc/{pid}") else 0
    return otherwise


def read_order(control: socket.socket) -> str:
    """Wait for a letter from fugu. Return "ask" for T; "end" for K, or if fugu is gone."""
    try:
        return "ask" if control.recv(1) == b"T" else "end"
    except OSError:
        return "end"


def reap_orphans(child: int = -1) -> None:
    """Take the exit codes of those that were left to us; not the command's own."""
    while True:
        try:
            done = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if done is None or done.si_pid == child:
                return
            os.waitpid(done.si_pid, os.WNOHANG)
        except ChildProcessError:
            return


def end_descendants(control: socket.socket, ordered: str) -> int:
    """End whatever is left below us; how many there were. `ordered` "end" gives nobody time."""
    if ordered in ("", "ask"):
        if not ordered:
            wait_for_descendants(LINGER, control)
        left = len(living_descendants())
        if left:
            signal_descendants(signal.SIGTERM)
            signal_descendants(signal.SIGCONT)  # a stopped one would not hear it
            wait_for_descendants(GRACE, control)
    else:
        left = len(living_descendants())
    for _ in range(200):
        if not signal_descendants(
            signal.SIGSTOP
        ):  # none can start another while the rest are ended
            break
        signal_descendants(signal.SIGKILL)
        reap_orphans()
        time.sleep(0.005)
    return left


def wait_for_descendants(seconds: float, control: socket.socket) -> None:
    """Wait until all have ended, the time is over, or the order to end comes."""
    end = time.monotonic() + seconds
    while living_descendants() and time.monotonic() < end:
        if select.select([control], [], [], 0.02)[0] and read_order(control) == "end":
            return


def signal_descendants(number: int) -> int:
    """Send a signal to all; how many there were."""
    processes = living_descendants()
    for pid, name in processes.items():
        if number == signal.SIGTERM and name == CONFINER:
            continue
        with contextlib.suppress(OSError):
            os.kill(pid, number)
    return len(processes)


class ProcessEntry:
    """A living process: its parent, its name and its memory in bytes."""

    def __init__(self, parent: int, name: bytes, memory: int) -> None:
        self.parent = parent
        self.name = name
        self.memory = memory


def process_table() -> dict[int, ProcessEntry]:
    """Return all processes that are not dead, by their ids."""
    page = os.sysconf("SC_PAGE_SIZE")
    table: dict[int, ProcessEntry] = {}
    for entry in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    before, _, after = file.read().rpartition(b")")
            except OSError:
                continue
            fields = after.split()
            if len(fields) > 21 and fields[0] not in (b"Z", b"X"):
                name = before.partition(b"(")[2]
                table[int(entry)] = ProcessEntry(int(fields[1]), name, int(fields[21]) * page)
    return table


def descendants(table: dict[int, ProcessEntry]) -> list[int]:
    """Return the ids of all descendants of this process, each after the one that started it."""
    children: dict[int, list[int]] = {}
    for pid, entry in table.items():
        children.setdefault(entry.parent, []).append(pid)
    descendants: list[int] = []
    newest = [os.getpid()]
    while newest:
        newest = [child for pid in newest for child in children.get(pid, ())]
        descendants += newest
    return descendants


def living_descendants() -> dict[int, bytes]:
    """Return the ids and names of all living descendants, parents before their children. They are
    told to end in this order: a shell whose child dies before it is told would end without running
    its trap.
    """
    reap_orphans()
    table = process_table()
    return {pid: table[pid].name for pid in descendants(table)}


def exit_with_status(status: int | None) -> None:
    """End as the command did."""
    if status is None:
        os._exit(REFUSED)
    if os.WIFSIGNALED(status):
        import resource

        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
