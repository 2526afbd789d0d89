"""Temporary folders that are removed, also after their process was killed.

Each is locked by the process that works in it. The first one that a process makes takes away those
that earlier processes left: folders of the same user that nobody holds any more. Knows nothing of
what they are for.
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
"""How they are called, and nothing else in a temporary directory is: people have folders `fugu-...`
there as well.
"""
MIN_AGE_SECONDS = 600.0
"""Seconds for which a folder is left alone that nobody holds: its process may be about to, or what
it started may just be ending."""

PROBE_BYTES = 1 << 20
"""Bytes without which a disk is taken for full: test runners and compilers write as much."""
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextlib.contextmanager
def temp_dir(what: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a folder for `what` (small letters) in `parent` (default: the system's), and remove it
    with everything in it when the block is left.
    """
    parent = parent or Path(tempfile.gettempdir())
    _sweep_once(parent)
    made = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{what}-", dir=parent))
    held = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(
            OSError
        ):  # a disk without locks: then nobody else can take it either
            try_lock(held, shared=True)
        yield made
    finally:
        _remove(made)
        os.close(held)


def is_disk_full(place: Path) -> bool:
    """Return whether the disk, or the user's share of it, has no room for a small file in `place`."""
    try:
        with tempfile.TemporaryFile(dir=place, buffering=0) as file:
            return (file.write(bytes(PROBE_BYTES)) or 0) < PROBE_BYTES
    except OSError as error:
        return error.errno in NO_ROOM


@functools.cache
def _sweep_once(place: Path) -> None:
    """Remove leftovers on a thread that nobody waits for, since they may be whole repositories."""
    threading.Thread(
        target=remove_leftovers,
        args=(place, time.time() - MIN_AGE_SECONDS, os.geteuid()),
        daemon=True,
    ).start()


def remove_leftovers(place: Path, before: float, user: int) -> None:
    """Remove what killed processes of `user` left in `place`: folders untouched since `before`
    whose lock is free.

    A lock holds wherever the disk is the same, in other containers too. What cannot be removed is
    left.
    """
    with contextlib.suppress(OSError):
        for left in sorted(place.iterdir()):
            if OURS.fullmatch(left.name):
                _sweep(left, before, user)


def _sweep(left: Path, before: float, user: int) -> None:
    try:
        held = os.open(
            left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        )  # no link that somebody laid there
    except OSError:
        return
    try:
        found = os.fstat(held)
        if found.st_uid == user and found.st_mtime < before and try_lock(held):
            _remove(left)
    except OSError:
        return
    finally:
        os.close(held)


def _remove(left: Path) -> None:
    """Remove a folder with read-only folders in it. Links are not followed."""
    with contextlib.suppress(
        RecursionError
    ):  # a command can nest folders deeper than Python can go
        for _, _, _, descriptor in os.fwalk(left):
            with contextlib.suppress(OSError):
                os.fchmod(descriptor, stat.S_IRWXU)
        shutil.rmtree(left, ignore_errors=True)
