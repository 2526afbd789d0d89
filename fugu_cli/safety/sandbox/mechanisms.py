"""The mechanisms that can confine a command: bubblewrap, Landlock, macOS' Seatbelt, or none.

A mechanism is used only after a trial in which everything forbidden failed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from fugu_cli.safety.sandbox.access_rules import FileAccess, program_folders
from fugu_cli.system import temp_dirs

SandboxMode = Literal["auto", "bubblewrap", "landlock", "off"]
MechanismKind = Literal["bubblewrap", "landlock", "seatbelt", "none"]

SANDBOX_EXEC = "/usr/bin/sandbox-exec"
PACKAGE = Path(__file__).resolve().parents[3]
STARTER = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from fugu_cli.safety.sandbox.{} import main; main(sys.argv[1:])"
)
NO_NAMESPACES = (
    "Landlock has no namespaces here, so that what may write the repository may write `.git`"
)
TRIAL_SECONDS = 20
TRIAL_FOLDER = Path("/var/tmp")
"""Beside /tmp, which commands have a private one of: what is outside must be a real place."""


@dataclass(frozen=True)
class Mechanism:
    """A mechanism. `namespaces`: Landlock, with a view of the file system and a network of the
    command's own.
    """

    kind: MechanismKind
    namespaces: bool = False
    program: str = ""
    why: str = ""
    """Why it does not hold; "" where it does."""

    @property
    def has_private_mounts(self) -> bool:
        """True if a command has a private view of the file system, with a private /tmp."""
        return self.kind == "bubblewrap" or self.namespaces

    @property
    def holds(self) -> bool:
        """True if a command reaches no network, and writes neither outside nor sealed files inside."""
        return self.kind != "none" and not self.why

    @property
    def description(self) -> str:
        """Name it, for people."""
        match self.kind:
            case "bubblewrap":
                return f"bubblewrap ({self.program})"
            case "landlock":
                return f"Landlock {'with' if self.namespaces else 'without'} namespaces"
            case "seatbelt":
                return f"Seatbelt ({self.program})"
            case "none":
                return f"none: {self.why}"


def has_launcher() -> bool:
    """Return whether launcher.py starts commands on this system."""
    return sys.platform == "linux"


def launcher_command(module: str = "launcher") -> list[str]:
    """Return the command line that starts launcher.py (or trial.py), without its arguments."""
    return [sys.executable, "-I", "-S", "-c", STARTER.format(module), str(PACKAGE)]


@cache
def find_mechanism(mode: SandboxMode, path: str) -> Mechanism:
    """Choose the mechanism for `mode`. `path` is the PATH on which bwrap is searched.

    It is the first one that holds; else one that confines in part, with the reason in `why`; else
    `none`.
    """
    if mode == "off":
        return Mechanism("none", why="the sandbox is turned off")
    failures: list[str] = []
    for mechanism in _candidates(mode, path):
        why = mechanism.why or trial_failure(mechanism)
        if not why:
            return mechanism
        failures.append(why if mechanism.kind == "none" else f"{mechanism.kind}: {why}")
    weaker = Mechanism("landlock", why=NO_NAMESPACES)
    if mode in {"auto", "landlock"} and _landlock_works() and not _try_out(weaker, ["true"]):
        return weaker
    return Mechanism("none", why="; ".join(failures))


def _candidates(mode: SandboxMode, path: str) -> Iterator[Mechanism]:
    """Yield what `mode` may choose among here, the best first; `why` says what is missing."""
    if sys.platform == "darwin":
        if mode == "auto":
            missing = "" if os.access(SANDBOX_EXEC, os.X_OK) else f"there is no {SANDBOX_EXEC}"
            yield Mechanism("seatbelt", program=SANDBOX_EXEC, why=missing)
        else:
            yield Mechanism("none", why=f"there is no {mode} for macOS")
        return
    if sys.platform != "linux":
        yield Mechanism("none", why=f"there is none for {sys.platform} yet")
        return
    if mode in {"auto", "bubblewrap"}:
        program = shutil.which("bwrap", path=path)
        yield Mechanism(
            "bubblewrap", program=program or "", why="" if program else "it is not installed"
        )
    if mode in {"auto", "landlock"}:
        missing = "" if _landlock_works() else "the kernel has none"
        yield Mechanism("landlock", namespaces=True, why=missing)


def _landlock_works() -> bool:
    if sys.platform != "linux":
        return False
    from fugu_cli.safety.sandbox import confinement

    return bool(confinement.landlock_abi())


def trial_failure(mechanism: Mechanism) -> str:
    """Return what a confined command could do although it must not, or why no command could be
    started. "" if the mechanism holds.
    """
    return _try_out(mechanism, [*launcher_command("trial")])


def _try_out(mechanism: Mechanism, command: Sequence[str]) -> str:
    """Run a command in a repository made for it, with the trial's arguments. Returns "" or what
    went wrong.
    """
    from fugu_cli.safety.sandbox import trial

    ours, theirs = socket.socketpair()
    server = socket.create_server(("127.0.0.1", 0))
    parent = TRIAL_FOLDER if os.access(TRIAL_FOLDER, os.W_OK) else None
    with ours, theirs, server, temp_dirs.temp_dir("trial", parent) as folder:
        repository, private, outside = folder / "repository", folder / "private", folder / "outside"
        sealed = (repository / ".git", repository / trial.SEALED)
        for path in (repository, private, outside, sealed[0]):
            path.mkdir()
        sealed[1].touch()
        access = FileAccess(
            writable=(os.path.realpath(repository),),
            sealed=tuple(map(os.path.realpath, sealed)),
            readable=tuple(map(str, program_folders(os.environ))),
            hidden=(),
            covered=tuple(path for path in ("/run",) if os.path.isdir(path)),  # noqa: PTH112
        )
        temporary = "/tmp" if mechanism.has_private_mounts else str(private)
        port = str(server.getsockname()[1])
        words = confined_command(
            [*command, os.path.realpath(repository), temporary, str(outside), port],
            repository,
            mechanism=mechanism,
            access=access,
            private=os.path.realpath(private),
            network=False,
            control=theirs.fileno() if has_launcher() else None,
        )
        try:
            done = subprocess.run(
                words, cwd=repository, capture_output=True, text=True, errors="replace",
                check=False, timeout=TRIAL_SECONDS, pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    if done.returncode:
        return " ".join(done.stderr.split()) or f"exit code {done.returncode}"
    return ""


def confined_command(
    command: Sequence[str],
    folder: Path,
    *,
    mechanism: Mechanism,
    access: FileAccess | None,
    private: str,
    network: bool,
    control: int | None,
) -> list[str]:
    """Return the command line that runs `command` in `folder` in the sandbox.

    Without `access` the command is not confined, but processes that it leaves behind are ended.
    `private` becomes its /tmp, or its folder for temporary files if the mechanism has no private
    mounts. `control` is the descriptor from which the launcher reads orders, None without a
    launcher.
    """
    launcher = [] if control is None else [*launcher_command(), "--control", str(control)]
    if access is None:
        chdir = ["--chdir", str(folder), "--"] if launcher else []
        return [*launcher, *chdir, *command]
    offline = [] if network else ["--no-network"]
    match mechanism.kind:
        case "seatbelt":
            from fugu_cli.safety.sandbox.seatbelt import seatbelt_profile

            profile = seatbelt_profile(access, os.path.realpath(private), network=network)
            return [mechanism.program, "-p", profile, *command]
        case "bubblewrap":
            return [
                *(*launcher, "--", mechanism.program),
                *bubblewrap_arguments(access, private, network=network),
                *("--chdir", str(folder), "--", *launcher_command(), "--inner"),
                *(*offline, "--", *command),
            ]
        case "landlock":
            options = ["--landlock", *(["--namespaces"] if mechanism.namespaces else []), *offline]
            options += ["--private", private, "--chdir", str(folder)]
            lists = {
                "--write": access.writable,
                "--seal": access.sealed,
                "--read": access.readable,
                "--hide": access.hidden,
                "--cover": access.covered,
            }
            for name, paths in lists.items():
                options += [word for path in paths for word in (name, path)]
            return [*launcher, *options, "--", *command]
        case "none":
            raise ValueError("nothing confines a command here")


CAPABILITIES = (
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "NET_BIND_SERVICE",
)
"""The capabilities that root keeps; the same as in confinement.py."""
ROOTS_FILES = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")
"""Files that root could otherwise write."""


def bubblewrap_arguments(access: FileAccess, private: str, *, network: bool) -> list[str]:
    """Return the options of `bwrap`."""
    options = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    options += ["--unshare-pid", "--unshare-ipc", "--die-with-parent"]
    for path in ROOTS_FILES:
        options += ["--ro-bind-try", path, path]
    if not network:
        options.append("--unshare-net")
    options += ["--bind", private, "/tmp"]
    if os.geteuid() == 0:
        options += ["--cap-drop", "ALL"]
        options += [word for name in CAPABILITIES for word in ("--cap-add", f"CAP_{name}")]
    paths = {*access.writable, *access.sealed, *access.readable, *access.hidden, *access.covered}
    for path in sorted(paths, key=lambda path: path.count("/")):
        options += _mount_options(path, access)
    return options


def _mount_options(path: str, access: FileAccess) -> list[str]:
    """Return the options of one path. A path that is both hidden and readable is covered first, then
    mounted again.
    """
    options: list[str] = []
    if not os.path.lexists(path) or Path(path).is_symlink():
        return options
    if path in access.hidden or path in access.covered:
        options += ["--tmpfs", path] if Path(path).is_dir() else ["--ro-bind", os.devnull, path]
    if path in access.sealed or path in access.readable:
        options += ["--ro-bind", path, path]
    elif path in access.writable:
        options += ["--bind", path, path]
    return options
