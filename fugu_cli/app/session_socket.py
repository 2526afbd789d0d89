"""The path of a running session's Unix socket, and the check of who connects to it.

Only the user can open the folder. Commands of agents cannot reach it: the sandbox hides the runtime
folder and `/tmp`, or allows no Unix sockets (`fugu help sandbox`).
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
"""Bytes that macOS allows in the path of a socket, without the final zero. Linux allows 107."""
PROTOCOL = 1
"""Raised when messages change so that an earlier fugu cannot read them."""
MOST_LEFTOVERS = 64
"""With more files in the folder, the sockets on which nobody listens are removed."""
LONGEST_LINE = 4 << 20
"""Bytes of one message from a follower."""


def socket_path(log_path: Path) -> Path:
    """Return the path for the socket of the session at `log_path`. Makes its folder, which only the
    user can open. Raises InfrastructureError where no such folder can be made.
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
        if len(paths) <= MOST_LEFTOVERS:
            return
        for path in paths:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.setblocking(False)  # a stopped session with a full backlog would hold us up
                try:
                    probe.connect(str(path))
                except ConnectionRefusedError:
                    path.unlink(missing_ok=True)
                except OSError:
                    continue


def is_same_user(connection: socket.socket) -> bool:
    """Return whether a process of this user is at the other end. Where the system cannot say, return
    True: nobody else can open the folder of the socket.
    """
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, size))
    return bool(user == os.geteuid())
