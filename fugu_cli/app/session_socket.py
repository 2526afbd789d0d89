"""The Unix socket of a running session: where it lies, and who may connect.

The folder is open to its user alone. Commands of agents do not reach it: the sandbox covers the
runtime folder and `/tmp`, or allows no Unix sockets (`fugu help sandbox`).
"""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import struct
import tempfile
from contextlib import suppress
from pathlib import Path

from fugu_cli.errors import InfrastructureError

LONGEST_PATH = 103
"""Bytes of a socket's path on macOS, without the zero at its end. Linux has 107."""
PROTOCOL = 1
"""Raised when messages change so that an earlier fugu cannot read them."""
MOST_LEFTOVERS = 64
"""Files in the folder before those that nobody listens on are removed."""
LONGEST_LINE = 4 << 20
"""Bytes of one message from a follower."""


def socket_path(log_path: Path) -> Path:
    """Return the path for the socket of the session at `log_path`, in a folder of the user's alone,
    which is made. Raises InfrastructureError where there is none.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise InfrastructureError("this system has no Unix sockets")
    location = os.path.realpath(log_path).encode("utf-8", "surrogateescape")
    name = f"{hashlib.sha256(location).hexdigest()[:16]}.sock"
    reason = "there is no folder for it"
    for folder in _runtime_folders():
        path = folder / name
        if len(os.fsencode(path)) > LONGEST_PATH:
            reason = f"the path {path} is too long for a socket"
            continue
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            status = folder.lstat()
        except OSError as error:
            reason = f"cannot make {folder}: {error.strerror}"
            continue
        if _is_private(status):
            _remove_leftovers(folder)
            return path
        reason = f"{folder} is not a folder that only you can open"
    raise InfrastructureError(reason, hint="set XDG_RUNTIME_DIR to a folder of your own")


def _runtime_folders() -> list[Path]:
    """Return the folders that may hold sockets, the best first."""
    folders = []
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if Path(runtime).is_absolute():
        folders.append(Path(runtime) / "fugu")
    folders += [Path(base) / f"fugu-{os.geteuid()}" for base in (tempfile.gettempdir(), "/tmp")]
    return folders


def _is_private(status: os.stat_result) -> bool:
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not stat.S_IMODE(status.st_mode) & 0o077
    )


def _remove_leftovers(folder: Path) -> None:
    """Remove the sockets that killed processes left, once there are many."""
    with suppress(OSError):
        paths = list(folder.iterdir())
        for path in paths if len(paths) > MOST_LEFTOVERS else ():
            with socket.socket(socket.AF_UNIX) as probe:
                try:
                    probe.connect(str(path))
                except ConnectionRefusedError:
                    path.unlink(missing_ok=True)
                except OSError:
                    continue


def is_same_user(connection: socket.socket) -> bool:
    """Return whether the other end belongs to this user. Where the system cannot say, the folder
    lets nobody else in.
    """
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, size))
    return bool(user == os.geteuid())
