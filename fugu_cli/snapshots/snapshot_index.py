"""The git index that a snapshot is written from, brought up to date with the working tree.

A new one begins as the user's: what git has need not be compressed again. Large files that git does
not track are not copied: `ROOM` says how much is. The index only names the others, as it does
nested repositories (mode 160000), and git is told not to look at them (assume-unchanged).
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.errors import StorageError
from fugu_cli.safety.git_process import GitOutput
from fugu_cli.snapshots import git_repositories
from fugu_cli.snapshots.git_repositories import (
    Git,
    Repository,
    prepare_shadow_repository,
    split_names,
    user_excludes_file,
    user_git,
)
from fugu_cli.snapshots.tree_extras import holds_files, size_stamp

FEW = 100
"""Changed paths that are given to git by name."""
NESTED = "160000"
"""The mode in a tree of what it only names: nested repositories, and files too large to keep."""
SMALL = 32 << 10
"""Bytes of a file that counts as small."""
ROOM = {"small": 24 << 20, "larger": 6 << 20}
"""Bytes of new untracked files that one snapshot copies at most, the smallest first."""
PACKED, AT_ONCE = 1 << 20, 16 << 20
"""Bytes of a file that goes into a pack with others, and about how many are in memory at a time."""

Entry = tuple[str, str, str]
"""A mode, an id and a path."""


@dataclass
class _UserGitState:
    """The state of the user's git when it was read. A changed `rules` means that it must be read
    again.
    """

    rules: object = None
    tracked: frozenset[str] = frozenset()
    forced: tuple[str, ...] = ()
    """Tracked files that are ignored."""
    not_checked_out: frozenset[str] = frozenset()
    """Files that a sparse checkout leaves out."""


class IndexFile:
    """The index of a store's `git` for `root`, which is the folder `prefix` of the working tree."""

    def __init__(self, root: Path, git: Git, prefix: str) -> None:
        self._root, self._git, self._prefix = root, git, prefix

    def stamp(self) -> object:
        """Return a stamp that changes when somebody else writes the index."""
        return file_stamp(self._git.index)

    async def listed(self, *more: str) -> tuple[list[str], list[str]]:
        """Return the files that are new or that match the options `more`, and the folders without
        any indexed file.
        """
        names = split_names(
            await self._git.run("ls-files", "-z", *more, "-o", "--directory", "--exclude-standard")
        )
        folders = [name.rstrip("/") for name in names if name.endswith("/")]
        return [name for name in names if not name.endswith("/")], folders

    async def entries(self) -> list[Entry]:
        """Return all entries."""
        return _parsed(await self._git.run("ls-files", "-z", "-s"))

    async def write_tree(self) -> str:
        """Write the tree and return its id. The contents may still be only in the repository."""
        if not self._prefix:
            return (await self._git.run("write-tree", "--missing-ok")).decode().strip()
        done = await self._git.try_run("write-tree", "--missing-ok", f"--prefix={self._prefix}")
        output = done.out if done.code == 0 else await self._git.run("mktree")
        return output.decode().strip()

    async def below(self, folders: Sequence[str]) -> list[str]:
        """Return the files that git does not ignore in untracked folders."""
        if not folders:
            return []
        named = ["--", *folders] if len(folders) <= FEW else []
        listing = ("ls-files", "-z", "-o", "--exclude-standard", *named)
        return [
            name
            for name in split_names(await self._git.run("--literal-pathspecs", *listing))
            if not name.endswith("/")
        ]

    async def name(self, entries: Iterable[tuple[str, str, str]]) -> None:
        """Put entries into the index, each a mode, an id and a path."""
        lines = [f"{mode} {id}\t{self._prefix}{path}\0" for mode, id, path in entries]
        if lines:
            stdin = os.fsencode("".join(lines))
            await self._git.run("update-index", "--replace", "-z", "--index-info", stdin=stdin)

    async def add(self, paths: Sequence[str]) -> GitOutput:
        """Update git's index: at these paths if they are few, else everywhere."""
        if 0 < len(paths) <= FEW:
            stdin = b"".join(os.fsencode(path) + b"\0" for path in paths)
            named = ("--pathspec-from-file=-", "--pathspec-file-nul")
            done = await self._git.try_run(
                "--literal-pathspecs", "add", "-A", "--ignore-errors", *named, stdin=stdin
            )
            if done.code <= 1:
                return done  # else one was gone again by then
        return await self._git.try_run("add", "-A", "--ignore-errors", "--", ".")

    async def pack(self, paths: Sequence[str]) -> None:
        """Write the contents of files into packs. Without them `add` would make an object file for
        each.
        """
        streams = _contents(self._root, paths)
        while stream := await asyncio.to_thread(next, streams, b""):
            await self._git.run("fast-import", "--quiet", "--depth=0", stdin=stream)

    async def set(self, *options: str, paths: Sequence[str]) -> None:
        """Run `git update-index` with these options for these paths."""
        if paths:
            stdin = b"".join(os.fsencode(path) + b"\0" for path in paths)
            await self._git.run("update-index", *options, "-z", "--stdin", stdin=stdin)


