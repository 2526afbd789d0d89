"""The working tree as git trees: taken, compared, and (restoring.py) put back, exactly.

Under the workspace. A snapshot holds every file git does not ignore, untracked ones included, byte for byte with its
mode; links as links; what a tree cannot hold (extras.py). Nested repositories are left alone. The user's index, refs
and objects are only read.

Large files that git does not track are not copied: `ROOM` says how much is. The index holds their names only, as it
does those of nested repositories (mode 160000), and git is told not to look at them (assume-unchanged). A new index
begins as the user's, whose contents are then copied into the store, up to `COPIED`: undo outlives the repository.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fugu_cli.errors import StorageError
from fugu_cli.events import Attribute, Change, Made
from fugu_cli.policy.paths import shown
from fugu_cli.tools import blobs, extras
from fugu_cli.tools.git import Git, Output, names
from fugu_cli.tools.repository import Repository
from fugu_cli.tools.store import clear, locked, prepare, users_excludes, users_git

FEW = 100
"""Changed paths that are given to git by name."""
PRUNED = "pruned"
"""A file in the store that is touched when objects were removed."""
NESTED = "160000"
"""The mode in a tree of what it only names: nested repositories, and files too large to keep."""
SMALL = 32 << 10
"""Bytes of a file that counts as small."""
ROOM = {"small": 24 << 20, "larger": 6 << 20}
"""Bytes of new untracked files that one snapshot copies at most, the smallest first."""
COPIED = 64 << 20
"""Bytes of files that git tracks that one snapshot copies from the repository's own objects, the smallest first."""
PACKED = ("-c", "core.bigFileThreshold=1")
"""Many new files become one pack, not a file each."""


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
    blobs: frozenset[str] = frozenset()
    """The contents that the store has of its own."""


@dataclass
class _Users:
    """What the user's git says, as of the time it was asked: `rules` tell whether it may say something else now."""

    rules: object = None
    tracked: frozenset[str] = frozenset()
    forced: tuple[str, ...] = ()
    """What is tracked although it is ignored."""


