"""fugu's own git folder for a repository: its snapshots live there, nothing of the user's is touched.

Made and refreshed here, used by snapshots.py. It has its own objects and its own index, so it outlives the repository,
and turns every conversion off, so that a file's bytes are its blob's bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from filelock import FileLock, Timeout

from fugu_cli.atomic import storage, write_whole
from fugu_cli.errors import StorageError
from fugu_cli.tools.git import LOCAL, Git, gone, program, said
from fugu_cli.tools.repository import Repository

ATTRIBUTES = "* -text -ident -filter -working-tree-encoding\n"
LOCK_SECONDS = 60


def prepare(store: Path, repository: Repository, excludes: str) -> None:
    """Make the folder, or bring its copies of the user's ignore rules up to date. Raises StorageError.

    `excludes` is the path of the user's own ignore file (core.excludesFile), "" for git's default place.
    """
    files = {
        "HEAD": "ref: refs/heads/none\n",
        "config": _config(repository.hash_name, excludes),
        "info/attributes": ATTRIBUTES,
    }
    if repository.common.is_dir():  # else somebody removed it: what it ignored is no new file
        files["info/exclude"] = _read(repository.common / "info" / "exclude")
    try:
        for folder in ("objects/info", "objects/pack", "refs/heads", "info"):
            (store / folder).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            if _read(store / name) != text or not (store / name).exists():
                write_whole(store / name, text.encode("utf-8", "surrogateescape"))
        (store / "objects" / "info" / "alternates").unlink(missing_ok=True)  # of older versions
    except OSError as error:
        failed = storage(error, store)
        raise (
            failed
            if isinstance(failed, StorageError)
            else StorageError(
                f"the snapshots of this repository cannot be kept in {store}: {error.strerror}",
                hint="make the folder writable, or set XDG_DATA_HOME to one that is",
            )
        ) from error


def _config(hash_name: str, excludes: str) -> str:
    lines = ["[core]", f"\trepositoryformatversion = {0 if hash_name == 'sha1' else 1}"]
    if excludes:
        escaped = excludes.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'\texcludesFile = "{escaped}"')
    if hash_name != "sha1":
        lines += ["[extensions]", f"\tobjectFormat = {hash_name}"]
    return "\n".join(lines) + "\n"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def clear(store: Path) -> None:
    """Remove the index, which is made anew, and what git left half-written: it may be what fills the disk."""
    for pattern in ("index", "index.lock", "objects/tmp_*", "objects/*/tmp_*"):
        for path in store.glob(pattern):
            with contextlib.suppress(OSError):
                path.unlink()


async def users_excludes(root: Path) -> str:
    """The user's core.excludesFile as their configuration names it, "" when it does not. Raises StorageError."""
    kept = {name: value for name, value in os.environ.items() if name not in LOCAL}
    try:
        process = await asyncio.create_subprocess_exec(
            program(root) or "git", "config", "--path", "--get", "core.excludesFile", cwd=root, env=kept,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise gone(root) from error
    out, _ = await said(process)
    return out.decode("utf-8", "surrogateescape").strip() if process.returncode == 0 else ""


def users_git(repository: Repository, root: Path) -> Git:
    """git on the user's own index, for reading it."""
    return Git(repository.folder, repository.top, repository.index, root)


@contextlib.asynccontextmanager
async def locked(store: Path) -> AsyncIterator[None]:
    """Alone with the store, among all processes. A lock file git left behind when it was killed is removed."""
    lock = FileLock(store / "fugu.lock", thread_local=False)
    for _ in range(LOCK_SECONDS * 50):
        try:
            store.mkdir(parents=True, exist_ok=True)
            lock.acquire(blocking=False)
            break
        except Timeout:
            await asyncio.sleep(0.02)
        except OSError as error:
            raise StorageError(
                f"the snapshots of this repository cannot be kept in {store}: {error.strerror}",
                hint="make the folder writable and make room on the disk",
            ) from error
    else:
        raise StorageError(
            f"another fugu process has held the snapshots in {store} for {LOCK_SECONDS} s",
            hint="wait for it, or end it, then try again",
        )
    try:
        (store / "index.lock").unlink(missing_ok=True)
        yield
    finally:
        lock.release()
