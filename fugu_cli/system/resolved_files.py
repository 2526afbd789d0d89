"""Opens files by a resolved path, and refuses a path with a link in it. A command that runs
meanwhile could put such a link there to lead fugu to another file.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_SEARCH_ONLY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY
_OF_THIS_PROCESS = Path("/proc/self/fd")


def open_resolved(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raises OSError, also if a link is in the path. A pipe that
    has taken the file's place is not waited for.
    """
    with resolved_folder(path.parent) as folder:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(folder / path.name, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_resolved(path: Path) -> bytes:
    """Return a file's content. Raises OSError as `open_resolved` does."""
    with open_resolved(path) as file:
        return file.read()


@contextmanager
def resolved_folder(folder: Path, *, make: bool = False) -> Iterator[Path]:
    """Yield a path that leads to the folder even if it is renamed meanwhile. With `make`, a missing
    folder is made.

    Raises OSError if a link is in its path. On systems without `/proc` the folder's own path is
    yielded after it was checked.
    """
    descriptor = os.open("/", _SEARCH_ONLY)
    try:
        for part in folder.parts[1:]:
            if make:
                _make_folder(part, descriptor)
            below = os.open(part, _SEARCH_ONLY | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        has_own_path = sys.platform == "linux" and _OF_THIS_PROCESS.is_dir()
        yield _OF_THIS_PROCESS / str(descriptor) if has_own_path else folder
    finally:
        os.close(descriptor)


@contextmanager
def resolved_entry(path: Path) -> Iterator[Path]:
    """Yield a path that leads to the present file or folder at `path`, even if another one replaces
    it meanwhile.

    Raises OSError if a link is in the path or at its end. On systems without `/proc` a path with
    its last name is yielded after it was checked.
    """
    with resolved_folder(path.parent) as folder:
        entry = folder / path.name
        if entry.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        if folder.parent != _OF_THIS_PROCESS:
            yield entry
            return
        descriptor = os.open(entry, os.O_PATH | os.O_NOFOLLOW)
        try:
            if stat.S_ISLNK(os.fstat(descriptor).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            yield _OF_THIS_PROCESS / str(descriptor)
        finally:
            os.close(descriptor)


def remove_empty_folders(folder: Path, root: Path) -> None:
    """Remove a folder below `root` and the folders around it, up to the first that is not empty or
    cannot be removed.
    """
    while folder != root:
        try:
            with resolved_folder(folder.parent) as above:
                (above / folder.name).rmdir()
        except OSError:
            return
        folder = folder.parent


def _make_folder(name: str, parent: int) -> None:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        os.mkdir(name, dir_fd=parent)