class Snapshots:
    """Trees of `root`, which is the top of its repository or a folder in it, kept in `store`."""

    def __init__(self, root: Path, store: Path, repository: Repository) -> None:
        self.root = root
        self.store = store
        self.repository = repository
        self.git = Git(store, repository.top, store / "index", root, repository.objects)
        self._own = replace(self.git, borrowed=None)
        self._alone = asyncio.Lock()
        self._ready = False
        self._newest: _Newest | None = None
        self._pruned: object = None
        self._prefix = "" if root == repository.top else f"{root.relative_to(repository.top).as_posix()}/"
        self._users = _Users()
        self._large: dict[str, str] = {}
        """Files that the index only names, with their size and time."""

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
            self._forget()
        try:
            return await self._take()
        except StorageError:
            self._forget()
            raise

    def _forget(self) -> None:
        clear(self.store)
        self._newest, self._users, self._large = None, _Users(), {}

    async def _take(self) -> str:
        before = self._newest
        early = asyncio.create_task(self._bits(before.files)) if before is not None else None
        try:
            changed, folders = await self._listed("-m", "-d")
            newest = await self._tree(changed, folders)
            if newest is not before and (folders or any(_is_gone(self.root / name) for name in changed)):
                # what is left are empty folders; one whose files are gone was none of its own for git a moment ago
                _, folders = await self._listed()
            same = before is not None and newest.files == before.files
            bits = await early if early is not None and same else await self._bits(newest.files)
        finally:
            if early is not None:
                await asyncio.wait([early])
        looked = await asyncio.to_thread(extras.look, self.root, bits, folders, self._large)
        kept = looked.written()
        if newest.extras != kept:
            newest = replace(newest, extras=kept, name=await self._named(newest.tree, kept))
        self._newest = newest
        return newest.name

    async def _listed(self, *more: str) -> tuple[list[str], list[str]]:
        """Files that are untracked for the store or as `more` says, and folders in which nothing is tracked."""
        found = names(await self.git.run("ls-files", "-z", *more, "-o", "--directory", "--exclude-standard"))
        folders = [name.rstrip("/") for name in found if name.endswith("/")]
        return [name for name in found if not name.endswith("/")], folders

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
        stale = self._rules() != self._users.rules or any(Path(name).name == ".gitignore" for name in changed)
        same = self._newest is not None and self._newest.index == _stamp(self.git.index)
        moved = await self._moved(known=same)
        filled = [folder for folder in folders if extras.holds_files(self.root, folder)]
        if self._newest is not None and same and not (changed or stale or filled or moved):
            return self._newest
        if stale:
            await self._ask_users_git()
            moved += await self._unnamed([path for path in self._large if path in self._users.tracked])
        gone = {name for name in moved if _is_gone(self.root / name)}
        new = [name for name in dict.fromkeys([*changed, *moved, *await self._below(filled)]) if name not in gone]
        await self._leave_out(new)
        small = [name for name in [*new, *filled] if name not in self._large]
        known = self._newest is not None and same and not stale
        _check(await self._add(small if known else []))
        if stale:
            own = names(await self.git.run("ls-files", "-z", "-i", "-c", "--exclude-standard"))
            await self._index("--force-remove", paths=sorted(set(own) - set(self._users.forced)))
            self._users.rules = self._rules()
        if self._users.forced:
            there = [path for path in self._users.forced if not _is_folder(self.root / path)]
            await self._index("--add", "--remove", paths=there)
        tree = await self._write_tree()
        entries = await self._entries()
        own_blobs = await self._copied({blob for mode, blob, _ in entries if mode != NESTED})
        files = tuple(path for _, _, path in entries)
        return _Newest(tree, _stamp(self.git.index), files, tree, blobs=own_blobs)

    async def _entries(self) -> list[tuple[str, str, str]]:
        """The index: mode, id and path."""
        return _parsed(await self.git.run("ls-files", "-z", "-s"))

    async def _below(self, folders: Sequence[str]) -> list[str]:
        """The files that git does not ignore in untracked folders."""
        if not folders:
            return []
        named = ["--", *folders] if len(folders) <= FEW else []
        listing = ("ls-files", "-z", "-o", "--exclude-standard", *named)
        return [name for name in names(await self.git.run("--literal-pathspecs", *listing)) if not name.endswith("/")]

    async def _moved(self, *, known: bool) -> list[str]:
        """Large files that are not as they were: the index does not name them any more. `known`: it is still ours."""
        if not known:
            entries = await self._entries() if self.git.index.exists() else []
            named = {path: i for mode, i, path in entries if mode == NESTED and not _is_folder(self.root / path)}
            sizes = {path: extras.size_of(self.root / path) for path in named}
            self._large = {path: size for path, size in sizes.items() if self._size_id(size) == named[path]}
            moved = [path for path in named if path not in self._large]
        else:
            moved = [path for path, size in self._large.items() if extras.size_of(self.root / path) != size]
        return await self._unnamed(moved)

    async def _unnamed(self, paths: Sequence[str]) -> list[str]:
        """The same paths; the index does not name them any more."""
        await self._index("--force-remove", paths=paths)
        for path in paths:
            self._large.pop(path, None)
        return list(paths)

    def _size_id(self, size: str) -> str:
        """The id by which a tree names a large file."""
        return blobs.blob_id(size.encode(), self.repository.hash_name)

    async def _leave_out(self, new: Iterable[str]) -> None:
        """Of new or changed files that the user's git does not track, name those only for which there is no room."""
        sizes = {name: extras.size_of(self.root / name) for name in new if name not in self._users.tracked}
        large = {name: sizes[name] for name in _too_large(sizes)}
        if not large:
            return
        await self._name((NESTED, self._size_id(size), path) for path, size in large.items())
        await self._index("--assume-unchanged", paths=list(large))
        self._large |= large

    async def _name(self, entries: Iterable[tuple[str, str, str]]) -> None:
        """Put entries into the index, each a mode, an id and a path."""
        given = b"".join(os.fsencode(f"{mode} {i}\t{self._prefix}{path}\0") for mode, i, path in entries)
        if given:
            await self.git.run("update-index", "--replace", "-z", "--index-info", given=given)

    async def _copied(self, wanted: set[str]) -> frozenset[str]:
        """Copy contents that only the repository has into the store; returns those of `wanted` that the store has.

        Raises StorageError where one is in neither.
        """
        known = self._newest.blobs if self._newest is not None else frozenset[str]()
        missing = await _sizes(self._own, wanted - known, there=False)
        if missing:
            sizes = await _sizes(self.git, set(missing))
            if len(sizes) < len(missing):
                raise StorageError("contents of the index are gone from the store", hint="it is made anew")
            chosen = _within({name: int(size) for name, size in sizes.items()}, COPIED)
            if chosen:
                given = b"".join(name.encode() + b"\n" for name in sorted(chosen))
                place = str(self.store / "objects" / "pack" / "pack")
                await self.git.run("pack-objects", "-q", "--window=0", place, given=given)
            missing = {name: "" for name in missing if name not in chosen}
        return frozenset(wanted - missing.keys())

    async def _add(self, paths: Sequence[str]) -> Output:
        """git's index brought up to date: at these paths where they are few, else everywhere, which looks at it all."""
        if 0 < len(paths) <= FEW:
            given = b"".join(os.fsencode(path) + b"\0" for path in paths)
            named = ("--pathspec-from-file=-", "--pathspec-file-nul")
            done = await self._own.try_run("--literal-pathspecs", "add", "-A", "--ignore-errors", *named, given=given)
            if done.code <= 1:
                return done  # else one was gone again by then
        return await self._own.try_run(*PACKED, "add", "-A", "--ignore-errors", "--", ".")

    def _rules(self) -> object:
        """Changes when what is ignored may have changed: what the user tracks, the exclude file."""
        return tuple(_stamp(path) for path in (self.repository.index, self.repository.common / "info" / "exclude"))

    async def _ask_users_git(self) -> None:
        """What the user tracks, and of that what is ignored: it belongs in all the same."""
        prepare(self.store, self.repository, await users_excludes(self.root))
        git = users_git(self.repository, self.root)
        listed = await git.try_run("ls-files", "-z", "-s")
        if listed.code:
            return  # the repository is gone: what was known of it stays
        entries = _parsed(listed.out)
        forced = await git.try_run("ls-files", "-z", "-i", "-c", "--exclude-standard")
        self._users.tracked, self._users.forced = frozenset(path for _, _, path in entries), tuple(names(forced.out))
        if not self.git.index.exists():
            # what git has already need not be compressed again; where a file's bytes are others, `add` takes those
            await self._name(entry for entry in entries if entry[0] != NESTED)
            await self.git.try_run("update-index", "-q", "--refresh")

    async def _index(self, *options: str, paths: Sequence[str]) -> None:
        if paths:
            given = b"".join(os.fsencode(path) + b"\0" for path in paths)
            await self.git.run("update-index", *options, "-z", "--stdin", given=given)

    async def _write_tree(self) -> str:
        if not self._prefix:
            return (await self._own.run("write-tree", "--missing-ok")).decode().strip()
        done = await self._own.try_run("write-tree", "--missing-ok", f"--prefix={self._prefix}")
        out = done.out if done.code == 0 else await self._own.run("mktree")
        return out.decode().strip()

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


