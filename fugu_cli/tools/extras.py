"""What a git tree cannot hold of a working tree: the permission bits of files, and folders that are empty.

Beside snapshots.py, which keeps them with a snapshot as the message of a commit object that nothing refers to, and
restoring.py, which puts them back. Paths are as the os module gives them.
"""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PLAIN, EXECUTABLE = 0o644, 0o755


@dataclass(frozen=True)
class Extras:
    """`plain` and `executable` are the usual bits of files, `modes` those of files that differ; `empty` are folders."""

    plain: int = PLAIN
    executable: int = EXECUTABLE
    modes: Mapping[str, int] = field(default_factory=dict)
    empty: tuple[str, ...] = ()

    def mode(self, path: str, *, executable: bool) -> int:
        """The permission bits of a file."""
        return self.modes.get(path, self.executable if executable else self.plain)

    def written(self) -> bytes:
        """As it is kept; nothing when there is nothing to keep. The same for the same extras."""
        if self == Extras():
            return b""
        kept = {"plain": self.plain, "executable": self.executable, "modes": dict(self.modes), "empty": self.empty}
        return json.dumps(kept, sort_keys=True).encode()


def read(text: bytes) -> Extras:
    """What `written` gave."""
    found = json.loads(text) if text.strip() else {}
    empty = tuple(found.get("empty", ()))
    return Extras(found.get("plain", PLAIN), found.get("executable", EXECUTABLE), found.get("modes", {}), empty)


def look(root: Path, modes: Mapping[str, int], folders: Iterable[str]) -> Extras:
    """The extras of files with these `modes`, and of `folders`, git's untracked ones, in which empty ones may lie."""
    common = Counter(modes.values()).most_common()
    plain = next((mode for mode, _ in common if not mode & 0o100), PLAIN)
    executable = next((mode for mode, _ in common if mode & 0o100), EXECUTABLE)
    usual = {plain, executable}
    odd = {path: mode for path, mode in modes.items() if mode not in usual}
    empty = sorted({found for folder in folders for found in _empty(root, folder)})
    return Extras(plain, executable, dict(sorted(odd.items())), tuple(empty))


def bits(root: Path, files: Iterable[str]) -> dict[str, int]:
    """The permission bits of those of `files` that are files and no links. Written for a hundred thousand of them."""
    found, top, look_at = {}, f"{root}/", os.lstat
    for name in files:
        try:
            mode = look_at(top + name).st_mode
        except OSError:
            continue
        if mode & 0o170000 == stat.S_IFREG:
            found[name] = mode & 0o7777
    return found


def _empty(root: Path, folder: str) -> Iterator[str]:
    """Folders at and below `folder` with nothing in them; nested repositories are left alone."""
    for place, folders, files in os.walk(root / folder):
        if ".git" in folders or ".git" in files:
            folders.clear()
        elif not folders and not files:
            yield os.path.relpath(place, root)


def holds_files(root: Path, folder: str) -> bool:
    """There is a file or a link below `folder`, nested repositories left out."""
    for place, folders, files in os.walk(root / folder):
        if ".git" in folders or ".git" in files:
            folders.clear()
        elif files or any((Path(place) / name).is_symlink() for name in folders):
            return True
    return False


def clear(root: Path, wanted: Extras, now: Extras) -> list[str]:
    """Remove the folders that are empty now and were not then: a file may take their place. Returns which."""
    gone = []
    for folder in sorted(set(now.empty) - set(wanted.empty)):
        for place in (root / folder, *(root / folder).parents):
            if place == root:
                break
            try:
                place.rmdir()
            except OSError:
                break
            gone.append(os.path.relpath(place, root))
    return gone


def put_back(root: Path, wanted: Extras, executable: Mapping[str, bool]) -> Iterator[str]:
    """Make modes and empty folders what they were; yields what was changed. `executable` says for each file of the
    snapshot whether it is. Raises OSError.
    """
    for folder in wanted.empty:
        if not (root / folder).is_dir():
            (root / folder).mkdir(parents=True)
            yield folder
    for path, runs in executable.items():
        mode = wanted.mode(path, executable=runs)
        place = root / path
        if not place.is_symlink() and place.is_file() and stat.S_IMODE(place.stat().st_mode) != mode:
            place.chmod(mode)
            yield path