class SnapshotIndex:
    """Decides which files are in the index of a store's `git` for `root`. `large` are files that
    are only named there, with size and time.
    """

    def __init__(self, root: Path, git: Git, repository: Repository) -> None:
        self.large: dict[str, str] = {}
        self._root, self._git, self._repository = root, git, repository
        prefix = ""
        if root != repository.top:
            prefix = f"{root.relative_to(repository.top).as_posix()}/"
        self.file = IndexFile(root, git, prefix)
        self._users = _UserGitState()
        self._begins_as_users = True
        self.begun: frozenset[str] = frozenset()
        """Ids that a new index took over from the user's: their contents may be the repository's
        alone.
        """

    @property
    def not_checked_out(self) -> frozenset[str]:
        """The tracked files that the user's git left out of the working tree at the newest
        snapshot.
        """
        return self._users.not_checked_out

    def forget(self) -> None:
        """Forget the index, which was unusable: the next one begins empty."""
        self.large = {}
        self.begun = frozenset()
        self._users = _UserGitState()
        self._begins_as_users = False

    async def update(
        self, changed: Sequence[str], folders: Sequence[str], *, is_ours: bool
    ) -> bool:
        """Bring the index up to date. Return False if nothing had to be done.

        `changed` and `folders` are the result of `listed("-m", "-d")`. `is_ours`: nobody else has
        written the index since the last time. Raises StorageError.
        """
        rules_changed = self._rules() != self._users.rules
        stale = rules_changed or any(Path(name).name == ".gitignore" for name in changed)
        moved = await self._take_out_large(is_ours=is_ours)
        filled = [folder for folder in folders if holds_files(self._root, folder)]
        if is_ours and not (changed or stale or filled or moved):
            return False
        if stale:
            await self._ask_users_git()
            tracked = [path for path in self.large if path in self._users.tracked]
            moved += await self._unnamed(tracked)
        if self.begun:  # the index was empty until now
            changed, _ = await self.file.listed("-m", "-d")
        gone = {name for name in moved if is_gone(self._root / name)}
        candidates = dict.fromkeys([*changed, *moved, *await self.file.below(filled)])
        new = [name for name in candidates if name not in gone]
        await self._leave_out(new)
        if len(new) > FEW:
            await self.file.pack([name for name in new if name not in self.large])
        small = [name for name in [*new, *filled] if name not in self.large]
        _check(await self.file.add(small if is_ours and not stale else []))
        if stale:
            listing = await self._git.run("ls-files", "-z", "-i", "-c", "--exclude-standard")
            now_ignored = set(split_names(listing)) - set(self._users.forced)
            await self.file.set("--force-remove", paths=sorted(now_ignored))
            self._users.rules = self._rules()
        if self._users.forced:
            present = [path for path in self._users.forced if not is_folder(self._root / path)]
            await self.file.set("--add", "--remove", paths=present)
        return True

    async def _take_out_large(self, *, is_ours: bool) -> list[str]:
        """Return the large files that changed, and remove them from the index. `is_ours`:
        nobody else wrote the index.
        """
        if not is_ours:
            entries = await self.file.entries() if self._git.index.exists() else []
            ids = {
                path: id_
                for mode, id_, path in entries
                if mode == NESTED and not is_folder(self._root / path)
            }
            sizes = {path: size_stamp(self._root / path) for path in ids}
            self.large = {
                path: size for path, size in sizes.items() if self._size_id(size) == ids[path]
            }
            moved = [path for path in ids if path not in self.large]
        else:
            moved = [
                path for path, size in self.large.items() if size_stamp(self._root / path) != size
            ]
        return await self._unnamed(moved)

    async def _unnamed(self, paths: Sequence[str]) -> list[str]:
        """Remove the paths from the index and return them."""
        await self.file.set("--force-remove", paths=paths)
        for path in paths:
            self.large.pop(path, None)
        return list(paths)

    def _size_id(self, size: str) -> str:
        """Return the id by which a tree names a large file."""
        return git_repositories.blob_id(size.encode(), self._repository.hash_name)

    async def _leave_out(self, new: Iterable[str]) -> None:
        """Name only those new or changed untracked files for which there is no room."""
        top = f"{self._root}/"
        sizes = {name: size_stamp(top + name) for name in new if name not in self._users.tracked}
        large = {name: sizes[name] for name in _too_large(sizes)}
        if not large:
            return
        await self.file.name((NESTED, self._size_id(size), path) for path, size in large.items())
        await self.file.set("--assume-unchanged", paths=list(large))
        self.large |= large

    def _rules(self) -> object:
        """Return a value that changes when the ignored files may have changed."""
        return tuple(
            file_stamp(path)
            for path in (self._repository.index, self._repository.common / "info" / "exclude")
        )

    async def _ask_users_git(self) -> None:
        """Read the user's tracked files, including ignored ones, which belong into snapshots too."""
        prepare_shadow_repository(
            self._git.folder, self._repository, await user_excludes_file(self._root)
        )
        git = user_git(self._repository, self._root)
        listed = await git.try_run("ls-files", "-z", "-s")
        if listed.code:
            return  # the repository is gone: what was known of it stays
        entries = _parsed(listed.out)
        forced = await git.try_run("ls-files", "-z", "-i", "-c", "--exclude-standard")
        self._users.tracked, self._users.forced = (
            frozenset(path for _, _, path in entries),
            tuple(split_names(forced.out)),
        )
        self._users.not_checked_out = frozenset()
        if self._repository.is_sparse:
            tagged = split_names((await git.try_run("ls-files", "-z", "-t")).out)
            self._users.not_checked_out = frozenset(
                name[2:] for name in tagged if name.startswith("S ")
            )
        if self._begins_as_users and not self._git.index.exists():
            # where a file's bytes are others than what git has, `add` takes those
            kept = [entry for entry in entries if entry[0] != NESTED]
            await self.file.name(kept)
            await self._git.try_run("update-index", "-q", "--refresh")
            self.begun = frozenset(name for _, name, _ in kept)


