"""A session's sandbox: what stands before a command's own words, and its environment.

Between the tools that run commands and the means. Made by wiring; knows no tool and no log.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fugu_cli import scratch
from fugu_cli.errors import UsageError
from fugu_cli.masking import holds
from fugu_cli.policy.paths import there
from fugu_cli.sandbox import bubblewrap, means
from fugu_cli.sandbox.gitfolders import GitFolders
from fugu_cli.sandbox.gitguard import GitGuard
from fugu_cli.sandbox.guarding import Guard, Guards
from fugu_cli.sandbox.means import Means, Mode
from fugu_cli.sandbox.places import Wishes, places
from fugu_cli.secret_values import NAMES

AGENTS = (
    *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "DISPLAY"),
    *("WAYLAND_DISPLAY", "XAUTHORITY", "DOCKER_HOST", "TMUX", "KUBECONFIG"),
)
"""Variables that lead to programs outside, which would do what a command must not."""


@dataclass(frozen=True)
class Rules:
    """What the user set: the means, the network, and what is allowed beyond the rule of places.py."""

    mode: Mode = "auto"
    network: bool = False
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    environment: tuple[str, ...] = ()
    """Variables that commands get although they look like secrets."""


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
        held = self.held
        if held.kind != "none":
            return ()
        return (f"commands are not confined ({held.why}): they run with your own rights",)

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
    def offline(self) -> bool:
        """Commands have no network."""
        return self.held.kind != "none" and not self.rules.network

    def _outside(self) -> str:
        """PATH without what lies in the repository."""
        return os.pathsep.join(entry for entry in os.get_exec_path() if not self._in_here(entry))

    def _in_here(self, entry: str) -> bool:
        real = Path(os.path.realpath(entry))
        return not entry.startswith("/") or real == self.root or self.root in real.parents

    def wrapped(self, command: Sequence[str], folder: Path, control: int) -> list[str]:
        """The command line of the launcher that runs `command` in `folder`, confined; it hears orders on `control`."""
        held = self.held
        found = places(self.root, self._wishes(), os.environ)
        private = str(self._temporary())
        before = [*means.launcher(), "--control", str(control)]
        if held.kind == "bubblewrap":
            confined = bubblewrap.arguments(found, private, network=self.rules.network)
            return [*before, "--", held.program, *confined[:-1], "--chdir", str(folder), "--", *command]
        if held.kind == "none":
            return [*before, "--chdir", str(folder), "--", *command]
        options = ["--landlock", *(["--namespaces"] if held.namespaces else [])]
        options += [] if self.rules.network else ["--no-network"]
        options += ["--private", private, "--chdir", str(folder)]
        lists = {"write": found.writable, "seal": found.sealed, "read": found.readable, "hide": found.hidden}
        for name, paths in (lists | {"cover": found.covered}).items():
            options += [word for path in paths for word in (f"--{name}", path)]
        return [*before, *options, "--", *command]

    def guard(self) -> Guards | None:
        """What the means cannot keep from being written, as it is before a command; to be put back after it."""
        held = self.held
        if held.kind == "none":
            return None
        bare = held.kind == "landlock" and not held.namespaces
        found = places(self.root, self._wishes(), os.environ)
        named = Guard((*(found.sealed if bare else ()), *found.loose))
        return Guards((named, GitGuard(self._folders, shutil.which("git", path=self._outside()))))

    def variables(self) -> dict[str, str | None]:
        """What a command's environment has more (None: less): no keys, its own folders, no network to try."""
        told = self.rules.environment
        gone = [n for n, value in os.environ.items() if n not in told and (NAMES.search(n) or holds(value))]
        found: dict[str, str | None] = dict.fromkeys([*gone, *(AGENTS if self.held.kind != "none" else ())])
        if self.held.kind == "none":
            return found
        apart = self.held.kind == "bubblewrap" or self.held.namespaces
        temporary = "/tmp" if apart else str(self._temporary())
        found |= dict.fromkeys(("TMPDIR", "TMP", "TEMP"), temporary)
        cache = self.cache
        found |= {
            "GOCACHE": str(cache / "go"),
            "UV_CACHE_DIR": str(cache / "uv"),
            "npm_config_cache": str(cache / "npm"),
        }
        found |= {"PIP_CACHE_DIR": str(cache / "pip"), "npm_config_update_notifier": "false"}
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
