"""git repositories: the user's, found without running git, and fugu's own beside it (the shadow
repository).

The shadow repository holds the snapshots, its own objects and its own index; nothing of the user's
is touched. Every conversion is off, so that a file's bytes are its blob's bytes. Each git call
names git folder, working tree and index itself, reads no configuration but ours, runs no hook, no
filter and no file monitor, and never asks. Blobs are read and written here too, without starting
git where they are not packed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.errors import StorageError
from fugu_cli.safety.git_process import (
    GitOutput,
    own_environment,
    run_git,
    start_git,
    users_environment,
)
from fugu_cli.system.atomic_files import make_private_folder, storage_error, write_atomically
from fugu_cli.system.file_locks import try_lock
from fugu_cli.system.processes import reap

GIT_OPTIONS = (
    "-c", "core.attributesFile=/dev/null",
    "-c", "core.autocrlf=false", "-c", "core.safecrlf=false", "-c", "core.symlinks=true", "-c", "core.fileMode=true",
    "-c", "core.quotePath=false", "-c", "core.compression=1", "-c", "gc.auto=0", "-c", "core.bigFileThreshold=64m",
    "-c", "core.fsync=none", "-c", "advice.addEmbeddedRepo=false", "-c", "core.preloadIndex=true",
)  # fmt: skip


@dataclass(frozen=True)
class Git:
    """Runs git in `cwd` with the git folder `folder`, the working tree `tree` and the index
    `index`. It can also read the objects in `borrowed`, the object folder of another repository.
    """

    folder: Path
    tree: Path
    index: Path
    cwd: Path
    borrowed: Path | None = None

    def environment(self) -> dict[str, str]:
        more = (
            {}
            if self.borrowed is None
            else {"GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(self.borrowed)}
        )
        folders = {"GIT_DIR": self.folder, "GIT_WORK_TREE": self.tree, "GIT_INDEX_FILE": self.index}
        return own_environment(**more, **{name: str(path) for name, path in folders.items()})

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """Start git with all three streams piped. Raises UsageError if git is missing."""
        return await start_git(
            self.tree, *GIT_OPTIONS, *arguments, environment=self.environment(), cwd=self.cwd
        )

    def run_now(self, *arguments: str, stdin: bytes = b"") -> GitOutput:
        """Run git to its end while nothing else goes on."""
        environment = self.environment()
        return run_git(
            self.tree, *GIT_OPTIONS, *arguments, environment=environment, cwd=self.cwd, stdin=stdin
        )

    async def try_run(self, *arguments: str, stdin: bytes = b"") -> GitOutput:
        """Run git to its end; a cancelled call ends the process."""
        process = await self.start(*arguments)
        output, errors = await communicate(process, stdin)
        return GitOutput(process.returncode or 0, output, errors.decode("utf-8", "replace").strip())

    async def run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run git and return its output. Raises StorageError when it fails."""
        done = await self.try_run(*arguments, stdin=stdin)
        if done.code:
            raise StorageError(
                f"git {arguments[0]} failed on fugu's store of snapshots: "
                f"{done.err or f'exit code {done.code}'}",
                hint=(
                    f"make room on the disk, or remove {self.folder} to start a new store "
                    f"(older undo steps are lost)"
                ),
            )
        return done.out


async def communicate(
    process: asyncio.subprocess.Process, stdin: bytes | None = None
) -> tuple[bytes, bytes]:
    """Run a process to its end and return output and errors. A cancelled call ends it."""
    try:
        return await process.communicate(stdin)
    finally:
        await reap(process)


def _quoted(path: Path) -> str:
    """Quote a path for git's lists of folders if it needs quotes."""
    text = str(path)
    if text.startswith('"') or os.pathsep in text or "\n" in text:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    return text


def split_names(output: bytes) -> list[str]:
    """Split NUL-separated paths, as the os module gives them."""
    return [os.fsdecode(name) for name in output.split(b"\0") if name]


