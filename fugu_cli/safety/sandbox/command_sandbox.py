"""A session's sandbox: which mechanism holds here (bubblewrap, Landlock, none), what it puts before
a command's words, and the command's environment.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock, Thread
from typing import Literal

from fugu_cli.errors import UsageError
from fugu_cli.safety.paths import path_exists, search_path_outside
from fugu_cli.safety.redaction import has_secret
from fugu_cli.safety.sandbox.access_rules import AccessOptions, FileAccess, file_access
from fugu_cli.safety.sandbox.git_access import GitFolders, git_folder_written_by, nested_git_folders
from fugu_cli.safety.sandbox.restoration import CombinedGuard, FileGuard, GitGuard
from fugu_cli.safety.secret_values import NAMES
from fugu_cli.system import temp_dirs

SandboxMode = Literal["auto", "bubblewrap", "landlock", "off"]
MechanismKind = Literal["bubblewrap", "landlock", "none"]

PACKAGE = Path(__file__).resolve().parents[3]
STARTER = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from fugu_cli.safety.sandbox.launcher import main; main(sys.argv[1:])"
)


@dataclass(frozen=True)
class Mechanism:
    """What holds. `namespaces`: Landlock has a view of the file system and a network of the
    command's own beside it.
    """

    kind: MechanismKind
    namespaces: bool = False
    program: str = ""
    why: str = ""
    """For `none`: why there is nothing."""

    @property
    def apart(self) -> bool:
        """A command has a view of the file system of its own, so that a place inside a writable one
        can be sealed.
        """
        return self.kind == "bubblewrap" or self.namespaces

    @property
    def said(self) -> str:
        """In words, for people."""
        if self.kind == "bubblewrap":
            return f"bubblewrap ({self.program})"
        if self.kind == "landlock":
            return "Landlock with namespaces" if self.namespaces else "Landlock without namespaces"
        return f"none: {self.why}"


def launcher_command() -> list[str]:
    """The command line that starts launcher.py, without its arguments."""
    return [sys.executable, "-I", "-S", "-c", STARTER, str(PACKAGE)]


TRYING_OUT = Lock()
"""Held while the means are looked for: who asks meanwhile waits for the answer."""


@cache
def find_mechanism(mode: SandboxMode, path: str) -> Mechanism:
    """The means for `mode`, looked for on `path` (as PATH); `none` with the reason where it does
    not hold.
    """
    if mode == "off":
        return Mechanism("none", why="the sandbox is turned off")
    if sys.platform != "linux":
        return Mechanism("none", why=f"there is none for {sys.platform} yet")
    if mode in {"auto", "bubblewrap"} and (found := _bubblewrap(path)).kind != "none":
        return found
    return found if mode == "bubblewrap" else _landlock()


def _bubblewrap(path: str) -> Mechanism:
    program = shutil.which("bwrap", path=path)
    if program is None:
        return Mechanism("none", why="bubblewrap is not installed")
    options = (
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--unshare-pid",
        "--unshare-net",
    )
    why = _fails(
        [program, *options, "--", *launcher_command(), "--inner", "--no-network", "--", "true"]
    )
    return (
        Mechanism("none", why=f"bubblewrap does not work here: {why}")
        if why
        else Mechanism("bubblewrap", program=program)
    )


def _landlock() -> Mechanism:
    from fugu_cli.safety.sandbox import confinement

    if not confinement.landlock_abi():
        return Mechanism("none", why="bubblewrap is not installed, and the kernel has no Landlock")
    with temp_dirs.temp_dir("means") as folder:
        place = str(folder)
        held = (
            "--landlock",
            "--no-network",
            "--private",
            place,
            "--write",
            place,
            "--cover",
            "/run",
        )
        if not _launches("--namespaces", *held):
            return Mechanism("landlock", namespaces=True)
        why = _launches(*held)
    return (
        Mechanism("none", why=f"Landlock does not work here: {why}")
        if why
        else Mechanism("landlock")
    )


def _launches(*options: str) -> str:
    """What is said when the launcher fails with these options, "" when it does not."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        number = theirs.fileno()
        return _fails(
            [*launcher_command(), "--control", str(number), *options, "--", "true"], number
        )


def _fails(command: list[str], *descriptors: int) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=20, pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stderr.strip() or f"exit code {done.returncode}") if done.returncode else ""


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
"""What root keeps; the same as in confinement.py."""


