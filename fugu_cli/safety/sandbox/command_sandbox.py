"""A session's sandbox: the mechanism that holds here, what it puts before a command's words, and the
command's environment.
"""

from __future__ import annotations

import contextlib
import errno
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING

from fugu_cli.errors import UsageError
from fugu_cli.safety.paths import path_exists
from fugu_cli.safety.programs import search_path_outside
from fugu_cli.safety.redaction import has_secret
from fugu_cli.safety.secret_values import NAMES

if TYPE_CHECKING:
    from fugu_cli.safety.sandbox.access_rules import FileAccess
    from fugu_cli.safety.sandbox.git_access import GitFolders
    from fugu_cli.safety.sandbox.mechanisms import Mechanism, SandboxMode
    from fugu_cli.safety.sandbox.restoration import CombinedGuard, Restores

TRIAL_LOCK = Lock()
"""One thread tries the mechanisms out; others wait for its result."""

OUTSIDE_VARIABLES = (
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DOCKER_HOST",
    "TMUX",
    "KUBECONFIG",
)
"""Variables that lead to programs outside, which would do what a command must not."""

ASKED = "commands that do more than read are asked about (`fugu help permissions`)"
"""The consequence if no sandbox holds."""
REFUSALS = tuple(os.strerror(code) for code in (errno.EROFS, errno.EBUSY, errno.EACCES))
"""Words of programs that could not write what is sealed."""
MOST_SEALED = 300
"""Files that others run are sealed one by one, those of the upper folders first; of the rest of a
larger tree only new ones are noticed."""


@dataclass(frozen=True)
class SandboxSettings:
    """The user's settings: the mechanism, the network, and paths allowed beyond the rule of
    access_rules.py.
    """

    mode: SandboxMode = "auto"
    network: bool = False
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    environment: tuple[str, ...] = ()
    """Variables that commands get although they look like secrets."""
    memory: int | None = None
    """Bytes of memory that a command may take; None: half of the machine's."""
    opened: tuple[str, ...] = ()
    """Patterns of files that others run and that commands may write all the same."""


@dataclass(frozen=True)
class Launch:
    """One command line's confinement. `guard` puts back afterwards what the mechanism cannot keep
    from being written.

    `access` is None where nothing confines. `writes_git`: the line may write the git folder; git
    and all that it starts then come from `outside`, the PATH without the repository.
    """

    settings: SandboxSettings
    mechanism: Mechanism
    access: FileAccess | None
    private: str
    guard: CombinedGuard
    outside: str
    cache: Path
    root: Path
    writes_git: bool = False

    def confined(self, command: Sequence[str], folder: Path, control: int | None) -> list[str]:
        """Return the command line that runs `command` in `folder` in the sandbox. `control` is the
        descriptor from which the launcher reads orders, None without a launcher.
        """
        from fugu_cli.safety.sandbox.mechanisms import confined_command

        return confined_command(
            command,
            folder,
            mechanism=self.mechanism,
            access=self.access,
            private=self.private,
            network=self.settings.network,
            control=control,
        )

    def variables(self) -> dict[str, str | None]:
        """Return what the command's environment has more (None: less): no keys, its own folders, no
        network to try.
        """
        changes: dict[str, str | None] = {
            name: None
            for name, value in os.environ.items()
            if name not in self.settings.environment and (NAMES.search(name) or has_secret(value))
        }
        if self.mechanism.kind == "none":
            return changes
        changes |= dict.fromkeys(OUTSIDE_VARIABLES)
        temporary = "/tmp" if self.mechanism.has_private_mounts else self.private
        changes |= dict.fromkeys(("TMPDIR", "TMP", "TEMP"), temporary)
        changes |= {
            "GOCACHE": str(self.cache / "go"),
            "UV_CACHE_DIR": str(self.cache / "uv"),
            "npm_config_cache": str(self.cache / "npm"),
            "PIP_CACHE_DIR": str(self.cache / "pip"),
            "npm_config_update_notifier": "false",
        }
        if self.writes_git:
            changes["PATH"] = self.outside
        if not self.settings.network:
            changes |= {"CARGO_NET_OFFLINE": "true", "GOPROXY": "off", "GOTOOLCHAIN": "local"}
            changes["MAVEN_ARGS"] = f"{os.environ.get('MAVEN_ARGS', '')} -o".strip()
        return changes

    @property
    def git_sealed(self) -> bool:
        """The git folder can only be read."""
        return self.mechanism.holds and not self.writes_git

    def sealed_file_note(self, output: str) -> str:
        """Return a note for an agent whose command could not change a file that other programs run:
        which file, why, and what to do. Return "" if the output names no such file.
        """
        from fugu_cli.safety.self_running_files import RunBy, self_running_file

        if self.access is None:
            return ""
        refusals = [line for line in output.splitlines() if any(map(line.count, REFUSALS))]
        for sealed in map(Path, self.access.sealed):
            ending = "/".join(sealed.parts[-2:])
            if sealed.name == ".git" or not any(ending in line for line in refusals):
                continue
            file = self_running_file(sealed, self.root)
            if file is not None and file.run_by is RunBy.OTHERS:
                path = sealed.relative_to(self.root).as_posix()
                pattern = f"{path}/**" if sealed.is_dir() else path
                return (
                    f"{path} can only be read here, because {file.reason} outside the sandbox. "
                    f"Leave it as it is, or ask the user for --allow 'write({pattern})'"
                )
        return ""


