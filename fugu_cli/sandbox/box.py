"""A session's sandbox: what stands before a command's own words, and its environment.

Between the tools that run commands and the means. Made by wiring; knows no tool and no log.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fugu_cli import scratch
from fugu_cli.errors import UsageError
from fugu_cli.masking import holds
from fugu_cli.policy.paths import there
from fugu_cli.sandbox import bubblewrap, means
from fugu_cli.sandbox.gitfolders import GitFolders, kept
from fugu_cli.sandbox.gitguard import GitGuard
from fugu_cli.sandbox.gitlines import written_by
from fugu_cli.sandbox.guarding import Guard, Guards
from fugu_cli.sandbox.means import Means, Mode
from fugu_cli.sandbox.places import Places, Wishes, places
from fugu_cli.secret_values import NAMES

AGENTS = (
    *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "DISPLAY"),
    *("WAYLAND_DISPLAY", "XAUTHORITY", "DOCKER_HOST", "TMUX", "KUBECONFIG"),
)
"""Variables that lead to programs outside, which would do what a command must not."""

EXPOSED = "Landlock has no namespaces here, so that what may write the repository may write `.git`"
"""Why the git folder is not kept from being written where it is not."""
ASKED = "auto mode asks about commands that do more than read (`fugu help safety`)"
"""What follows from it."""


@dataclass(frozen=True)
class Rules:
    """What the user set: the means, the network, and what is allowed beyond the rule of places.py."""

    mode: Mode = "auto"
    network: bool = False
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    environment: tuple[str, ...] = ()
    """Variables that commands get although they look like secrets."""


@dataclass(frozen=True)
class Launch:
    """One command line's confinement. `guard` puts back afterwards what the means cannot keep from being written.

    `git`: the line may write the git folder; git and all that it starts then come from `outside`, the PATH without the
    repository.
    """

    rules: Rules
    held: Means
    places: Places | None
    private: str
    guard: Guards
    outside: str
    git: bool = False

    def wrapped(self, command: Sequence[str], folder: Path, control: int) -> list[str]:
        """The command line of the launcher that runs `command` in `folder`, confined; it hears orders on `control`."""
        before = [*means.launcher(), "--control", str(control)]
        found, offline = self.places, [] if self.rules.network else ["--no-network"]
        if found is None:
            return [*before, "--chdir", str(folder), "--", *command]
        if self.held.kind == "bubblewrap":
            confined = bubblewrap.arguments(found, self.private, network=self.rules.network)
            inner = [*means.launcher(), "--inner", *offline, "--", *command]
            return [*before, "--", self.held.program, *confined, "--chdir", str(folder), "--", *inner]
        options = ["--landlock", *(["--namespaces"] if self.held.namespaces else []), *offline]
        options += ["--private", self.private, "--chdir", str(folder)]
        lists = {"write": found.writable, "seal": found.sealed, "read": found.readable, "hide": found.hidden}
        for name, paths in (lists | {"cover": found.covered}).items():
            options += [word for path in paths for word in (f"--{name}", path)]
        return [*before, *options, "--", *command]

    @property
    def git_sealed(self) -> bool:
        """The git folder can only be read."""
        return self.places is not None and self.held.apart and not self.git


class Box:
    """The sandbox of commands in `root`. `store` is fugu's folder for this repository, `own` all of fugu's data."""

    def __init__(self, root: Path, store: Path, rules: Rules, own: Sequence[Path] = ()) -> None:
        self.root = Path(os.path.realpath(root))
        self.rules = rules
        self._store = store
        self._own = tuple(own)
        self._private: Path | None = None
        self._folders = GitFolders(self.root)

    def notes(self) -> tuple[str, ...]:
        """What a user must know before commands run; tries the means out."""
        if self.seals:
            return ()
        if self.held.kind == "none":
            return (f"commands are not confined ({self.held.why}): they run with your own rights; {ASKED}",)
        return (f"commands can damage the git folder ({EXPOSED}); {ASKED}",)

    def at(self, root: Path) -> Box:
        """The same for another folder: a working tree of the same repository."""
        return Box(root, self._store, self.rules, self._own)

    @property
    def cache(self) -> Path:
        """A folder of fugu's own, outside the repository, that commands may write."""
        return self._store / "cache"

    @property
    def held(self) -> Means:
        """What holds here. Tried out at the first call. Raises UsageError where the user asked for a means by name
        and it does not hold."""
        found = means.find(self.rules.mode, self._outside())
        if found.kind == "none" and self.rules.mode in {"bubblewrap", "landlock"}:
            raise UsageError(
                f"the sandbox {self.rules.mode!r} does not hold here: {found.why}",
                hint='sandbox = { mode = "auto" } takes what there is',
            )
        return found

    @property
    def seals(self) -> bool:
        """No command but git writes the git folder, unless the user lets all of them. Raises what `held` raises."""
        return self.held.apart or (self.held.kind != "none" and self._opened)

    @property
    def _opened(self) -> bool:
        """The user lets every command write the git folder."""
        return self.root / ".git" in self.rules.writable

    @property
    def offline(self) -> bool:
        """Commands have no network."""
        return self.held.kind != "none" and not self.rules.network

    def _outside(self) -> str:
        """PATH without what lies in the repository."""
        return os.pathsep.join(entry for entry in os.get_exec_path() if not self._in_here(entry))

    def _in_here(self, entry: str) -> bool:
        real = Path(os.path.realpath(entry))
        return not entry.startswith("/") or real == self.root or self.root in real.parents

    def launch(self, command: str) -> Launch:
        """What holds for one command line, with the disk as it is now. Raises what `held` raises."""
        held, outside = self.held, self._outside()
        if held.kind == "none":
            return Launch(self.rules, held, None, "", Guards(()), outside)
        guard = GitGuard(self._folders, shutil.which("git", path=outside))
        git = written_by(command, self.root)
        if not held.apart or self._opened:
            git = self.root / ".git"
        nested = [] if not held.apart else kept(self._folders, self.root, shutil.which("git", path=outside))
        wishes = replace(self._wishes(), git=git, kept=tuple(entry for entry in nested if entry != git))
        found = places(self.root, wishes, os.environ)
        named = Guard((*(() if held.apart else found.sealed), *found.loose))
        return Launch(self.rules, held, found, str(self._temporary()), Guards((named, guard)), outside, git is not None)

    def variables(self, launch: Launch) -> dict[str, str | None]:
        """What a command's environment has more (None: less): no keys, its own folders, no network to try."""
        told = self.rules.environment
        gone = [n for n, value in os.environ.items() if n not in told and (NAMES.search(n) or holds(value))]
        found: dict[str, str | None] = dict.fromkeys([*gone, *(AGENTS if launch.held.kind != "none" else ())])
        if launch.held.kind == "none":
            return found
        temporary = "/tmp" if launch.held.apart else launch.private
        found |= dict.fromkeys(("TMPDIR", "TMP", "TEMP"), temporary)
        cache = self.cache
        found |= {
            "GOCACHE": str(cache / "go"),
            "UV_CACHE_DIR": str(cache / "uv"),
            "npm_config_cache": str(cache / "npm"),
        }
        found |= {"PIP_CACHE_DIR": str(cache / "pip"), "npm_config_update_notifier": "false"}
        if launch.git:
            found["PATH"] = launch.outside
        if self.offline:
            found |= {"CARGO_NET_OFFLINE": "true", "GOPROXY": "off", "GOTOOLCHAIN": "local"}
            found["MAVEN_ARGS"] = f"{os.environ.get('MAVEN_ARGS', '')} -o".strip()
        return found

    def _wishes(self) -> Wishes:
        """The build caches are made here: a place that is to be written must be there."""
        caches = (self.cache, self._store / "cargo-target")
        for folder in caches:
            folder.mkdir(parents=True, exist_ok=True)
        return Wishes(
            writable=tuple(path for path in self.rules.writable if there(path)),
            readable=(*self.rules.readable, self._store / "objects"),
            own=self._own,
            cache=caches,
            network=self.rules.network,
        )

    def _temporary(self) -> Path:
        """A folder for this process, removed when it ends."""
        if self._private is None or not self._private.is_dir():
            held = contextlib.ExitStack()
            self._private = held.enter_context(scratch.folder("box"))
            weakref.finalize(self, held.close)
        return self._private