def bubblewrap_arguments(found: FileAccess, private: str, *, network: bool) -> list[str]:
    """The options of `bwrap`."""
    options = [
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--unshare-pid",
        "--unshare-ipc",
    ]
    for path in (
        "/proc/sys",
        "/proc/sysrq-trigger",
        "/proc/irq",
        "/proc/bus",
    ):  # root may write them otherwise
        options += ["--ro-bind-try", path, path]
    options += [
        "--die-with-parent",
        *(() if network else ("--unshare-net",)),
        "--bind",
        private,
        "/tmp",
    ]
    if os.geteuid() == 0:
        options += [
            "--cap-drop",
            "ALL",
            *(word for name in CAPABILITIES for word in ("--cap-add", f"CAP_{name}")),
        ]
    paths = {*found.writable, *found.sealed, *found.readable, *found.hidden, *found.covered}
    for path in sorted(paths, key=lambda path: path.count("/")):
        options += _path_options(path, found)
    return options


def _path_options(path: str, found: FileAccess) -> Iterator[str]:
    """One path's options; the order of the conditions decides where a path is in two lists."""
    if not os.path.lexists(path) or Path(path).is_symlink():
        return
    if path in found.hidden or path in found.covered:
        yield from ("--tmpfs", path) if Path(path).is_dir() else ("--ro-bind", os.devnull, path)
    if path in found.sealed or path in found.readable:
        yield from ("--ro-bind", path, path)
    elif path in found.writable:
        yield from ("--bind", path, path)


OUTSIDE_VARIABLES = (
    *(
        "SSH_AUTH_SOCK",
        "SSH_AGENT_PID",
        "GPG_AGENT_INFO",
        "DBUS_SESSION_BUS_ADDRESS",
        "XDG_RUNTIME_DIR",
        "DISPLAY",
    ),
    *("WAYLAND_DISPLAY", "XAUTHORITY", "DOCKER_HOST", "TMUX", "KUBECONFIG"),
)
"""Variables that lead to programs outside, which would do what a command must not."""

EXPOSED = "Landlock has no namespaces here, so that what may write the repository may write `.git`"
"""Why the git folder is not kept from being written where it is not."""
ASKED = "auto mode asks about commands that do more than read (`fugu help sandbox`)"
"""What follows from it."""


@dataclass(frozen=True)
class SandboxSettings:
    """What the user set: the means, the network, and what is allowed beyond the rule of
    access_rules.py.
    """

    mode: SandboxMode = "auto"
    network: bool = False
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    environment: tuple[str, ...] = ()
    """Variables that commands get although they look like secrets."""


@dataclass(frozen=True)
class Launch:
    """One command line's confinement. `guard` puts back afterwards what the means cannot keep from
    being written.

    `git`: the line may write the git folder; git and all that it starts then come from `outside`,
    the PATH without the repository.
    """

    rules: SandboxSettings
    held: Mechanism
    places: FileAccess | None
    private: str
    guard: CombinedGuard
    outside: str
    cache: Path
    git: bool = False

    def wrapped(self, command: Sequence[str], folder: Path, control: int) -> list[str]:
        """The command line of the launcher that runs `command` in `folder`, confined; it hears
        orders on `control`.
        """
        before = [*launcher_command(), "--control", str(control)]
        found, offline = self.places, [] if self.rules.network else ["--no-network"]
        if found is None:
            return [*before, "--chdir", str(folder), "--", *command]
        if self.held.kind == "bubblewrap":
            confined = bubblewrap_arguments(found, self.private, network=self.rules.network)
            inner = [*launcher_command(), "--inner", *offline, "--", *command]
            return [
                *before,
                "--",
                self.held.program,
                *confined,
                "--chdir",
                str(folder),
                "--",
                *inner,
            ]
        options = ["--landlock", *(["--namespaces"] if self.held.namespaces else []), *offline]
        options += ["--private", self.private, "--chdir", str(folder)]
        lists = {
            "write": found.writable,
            "seal": found.sealed,
            "read": found.readable,
            "hide": found.hidden,
        }
        for name, paths in (lists | {"cover": found.covered}).items():
            options += [word for path in paths for word in (f"--{name}", path)]
        return [*before, *options, "--", *command]

    def variables(self) -> dict[str, str | None]:
        """What the command's environment has more (None: less): no keys, its own folders, no
        network to try.
        """
        told = self.rules.environment
        gone = [
            n
            for n, value in os.environ.items()
            if n not in told and (NAMES.search(n) or has_secret(value))
        ]
        if self.held.kind == "none":
            return dict.fromkeys(gone)
        found: dict[str, str | None] = dict.fromkeys((*gone, *OUTSIDE_VARIABLES))
        found |= dict.fromkeys(
            ("TMPDIR", "TMP", "TEMP"), "/tmp" if self.held.apart else self.private
        )
        folders = {
            "GOCACHE": "go",
            "UV_CACHE_DIR": "uv",
            "npm_config_cache": "npm",
            "PIP_CACHE_DIR": "pip",
        }
        found |= {name: str(self.cache / folder) for name, folder in folders.items()}
        found["npm_config_update_notifier"] = "false"
        if self.git:
            found["PATH"] = self.outside
        if not self.rules.network:
            found |= {"CARGO_NET_OFFLINE": "true", "GOPROXY": "off", "GOTOOLCHAIN": "local"}
            found["MAVEN_ARGS"] = f"{os.environ.get('MAVEN_ARGS', '')} -o".strip()
        return found

    @property
    def git_sealed(self) -> bool:
        """The git folder can only be read."""
        return self.places is not None and self.held.apart and not self.git


