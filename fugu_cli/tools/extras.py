"""What a git tree cannot hold of a working tree: permission bits, empty folders, named pipes, files too large to keep.

Beside snapshots.py, which keeps them with a snapshot as the message of a commit object that nothing refers to, and
restoring.py, which puts them back. Paths are as the os module gives them.

An attribute is one of these for one path, as a word: `mode 600`, `folder`, `pipe 644`, `large 30000000 1700000000`
(bytes and time of writing, in nanoseconds); "" for a file with the usual bits, and for nothing.
"""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PLAIN, EXECUTABLE = 0o644, 0o755
FOLDER, LARGE = "folder", "large "


@dataclass(frozen=True)
class Extras:
    """`plain` and `executable` are the usual bits of files, `modes` those of files that differ; `empty` are folders,
    `pipes` have their bits, and `large` files their size and time."""

    plain: int = PLAIN
    executable: int = EXECUTABLE
    modes: Mapping[str, int] = field(default_factory=dict)
    empty: tuple[str, ...] = ()
    pipes: Mapping[str, int] = field(default_factory=dict)
    large: Mapping[str, str] = field(default_factory=dict)

    def at(self, path: str, git_mode: str) -> str:
        """The attribute of a path. `git_mode` is that of its file in the tree, "" where the tree has none."""
        if path in self.large:
            return LARGE + self.large[path]
        if path in self.pipes:
            return f"pipe {self.pipes[path]:o}"
        if not git_mode.startswith("100"):
            return FOLDER if path in self.empty else ""
        runs = git_mode == "100755"
        return of_bits(self.modes.get(path, self.executable if runs else self.plain))

    def odd(self) -> set[str]:
        """Paths that have an attribute of their own."""
        return {*self.modes, *self.empty, *self.pipes, *self.large}

    def written(self) -> bytes:
        """As it is kept; nothing when there is nothing to keep. The same for the same extras."""
        if self == Extras():
            return b""
        kept: dict[str, object] = {
            "plain": self.plain, "executable": self.executable, "modes": dict(self.modes), "empty": self.empty,
        }  # fmt: skip
        kept |= {name: dict(found) for name, found in (("pipes", self.pipes), ("large", self.large)) if found}
        return json.dumps(kept, sort_keys=True).encode()


def read(text: bytes) -> Extras:
    """What `written` gave."""
    found = json.loads(text) if text.strip() else {}
    found["empty"] = tuple(found.get("empty", ()))
    return Extras(**found)


def of_bits(bits: int) -> str:
    """The attribute of a file with these permission bits."""
    return "" if bits == usual(bits) else f"mode {bits:o}"


def usual(bits: int) -> int:
    """The bits that go without saying, for a file that can be executed as these say or not."""
    return EXECUTABLE if bits & 0o100 else PLAIN


def look(root: Path, modes: Mapping[str, int], folders: Iterable[str], large: Mapping[str, str]) -> Extras:
    """The extras of files with these `modes`, of `folders`, git's untracked ones, and of what is too `large`."""
    common = Counter(modes.values()).most_common()
    plain = next((mode for mode, _ in common if not mode & 0o100), PLAIN)
    executable = next((mode for mode, _ in common if mode & 0o100), EXECUTABLE)
    odd = {path: mode for path, mode in modes.items() if mode not in {plain, executable}}
    walked = [place for folder in folders for place in _below(root / folder)]
    empty = sorted(os.path.relpath(place, root) for place, names in walked if not names)
    pipes = dict(_pipes(root, {*_around(modes), *(os.path.relpath(place, root) for place, _ in walked)}))
    return Extras(plain, executable, dict(sorted(odd.items())), tuple(empty), pipes, dict(sorted(large.items())))


def bits(root: Path, files: Iterable[str]) -> dict[str, int]:
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


def size_of(path: Path) -> str:
    """How a large file is known: its bytes and when it was written. "" where no file is."""
    try:
        found = path.lstat()
    except OSError:
        return ""
    return f"{found.st_size} {found.st_mtime_ns}" if stat.S_ISREG(found.st_mode) else ""


def now(path: Path, expected: str) -> str:
    """The attribute of what is at `path`; known as a large file where that is `expected`."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISFIFO(mode):
            return f"pipe {stat.S_IMODE(mode):o}"
        if stat.S_ISDIR(mode):
            return FOLDER if not any(path.iterdir()) else ""
    except OSError:
        return ""
    if not stat.S_ISREG(mode):
        return ""
    return LARGE + size_of(path) if expected.startswith(LARGE) else of_bits(stat.S_IMODE(mode))


def clear(path: Path, root: Path) -> bool:
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


def put(path: Path, word: str) -> bool:
    """Make the attribute of `path` this one; False where it is already, or something is in the way. Raises OSError."""
    kind, _, bits_ = word.partition(" ")
    if kind in {FOLDER, "pipe"}:
        if os.path.lexists(path):
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == FOLDER:
            path.mkdir()
        else:
            os.mkfifo(path)
            path.chmod(int(bits_, 8))
        return True
    if path.is_symlink() or not path.is_file():
        return False
    mode = stat.S_IMODE(path.stat().st_mode)
    wanted = int(bits_, 8) if kind == "mode" else usual(mode)
    if mode == wanted:
        return False
    path.chmod(wanted)
    return True
