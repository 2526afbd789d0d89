"""What a snapshot is written from: the shadow repository's git index, and what a git tree cannot hold.

The index is brought up to date with the working tree. A new one begins as the user's: what git has need not be
compressed again. Large files that git does not track are not copied: `ROOM` says how much is. The index only names the
others, as it does nested repositories (mode 160000), and git is told not to look at them (assume-unchanged).

A git tree cannot hold permission bits, empty folders, named pipes and files too large to keep. They are kept as the
message of a commit object that nothing refers to. An attribute is one of these for one path, as a word: `mode 600`,
`folder`, `pipe 644`, `large 30000000 1700000000` (bytes and time of writing, in nanoseconds); "" for a file with the
usual bits, and for nothing. Paths are as the os module gives them.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fugu_cli.errors import StorageError
from fugu_cli.tools import git_repositories
from fugu_cli.tools.git_repositories import (
    Git,
    GitOutput,
    Repository,
    prepare_shadow_repository,
    split_names,
    user_excludes_file,
    user_git,
)

PLAIN_BITS, EXECUTABLE_BITS = 0o644, 0o755
EMPTY_FOLDER, LARGE_FILE = "folder", "large "


@dataclass(frozen=True)
class TreeExtras:
    """`plain` and `executable` are the usual bits of files, `modes` those of files that differ; `empty` are folders,
    `pipes` have their bits, and `large` files their size and time."""

    plain: int = PLAIN_BITS
    executable: int = EXECUTABLE_BITS
    modes: Mapping[str, int] = field(default_factory=dict)
    empty: tuple[str, ...] = ()
    pipes: Mapping[str, int] = field(default_factory=dict)
    large: Mapping[str, str] = field(default_factory=dict)

    def at(self, path: str, git_mode: str) -> str:
        """The attribute of a path. `git_mode` is that of its file in the tree, "" where the tree has none."""
        if path in self.large:
            return LARGE_FILE + self.large[path]
        if path in self.pipes:
            return f"pipe {self.pipes[path]:o}"
        if not git_mode.startswith("100"):
            return EMPTY_FOLDER if path in self.empty else ""
        runs = git_mode == "100755"
        return attribute_of_bits(self.modes.get(path, self.executable if runs else self.plain))

    def odd(self) -> set[str]:
        """Paths that have an attribute of their own."""
        return {*self.modes, *self.empty, *self.pipes, *self.large}

    def written(self) -> bytes:
        """As it is kept; nothing when there is nothing to keep. The same for the same extras."""
        if self == TreeExtras():
            return b""
        kept: dict[str, object] = {
            "plain": self.plain, "executable": self.executable, "modes": dict(self.modes), "empty": self.empty,
        }  # fmt: skip
        kept |= {name: dict(found) for name, found in (("pipes", self.pipes), ("large", self.large)) if found}
        return json.dumps(kept, sort_keys=True).encode()


def parse_extras(text: bytes) -> TreeExtras:
    """What `written` gave."""
    found = json.loads(text) if text.strip() else {}
    found["empty"] = tuple(found.get("empty", ()))
    return TreeExtras(**found)


def attribute_of_bits(bits: int) -> str:
    """The attribute of a file with these permission bits."""
    return "" if bits == usual_bits(bits) else f"mode {bits:o}"


def usual_bits(bits: int) -> int:
    """The bits that go without saying, for a file that can be executed as these say or not."""
    return EXECUTABLE_BITS if bits & 0o100 else PLAIN_BITS


def collect_extras(
    root: Path, modes: Mapping[str, int], folders: Iterable[str], large: Mapping[str, str]
) -> TreeExtras:
    """The extras of files with these `modes`, of `folders`, git's untracked ones, and of what is too `large`."""
    common = Counter(modes.values()).most_common()
    plain = next((mode for mode, _ in common if not mode & 0o100), PLAIN_BITS)
    executable = next((mode for mode, _ in common if mode & 0o100), EXECUTABLE_BITS)
    odd = {path: mode for path, mode in modes.items() if mode not in {plain, executable}}
    walked = [place for folder in folders for place in _below(root / folder)]
    empty = sorted(os.path.relpath(place, root) for place, names in walked if not names)
    pipes = dict(_pipes(root, {*_around(modes), *(os.path.relpath(place, root) for place, _ in walked)}))
    return TreeExtras(plain, executable, dict(sorted(odd.items())), tuple(empty), pipes, dict(sorted(large.items())))


def permission_bits(root: Path, files: Iterable[str]) -> dict[str, int]:
    """The permission bits of those of `files` that are files and no links. Written for a hundred thousand of them."""
    found, top, look_at = {}, f"{root}/", os.lstat
    for name in files:
        try:
            mode = look_at(top + name).st_mode
        except OSError:
            continue
        if mode & 0o170000 == stat.S_IFREG:
            found[name] = mode & 0o7777
    return found


