"""Every git folder in a repository: its own, those of submodules and working trees, of nested repositories, bare ones.

Under gitguard.py, which asks before and after each command. A folder is listed again only when it changed: its change
time, unlike the other times, cannot be set by who writes there.
"""

from __future__ import annotations

import os
import stat
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.policy.paths import GIT_MARKS

MOST = 50_000
"""Folders that are looked into, the upper ones first; the rest of a larger tree is not. How far down that comes changes
with every folder that is made or removed."""
RACY = 100_000_000
"""Nanoseconds: what changed so shortly before it was listed may have changed after that as well."""


@dataclass(frozen=True)
class _Listed:
    """A folder as it was: what tells that it changed, the folders in it, and whether git would take it for its own."""

    stamp: tuple[int, int]
    folders: tuple[str, ...]
    entry: bool
    bare: bool


class GitFolders:
    """Those at and below `root`, which is resolved. Remembers what it saw from one look to the next.

    `cut`: the newest look did not come to all of them.
    """

    def __init__(self, root: Path, most: int = MOST) -> None:
        self.root = root
        self.cut = False
        self._most = most
        self._began = time.time_ns()
        self._known: dict[str, _Listed] = {}

    def older(self, path: Path) -> bool:
        """What is at `path` is as it was before the first look."""
        try:
            return path.lstat().st_ctime_ns < self._began - RACY
        except OSError:
            return False

    def entries(self) -> tuple[Path, ...]:
        """Every `.git` in the working tree, be it a folder, a file or a link."""
        return tuple(Path(path, ".git") for path, listed in self._look().items() if listed.entry)

    def folders(self, entries: tuple[Path, ...]) -> frozenset[Path]:
        """The git folders inside the root: those `entries` lead to, bare ones, and those that these hold."""
        found = {Path(path) for path, listed in self._known.items() if listed.bare}
        found |= {folder for entry in entries if (folder := self._behind(entry)) is not None}
        return frozenset(found | {inner for folder in found for inner in _held(folder)})

    def _behind(self, entry: Path) -> Path | None:
        """The folder that an entry is or leads to, where it lies in the root."""
        folder = entry
        if entry.is_file():
            with entry.open("rb") as file:
                word, _, named = file.read(4096).partition(b":")
            folder = entry.parent / os.fsdecode(named.strip()) if word == b"gitdir" else entry
        real = Path(os.path.realpath(folder))
        return real if real.is_dir() and self.root in real.parents else None

    def _look(self) -> dict[str, _Listed]:
        known, found = self._known, dict[str, _Listed]()
        waiting = deque([str(self.root)])
        while waiting and len(found) < self._most:
            path = waiting.popleft()
            listed = _list(path, known.get(path))
            if listed is not None:
                found[path] = listed
                waiting += [f"{path}/{name}" for name in listed.folders]
        self._known, self.cut = found, bool(waiting)
        return found


def kept(found: GitFolders, root: Path, git: str | None) -> tuple[Path, ...]:
    """Folders `.git` of repositories inside `root` that commands leave as they are, as they do its own: those that were
    there before the first look, and that the repository around them does not ignore. `git` is the program's path."""
    around: dict[Path, list[Path]] = {}
    entries = sorted(found.entries(), key=lambda entry: len(entry.parts))
    folders = [entry.parent for entry in entries]
    for entry in entries:
        if entry.parent != root and entry.is_dir() and not entry.is_symlink() and found.older(entry / "config"):
            above = next((place for place in entry.parent.parents if place in folders or place == root), root)
            around.setdefault(above, []).append(entry)
    return tuple(entry for above, inner in around.items() for entry in _not_ignored(above, inner, git))


def _not_ignored(above: Path, entries: list[Path], git: str | None) -> Iterator[Path]:
    """Those that the repository at `above` does not ignore: all, where it is none."""
    names = {os.fsencode(entry.parent.relative_to(above)): entry for entry in entries}
    words = ("-c", "core.fsmonitor=false", "check-ignore", "--no-index", "-z", "--stdin")
    ignored: set[bytes] = set()
    if git is not None and (above / ".git").exists():
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        done = subprocess.run(
            [git, *words], cwd=above, env=environment, input=b"\0".join(names), capture_output=True, check=False
        )
        ignored = set(done.stdout.split(b"\0"))
    yield from (entry for name, entry in names.items() if name not in ignored)


def _list(path: str, known: _Listed | None) -> _Listed | None:
    try:
        status = os.lstat(path)
        stamp = (status.st_ino, status.st_ctime_ns)
        if known is not None and known.stamp == stamp:
            return known
        if not stat.S_ISDIR(status.st_mode):
            return None
        with os.scandir(path) as inside:
            kinds = {entry.name: entry.is_dir(follow_symlinks=False) for entry in inside}
    except OSError:
        return None
    if time.time_ns() - status.st_ctime_ns < RACY:
        stamp = (0, 0)
    folders = tuple(name for name, folder in kinds.items() if folder and name != ".git")
    return _Listed(stamp, folders, ".git" in kinds, kinds.keys() >= GIT_MARKS)


def _held(folder: Path) -> Iterator[Path]:
    """The git folders of submodules and of working trees that a git folder keeps."""
    for place, names, files in os.walk(folder / "modules"):
        if "HEAD" in files:
            yield Path(place)
            names[:] = [name for name in names if name in {"modules", "worktrees"}]
    yield from _children(folder / "worktrees")


def _children(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_dir()]
    except OSError:
        return []
