"""Snapshots: the working tree as git trees, taken, and removed when no session needs them.

Below file_history.py, which compares them and puts files back. A snapshot holds every file git does
not ignore, untracked ones included, byte for byte with its mode; links as links; what a tree cannot
hold (tree_extras.py). Of nested repositories it only knows whether they were changed. The user's
index, refs and objects are only read. What the index has from the repository is copied into the
store, up to `COPIED`: undo outlives the repository.

Garbage collection runs when a session ends, at most once a day: a snapshot that no session file
names goes once it is a day old.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import shutil
import time
import weakref
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fugu_cli.errors import StorageError
from fugu_cli.snapshots import tree_extras
from fugu_cli.snapshots.git_repositories import (
    Git,
    Repository,
    clear_index,
    prepare_shadow_repository,
    store_lock,
    user_excludes_file,
)
from fugu_cli.snapshots.snapshot_index import (
    NESTED,
    SnapshotIndex,
    file_stamp,
    is_gone,
    smallest_within,
)
from fugu_cli.system.processes import is_running

PRUNED = "pruned"
"""A file in the store that is touched when objects were removed."""
COPIED = 64 << 20
"""Bytes of files that git tracks that one snapshot copies from the repository's own objects, the
smallest first.
"""


PUBLISHED_INDEX = "index"
"""The file in the store with which an index begins."""
_OWN_INDEX = re.compile(r"index-(\d+)-\d+.*")
_INDEX_NUMBERS = itertools.count()


def remove_stale_indexes(store: Path) -> None:
    """Remove the indexes of processes that are gone."""
    for path in store.glob("index-*"):
        match = _OWN_INDEX.fullmatch(path.name)
        if match is not None and not is_running(int(match[1])):
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Newest:
    """The newest snapshot: its id, its tree, its extras as they are stored, and the files and the
    index of git at that time.
    """

    tree: str
    index: object
    files: tuple[str, ...]
    name: str
    extras: bytes = b""
    nested: tuple[str, ...] = ()
    """Repositories that the tree only names."""


class Snapshots:
    """Trees of `root`, which is the top of its repository or a folder in it, kept in `store`."""

    def __init__(self, root: Path, store: Path, repository: Repository) -> None:
        self.root = root
        self.store = store
        self.repository = repository
        own_index = store / f"index-{os.getpid()}-{next(_INDEX_NUMBERS)}"
        self.git = Git(store, repository.top, own_index, root, repository.objects)
        self.own = replace(self.git, borrowed=None)
        self._alone = asyncio.Lock()
        self._ready = False
        self._newest: _Newest | None = None
        self._pruned: object = None
        self._nested: dict[str, tree_extras.KnownRepository] = {}
        self.index = SnapshotIndex(root, self.own, repository)

    @asynccontextmanager
    async def held(self, *, alone: bool = False) -> AsyncIterator[None]:
        """Hold the store, which is ready, beside other processes or `alone`."""
        async with self._alone, store_lock(self.store, alone=alone):
            if not self._ready:
                prepare_shadow_repository(
                    self.store, self.repository, await user_excludes_file(self.root)
                )
                if not (self.store / PRUNED).exists():
                    (self.store / PRUNED).touch()  # nothing in a new store is old enough to go
                self._begin_index()
                self._ready = True
            Path(f"{self.git.index}.lock").unlink(missing_ok=True)  # of a git that was killed
            if (stamp := file_stamp(self.store / PRUNED)) != self._pruned:
                self._newest, self._pruned = None, stamp  # its objects may be gone
            yield

    def _begin_index(self) -> None:
        """Begin with the index that any process has published last: sessions that work at the same
        time have an index each, and none undoes what another one knows."""
        remove_stale_indexes(self.store)
        with contextlib.suppress(OSError):
            self.git.index.hardlink_to(self.store / PUBLISHED_INDEX)
        weakref.finalize(self, self.git.index.unlink, missing_ok=True)

    def _publish_index(self) -> None:
        """Let the next process begin with this index. Git never writes an index in place, so that a
        link to it stays as it is."""
        draft = Path(f"{self.git.index}.published")
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
            draft.hardlink_to(self.git.index)
            draft.replace(self.store / PUBLISHED_INDEX)

    async def take(self) -> str:
        """Return the tree id of the present working tree. Raises StorageError."""
        async with self.held():
            return await self.take_held()

    async def take_held(self) -> str:
        """Return the tree id of the present working tree, for callers that hold the store lock. A
        broken index is built again.
        """
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
        clear_index(self.store, self.git.index)
        (self.store / PUBLISHED_INDEX).unlink(missing_ok=True)
        self._newest = None
        self.index.forget()

    async def _take(self) -> str:
        async def bits_of(files: Sequence[str]) -> dict[str, int]:
            """Read permission bits in a thread: while git looks for changes, another core is free."""
            return await asyncio.to_thread(tree_extras.permission_bits, self.root, files)

        before = self._newest
        early = asyncio.create_task(bits_of(before.files)) if before is not None else None
        try:
            changed, folders = await self.index.file.listed("-m", "-d")
            newest = await self._tree(changed, folders)
            if newest is not before:
                self._publish_index()
            if newest is not before and (
                folders or any(is_gone(self.root / name) for name in changed)
            ):
                # what is left are empty folders; one whose files are gone was none of its own for
                # git a moment ago
                _, folders = await self.index.file.listed()
            same = before is not None and newest.files == before.files
            bits = await early if early is not None and same else await bits_of(newest.files)
        finally:
            if early is not None:
                await asyncio.wait([early])
        kept = (await asyncio.to_thread(self._extras, newest, bits, folders)).written()
        if newest.extras != kept:
            newest = replace(newest, extras=kept, name=await self._add_extras(newest.tree, kept))
        self._newest = newest
        return newest.name

    async def _tree(self, changed: Sequence[str], folders: Sequence[str]) -> _Newest:
        """Return the present tree with its file names; extras and id are still the previous ones."""
        newest = self._newest
        is_ours = newest is not None and newest.index == self.index.file.stamp()
        if not await self.index.update(changed, folders, is_ours=is_ours) and newest is not None:
            return newest
        tree, entries = await self.index.file.write_tree(), await self.index.file.entries()
        if newest is None:  # else what is new was written into the store
            await self._copy({blob for mode, blob, _ in entries if mode != NESTED})
        nested = tuple(
            path for mode, _, path in entries if mode == NESTED and path not in self.index.large
        )
        return _Newest(
            tree,
            self.index.file.stamp(),
            tuple(path for _, _, path in entries),
            tree,
            nested=nested,
        )

    def _extras(
        self, newest: _Newest, bits: Mapping[str, int], folders: Sequence[str]
    ) -> tree_extras.TreeExtras:
        below = (name for folder in folders for name in tree_extras.nested_below(self.root, folder))
        nested = tree_extras.repository_states(
            self.store, self.root, {*newest.nested, *below}, self._nested
        )
        return tree_extras.collect_extras(self.root, bits, folders, self.index.large, nested)

    async def _add_extras(self, tree: str, kept: bytes) -> str:
        """Return the snapshot's id: the tree's own, or that of an unreferenced commit that also
        holds the extras.
        """
        if not kept:
            return tree
        identity = b"fugu <fugu@localhost> 0 +0000"
        commit = b"tree %b\nauthor %b\ncommitter %b\n\n%b\n" % (
            tree.encode(),
            identity,
            identity,
            kept,
        )
        return (
            (await self.git.run("hash-object", "-t", "commit", "-w", "--stdin", stdin=commit))
            .decode()
            .strip()
        )

    async def _copy(self, blobs: set[str]) -> None:
        """Copy contents that only the repository has into the store. Raises StorageError where one
        is in neither.
        """
        # git is slow to say that it has not got these
        begun, self.index.begun = self.index.begun, frozenset()
        missing = blobs & begun or set(await _sizes(self.own, blobs, readable=False))
        sizes = await _sizes(self.git, missing)
        if len(sizes) < len(missing):
            raise StorageError(
                "contents of the index are gone from the store", hint="it is made again"
            )
        chosen = smallest_within({name: int(size) for name, size in sizes.items()}, COPIED)
        if chosen:
            stdin = b"".join(name.encode() + b"\n" for name in sorted(chosen))
            prefix = str(self.store / "objects" / "pack" / "pack")
            await self.git.run("pack-objects", "-q", "--window=0", prefix, stdin=stdin)


async def _sizes(git: Git, blobs: set[str], *, readable: bool = True) -> dict[str, str]:
    """Return the size of each object that git can read; with `readable` false, the objects that it
    cannot read.
    """
    if not blobs:
        return {}
    stdin = b"".join(name.encode() + b"\n" for name in sorted(blobs))
    output = await git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=stdin)
    lines = (line.split(" ", 1) for line in output.decode().splitlines())
    return {
        name: size if readable else "" for name, size in lines if (size != "missing") == readable
    }


DAY = 86_400.0
_ID = re.compile(rb"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")


def gc_is_due(store: Path) -> bool:
    """Return whether the last collection was a day ago or more."""
    return _is_older(store / PRUNED)


def _is_older(path: Path, seconds: float = DAY) -> bool:
    """Return whether the file is missing or was not touched for so long."""
    try:
        return time.time() - path.stat().st_mtime >= seconds
    except OSError:
        return True


async def prune_snapshots(
    snapshots: Snapshots, sessions: Iterable[Path], age: str = "1.day.ago"
) -> int:
    """Remove what none of these session files needs and is older than `age`; how many objects went.

    Raises StorageError when a session cannot be read: then everything stays.
    """
    named = await asyncio.to_thread(_named_ids, sessions)
    async with snapshots.held(alone=True):
        stdin = b"".join(name + b"\n" for name in sorted(named))
        listed = await snapshots.git.run(
            "cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=stdin
        )
        existing = [
            line.split()[0].decode()
            for line in listed.splitlines()
            if not line.endswith(b" missing")
        ]
        before = await _count(snapshots)
        await snapshots.git.run("prune", f"--expire={age}", *existing)
        await _repack(snapshots, existing, 0.0 if age == "now" else DAY)
        (snapshots.store / PRUNED).touch()
        return before - await _count(snapshots)


async def _repack(snapshots: Snapshots, existing: Sequence[str], age: float) -> None:
    """Join the packs that are older than `age` seconds into one, without the objects that nothing in
    `existing` needs.
    """
    folder = snapshots.store / "objects" / "pack"
    old = [path for path in sorted(folder.glob("*.idx")) if _is_older(path, age)]
    packed = {name for path in old for name in await _packed(snapshots, path)}
    needed: set[str] = set()
    if existing:
        listing = (
            "rev-list",
            "--objects",
            "--no-object-names",
            "--no-walk",
            "--missing=allow-any",
            "--stdin",
        )
        stdin = "".join(f"{name}\n" for name in existing).encode()
        listed = await snapshots.git.run(*listing, stdin=stdin)
        needed = set(listed.decode().split())
    if packed <= needed:
        return
    new_pack = ""
    kept = sorted(packed & needed)
    if kept:
        command = ("pack-objects", "-q", "--window=0", str(folder / "pack"))
        stdin = "".join(f"{name}\n" for name in kept).encode()
        packing = await snapshots.git.run(*command, stdin=stdin)
        new_pack = f"pack-{packing.decode().strip()}"
    for path in old:
        if path.stem != new_pack:
            for part in folder.glob(f"{path.stem}.*"):
                part.unlink(missing_ok=True)


async def _packed(snapshots: Snapshots, index: Path) -> list[str]:
    """Return the objects of a pack."""
    listed = await snapshots.git.run("show-index", stdin=index.read_bytes())
    return [line.split()[1].decode() for line in listed.splitlines()]


async def collect_garbage(data: Path, snapshots: Snapshots | None, session: Path | None) -> None:
    """Collect garbage in the store of `session` if it is due, and remove stores without sessions."""
    if snapshots is None or session is None or not snapshots.store.is_dir():
        return
    if gc_is_due(snapshots.store):
        folders = {session.parent, data / "sessions" / snapshots.store.name}
        sessions = [path for folder in folders for path in folder.glob("*.jsonl")]
        await prune_snapshots(snapshots, sessions)
    await asyncio.to_thread(remove_unused_stores, data)


def remove_unused_stores(data: Path) -> int:
    """Remove the stores of repositories of which no session is left, and in which nobody took a
    snapshot for a day; how many. For `data`, fugu's folder."""
    gone = 0
    for store in (data / "snapshots").glob("*"):
        rests = gc_is_due(store) and _is_older(store / PUBLISHED_INDEX)
        if store.is_dir() and rests and not any((data / "sessions" / store.name).glob("*.jsonl")):
            shutil.rmtree(store, ignore_errors=True)
            gone += 1
    return gone


def _named_ids(sessions: Iterable[Path]) -> set[bytes]:
    ids: set[bytes] = set()
    for path in sessions:
        try:
            with path.open("rb") as lines:
                for line in lines:
                    ids.update(_ID.findall(line))
        except OSError as error:
            raise StorageError(
                f"cannot read {path}: {error.strerror}", hint="nothing was pruned"
            ) from error
    return ids


async def _count(snapshots: Snapshots) -> int:
    """Count the objects in the store."""
    counts = (await snapshots.own.run("count-objects", "-v")).decode().split()
    return int(counts[counts.index("count:") + 1]) + int(counts[counts.index("in-pack:") + 1])