def _below(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Folders at and below `folder` with the names in them; nested repositories are left alone."""
    for place, folders, files in os.walk(folder):
        if ".git" in folders or ".git" in files:
            folders.clear()
        else:
            yield place, [*folders, *files]


def _around(files: Iterable[str]) -> set[str]:
    """The folders that hold these files, and those that hold these; "" for the outermost."""
    found = {""}
    for folder in {name.rpartition("/")[0] for name in files}:
        while folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return found


def _pipes(root: Path, folders: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Named pipes in these folders, with their bits. What else is there costs no look of its own."""
    for folder in sorted(folders):
        try:
            with os.scandir(root / folder) as entries:
                for entry in entries:
                    known = entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)
                    if known or entry.is_symlink():
                        continue
                    mode = entry.stat(follow_symlinks=False).st_mode
                    if stat.S_ISFIFO(mode):
                        yield os.path.relpath(entry.path, root), stat.S_IMODE(mode)
        except OSError:
            continue  # gone meanwhile, or nobody may look


def holds_files(root: Path, folder: str) -> bool:
    """There is a file or a link below `folder`, nested repositories left out."""
    return any(_is_held(Path(place) / name) for place, names in _below(root / folder) for name in names)


def _is_held(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def size_stamp(path: Path | str) -> str:
    """How a large file is known: its bytes and when it was written. "" where no file is."""
    try:
        found = os.lstat(path)
    except OSError:
        return ""
    return f"{found.st_size} {found.st_mtime_ns}" if stat.S_ISREG(found.st_mode) else ""


def current_attribute(path: Path, expected: str) -> str:
    """The attribute of what is at `path`; known as a large file where that is `expected`."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISFIFO(mode):
            return f"pipe {stat.S_IMODE(mode):o}"
        if stat.S_ISDIR(mode):
            return EMPTY_FOLDER if not any(path.iterdir()) else ""
    except OSError:
        return ""
    if not stat.S_ISREG(mode):
        return ""
    return LARGE_FILE + size_stamp(path) if expected.startswith(LARGE_FILE) else attribute_of_bits(stat.S_IMODE(mode))


def remove_folder_or_pipe(path: Path, root: Path) -> bool:
    """Take away an empty folder, with those above it that are empty then, or a pipe. False where it is neither."""
    try:
        if stat.S_ISFIFO(path.lstat().st_mode):
            path.unlink()
            return True
        path.rmdir()
    except OSError:
        return False
    for folder in path.parents:
        if folder == root:
            break
        try:
            folder.rmdir()
        except OSError:
            break
    return True


def apply_attribute(path: Path, word: str) -> bool:
    """Make the attribute of `path` this one; False where it is already, or something is in the way. Raises OSError."""
    kind, _, bits_ = word.partition(" ")
    if kind in {EMPTY_FOLDER, "pipe"}:
        if os.path.lexists(path):
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == EMPTY_FOLDER:
            path.mkdir()
        else:
            os.mkfifo(path)
            path.chmod(int(bits_, 8))
        return True
    if path.is_symlink() or not path.is_file():
        return False
    mode = stat.S_IMODE(path.stat().st_mode)
    wanted = int(bits_, 8) if kind == "mode" else usual_bits(mode)
    if mode == wanted:
        return False
    path.chmod(wanted)
    return True


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
    """What the user's git says, as of the time it was asked: `rules` tell whether it may say something else now."""

    rules: object = None
    tracked: frozenset[str] = frozenset()
    forced: tuple[str, ...] = ()
    """What is tracked although it is ignored."""


class SnapshotIndex:
    """The index of `git`, a store's, for `root`. `large` are the files that it only names, with their size and time."""

    def __init__(self, root: Path, git: Git, repository: Repository) -> None:
        self.large: dict[str, str] = {}
        self._root, self._git, self._repository = root, git, repository
        self._prefix = "" if root == repository.top else f"{root.relative_to(repository.top).as_posix()}/"
        self._users = _UserGitState()
        self._begins_as_users = True
        self.begun: frozenset[str] = frozenset()
        """Ids that a new index took over from the user's: their contents may be the repository's alone."""

    def forget(self) -> None:
        """The file is gone. What it began as could not be used: the next one begins empty."""
        self.large, self._users, self._begins_as_users, self.begun = {}, _UserGitState(), False, frozenset()

    def stamp(self) -> object:
        """Another one where somebody else wrote the index."""
        return file_stamp(self._git.index)

    async def listed(self, *more: str) -> tuple[list[str], list[str]]:
        """Files that are new or as `more` says, and folders in which nothing is in the index."""
        found = split_names(await self._git.run("ls-files", "-z", *more, "-o", "--directory", "--exclude-standard"))
        folders = [name.rstrip("/") for name in found if name.endswith("/")]
        return [name for name in found if not name.endswith("/")], folders

    async def entries(self) -> list[Entry]:
        """All there is in it."""
        return _parsed(await self._git.run("ls-files", "-z", "-s"))

    async def update(self, changed: Sequence[str], folders: Sequence[str], *, known: bool) -> bool:
        """Bring it up to date; False where nothing had to be done. `changed` and `folders` are as `listed` gives them
        (-m -d), `known` says that nobody else wrote it since the last time. Raises StorageError."""
        stale = self._rules() != self._users.rules or any(Path(name).name == ".gitignore" for name in changed)
        moved = await self._moved(known=known)
        filled = [folder for folder in folders if holds_files(self._root, folder)]
        if known and not (changed or stale or filled or moved):
            return False
        if stale:
            await self._ask_users_git()
            moved += await self._unnamed([path for path in self.large if path in self._users.tracked])
        if self.begun:  # the index was empty until now
            changed, _ = await self.listed("-m", "-d")
        gone = {name for name in moved if is_gone(self._root / name)}
        new = [name for name in dict.fromkeys([*changed, *moved, *await self._below(filled)]) if name not in gone]
        await self._leave_out(new)
        if len(new) > FEW:
            await self._pack([name for name in new if name not in self.large])
        small = [name for name in [*new, *filled] if name not in self.large]
        _check(await self._add(small if known and not stale else []))
        if stale:
            await self._apply_rules()
        if self._users.forced:
            there = [path for path in self._users.forced if not is_folder(self._root / path)]
            await self._set("--add", "--remove", paths=there)
        return True

    async def write_tree(self) -> str:
        """Its tree's id. The tree itself is written; the contents may still be the repository's alone."""
        if not self._prefix:
            return (await self._git.run("write-tree", "--missing-ok")).decode().strip()
        done = await self._git.try_run("write-tree", "--missing-ok", f"--prefix={self._prefix}")
        out = done.out if done.code == 0 else await self._git.run("mktree")
        return out.decode().strip()

    async def _below(self, folders: Sequence[str]) -> list[str]:
        """The files that git does not ignore in untracked folders."""
        if not folders:
            return []
        named = ["--", *folders] if len(folders) <= FEW else []
        listing = ("ls-files", "-z", "-o", "--exclude-standard", *named)
        return [
            name for name in split_names(await self._git.run("--literal-pathspecs", *listing)) if not name.endswith("/")
        ]

    async def _moved(self, *, known: bool) -> list[str]:
        """Large files that are not as they were: the index does not name them any more. `known`: it is still ours."""
        if not known:
            entries = await self.entries() if self._git.index.exists() else []
            named = {path: i for mode, i, path in entries if mode == NESTED and not is_folder(self._root / path)}
            sizes = {path: size_stamp(self._root / path) for path in named}
            self.large = {path: size for path, size in sizes.items() if self._size_id(size) == named[path]}
            moved = [path for path in named if path not in self.large]
        else:
            moved = [path for path, size in self.large.items() if size_stamp(self._root / path) != size]
        return await self._unnamed(moved)

    async def _unnamed(self, paths: Sequence[str]) -> list[str]:
        """The same paths; the index does not name them any more."""
        await self._set("--force-remove", paths=paths)
        for path in paths:
            self.large.pop(path, None)
        return list(paths)

    def _size_id(self, size: str) -> str:
        """The id by which a tree names a large file."""
        return git_repositories.blob_id(size.encode(), self._repository.hash_name)

    async def _leave_out(self, new: Iterable[str]) -> None:
        """Of new or changed files that the user's git does not track, name those only for which there is no room."""
        top = f"{self._root}/"
        sizes = {name: size_stamp(top + name) for name in new if name not in self._users.tracked}
        large = {name: sizes[name] for name in _too_large(sizes)}
        if not large:
            return
        await self._name((NESTED, self._size_id(size), path) for path, size in large.items())
        await self._set("--assume-unchanged", paths=list(large))
        self.large |= large

    async def _name(self, entries: Iterable[tuple[str, str, str]]) -> None:
        """Put entries into the index, each a mode, an id and a path."""
        given = b"".join(os.fsencode(f"{mode} {i}\t{self._prefix}{path}\0") for mode, i, path in entries)
        if given:
            await self._git.run("update-index", "--replace", "-z", "--index-info", given=given)

    async def _add(self, paths: Sequence[str]) -> GitOutput:
        """git's index brought up to date: at these paths where they are few, else everywhere, which looks at it all."""
        if 0 < len(paths) <= FEW:
            given = b"".join(os.fsencode(path) + b"\0" for path in paths)
            named = ("--pathspec-from-file=-", "--pathspec-file-nul")
            done = await self._git.try_run("--literal-pathspecs", "add", "-A", "--ignore-errors", *named, given=given)
            if done.code <= 1:
                return done  # else one was gone again by then
        return await self._git.try_run("add", "-A", "--ignore-errors", "--", ".")

    async def _pack(self, paths: Sequence[str]) -> None:
        """Write what files hold as a pack. `add` reads them again and finds it there, else it makes a file for each."""
        pieces = _contents(self._root, paths)
        while given := await asyncio.to_thread(next, pieces, b""):
            await self._git.run("fast-import", "--quiet", "--depth=0", given=given)

    def _rules(self) -> object:
        """Changes when what is ignored may have changed: what the user tracks, the exclude file."""
        return tuple(
            file_stamp(path) for path in (self._repository.index, self._repository.common / "info" / "exclude")
        )

    async def _ask_users_git(self) -> None:
        """What the user tracks, and of that what is ignored: it belongs in all the same."""
        prepare_shadow_repository(self._git.folder, self._repository, await user_excludes_file(self._root))
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
        if self._begins_as_users and not self._git.index.exists():
            # where a file's bytes are others than what git has, `add` takes those
            kept = [entry for entry in entries if entry[0] != NESTED]
            await self._name(kept)
            await self._git.try_run("update-index", "-q", "--refresh")
            self.begun = frozenset(name for _, name, _ in kept)

    async def _apply_rules(self) -> None:
        """What has become ignored since goes."""
        own = split_names(await self._git.run("ls-files", "-z", "-i", "-c", "--exclude-standard"))
        await self._set("--force-remove", paths=sorted(set(own) - set(self._users.forced)))
        self._users.rules = self._rules()

    async def _set(self, *options: str, paths: Sequence[str]) -> None:
        if paths:
            given = b"".join(os.fsencode(path) + b"\0" for path in paths)
            await self._git.run("update-index", *options, "-z", "--stdin", given=given)


def _parsed(listed: bytes) -> list[tuple[str, str, str]]:
    """Mode, id and path of each entry of an index, those of a merge that is not done left out."""
    heads = (entry.partition(b"\t") for entry in listed.split(b"\0")[:-1])
    return [(h[:6].decode(), h[7:-2].decode(), os.fsdecode(path)) for h, _, path in heads if h.endswith(b" 0")]


def _contents(root: Path, paths: Iterable[str]) -> Iterator[bytes]:
    """What files hold, as `git fast-import` reads it. Large ones and what cannot be read are left to `add`."""
    found, size, top = list[bytes](), 0, f"{root}/"
    for path in paths:
        try:
            data = _read(top + path)
        except OSError:
            continue
        if data is not None:
            found.append(b"blob\ndata %d\n%b\n" % (len(data), data))
            size += len(data)
        if size > AT_ONCE:
            yield b"".join(found)
            found, size = [], 0
    if found:
        yield b"".join(found)


def _read(path: str) -> bytes | None:
    """The bytes of a file that is no link and not large, else None. Raises OSError."""
    place = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(place)
        fits = stat.S_ISREG(found.st_mode) and found.st_size <= PACKED
        return os.read(place, found.st_size) if fits else None
    finally:
        os.close(place)


def _too_large(sizes: Mapping[str, str]) -> set[str]:
    """Those of files with these sizes (`size_stamp`) for which a snapshot has no room."""
    bytes_of = {name: int(size.split(" ")[0]) for name, size in sizes.items() if size}
    small = {name: size for name, size in bytes_of.items() if size <= SMALL}
    larger = {name: size for name, size in bytes_of.items() if size > SMALL}
    return bytes_of.keys() - smallest_within(small, ROOM["small"]) - smallest_within(larger, ROOM["larger"])


def _check(done: GitOutput) -> None:
    """`git add --ignore-errors` leaves out what it may not read (code 1); not what it could not store."""
    if done.code > 1 or (done.code and ("unable to write" in done.err or "No space" in done.err)):
        raise StorageError(
            f"a snapshot could not be taken: {done.err[-500:]}", hint="make room on the disk, then try again"
        )


def is_gone(path: Path) -> bool:
    """There is no file or link there any more; a folder may be."""
    return not os.path.lexists(path) or is_folder(path)


def is_folder(path: Path) -> bool:
    """A folder itself: where a link leads may be where nobody may look."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def file_stamp(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def smallest_within(sizes: Mapping[str, int], room: int) -> set[str]:
    """The smallest of these, as many as the room holds."""
    found = set()
    for name in sorted(sizes, key=lambda name: sizes[name]):
        room -= sizes[name]
        if room < 0:
            break
        found.add(name)
    return found
