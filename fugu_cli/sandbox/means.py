"""Which means of confinement hold on this system: tried out, not guessed.

Used when a session's first command runs and by `fugu doctor`. bubblewrap where it is installed and works, else
Landlock, else none. Trying takes about a tenth of a second and is done once for a process.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from fugu_cli import scratch

Mode = Literal["auto", "bubblewrap", "landlock", "off"]
MODES: tuple[Mode, ...] = get_args(Mode)
Kind = Literal["bubblewrap", "landlock", "none"]

PACKAGE = Path(__file__).resolve().parent.parent.parent
STARTER = "import sys; sys.path.append(sys.argv.pop(1)); from fugu_cli.sandbox.launch import main; main(sys.argv[1:])"


@dataclass(frozen=True)
class Means:
    """What holds. `namespaces`: Landlock has a view of the file system and a network of the command's own beside it."""

    kind: Kind
    namespaces: bool = False
    program: str = ""
    why: str = ""
    """For `none`: why there is nothing."""

    @property
    def apart(self) -> bool:
        """A command has a view of the file system of its own, so that a place inside a writable one can be sealed."""
        return self.kind == "bubblewrap" or self.namespaces

    @property
    def said(self) -> str:
        """In words, for people."""
        if self.kind == "bubblewrap":
            return f"bubblewrap ({self.program})"
        if self.kind == "landlock":
            return "Landlock with namespaces" if self.namespaces else "Landlock without namespaces"
        return f"none: {self.why}"


def launcher() -> list[str]:
    """The command line that starts launch.py, without its arguments."""
    return [sys.executable, "-I", "-S", "-c", STARTER, str(PACKAGE)]


@cache
def find(mode: Mode, path: str) -> Means:
    """The means for `mode`, looked for on `path` (as PATH); `none` with the reason where it does not hold."""
    if mode == "off":
        return Means("none", why="the sandbox is turned off")
    if sys.platform != "linux":
        return Means("none", why=f"there is none for {sys.platform} yet")
    if mode in {"auto", "bubblewrap"} and (found := _bubblewrap(path)).kind != "none":
        return found
    return found if mode == "bubblewrap" else _landlock()


def _bubblewrap(path: str) -> Means:
    program = shutil.which("bwrap", path=path)
    if program is None:
        return Means("none", why="bubblewrap is not installed")
    options = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid", "--unshare-net")
    why = _fails([program, *options, "--", *launcher(), "--inner", "--no-network", "--", "true"])
    return Means("none", why=f"bubblewrap does not work here: {why}") if why else Means("bubblewrap", program=program)


def _landlock() -> Means:
    from fugu_cli.sandbox import kernel

    if not kernel.landlock_abi():
        return Means("none", why="bubblewrap is not installed, and the kernel has no Landlock")
    with scratch.folder("means") as folder:
        place = str(folder)
        held = ("--landlock", "--no-network", "--private", place, "--write", place, "--cover", "/run")
        if not _launches("--namespaces", *held):
            return Means("landlock", namespaces=True)
        why = _launches(*held)
    return Means("none", why=f"Landlock does not work here: {why}") if why else Means("landlock")


def _launches(*options: str) -> str:
    """What is said when the launcher fails with these options, "" when it does not."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        number = theirs.fileno()
        return _fails([*launcher(), "--control", str(number), *options, "--", "true"], number)


def _fails(command: list[str], *descriptors: int) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=20, pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stderr.strip() or f"exit code {done.returncode}") if done.returncode else ""