def _is_gone(path: Path) -> bool:
    """There is no file or link there any more; a folder may be."""
    return not os.path.lexists(path) or _is_folder(path)


def _is_folder(path: Path) -> bool:
    """A folder itself: where a link leads may be where nobody may look."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _parsed(listed: bytes) -> list[tuple[str, str, str]]:
    """Mode, id and path of each entry of an index, those of a merge that is not done left out."""
    heads = (entry.partition(b"\t") for entry in listed.split(b"\0")[:-1])
    return [(h[:6].decode(), h[7:-2].decode(), os.fsdecode(path)) for h, _, path in heads if h.endswith(b" 0")]


def _too_large(sizes: Mapping[str, str]) -> set[str]:
    """Those of files with these sizes (`extras.size_of`) for which a snapshot has no room."""
    bytes_of = {name: int(size.split(" ")[0]) for name, size in sizes.items() if size}
    small = {name: size for name, size in bytes_of.items() if size <= SMALL}
    larger = {name: size for name, size in bytes_of.items() if size > SMALL}
    return bytes_of.keys() - _within(small, ROOM["small"]) - _within(larger, ROOM["larger"])


def _within(sizes: Mapping[str, int], room: int) -> set[str]:
    """The smallest of these, as many as the room holds."""
    found = set()
    for name in sorted(sizes, key=lambda name: sizes[name]):
        room -= sizes[name]
        if room < 0:
            break
        found.add(name)
    return found


async def _sizes(git: Git, wanted: set[str], *, there: bool = True) -> dict[str, str]:
    """The size of each object that git can read; with `there` false, the objects that it cannot, without one."""
    if not wanted:
        return {}
    given = b"".join(name.encode() + b"\n" for name in sorted(wanted))
    out = await git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", given=given)
    lines = (line.split(" ", 1) for line in out.decode().splitlines())
    return {name: size if there else "" for name, size in lines if (size != "missing") == there}


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