class Sandbox:
    """The sandbox of commands in `root`. `store` is fugu's folder for this repository, `own` all of
    fugu's data.
    """

    def __init__(
        self, root: Path, store: Path, rules: SandboxSettings, own: Sequence[Path] = ()
    ) -> None:
        self.root = Path(os.path.realpath(root))
        self.rules = rules
        self._store = store
        self._own = tuple(own)
        self._private: Path | None = None
        self._folders = GitFolders(self.root)

    def try_out(self) -> None:
        """Begin to try the means out, in a thread: it takes a process, and nobody has to wait for
        that idly.
        """

        def look() -> None:
            with contextlib.suppress(OSError):  # the first command tries again and says it
                self._mechanism()

        Thread(target=look, daemon=True).start()

    def _mechanism(self) -> Mechanism:
        with TRYING_OUT:
            return find_mechanism(self.rules.mode, search_path_outside(self.root))

    def notes(self) -> tuple[str, ...]:
        """What a user must know before commands run; tries the means out."""
        if self.seals:
            return ()
        if self.held.kind == "none":
            return (
                f"commands are not confined ({self.held.why}): they run with your own rights; "
                f"{ASKED}",
            )
        return (f"commands can damage the git folder ({EXPOSED}); {ASKED}",)

    def at(self, root: Path) -> Sandbox:
        """The same for another folder: a working tree of the same repository."""
        return Sandbox(root, self._store, self.rules, self._own)

    @property
    def cache(self) -> Path:
        """A folder of fugu's own, outside the repository, that commands may write."""
        return self._store / "cache"

    @property
    def held(self) -> Mechanism:
        """What holds here. Tried out at the first call. Raises UsageError where the user asked for
        a means by name and it does not hold."""
        found = self._mechanism()
        if found.kind == "none" and self.rules.mode in {"bubblewrap", "landlock"}:
            raise UsageError(
                f"the sandbox {self.rules.mode!r} does not hold here: {found.why}",
                hint='sandbox = { mode = "auto" } takes what there is',
            )
        return found

    @property
    def seals(self) -> bool:
        """No command but git writes the git folder, unless the user lets all of them. Raises what
        `held` raises.
        """
        return self.held.apart or (self.held.kind != "none" and self._opened)

    @property
    def _opened(self) -> bool:
        """The user lets every command write the git folder."""
        return self.root / ".git" in self.rules.writable

    @property
    def offline(self) -> bool:
        """Commands have no network."""
        return self.held.kind != "none" and not self.rules.network

    def launch(self, command: str) -> Launch:
        """What holds for one command line, with the disk as it is now. Raises what `held`
        raises.
        """
        held, outside = self.held, search_path_outside(self.root)
        if held.kind == "none":
            return Launch(self.rules, held, None, "", CombinedGuard(()), outside, self.cache)
        guard = GitGuard(self._folders, shutil.which("git", path=outside))
        git = git_folder_written_by(command, self.root)
        if not held.apart or self._opened:
            git = self.root / ".git"
        nested = (
            []
            if not held.apart
            else nested_git_folders(self._folders, self.root, shutil.which("git", path=outside))
        )
        caches = (self.cache, self._store / "cargo-target")
        for folder in caches:
            folder.mkdir(parents=True, exist_ok=True)  # a place that is to be written must be there
        wishes = AccessOptions(
            writable=tuple(path for path in self.rules.writable if path_exists(path)),
            readable=(*self.rules.readable, self._store / "objects"),
            own=self._own,
            cache=caches,
            network=self.rules.network,
            git=git,
            kept=tuple(entry for entry in nested if entry != git),
        )
        found = file_access(self.root, wishes, os.environ)
        named = FileGuard((*(() if held.apart else found.sealed), *found.loose))
        guards, private = CombinedGuard((named, guard)), str(self._temporary())
        return Launch(
            self.rules, held, found, private, guards, outside, self.cache, git is not None
        )

    def _temporary(self) -> Path:
        """A folder for this process, removed when it ends."""
        if self._private is None or not self._private.is_dir():
            held = contextlib.ExitStack()
            self._private = held.enter_context(temp_dirs.temp_dir("box"))
            weakref.finalize(self, held.close)
        return self._private