@dataclass(frozen=True)
class Repository:
    """`top` is the working tree's root, `folder` its own git folder (index, HEAD), `common` what
    worktrees share.
    """

    top: Path
    folder: Path
    common: Path

    @property
    def objects(self) -> Path:
        return self.common / "objects"

    @property
    def index(self) -> Path:
        return self.folder / "index"

    @property
    def is_sparse(self) -> bool:
        """True if some of its files may be left out of the working tree."""
        configs = (self.common / "config", self.folder / "config.worktree")
        return any("sparsecheckout" in _read_text(path).lower() for path in configs)

    @property
    def hash_name(self) -> str:
        """The hash its object ids are made with: sha1 or sha256."""
        try:
            text = (self.common / "config").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return "sha1"
        match = re.search(r"^\s*objectformat\s*=\s*(\w+)", text, re.MULTILINE | re.IGNORECASE)
        return match.group(1).lower() if match else "sha1"


def find_repository(root: Path) -> Repository | None:
    """Return the repository whose working tree contains `root`, None if there is none."""
    for top in (root, *root.parents):
        folder = _git_folder(top / ".git")
        if folder is not None:
            return Repository(top, folder, _common(folder))
    return None


def _git_folder(entry: Path) -> Path | None:
    """Return the folder that is .git, or that a .git file (worktree, submodule) names."""
    try:
        if entry.is_file():
            text = entry.read_text(encoding="utf-8", errors="surrogateescape")
            if not text.startswith("gitdir:"):
                return None
            entry = (entry.parent / text.removeprefix("gitdir:").strip()).resolve()
        return entry if (entry / "HEAD").is_file() or (entry / "HEAD").is_symlink() else None
    except OSError:
        return None


def _common(folder: Path) -> Path:
    try:
        return (folder / (folder / "commondir").read_text(encoding="utf-8").strip()).resolve()
    except OSError:
        return folder


ATTRIBUTES = "* -text -ident -filter -working-tree-encoding\n"
LOCK_SECONDS = 60


def prepare_shadow_repository(store: Path, repository: Repository, excludes: str) -> None:
    """Make the folder, or bring its copies of the user's ignore rules up to date. Raises
    StorageError.

    `excludes` is the path of the user's own ignore file (core.excludesFile), "" for git's default
    place.
    """
    files = {
        "HEAD": "ref: refs/heads/none\n",
        "config": _config(repository.hash_name, excludes),
        "info/attributes": ATTRIBUTES,
    }
    if repository.common.is_dir():  # else somebody removed it: what it ignored is no new file
        files["info/exclude"] = _read_text(repository.common / "info" / "exclude")
    try:
        make_private_folder(store)
        for folder in ("objects/info", "objects/pack", "refs/heads", "info"):
            (store / folder).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            if _read_text(store / name) != text or not (store / name).exists():
                write_atomically(store / name, text.encode("utf-8", "surrogateescape"))
        (store / "objects" / "info" / "alternates").unlink(missing_ok=True)  # of older versions
    except OSError as error:
        failed = storage_error(error, store)
        if not isinstance(failed, StorageError):
            failed = StorageError(
                f"the snapshots of this repository cannot be kept in {store}: {error.strerror}",
                hint="make the folder writable, or set XDG_DATA_HOME to one that is",
            )
        raise failed from error


def _config(hash_name: str, excludes: str) -> str:
    lines = ["[core]", f"\trepositoryformatversion = {0 if hash_name == 'sha1' else 1}"]
    if excludes:
        escaped = excludes.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'\texcludesFile = "{escaped}"')
    if hash_name != "sha1":
        lines += ["[extensions]", f"\tobjectFormat = {hash_name}"]
    return "\n".join(lines) + "\n"


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def clear_index(store: Path, index: Path) -> None:
    """Remove the index, which is made again, and what git left half-written: it may be what fills
    the disk.
    """
    patterns = ("objects/tmp_*", "objects/*/tmp_*", "fast_import_crash_*")
    left = [path for pattern in patterns for path in store.glob(pattern)]
    for path in (index, Path(f"{index}.lock"), *left):
        with contextlib.suppress(OSError):
            path.unlink()


async def user_excludes_file(root: Path) -> str:
    """Return the user's core.excludesFile, "" if it is not set. Raises StorageError."""
    process = await start_git(
        root, "config", "--path", "--get", "core.excludesFile", environment=users_environment()
    )
    output, _ = await communicate(process)
    return output.decode("utf-8", "surrogateescape").strip() if process.returncode == 0 else ""


