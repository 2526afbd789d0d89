"""Files written whole or not at all: a crash or a full disk leaves the old file.

`write_atomically` writes the user's files, for tools and for undo. It keeps mode, owner and
extended attributes, but no hard links: written in place, a file would also change under its other
names, which may lie outside the repository (in the stores of pnpm and uv), and a crash could leave
half of it. `replacement_file` writes fugu's own files: settings, caches, checkpoints.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from fugu_cli.errors import StorageError
from fugu_cli.system.processes import is_running
from fugu_cli.system.resolved_files import resolved_entry, resolved_folder

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})


def write_atomically(
    path: Path, data: bytes, mode: int | None = None, folder: Path | None = None
) -> None:
    """Write `data` to `path` through a new file in the same folder that then replaces it.

    `folder` is another path of that folder, as `resolved_folder` yields one. Missing folders are
    made. `mode` (permission bits) defaults to that of the old file, or for a new file to what the
    umask leaves. A link at `path` is replaced: resolve it first to write its target.

    Raises StorageError if the disk is full or broken, OSError for a path that cannot be written.
    """
    written = path if folder is None else folder / path.name
    try:
        old = _lstat(written)
        with replacement_file(written, mode) as draft, draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if old is not None and (old.st_uid, old.st_gid) != (os.getuid(), os.getgid()):
                with contextlib.suppress(PermissionError):
                    os.fchown(file.fileno(), old.st_uid, old.st_gid)
            if old is not None and stat.S_ISREG(old.st_mode):
                _keep_attributes(written, file.fileno())
    except OSError as error:
        raise storage_error(error, path) from error


@contextlib.contextmanager
def replacement_file(path: Path, mode: int | None = None) -> Iterator[Path]:
    """Yield an empty file that replaces `path` when the block ends, and is removed if it fails.

    The file has the folder and the suffix of `path`. Folders and `mode` are as in
    `write_atomically`. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=_prefix(), suffix=path.suffix, dir=path.parent)
    os.close(descriptor)
    draft = Path(name)
    try:
        yield draft
        draft.chmod(mode if mode is not None else _mode(_lstat(path)))
        draft.replace(path)
    except BaseException:  # an interrupt too: no half-written file may stay
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def _prefix() -> str:
    """Return the beginning of the names of this process's drafts, by which other processes leave
    them alone.
    """
    return f".fugu-{os.getpid()}-"


_DRAFT = re.compile(r"\.fugu-(?P<process>\d+)-[a-z0-9_]{8}(\.[^.]*)?")


def is_draft(name: str) -> bool:
    """Return whether `name` is a half-written file of a process that has ended."""
    match = _DRAFT.fullmatch(name)
    return match is not None and not is_running(int(match["process"]))


def remove_drafts(folders: Iterable[Path], since: float) -> None:
    """Remove files in `folders` that killed processes had half written. `since`, in seconds since
    the epoch, is the time when these processes began.
    """
    for folder in folders:
        with contextlib.suppress(OSError):
            for draft in list(folder.iterdir()):
                if is_draft(draft.name) and draft.lstat().st_ctime >= since - 1:
                    if draft.is_dir() and not draft.is_symlink():
                        (draft / "link").unlink(missing_ok=True)
                        draft.rmdir()
                    else:
                        draft.unlink(missing_ok=True)


def make_private_folder(path: Path) -> None:
    """Make a folder that only its owner can read. An existing one gets these rights. Raises
    OSError.
    """
    path.mkdir(parents=True, exist_ok=True)
    if stat.S_IMODE(path.stat().st_mode) != 0o700:
        path.chmod(0o700)


def storage_error(error: OSError, path: Path) -> OSError | StorageError:
    """Return the error to raise: StorageError for faults that no other path would avoid."""
    if error.errno not in NO_ROOM:
        return error
    return StorageError(
        f"{path} could not be written: {error.strerror}",
        hint="make room on the disk, then continue the session",
    )


def _keep_attributes(path: Path, descriptor: int) -> None:
    """Copy the old file's extended attributes, access lists included, as far as that is permitted."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        for name in os.listxattr(path, follow_symlinks=False):
            with contextlib.suppress(OSError):
                value = os.getxattr(path, name, follow_symlinks=False)
                os.setxattr(descriptor, name, value)


def _lstat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def _mode(old: os.stat_result | None) -> int:
    if old is not None and stat.S_ISREG(old.st_mode):
        return stat.S_IMODE(old.st_mode)
    return 0o666 & ~_umask()


def _umask() -> int:
    """Return the process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def link_atomically(path: Path, target: str) -> None:
    """Make a symbolic link at `path`, replacing any file. Raises OSError, also where a link is in
    the path.
    """
    with (
        resolved_folder(path.parent, make=True) as folder,
        tempfile.TemporaryDirectory(prefix=_prefix(), dir=folder) as temporary,
    ):
        link = Path(temporary) / "link"
        link.symlink_to(target)
        link.replace(folder / path.name)


def executable_bits(bits: int, executable: bool) -> int:
    """Return the permission `bits` with execution for everybody who may read, or for nobody."""
    return bits | (bits & 0o444) >> 2 if executable else bits & ~0o111


def make_executable(path: Path, executable: bool) -> None:
    """Set whether everybody who may read the file may run it. Raises OSError, also where a link is
    in the path.
    """
    with resolved_entry(path) as entry:
        entry.chmod(executable_bits(stat.S_IMODE(entry.stat().st_mode), executable))
