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
import socket
import sys
import time

from fugu_cli.safety.sandbox.launcher_options import LauncherOptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

LINGER, GRACE = 0.3, 2.0
"""Seconds that what a command left running may take to end by itself, and to end when it is asked
to.
"""
REFUSED = 126
"""The exit code when the confinement could not be set up: the command was not started."""
PR_SET_CHILD_SUBREAPER = 36
CONFINER = b"bwrap"
"""It is not asked to end: with it, all that is in it would be killed before it could. It ends with
its command.
"""


def main(arguments: list[str]) -> None:
    """The whole life of a command. Never returns."""
    options = LauncherOptions(arguments)
    if "--inner" in options.switches:
        start(options)
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
        start(options)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    status, ordered = watch(child, control)
    left = end_descendants(control, ordered)
    with contextlib.suppress(OSError):  # nobody may be there to hear it
        control.send(b"left %d\n" % left)
    exit_with_status(status)


def start(options: LauncherOptions) -> NoReturn:
    """The child: confine itself and become the command. Never returns."""
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


def watch(child: int, control: socket.socket) -> tuple[int | None, str]:
    """Wait for the command, or for the word to end it. Its wait status (None: ended early), and the
    word.
    """
    ended, awake = os.pipe()
    os.set_blocking(awake, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(awake, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(ended, select.POLLIN)
    while True:
        done = os.waitpid(child, os.WNOHANG)
        if done[0]:
            return done[1], ""
        for descriptor, _ in poll.poll():
            if descriptor == ended:
                os.read(ended, 4096)
                reap_orphans(child)
            else:
                return None, read_order(control)


def read_order(control: socket.socket) -> str:
    """`T`: ask, then end. `K`, or nobody there any more: end."""
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
    if ordered != "end":
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
    """Until all have ended, or this time is over, or the word comes that there is no time."""
    end = time.monotonic() + seconds
    while living_descendants() and time.monotonic() < end:
        if select.select([control], [], [], 0.02)[0] and read_order(control) == "end":
            return


def signal_descendants(number: int) -> int:
    """Send a signal to all; how many there were."""
    found = living_descendants()
    for pid, name in found.items():
        if number == signal.SIGTERM and name == CONFINER:
            continue
        with contextlib.suppress(OSError):
            os.kill(pid, number)
    return len(found)


def living_descendants() -> dict[int, bytes]:
    """All descendants that are not dead yet, ids to names, each after the one that started it.

    In this order they are told to end: a shell whose child died before it was told would end
    without its trap.
    """
    reap_orphans()
    parents, names = {}, {}
    for entry in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    before, _, after = file.read().rpartition(b")")
            except OSError:
                continue
            fields = after.split()
            if fields and fields[0] not in (b"Z", b"X"):
                parents[int(entry)], names[int(entry)] = int(fields[1]), before.partition(b"(")[2]
    found: dict[int, bytes] = {}
    newest = {os.getpid()}
    while newest:
        newest = {pid for pid, parent in parents.items() if parent in newest}
        found.update({pid: names[pid] for pid in newest})
    return found


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
