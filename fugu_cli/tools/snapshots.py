"""Snapshots: the working tree as git trees, taken, compared, restored exactly, and removed when no session needs
them.

Below the workspace. A snapshot holds every file git does not ignore, untracked ones included, byte for byte with its
mode; links as links; what a tree cannot hold (snapshot_contents.py). Nested repositories are left alone. The user's
index, refs and objects are only read. What the index has from the repository is copied into the store, up to `COPIED`:
undo outlives the repository.

Restoring works from a list of changes, so it needs no repository. Each file is replaced whole, and only where it is
still as it was left. Garbage collection runs when a session ends, at most once a day: a snapshot that no session file
names goes once it is a day old.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import time
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fugu_cli.errors import StorageError
from fugu_cli.safety import paths
from fugu_cli.safety.paths import quoted_path
from fugu_cli.session.events import NO_EFFECTS, FileAttribute, FileChange, FileEffects
from fugu_cli.system.atomic_files import link_atomically, write_atomically
from fugu_cli.tools import git_repositories, snapshot_contents
from fugu_cli.tools.git_repositories import (
    BlobReader,
    Git,
    Repository,
    clear_index,
    prepare_shadow_repository,
    split_names,
    store_lock,
    user_excludes_file,
)
from fugu_cli.tools.snapshot_contents import NESTED, SnapshotIndex, file_stamp, is_gone, smallest_within

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
        self.index = SnapshotIndex(root, self.own, repository)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Alone with the store, which is ready."""
        async with self._alone, store_lock(self.store):
            if not self._ready:
                prepare_shadow_repository(self.store, self.repository, await user_excludes_file(self.root))
                self._ready = True
            if (mark := file_stamp(self.store / PRUNED)) != self._pruned:
                self._newest, self._pruned = None, mark  # its objects may be gone
            yield

    async def take(self) -> str:
        """The tree id of the working tree as it is now. Raises StorageError."""
        async with self.held():
            return await self.take_held()

    async def take_held(self) -> str:
        """`take` for who holds the store already. An index that git cannot use any more is made again."""
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
        clear_index(self.store)
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
        looked = await asyncio.to_thread(snapshot_contents.collect_extras, self.root, bits, folders, self.index.large)
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
        return await asyncio.to_thread(snapshot_contents.permission_bits, self.root, files)

    async def _named(self, tree: str, kept: bytes) -> str:
        """The snapshot's id: the tree's own, or that of a commit nobody refers to, which holds the extras as well."""
        if not kept:
            return tree
        who = b"fugu <fugu@localhost> 0 +0000"
        commit = b"tree %b\nauthor %b\ncommitter %b\n\n%b\n" % (tree.encode(), who, who, kept)
        return (await self.git.run("hash-object", "-t", "commit", "-w", "--stdin", given=commit)).decode().strip()

    async def extras(self, snapshot: str) -> snapshot_contents.TreeExtras:
        """What the snapshot holds beside its tree."""
        done = await self.git.try_run("cat-file", "commit", snapshot)
        return (
            snapshot_contents.parse_extras(done.out.partition(b"\n\n")[2])
            if done.code == 0
            else snapshot_contents.TreeExtras()
        )

    async def _copy(self, wanted: set[str]) -> None:
        """Copy contents that only the repository has into the store. Raises StorageError where one is in neither."""
        begun, self.index.begun = self.index.begun, frozenset()  # git is slow to say that it has not got these
        missing = wanted & begun or set(await _sizes(self.own, wanted, there=False))
        sizes = await _sizes(self.git, missing)
        if len(sizes) < len(missing):
            raise StorageError("contents of the index are gone from the store", hint="it is made again")
        chosen = smallest_within({name: int(size) for name, size in sizes.items()}, COPIED)
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

    async def made(self, a: str, b: str) -> FileEffects:
        """What was done to files from tree `a` to tree `b`."""
        if a == b:
            return FileEffects()
        found = await self.differences(a, b)
        one, two = await self.extras(a), await self.extras(b)
        modes = {d.path: (d.old_mode, d.mode) for d in found}
        if one != two:
            kept = await self._modes(b)
            usual = (one.plain, one.executable) == (two.plain, two.executable)
            others = one.odd() | two.odd() | (set() if usual else kept.keys())
            modes |= {path: (kept.get(path, ""), kept.get(path, "")) for path in others - modes.keys()}
        both = ((path, one.at(path, old), two.at(path, new)) for path, (old, new) in sorted(modes.items()))
        attributes = tuple(FileAttribute(path=quoted_path(path), before=x, after=y) for path, x, y in both if x != y)
        return FileEffects(as_changes(found), attributes)

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


