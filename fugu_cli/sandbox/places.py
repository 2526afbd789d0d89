"""What a command may read, write and not see: the one rule, whatever means holds it.

Between the means (bubblewrap.py, landlock through launch.py) and the disk. Writable: the repository, a temporary
folder, a build cache of fugu's own, what the user named, and for git alone its folder without hooks and configuration.
Hidden: secrets and dot-folders of the home, fugu's own data, sockets of programs outside. All else can be read.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fugu_cli.policy.paths import is_folder, there
from fugu_cli.sandbox.gitdirs import git_places
from fugu_cli.sandbox.homes import hidden
from fugu_cli.sandbox.sockets import sockets

RESOLVERS = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager", "/run/nscd")
"""Of /run, what finding a host's address needs."""

OBEYED = (
    *(".fugurc", ".mcp.json", ".agents/hooks.json", ".agents/skills", ".agents/commands"),
    *(".claude/settings.json", ".claude/settings.local.json"),
    *(".config/fugu/skills", ".config/fugu/commands"),
)
"""What tells fugu and its agents, in the home, what to do, and what to run with the user's rights."""

PACKAGE = Path(__file__).resolve().parents[1]
"""Its folder: a test command may run a file of it."""


@dataclass(frozen=True)
class Places:
    """Absolute, resolved paths as text. A deeper path goes before a shallower one."""

    writable: tuple[str, ...]
    sealed: tuple[str, ...]
    readable: tuple[str, ...]
    hidden: tuple[str, ...]
    covered: tuple[str, ...]
    """Sockets and folders of them, which no rule about files protects: whoever answers there works outside."""
    loose: tuple[str, ...] = ()
    """Files that are not there and must not come to be."""


@dataclass(frozen=True)
class Wishes:
    """What the user allows beyond the rule, and where fugu keeps its own things (`own` is hidden, `cache` writable)."""

    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    own: tuple[Path, ...] = ()
    cache: tuple[Path, ...] = ()
    network: bool = False
    git: Path | None = None
    """The `.git` that may be written: of the root, or in it."""
    kept: tuple[Path, ...] = ()
    """Folders `.git` of repositories in the root that stay as they are."""


def places(root: Path, wishes: Wishes, environ: Mapping[str, str]) -> Places:
    """The rule for commands in `root`, which is resolved, with the disk as it is now."""
    homes = _homes(environ)
    git = git_places(root, wishes.git)
    obeyed = list(_obeyed(root, homes))
    sealed = [*git.sealed, *_installation(root), *(path for path in obeyed if os.path.lexists(path))]
    writable = [root, *git.writable, *wishes.cache, *wishes.writable]
    writable += [above for path in sealed for above in _between(path, writable)]
    spared = (*(Path(os.path.realpath(path)) for path in (*writable, *wishes.readable)), *_programs(environ, homes))
    unseen = [*hidden(homes, spared), *(str(path) for path in wishes.own if there(path))]
    wanted = [*_programs(environ, homes), *wishes.readable, *(homes if _below_tmp(homes) else ())]
    if wishes.network:
        wanted += [Path(name) for name in RESOLVERS]
    kept = [str(path) for path in wanted if there(path)]
    found = Places(
        writable=_texts(writable),
        sealed=_texts([*sealed, *wishes.kept]),
        readable=tuple(dict.fromkeys(path for path in kept if path not in _texts(writable))),
        hidden=tuple(path for path in dict.fromkeys(unseen) if path not in _texts([*writable, *wishes.readable])),
        covered=tuple(_covered(environ)),
        loose=_texts([*git.loose, *(path for path in obeyed if not os.path.lexists(path))]),
    )
    return replace(found, covered=(*found.covered, *_reachable(sockets(environ), found, wishes)))


def _between(sealed: Path, writable: list[Path]) -> list[Path]:
    """The folders between a sealed place and the writable one around it: each is laid over itself as well, so that none
    can be moved away with the sealed place in it and another be put there."""
    found = [above for above in sealed.parents if any(place in above.parents for place in writable)]
    return [above for above in found if above not in writable]


def _texts(paths: list[Path]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths))


def _homes(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The home that is set, and the one the system knows."""
    named = [environ.get("HOME", ""), _system_home()]
    found = [Path(os.path.realpath(name)) for name in named if name]
    return tuple(dict.fromkeys(home for home in found if is_folder(home) and home != Path("/")))


def _system_home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


def _below_tmp(homes: tuple[Path, ...]) -> bool:
    return any(Path("/tmp") in home.parents for home in homes)


def _programs(environ: Mapping[str, str], homes: tuple[Path, ...]) -> Iterator[Path]:
    """Where the programs on PATH are, the Python that runs fugu, and fugu: they work although they lie in a hidden
    place."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "GOROOT", "JAVA_HOME", "CARGO_HOME", "RUSTUP_HOME"):
        if (value := environ.get(name)) and _in_hiding(Path(value), homes):
            yield Path(os.path.realpath(value))
    for entry in environ.get("PATH", "").split(os.pathsep):
        if entry.startswith("/") and _in_hiding(Path(entry), homes):
            yield Path(os.path.realpath(entry))
    for prefix in (sys.prefix, sys.base_prefix, PACKAGE):
        if _in_hiding(Path(prefix), homes):
            yield Path(os.path.realpath(prefix))


def _in_hiding(path: Path, homes: tuple[Path, ...]) -> bool:
    """In a place that may be hidden or covered; not a home itself, nor above one."""
    real = Path(os.path.realpath(path))
    if any(real == home or real in home.parents for home in homes):
        return False
    return Path("/tmp") in real.parents or any(home in real.parents for home in homes)


def _installation(root: Path) -> Iterator[Path]:
    """The environment fugu runs from, where it lies in the repository: the next run must find it as it was."""
    prefix = Path(os.path.realpath(sys.prefix))
    if sys.prefix != sys.base_prefix and root in prefix.parents:
        yield prefix


def _obeyed(root: Path, homes: tuple[Path, ...]) -> Iterator[Path]:
    """The user's own files that fugu obeys without being told to trust them, where the home is in the repository."""
    for home in homes:
        if home == root or root in home.parents:
            yield from (home / name for name in OBEYED)


def _covered(environ: Mapping[str, str]) -> Iterator[str]:
    """Folders that hold sockets of the system and of the desktop."""
    for name in ("/run", environ.get("XDG_RUNTIME_DIR", ""), str(Path(environ.get("SSH_AUTH_SOCK", "")).parent)):
        if name.startswith("/") and name not in {"/", "/tmp"} and is_folder(Path(name)):
            yield os.path.realpath(name)


def _reachable(found: list[str], shown: Places, wishes: Wishes) -> Iterator[str]:
    """The sockets that a command would see: not below what is covered already, and not those the user named."""
    seen = {*shown.writable, *shown.readable, *shown.sealed}
    unseen = {*shown.hidden, *shown.covered, "/tmp", "/dev", "/proc"}
    named = _texts([*wishes.writable, *wishes.readable])
    for path in found:
        above = next((str(place) for place in Path(path).parents if str(place) in seen | unseen), "/")
        if path not in named and (above not in unseen or above in seen):
            yield path