def _parsed(listed: bytes) -> list[tuple[str, str, str]]:
    """Return mode, id and path of each index entry, without those of an unfinished merge."""
    heads = (entry.partition(b"\t") for entry in listed.split(b"\0")[:-1])
    return [
        (h[:6].decode(), h[7:-2].decode(), os.fsdecode(path))
        for h, _, path in heads
        if h.endswith(b" 0")
    ]


def _contents(root: Path, paths: Iterable[str]) -> Iterator[bytes]:
    """Yield the contents of files in the format of `git fast-import`. Large and unreadable files
    are left to `add`.
    """
    pieces, size, top = list[bytes](), 0, f"{root}/"
    for path in paths:
        try:
            data = _read(top + path)
        except OSError:
            continue
        if data is not None:
            pieces.append(b"blob\ndata %d\n%b\n" % (len(data), data))
            size += len(data)
        if size > AT_ONCE:
            yield b"".join(pieces)
            pieces, size = [], 0
    if pieces:
        yield b"".join(pieces)


def _read(path: str) -> bytes | None:
    """Return the bytes of a file that is no link and not large, else None. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        fits = stat.S_ISREG(status.st_mode) and status.st_size <= PACKED
        return os.read(descriptor, status.st_size) if fits else None
    finally:
        os.close(descriptor)


def _too_large(sizes: Mapping[str, str]) -> set[str]:
    """Return the files that do not fit into a snapshot."""
    bytes_of = {name: int(size.split(" ")[0]) for name, size in sizes.items() if size}
    small = {name: size for name, size in bytes_of.items() if size <= SMALL}
    larger = {name: size for name, size in bytes_of.items() if size > SMALL}
    return (
        bytes_of.keys()
        - smallest_within(small, ROOM["small"])
        - smallest_within(larger, ROOM["larger"])
    )


def _check(done: GitOutput) -> None:
    """Raise StorageError if git could not store something. Unreadable files (code 1) are only left
    out.
    """
    if done.code > 1 or (done.code and ("unable to write" in done.err or "No space" in done.err)):
        raise StorageError(
            f"a snapshot could not be taken: {done.err[-500:]}",
            hint="make room on the disk, then try again",
        )


def is_gone(path: Path) -> bool:
    """Return whether there is no file or link; a folder may be there."""
    return not os.path.lexists(path) or is_folder(path)


def is_folder(path: Path) -> bool:
    """Return whether it is a folder and no link."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def file_stamp(path: Path) -> object:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def smallest_within(sizes: Mapping[str, int], remaining: int) -> set[str]:
    """Return the smallest files, as many as fit."""
    chosen = set()
    for name in sorted(sizes, key=lambda name: sizes[name]):
        remaining -= sizes[name]
        if remaining < 0:
            break
        chosen.add(name)
    return chosen
