"""The working tree as git trees: taken, compared, and (restoring.py) put back, exactly.

Under the workspace. A snapshot holds every file git does not ignore, untracked ones included, byte for byte with its
mode; links as links; empty folders (extras.py). Nested repositories are left alone. The user's index, refs and objects
are only read.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fugu_cli.errors import StorageError
from fugu_cli.events import Change
from fugu_cli.policy.paths import shown
from fugu_cli.processes import reap
from fugu_cli.tools import extras
from fugu_cli.tools.git import Git, Output, names
from fugu_cli.tools.repository import Repository
from fugu_cli.tools.store import clear, locked, prepare, users_excludes, users_git

FEW = 100
"""Changed paths that are given to git by name."""
PRUNED = "pruned"
"""A file in the store that is touched when objects were removed."""
NESTED = "160000"
"""The mode of a nested repository in a tree."""


@dataclass(frozen=True)
class Difference:
    """One path that differs between two trees; mode and blob are "" where it does not exist. `path` as os gives it."""

    path: str
    old_mode: str
    mode: str
    old_blob: str
    blob: str


@dataclass(frozen=True)
class _Newest:
    """The newest snapshot: its tree, git's index then, its files, its id, and its extras as they are kept."""

    tree: str
    index: object
    files: tuple[str, ...]
    name: str
    extras: bytes = b""


class Snapshots:
    """Trees of `root`, which is the top of its repository or a folder in it, kept in `store`."""

    def __init__(self, root: Path, store: Path, repository: Repository) -> None:
        self.root = root
        self.store = store
        self.repository = repository
        self.git = Git(store, repository.top, store / "index", root)
        self._alone = asyncio.Lock()
        self._ready = False
        self._newest: _Newest | None = None
        self._pruned: object = None
        self._ignored_when: object = None
        self._forced: tuple[str, ...] = ()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Alone with the store, which is ready."""
        async with self._alone, locked(self.store):
            if not self._ready:
                prepare(self.store, self.repository, await users_excludes(self.root))
                self._ready = True
            if (mark := _stamp(self.store / PRUNED)) != self._pruned:
                self._newest, self._pruned = None, mark  # its objects may be gone
            yield

    async def take(self) -> str:
        """The tree id of the working tree as it is now. Raises StorageError."""
        async with self.held():
            return await self.take_held()

    async def take_held(self) -> str:
        """`take` for who holds the store already. An index that git cannot use any more is made anew."""
        try:
            return await self._take()
        except StorageError:
            clear(self.store)
            self._newest = self._ignored_when = None
        try:
            return await self._take()
        except StorageError:
            clear(self.store)
            raise

    async def _take(self) -> str:
        before = self._newest
        early = asyncio.create_task(self._bits(before.files)) if before is not None else None
        try:
            found = names(await self.git.run("ls-files", "-z", "-m", "-d", "-o", "--directory", "--exclude-standard"))
            folders = [name.rstrip("/") for name in found if name.endswith("/")]
            changed = [name for name in found if not name.endswith("/")]
            newest = await self._tree(changed, folders)
            if any(_is_gone(self.root / name) for name in changed):
                # a folder whose files are gone, or that took a file's place, was none of its own for git a moment ago
                listed = names(await self.git.run("ls-files", "-z", "-o", "--directory", "--exclude-standard"))
                folders = [name.rstrip("/") for name in listed if name.endswith("/")]
            same = before is not None and newest.files == before.files
            bits = await early if early is not None and same else await self._bits(newest.files)
        finally:
            if early is not None:
                await asyncio.wait([early])
        kept = extras.look(self.root, bits, folders).written()
        if newest.extras != kept:
            newest = replace(newest, extras=kept, name=await self._named(newest.tree, kept))
        self._newest = newest
        return newest.name

    async def _bits(self, files: Sequence[str]) -> dict[str, int]:
        """In a thread: while git looks for what changed, another core is free."""
        return await asyncio.to_thread(extras.bits, self.root, files)

    async def _named(self, tree: str, kept: bytes) -> str:
        """The snapshot's id: the tree's own, or that of a commit nobody refers to, which holds the extras as well."""
        if not kept:
            return tree
        who = b"fugu <fugu@localhost> 0 +0000"
        commit = b"tree %b\nauthor %b\ncommitter %b\n\n%b\n" % (tree.encode(), who, who, kept)
        return (await self.git.run("hash-object", "-t", "commit", "-w", "--stdin", given=commit)).decode().strip()

    async def extras(self, snapshot: str) -> extras.Extras:
        """What the snapshot holds beside its tree."""
        done = await self.git.try_run("cat-file", "commit", snapshot)
        return extras.read(done.out.partition(b"\n\n")[2]) if done.code == 0 else extras.Extras()

    async def _tree(self, changed: Sequence[str], folders: Sequence[str]) -> _Newest:
        """The tree as it is now, with the names of its files; extras and id still those of the one before."""
        stale = self._rules() != self._ignored_when or any(Path(name).name == ".gitignore" for name in changed)
        same = self._newest is not None and self._newest.index == _stamp(self.git.index)
        filled = [folder for folder in folders if extras.holds_files(self.root, folder)]
        if self._newest is not None and same and not (changed or stale or filled):
            return self._newest
        known = self._newest is not None and same and not stale
        _check(await self._add([*changed, *filled] if known else []))
        if stale:
            await self._apply_ignore_rules()
        if self._forced:
            await self._index("--add", "--remove", paths=[p for p in self._forced if not _is_folder(self.root / p)])
        self._ignored_when = self._rules()
        tree = await self._write_tree()
        files = tuple(names(await self.git.run("ls-files", "-z", "-c")))
        return _Newest(tree, _stamp(self.git.index), files, tree)

    async def _add(self, paths: Sequence[str]) -> Output:
        """git's index brought up to date: at these paths where they are few, else everywhere, which looks at it all."""
        if 0 < len(paths) <= FEW:
            given = b"".join(os.fsencode(path) + b"\0" for path in paths)
            named = ("--pathspec-from-file=-", "--pathspec-file-nul")
            done = await self.git.try_run("--literal-pathspecs", "add", "-A", "--ignore-errors", *named, given=given)
            if done.code <= 1:
                return done  # else one was gone again by then
        return await self.git.try_run("add", "-A", "--ignore-errors", "--", ".")

    def _rules(self) -> object:
        """Changes when what is ignored may have changed: what the user tracks, the exclude file."""
        return tuple(_stamp(path) for path in (self.repository.index, self.repository.common / "info" / "exclude"))

    async def _apply_ignore_rules(self) -> None:
        """What the user tracks although it is ignored belongs in; what has become ignored since does not."""
        prepare(self.store, self.repository, await users_excludes(self.root))
        listing = ("ls-files", "-z", "-i", "-c", "--exclude-standard")
        users = await users_git(self.repository, self.root).try_run(*listing)
        self._forced = tuple(names(users.out)) if users.code == 0 else ()
        own = names(await self.git.run(*listing))
        await self._index("--force-remove", paths=sorted(set(own) - set(self._forced)))

    async def _index(self, *options: str, paths: Sequence[str]) -> None:
        if paths:
            given = b"".join(os.fsencode(path) + b"\0" for path in paths)
            await self.git.run("update-index", *options, "-z", "--stdin", given=given)

    async def _write_tree(self) -> str:
        prefix = self.root.relative_to(self.repository.top).as_posix()
        if prefix == ".":
            return (await self.git.run("write-tree")).decode().strip()
        done = await self.git.try_run("write-tree", f"--prefix={prefix}/")
        out = done.out if done.code == 0 else await self.git.run("mktree")
        return out.decode().strip()

    async def differences(self, a: str, b: str) -> list[Difference]:
        """What differs from tree `a` to tree `b`, nested repositories left out."""
        out = await self.git.run("diff-tree", "-r", "-z", "--no-renames", "--no-abbrev", a, b)
        fields = out.split(b"\0")
        found = []
        for head, path in zip(fields[0::2], fields[1::2], strict=False):
            old_mode, mode, old_blob, blob, _ = head.decode().lstrip(":").split(" ")
            old = ("", "") if old_mode in {"000000", NESTED} else (old_mode, old_blob)
            new = ("", "") if mode in {"000000", NESTED} else (mode, blob)
            if old != new:
                found.append(Difference(os.fsdecode(path), old[0], new[0], old[1], new[1]))
        return found

    async def patch(self, a: str, b: str, *, whole: bool) -> bytes:
        """A unified diff from `a` to `b`. `whole`: `git apply` takes it, contents of binary files included, which may
        take half a minute for a large one; without them it says that they differ."""
        return await self.git.run(
            "diff-tree", "-p", "-r", "--no-renames", *(["--binary"] if whole else []), "--no-color", "--no-ext-diff",
            "--no-textconv", "--ignore-submodules=all", a, b,
        )  # fmt: skip


