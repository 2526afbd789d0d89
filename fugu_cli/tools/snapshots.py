"""The working tree as git trees: taken, compared, and (restoring.py) put back, exactly.

Under the workspace. A snapshot holds every file git does not ignore, untracked ones included, byte for byte with its
mode; links as links; what a tree cannot hold (extras.py). Nested repositories are left alone. The user's index, refs
and objects are only read.

What the index (index.py) has from the repository is copied into the store, up to `COPIED`: undo outlives it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fugu_cli.errors import StorageError
from fugu_cli.events import Attribute, Change, Made
from fugu_cli.policy.paths import shown
from fugu_cli.tools import extras
from fugu_cli.tools.git import Git
from fugu_cli.tools.index import NESTED, Index, is_gone, stamp, within
from fugu_cli.tools.repository import Repository
from fugu_cli.tools.store import clear, locked, prepare, users_excludes

PRUNED = "pruned"
"""A file in the store that is touched when objects were removed."""
COPIED = 64 << 20
"""Bytes of files that git tracks that one snapshot copies from the repository's own objects, the smallest first."""


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
        self.git = Git(store, repository.top, store / "index", root, repository.objects)
        self.own = replace(self.git, borrowed=None)
        self._alone = asyncio.Lock()
        self._ready = False
        self._newest: _Newest | None = None
        self._pruned: object = None
        self.index = Index(root, self.own, repository)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Alone with the store, which is ready."""
        async with self._alone, locked(self.store):
            if not self._ready:
                prepare(self.store, self.repository, await users_excludes(self.root))
                self._ready = True
            if (mark := stamp(self.store / PRUNED)) != self._pruned:
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
            self._forget()
        try:
            return await self._take()
        except StorageError:
            self._forget()
            raise

    def _forget(self) -> None:
        clear(self.store)
        self._newest = None
        self.index.forget()

    async def _take(self) -> str:
        before = self._newest
        early = asyncio.create_task(self._bits(before.files)) if before is not None else None
        try:
            changed, folders = await self.index.listed("-m", "-d")
            newest = await self._tree(changed, folders)
            if newest is not before and (folders or any(is_gone(self.root / name) for name in changed)):
                # what is left are empty folders; one whose files are gone was none of its own for git a moment ago
                _, folders = await self.index.listed()
            same = before is not None and newest.files == before.files
            bits = await early if early is not None and same else await self._bits(newest.files)
        finally:
            if early is not None:
                await asyncio.wait([early])
        looked = await asyncio.to_thread(extras.look, self.root, bits, folders, self.index.large)
        kept = looked.written()
        if newest.extras != kept:
            newest = replace(newest, extras=kept, name=await self._named(newest.tree, kept))
        self._newest = newest
        return newest.name

    async def _tree(self, changed: Sequence[str], folders: Sequence[str]) -> _Newest:
        """The tree as it is now, with the names of its files; extras and id still those of the one before."""
        newest = self._newest
        known = newest is not None and newest.index == self.index.stamp()
        if not await self.index.update(changed, folders, known=known) and newest is not None:
            return newest
        tree, entries = await self.index.write_tree(), await self.index.entries()
        if newest is None:  # else what is new was written into the store
            await self._copy({blob for mode, blob, _ in entries if mode != NESTED})
        return _Newest(tree, self.index.stamp(), tuple(path for _, _, path in entries), tree)

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

    async def _copy(self, wanted: set[str]) -> None:
        """Copy contents that only the repository has into the store. Raises StorageError where one is in neither."""
        missing = await _sizes(self.own, wanted, there=False)
        sizes = await _sizes(self.git, set(missing))
        if len(sizes) < len(missing):
            raise StorageError("contents of the index are gone from the store", hint="it is made anew")
        chosen = within({name: int(size) for name, size in sizes.items()}, COPIED)
        if chosen:
            given = b"".join(name.encode() + b"\n" for name in sorted(chosen))
            place = str(self.store / "objects" / "pack" / "pack")
            await self.git.run("pack-objects", "-q", "--window=0", place, given=given)

    async def differences(self, a: str, b: str) -> list[Difference]:
        """What differs from tree `a` to tree `b`, without what either of them only names."""
        out = await self.git.run("diff-tree", "-r", "-z", "--no-renames", "--no-abbrev", a, b)
        fields = out.split(b"\0")
        found = []
        for head, path in zip(fields[0::2], fields[1::2], strict=False):
            old_mode, mode, old_blob, blob, _ = head.decode().lstrip(":").split(" ")
            if NESTED in {old_mode, mode}:
                continue
            old = ("", "") if old_mode == "000000" else (old_mode, old_blob)
            new = ("", "") if mode == "000000" else (mode, blob)
            found.append(Difference(os.fsdecode(path), old[0], new[0], old[1], new[1]))
        return found

    async def made(self, a: str, b: str) -> Made:
        """What was done to files from tree `a` to tree `b`."""
        if a == b:
            return Made()
        found = await self.differences(a, b)
        one, two = await self.extras(a), await self.extras(b)
        modes = {d.path: (d.old_mode, d.mode) for d in found}
        if one != two:
            kept = await self._modes(b)
            usual = (one.plain, one.executable) == (two.plain, two.executable)
            others = one.odd() | two.odd() | (set() if usual else kept.keys())
            modes |= {path: (kept.get(path, ""), kept.get(path, "")) for path in others - modes.keys()}
        both = ((path, one.at(path, old), two.at(path, new)) for path, (old, new) in sorted(modes.items()))
        attributes = tuple(Attribute(path=shown(path), before=x, after=y) for path, x, y in both if x != y)
        return Made(as_changes(found), attributes)

    async def _modes(self, tree: str) -> dict[str, str]:
        """The mode of each file of a tree."""
        out = await self.git.run("ls-tree", "-r", "-z", "--full-tree", tree)
        lines = (line.partition(b"\t") for line in out.split(b"\0") if line)
        return {os.fsdecode(path): mode for head, _, path in lines if (mode := head[:6].decode()) != NESTED}

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


async def _sizes(git: Git, wanted: set[str], *, there: bool = True) -> dict[str, str]:
    """The size of each object that git can read; with `there` false, the objects that it cannot, without one."""
    if not wanted:
        return {}
    given = b"".join(name.encode() + b"\n" for name in sorted(wanted))
    out = await git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", given=given)
    lines = (line.split(" ", 1) for line in out.decode().splitlines())
    return {name: size if there else "" for name, size in lines if (size != "missing") == there}
