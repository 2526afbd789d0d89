"""Locks on open files. The kernel frees a lock when the file is closed or its process dies.

On a system without `fcntl` (Windows) taking a lock raises OSError, as on a disk without locks.
"""

from __future__ import annotations

import errno

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def try_lock(file: int, *, shared: bool = False) -> bool:
    """Lock an open file without waiting. Return False if somebody else holds the lock. Raises
    OSError if the system has no locks.
    """
    try:
        _flock(file, "LOCK_SH" if shared else "LOCK_EX", "LOCK_NB")
    except BlockingIOError:
        return False
    return True


def unlock(file: int) -> None:
    """Let go of a lock while the file stays open."""
    _flock(file, "LOCK_UN")


def _flock(file: int, *flags: str) -> None:
    if fcntl is None:
        raise OSError(errno.ENOLCK, "this system has no file locks of this kind")
    fcntl.flock(file, sum(getattr(fcntl, flag) for flag in flags))
