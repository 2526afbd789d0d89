"""Temporary folders that are removed, even if their process is killed.

Each folder is locked by its process. The first one that a process makes also removes the folders
that killed processes of the same user left: those that nobody locks.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from fugu_cli.system.file_locks import try_lock

PREFIX = "fugu-tmp-"
OURS = re.compile(rf"{PREFIX}[a-z]+-[a-z0-9_]{{8}}")
"""The names of these folders. Nothing else is named so: people have folders `fugu-...` there, too."""
MIN_AGE_SECONDS = 600.0
"""Seconds for which a folder is left alone that nobody holds: its process may be about to, or what
it started may just be ending."""

PROBE_BYTES = 1 << 20
"""Bytes without which a disk is taken for full: test runners and compilers write as much."""
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextlib.contextmanager
def temp_dir(purpose: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a folder for `purpose` (small letters) in `parent`, by default the system's temporary
    folder. It is removed with its content when the block ends.
    """
    parent = parent or Path(tempfile.gettempdir())
    _sweep_once(parent)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-", dir=parent))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # a disk without locks: then nobody else can take it either
        with contextlib.suppress(OSError):
            try_lock(descriptor, shared=True)
        yield folder
    finally:
        _remove(folder)
        os.close(descriptor)


def is_disk_full(folder: Path) -> bool:
    """Return whether the disk, or the user's share of it, has no room for a small file in `folder`."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            return (file.write(bytes(PROBE_BYTES)) or 0) < PROBE_BYTES
    except OSError as error:
        return error.errno in NO_ROOM


@functools.cache
def _sweep_once(folder: Path) -> None:
    """Remove leftovers on a thread that nobody waits for, since they may be whole repositories."""
    threading.Thread(
        target=remove_leftovers,
        args=(folder, time.time() - MIN_AGE_SECONDS, os.geteuid()),
        daemon=True,
    ).start()


def remove_leftovers(folder: Path, before: float, user: int) -> None:
    """Remove the folders that killed processes of `user` left in `folder`: those that were not
    touched since `before` and whose lock is free.

    Locks also work between containers that share the disk. A folder that cannot be removed is left.
    """
    with contextlib.suppress(OSError):
        for leftover in sorted(folder.iterdir()):
            if OURS.fullmatch(leftover.name):
                _sweep(leftover, before, user)


def _sweep(folder: Path, before: float, user: int) -> None:
    try:
        # no link that somebody laid there
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        status = os.fstat(descriptor)
        if status.st_uid == user and status.st_mtime < before and try_lock(descriptor):
            _remove(folder)
    except OSError:
        return
    finally:
        os.close(descriptor)


def _remove(left: Path) -> None:
    """Remove a folder with read-only folders in it. Links are not followed."""
    # a command can nest folders deeper than Python can go
    with contextlib.suppress(RecursionError):
        for _, _, _, descriptor in os.fwalk(left):
            with contextlib.suppress(OSError):
                os.fchmod(descriptor, stat.S_IRWXU)
        shutil.rmtree(left, ignore_errors=True)