def as_changes(found: Sequence[Difference]) -> tuple[Change, ...]:
    """As they are recorded."""
    return tuple(
        Change(
            path=shown(d.path),
            before=d.old_blob or None,
            after=d.blob or None,
            mode=d.mode or d.old_mode,
            mode_before=d.old_mode if d.mode and d.mode != d.old_mode else "",
        )
        for d in found
    )


def _is_gone(path: Path) -> bool:
    """There is no file or link there any more; a folder may be."""
    return not os.path.lexists(path) or _is_folder(path)


def _is_folder(path: Path) -> bool:
    """A folder itself: where a link leads may be where nobody may look."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _stamp(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def _check(done: Output) -> None:
    """`git add --ignore-errors` leaves out what it may not read (code 1); not what it could not store."""
    if done.code > 1 or (done.code and ("unable to write" in done.err or "No space" in done.err)):
        raise StorageError(
            f"a snapshot could not be taken: {done.err[-500:]}", hint="make room on the disk, then try again"
        )


class Blobs:
    """Contents read from a store one after the other by a single git process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def read(self, name: str) -> bytes:
        """The bytes of a blob. Raises StorageError when it is gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(name.encode() + b"\n")
        await self._process.stdin.drain()
        head = (await self._process.stdout.readline()).split()
        if len(head) != 3 or head[1] != b"blob":
            raise StorageError(
                f"the content {name[:12]} is not in the store any more",
                hint="it was the repository's own and git has removed it since; it cannot be put back",
            )
        data = await self._process.stdout.readexactly(int(head[2]))
        await self._process.stdout.readexactly(1)
        return data


@asynccontextmanager
async def reading(git: Git) -> AsyncIterator[Blobs]:
    """Open `Blobs` on a store."""
    process = await git.start("cat-file", "--batch")
    try:
        yield Blobs(process)
    finally:
        await reap(process)