def user_git(repository: Repository, root: Path) -> Git:
    """Return git on the user's own index, for reading."""
    return Git(repository.folder, repository.top, repository.index, root)


@contextlib.asynccontextmanager
async def store_lock(store: Path, *, alone: bool = False) -> AsyncIterator[None]:
    """Hold the store beside other processes, or `alone`, for removing objects. Raises
    StorageError."""
    with contextlib.ExitStack() as stack:
        try:
            make_private_folder(store)
            lock = stack.enter_context((store / "fugu.lock").open("ab"))
        except OSError as error:
            raise StorageError(
                f"the snapshots of this repository cannot be kept in {store}: {error.strerror}",
                hint="make the folder writable and make room on the disk",
            ) from error
        for _ in range(LOCK_SECONDS * 50):
            if try_lock(lock.fileno(), shared=not alone):
                break
            await asyncio.sleep(0.02)
        else:
            raise StorageError(
                f"another fugu process has held the snapshots in {store} for {LOCK_SECONDS} s",
                hint="wait for it, or end it, then try again",
            )
        yield


LARGEST_BLOB = 64 << 20
"""Bytes of a file that is read whole."""


def blob_id(data: bytes, hash_name: str = "sha1") -> str:
    """Return git's id of these bytes."""
    return hashlib.new(hash_name, b"blob %d\0" % len(data) + data).hexdigest()


def file_state(path: Path, hash_name: str = "sha1") -> tuple[str | None, str]:
    """Return git's id and mode of a file or link, None and "" if there is neither. Raises OSError."""
    if path.is_symlink():
        return blob_id(os.fsencode(path.readlink()), hash_name), "120000"
    if not path.is_file():
        return None, ""
    return blob_id(
        path.read_bytes(), hash_name
    ), "100755" if path.stat().st_mode & 0o100 else "100644"


def store_blob(objects: Path, data: bytes, hash_name: str = "sha1") -> str:
    """Store `data`; returns its id. Raises StorageError when there is no room."""
    name = blob_id(data, hash_name)
    path = objects / name[:2] / name[2:]
    if not path.exists():
        write_atomically(path, zlib.compress(b"blob %d\0" % len(data) + data, 1), 0o444)
    return name


def loose_blob(objects: Path, name: str) -> bytes | None:
    """Return the bytes of an unpacked object, None if it is not here."""
    try:
        raw = zlib.decompress((objects / name[:2] / name[2:]).read_bytes())
    except (FileNotFoundError, zlib.error):
        return None
    return raw.partition(b"\0")[2]


class BlobReader:
    """Reads contents from a store. Packed contents are read by one git process, which stays open."""

    def __init__(self, objects: Path, git: Git | None) -> None:
        self._objects, self._git = objects, git
        self._process: asyncio.subprocess.Process | None = None

    async def read(self, name: str) -> bytes:
        """Return the bytes of a blob. Raises StorageError if it is gone."""
        data = loose_blob(self._objects, name)
        if data is None and self._git is not None:
            self._process = self._process or await self._git.start("cat-file", "--batch")
            data = await _read_from_git(self._process, name)
        if data is None:
            raise StorageError(
                f"the content {name[:12]} is not in the store", hint="it cannot be put back"
            )
        return data

    async def close(self) -> None:
        """End the git process."""
        if self._process is not None:
            await reap(self._process)


async def _read_from_git(process: asyncio.subprocess.Process, name: str) -> bytes | None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(name.encode() + b"\n")
    await process.stdin.drain()
    head = (await process.stdout.readline()).split()
    if len(head) != 3 or head[1] != b"blob":
        return None
    data = await process.stdout.readexactly(int(head[2]))
    await process.stdout.readexactly(1)
    return data


@asynccontextmanager
async def open_blobs(objects: Path, git: Git | None) -> AsyncIterator[BlobReader]:
    """Yield a reader of a store's folder of objects; `git` reads those that it has packed."""
    reader = BlobReader(objects, git)
    try:
        yield reader
    finally:
        await reader.close()