class Sandbox:
    """The sandbox of commands in `root`. `store` is fugu's folder for this repository, `own` all of
    fugu's data.
    """

    def __init__(
        self, root: Path, store: Path, settings: SandboxSettings, own: Sequence[Path] = ()
    ) -> None:
        self.root = Path(os.path.realpath(root))
        self.settings = settings
        self._store = store
        self._own = tuple(own)
        self._private: Path | None = None
        self._expected: set[Path] = set()

    def try_out(self) -> None:
        """Begin the trial in a thread: it takes a process, and nobody has to wait for that idly."""

        def look() -> None:
            with contextlib.suppress(OSError):  # the first command tries again and says it
                self._find_mechanism()

        Thread(target=look, daemon=True).start()

    @cached_property
    def _folders(self) -> GitFolders:
        from fugu_cli.safety.sandbox.git_access import GitFolders

        return GitFolders(self.root)

    def _find_mechanism(self) -> Mechanism:
        from fugu_cli.safety.sandbox.mechanisms import find_mechanism

        with TRIAL_LOCK:
            return find_mechanism(self.settings.mode, search_path_outside(self.root))

    def notes(self) -> tuple[str, ...]:
        """Return what a user must know before commands run; waits for the trial."""
        if self.holds:
            return ()
        mechanism = self.mechanism
        if mechanism.kind == "none":
            return (
                f"commands are not confined ({mechanism.why}): they run with your own rights; "
                f"{ASKED}",
            )
        return (f"commands can damage the git folder ({mechanism.why}); {ASKED}",)

    def at(self, root: Path) -> Sandbox:
        """Return the same for a working tree of the same repository in another folder. Its links
        may lead to environments and packages of the repository, so that stays readable."""
        readable = (*self.settings.readable, self.root)
        settings = replace(self.settings, readable=readable)
        return Sandbox(root, self._store, settings, self._own)

    def for_servers(self, name: str, *, network: bool) -> Sandbox:
        """Return one for programs that fugu itself starts beside commands, without what the user
        opened to commands. Its caches are in a folder `name` that no command writes.
        """
        mode, readable = self.settings.mode, self.settings.readable
        settings = SandboxSettings(mode, network=network, readable=readable)
        return Sandbox(self.root, self._store / name, settings, self._own)

    @property
    def cache(self) -> Path:
        """A folder of fugu's own, outside the repository, that commands may write."""
        return self._store / "cache"

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism that confines commands here. The first access waits for the trial.

        Raises UsageError if the user named a mechanism that does not work.
        """
        mechanism = self._find_mechanism()
        mode = self.settings.mode
        if mechanism.kind == "none" and mode not in {"auto", "off"}:
            raise UsageError(
                f"the sandbox {mode!r} does not hold here: {mechanism.why}",
                hint='sandbox = { mode = "auto" } takes what there is',
            )
        return mechanism

    @property
    def holds(self) -> bool:
        """True if the trial showed that commands are confined. Raises what `mechanism` raises.

        No command reaches the network, or writes outside, to the git folder or to files that others
        run, unless the user's settings allow it.
        """
        mechanism = self.mechanism
        return mechanism.holds or (mechanism.kind != "none" and self._git_opened)

    @property
    def _git_opened(self) -> bool:
        """True if the user lets every command write the git folder."""
        return self.root / ".git" in self.settings.writable

    @property
    def offline(self) -> bool:
        """True if commands have no network."""
        return self.mechanism.kind != "none" and not self.settings.network

    def open_files(self, patterns: tuple[str, ...]) -> None:
        """Let commands write files that other programs run, if the patterns name them."""
        self.settings = replace(self.settings, opened=patterns)

    def expect(self, path: Path) -> None:
        """Leave a file that others run where it is: a tool of fugu's own writes it, as the user has
        allowed, perhaps while a command runs.
        """
        self._expected.add(path)

    def launch(self, command: str, *, read_only: bool = False) -> Launch:
        """Return the access of one command line, for the files as they are now. `read_only`: it can
        write only its private folder and the caches. Raises what `mechanism` raises.
        """
        from fugu_cli.safety.sandbox.access_rules import AccessOptions, file_access, opened_paths
        from fugu_cli.safety.sandbox.git_access import git_folder_written_by, nested_git_folders
        from fugu_cli.safety.sandbox.restoration import (
            CombinedGuard,
            FileGuard,
            GitGuard,
            NewFileGuard,
        )

        mechanism, outside = self.mechanism, search_path_outside(self.root)
        launch = Launch(
            self.settings, mechanism, None, "", CombinedGuard(()), outside, self.cache, self.root
        )
        if mechanism.kind == "none":
            return launch
        guard = GitGuard(self._folders)
        git = None
        if not read_only:
            git = git_folder_written_by(command, self.root)
            if not mechanism.holds or self._git_opened:
                git = self.root / ".git"
        nested = nested_git_folders(self._folders, self.root) if mechanism.holds else ()
        sealed = [entry for entry in nested if entry != git]
        others: list[Path] = []
        if not read_only:
            others = self._folders.run_by_others()
        if git is None:  # git alone may bring such files with a branch
            sealed += others[:MOST_SEALED]
        caches = (self.cache, self._store / "cargo-target")
        for folder in caches:
            folder.mkdir(parents=True, exist_ok=True)  # a place that is to be written must be there
        users = tuple(path for path in self.settings.writable if path_exists(path))
        options = AccessOptions(
            writable=() if read_only else users,
            readable=(*self.settings.readable, *users, self._store / "objects"),
            own=self._own,
            cache=caches,
            network=self.settings.network,
            git=git,
            sealed=tuple(sealed),
            opened=self.settings.opened,
            read_only=read_only,
        )
        access = file_access(self.root, options, os.environ)
        guards: tuple[Restores, ...] = ()
        if not read_only:
            named = FileGuard((*(() if mechanism.holds else access.sealed), *access.loose))
            new_files = NewFileGuard(
                self._folders,
                others,
                self._expected,
                opened=opened_paths(self.root, self.settings.opened),
                taken=self._store / "taken" if git is None else None,
            )
            guards = (named, guard, new_files)
        return replace(
            launch,
            access=access,
            private=str(self._temporary()),
            guard=CombinedGuard(guards),
            writes_git=git is not None,
        )

    def hidden_links(self) -> list[str]:
        """Return the links of the repository to places that commands do not see."""
        from fugu_cli.safety.sandbox.access_rules import is_seen
        from fugu_cli.safety.sandbox.outward_links import links_to

        launch = self.launch("", read_only=True)
        access = launch.access
        if access is None:
            return []
        private_tmp = launch.mechanism.has_private_mounts
        return links_to(self.root, lambda path: not is_seen(path, access, private_tmp=private_tmp))

    def _temporary(self) -> Path:
        """Return a folder for this process, removed when it ends."""
        from fugu_cli.system import temp_dirs

        if self._private is None or not self._private.is_dir():
            stack = contextlib.ExitStack()
            self._private = stack.enter_context(temp_dirs.temp_dir("box"))
            weakref.finalize(self, stack.close)
        return self._private
