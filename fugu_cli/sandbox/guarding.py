"""Files that a command must leave as they are, put back after it where the sandbox could not forbid writing them.

For Landlock without namespaces, whose rules can only add: what may write the repository may write `.git/hooks` as well;
and for files that are not there yet, over which nothing can be laid. What a command leaves there lives for as long as
the command does.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

Kept = tuple[int, bytes]
"""A file's mode and content, or a link's mode and where it leads."""


class Guard:
    """Remembers the files at and below `paths`; `restore` makes them that again."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = tuple(Path(path) for path in paths)
        self._kept = {path: content(path) for path in self._all()}

    def _all(self) -> Iterator[Path]:
        for path in self._paths:
            if path.is_dir() and not path.is_symlink():
                yield from (Path(folder) / name for folder, _, names in os.walk(path) for name in names)
            elif os.path.lexists(path):
                yield path

    def restore(self) -> tuple[Path, ...]:
        """Put back what was changed; returns which files. Raises OSError."""
        now = {path: content(path) for path in self._all()}
        unknown = {path for path, kept in self._kept.items() if kept is None}  # it could not be read before
        changed = [path for path in {**now, **self._kept} if now.get(path) != self._kept.get(path)]
        changed = [path for path in changed if path not in unknown]
        for path in changed:
            _clear(path)
            kept = self._kept.get(path)
            if kept is not None:
                put(path, *kept)
        return tuple(changed)


class Restores(Protocol):
    """Something that was remembered; `restore` says which files it put back. Raises OSError."""

    def restore(self) -> tuple[Path, ...]: ...


class Guards:
    """Several of them as one."""

    def __init__(self, guards: Sequence[Restores]) -> None:
        self._guards = tuple(guards)

    def restore(self) -> tuple[Path, ...]:
        """All of them, in order."""
        return tuple(dict.fromkeys(path for guard in self._guards for path in guard.restore()))


def content(path: Path, largest: float = math.inf) -> Kept | None:
    """Mode and content, of a link where it leads; None where there is nothing. Of a file with more than `largest` bytes
    no content."""
    try:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            return found.st_mode, os.fsencode(path.readlink())
        plain = stat.S_ISREG(found.st_mode) and found.st_size <= largest
        return found.st_mode, path.read_bytes() if plain else b""
    except OSError:
        return None


def put(path: Path, mode: int, data: bytes) -> None:
    """Make a file, a link or a folder what it was. Nothing is there. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if stat.S_ISLNK(mode):
        path.symlink_to(os.fsdecode(data))
    elif stat.S_ISREG(mode):
        path.write_bytes(data)
        path.chmod(stat.S_IMODE(mode))
    elif stat.S_ISDIR(mode):
        path.mkdir(exist_ok=True)


def _clear(path: Path) -> None:
    """Nothing at `path`, and folders above it that are folders."""
    for parent in path.parents:
        if parent.is_symlink() or parent.is_file():
            parent.unlink()
            break
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()