def as_changes(found: Sequence[Difference]) -> tuple[FileChange, ...]:
    """As they are recorded."""
    return tuple(
        FileChange(
            path=quoted_path(d.path),
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


LINK_MODE, EXECUTABLE_MODE = "120000", "100755"
RETRY_HINT = "clear what is in the way, then undo again"


@dataclass(frozen=True)
class RestorePlan:
    """What of a list of changes still stands.

    `made` is as it was left and can be taken back. `conflicts` are paths that were changed since; `beside` those of
    them that no snapshot holds. `unkept` are large files of which there is no copy.
    """

    made: FileEffects = NO_EFFECTS
    conflicts: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    unkept: tuple[str, ...] = ()


def plan_restore(root: Path, made: FileEffects, hash_name: str) -> RestorePlan:
    """Compare the files with what was done to them. Raises StorageError for one that may not be read."""
    changes: list[FileChange] = []
    attributes: list[FileAttribute] = []
    conflicts: list[str] = []
    beside: list[str] = []
    for change in made.net.changes:
        now = _state(root, change.path, hash_name)
        if _is_as_left(now, change.back):
            continue
        if _is_as_left(now, change):
            changes.append(change)
        else:
            (beside if change.beside else conflicts).append(change.path)
    for one in made.net.attributes:
        path = _inside(root, one.path)
        now_is = snapshot_contents.current_attribute(path, one.after)
        if one.large or now_is == one.before:
            continue
        if now_is == one.after:
            attributes.append(one)
        elif path.is_file() and one.path not in conflicts:
            conflicts.append(one.path)
    unkept = tuple(one.path for one in made.net.attributes if one.large and not _as_before(root, one))
    return RestorePlan(FileEffects(tuple(changes), tuple(attributes)), tuple(conflicts), tuple(beside), unkept)


def _state(root: Path, name: str, hash_name: str) -> tuple[str | None, str]:
    path = _inside(root, name)
    if through_link(root, path):
        return None, ""  # what is behind the link is not ours
    try:
        return git_repositories.file_state(path, hash_name)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read: {error.strerror}", hint="make it readable, then do this again"
        ) from error


def _is_as_left(now: tuple[str | None, str], change: FileChange) -> bool:
    """The file is as the change left it. The mode of one that no snapshot holds is not known."""
    return now[0] == change.after and (change.after is None or change.beside or now[1] == change.mode)


def _as_before(root: Path, one: FileAttribute) -> bool:
    return snapshot_contents.current_attribute(_inside(root, one.path), snapshot_contents.LARGE_FILE) == one.before


async def restore_files(root: Path, made: FileEffects, contents: BlobReader, git: Git | None) -> tuple[str, ...]:
    """Undo what still stands; returns the paths that changed, as the os module gives them.

    `git` tells which files are ignored; None outside a repository. Raises StorageError when something could not be put
    back, after doing all that could be done; running it again is safe. Ignore rules are put back first: a file that was
    ignored then is not deleted now.
    """
    cleared = [
        one.path
        for one in made.attributes
        if _is_removed(one) and snapshot_contents.remove_folder_or_pipe(_inside(root, one.path), root)
    ]
    rules = [change for change in made.changes if _inside(root, change.path).name == ".gitignore"]
    others = [change for change in made.changes if change not in rules]
    failed = await _apply(root, rules, contents)
    kept = await _ignored(git, [c for c in others if c.before is None and not c.beside])
    done = [change for change in others if change.path not in kept]
    failed += await _apply(root, done, contents)
    more, broken = _set(root, [one for one in made.attributes if one.path not in kept])
    failed += broken
    count = len(rules) + len(done) + len(made.attributes)
    if failed:
        raise StorageError(
            f"{len(failed)} of {count} files could not be put back: {'; '.join(failed[:3])}", hint=RETRY_HINT
        )
    return tuple(dict.fromkeys([*(change.path for change in rules + done), *cleared, *more]))


def _is_removed(one: FileAttribute) -> bool:
    """A folder or a pipe that was made."""
    return one.after == snapshot_contents.EMPTY_FOLDER or one.after.startswith("pipe")


def _set(root: Path, attributes: Sequence[FileAttribute]) -> tuple[list[str], list[str]]:
    """Modes, empty folders and pipes as they were, once the files are there: those that changed, and what failed."""
    done, failed = [], []
    for one in attributes:
        try:
            if snapshot_contents.apply_attribute(_inside(root, one.path), one.before):
                done.append(one.path)
        except OSError as error:
            failed.append(f"{one.path} ({error.strerror})")
    return done, failed


async def _ignored(git: Git | None, made: Sequence[FileChange]) -> Collection[str]:
    """Those of the files that the rules now on the disk ignore."""
    if not made or git is None:
        return frozenset()
    given = b"".join(
        b"./" + os.fsencode(paths.unquoted_path(one.path)) + b"\0" for one in made
    )  # ./: no name is a pathspec
    done = await git.try_run("check-ignore", "--no-index", "-z", "--stdin", given=given)
    if done.code > 1:
        raise StorageError(f"git could not tell which files are ignored: {done.err}", hint="nothing was deleted")
    return frozenset(paths.quoted_path(name.removeprefix("./")) for name in split_names(done.out))


async def _apply(root: Path, made: Sequence[FileChange], contents: BlobReader) -> list[str]:
    """Deletions first, so that a folder can take a file's place and the other way round. Returns what failed."""
    failed = []
    for change in sorted(made, key=lambda change: change.before is not None):
        path = _inside(root, change.path)
        try:
            if change.before is None:
                _delete(root, path, folders=not change.beside)
            else:
                await _put(root, path, change, await contents.read(change.before))
        except (OSError, StorageError) as error:
            failed.append(f"{change.path} ({getattr(error, 'strerror', None) or error})")
    return failed


def _delete(root: Path, path: Path, *, folders: bool) -> None:
    """`folders`: those that are empty then go as well."""
    if through_link(root, path):
        return  # its folder is a link now: what is behind it is not ours
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()
    for folder in path.parents if folders else ():
        if folder == root:
            return
        try:
            folder.rmdir()
        except OSError:
            return


def _inside(root: Path, name: str) -> Path:
    """Where the file of a change is. `name` is as it is recorded."""
    return root / paths.unquoted_path(name)


def through_link(root: Path, path: Path) -> bool:
    """A folder on the way from the root to the path is a link now."""
    return any(folder.is_symlink() for folder in path.parents if root in folder.parents)


async def _put(root: Path, path: Path, change: FileChange, data: bytes) -> None:
    if through_link(root, path):
        raise OSError(0, "its folder is a link")
    mode = change.mode_before or change.mode
    if mode == LINK_MODE:
        link_atomically(path, os.fsdecode(data))
        return
    is_new = not path.is_file() or path.is_symlink()
    if is_new or change.before != change.after:
        write_atomically(path, data, change.permissions or None if is_new else None)
    bits = path.stat().st_mode & 0o7777
    if change.beside:
        return
    if is_new:
        path.chmod(snapshot_contents.EXECUTABLE_BITS if mode == EXECUTABLE_MODE else snapshot_contents.PLAIN_BITS)
    elif (mode == EXECUTABLE_MODE) != bool(bits & 0o100):
        path.chmod(bits | (bits & 0o444) >> 2 if mode == EXECUTABLE_MODE else bits & ~0o111)


DAY = 86_400.0
_ID = re.compile(rb"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")


def gc_is_due(store: Path) -> bool:
    """The last time is a day ago or more."""
    return _is_older(store / PRUNED)


def _is_older(path: Path, seconds: float = DAY) -> bool:
    """It was not touched for so long, or is not there."""
    try:
        return time.time() - path.stat().st_mtime >= seconds
    except OSError:
        return True


async def prune_snapshots(snapshots: Snapshots, sessions: Iterable[Path], age: str = "1.day.ago") -> int:
    """Remove what none of these session files needs and is older than `age`; how many objects went.

    Raises StorageError when a session cannot be read: then everything stays.
    """
    named = await asyncio.to_thread(_named_ids, sessions)
    async with snapshots.held():
        given = b"".join(name + b"\n" for name in sorted(named))
        listed = await snapshots.git.run("cat-file", "--batch-check=%(objectname) %(objecttype)", given=given)
        there = [line.split()[0].decode() for line in listed.splitlines() if not line.endswith(b" missing")]
        before = await _count(snapshots)
        await snapshots.git.run("prune", f"--expire={age}", *there)
        await _repack(snapshots, there, 0.0 if age == "now" else DAY)
        (snapshots.store / PRUNED).touch()
        return before - await _count(snapshots)


async def _repack(snapshots: Snapshots, there: Sequence[str], age: float) -> None:
    """Make one pack of the packs that are older than `age` seconds, without what nothing in `there` reaches."""
    folder = snapshots.store / "objects" / "pack"
    old = [path for path in sorted(folder.glob("*.idx")) if _is_older(path, age)]
    held = {name for path in old for name in await _packed(snapshots, path)}
    given = "".join(f"{name}\n" for name in there).encode()
    listing = ("rev-list", "--objects", "--no-object-names", "--no-walk", "--missing=allow-any", "--stdin")
    reached = set((await snapshots.git.run(*listing, given=given)).decode().split()) if there else set()
    if held <= reached:
        return
    made = ""
    if kept := sorted(held & reached):
        given = "".join(f"{name}\n" for name in kept).encode()
        made = (await snapshots.git.run("pack-objects", "-q", "--window=0", str(folder / "pack"), given=given)).decode()
    for path in old:
        if path.stem != f"pack-{made.strip()}":
            for part in folder.glob(f"{path.stem}.*"):
                part.unlink(missing_ok=True)


async def _packed(snapshots: Snapshots, index: Path) -> list[str]:
    """The objects of a pack."""
    listed = await snapshots.git.run("show-index", given=index.read_bytes())
    return [line.split()[1].decode() for line in listed.splitlines()]


async def collect_garbage(data: Path, snapshots: Snapshots | None, session: Path | None) -> None:
    """Both, when they are due: for the repository of `session`, and for those of which no session is left."""
    if snapshots is None or session is None or not gc_is_due(snapshots.store) or not snapshots.store.is_dir():
        return
    folders = {session.parent, data / "sessions" / snapshots.store.name}
    await prune_snapshots(snapshots, [path for folder in folders for path in folder.glob("*.jsonl")])
    await asyncio.to_thread(remove_unused_stores, data)


def remove_unused_stores(data: Path) -> int:
    """Remove the stores of repositories of which no session is left, and in which nobody took a snapshot for a day; how
    many. For `data`, fugu's folder."""
    gone = 0
    for store in (data / "snapshots").glob("*"):
        rests = gc_is_due(store) and _is_older(store / "index")
        if store.is_dir() and rests and not any((data / "sessions" / store.name).glob("*.jsonl")):
            shutil.rmtree(store, ignore_errors=True)
            gone += 1
    return gone


def _named_ids(sessions: Iterable[Path]) -> set[bytes]:
    found: set[bytes] = set()
    for path in sessions:
        try:
            with path.open("rb") as lines:
                for line in lines:
                    found.update(_ID.findall(line))
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error.strerror}", hint="nothing was pruned") from error
    return found


async def _count(snapshots: Snapshots) -> int:
    """Objects in the store."""
    said = (await snapshots.own.run("count-objects", "-v")).decode().split()
    return int(said[said.index("count:") + 1]) + int(said[said.index("in-pack:") + 1])
