"""The parts of a snapshot that a git tree cannot hold: permission bits, empty folders, named pipes,
large files, states of nested repositories.

snapshots.py keeps them as the message of an unreferenced commit object. An attribute is one word
for one path: `mode 600`, `folder`, `pipe 644`, `large 30000000 1700000000` (bytes and modification
time in nanoseconds), `repository 4f1e...` (its state); "" for a file with the usual bits and for
nothing. Paths are as the os module gives them.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fugu_cli.safety.git_process import git_program, run_git
from fugu_cli.snapshots.git_repositories import GIT_OPTIONS, Git, Repository, find_repository
from fugu_cli.system.bounded_json import parse_json
from fugu_cli.system.resolved_files import remove_empty_folders, resolved_entry, resolved_folder

PLAIN_BITS, EXECUTABLE_BITS = 0o644, 0o755
EMPTY_FOLDER, LARGE_FILE, REPOSITORY = "folder", "large ", "repository "
WHOLE, MOST_WHOLE = 1 << 20, 1000
"""Bytes of a changed file in a nested repository whose content counts, and how many of them are
read.
"""


@dataclass(frozen=True)
class TreeExtras:
    """`plain` and `executable` are the usual bits of files, `modes` those of files that differ;
    `empty` are folders, `pipes` have their bits, `large` files their size and time, and `nested`
    repositories their attribute."""

    plain: int = PLAIN_BITS
    executable: int = EXECUTABLE_BITS
    modes: Mapping[str, int] = field(default_factory=dict)
    empty: tuple[str, ...] = ()
    pipes: Mapping[str, int] = field(default_factory=dict)
    large: Mapping[str, str] = field(default_factory=dict)
    nested: Mapping[str, str] = field(default_factory=dict)

    def at(self, path: str, git_mode: str) -> str:
        """Return the attribute of a path. `git_mode` is that of its file in the tree, "" if there
        is none.
        """
        if path in self.large:
            return LARGE_FILE + self.large[path]
        if path in self.nested:
            return self.nested[path]
        if path in self.pipes:
            return f"pipe {self.pipes[path]:o}"
        if not git_mode.startswith("100"):
            return EMPTY_FOLDER if path in self.empty else ""
        runs = git_mode == "100755"
        return attribute_of_bits(self.modes.get(path, self.executable if runs else self.plain))

    def odd(self) -> set[str]:
        """Return the paths that have an attribute."""
        return {*self.modes, *self.empty, *self.pipes, *self.large, *self.nested}

    def written(self) -> bytes:
        """Return the extras as bytes, b"" if there are none. Equal extras give equal bytes."""
        if self == TreeExtras():
            return b""
        kept: dict[str, object] = {
            "plain": self.plain, "executable": self.executable, "modes": dict(self.modes), "empty": self.empty,
        }  # fmt: skip
        rare = {"pipes": self.pipes, "large": self.large, "nested": self.nested}
        kept |= {name: dict(values) for name, values in rare.items() if values}
        return json.dumps(kept, sort_keys=True).encode()


def parse_extras(text: bytes) -> TreeExtras:
    """Parse the text that `written` returned."""
    fields = parse_json(text) if text.strip() else {}
    fields["empty"] = tuple(fields.get("empty", ()))
    return TreeExtras(**fields)


def attribute_of_bits(bits: int) -> str:
    """Return the attribute of a file with these permission bits."""
    return "" if bits == usual_bits(bits) else f"mode {bits:o}"


def usual_bits(bits: int) -> int:
    """Return the usual permission bits of a file: those of an executable if `bits` are."""
    return EXECUTABLE_BITS if bits & 0o100 else PLAIN_BITS


def collect_extras(
    root: Path,
    modes: Mapping[str, int],
    folders: Iterable[str],
    large: Mapping[str, str],
    nested: Mapping[str, str],
) -> TreeExtras:
    """Return the extras of files with these `modes`, git's untracked `folders`, `large` files and
    `nested` repositories.
    """
    common = Counter(modes.values()).most_common()
    plain = next((mode for mode, _ in common if not mode & 0o100), PLAIN_BITS)
    executable = next((mode for mode, _ in common if mode & 0o100), EXECUTABLE_BITS)
    odd = {path: mode for path, mode in modes.items() if mode not in {plain, executable}}
    empty = []
    searched = set(_parent_folders(modes))
    for folder in folders:
        for path, names in _below(root / folder):
            name = os.path.relpath(path, root)
            searched.add(name)
            if not names:
                empty.append(name)
    return TreeExtras(
        plain,
        executable,
        dict(sorted(odd.items())),
        tuple(sorted(empty)),
        dict(_pipes(root, searched)),
        dict(sorted(large.items())),
        nested,
    )


def nested_below(root: Path, folder: str) -> Iterator[str]:
    """Yield the repositories at and below an untracked folder."""
    for path, folders, files in os.walk(root / folder):
        if ".git" in folders or ".git" in files:
            folders.clear()
            yield os.path.relpath(path, root)


class KnownRepository(NamedTuple):
    """A nested repository's attribute, and stamps that show whether it has changed since."""

    attribute: str
    names: tuple[str, ...]
    stamps: tuple[object, ...]


def repository_states(
    store: Path, root: Path, nested: Iterable[str], cache: dict[str, KnownRepository]
) -> dict[str, str]:
    """Return the attribute of each existing nested repository. Git is asked only if `cache`, which
    is updated, is not enough.
    """
    attributes = {}
    for name in sorted(nested):
        repository = cache.get(name)
        if repository is None or repository.stamps != _stamps(root / name, repository.names):
            repository = cache[name] = _read_repository(store, root, root / name)
        if repository.attribute:
            attributes[name] = repository.attribute
    return attributes


def repository_state(store: Path, root: Path, top: Path) -> str:
    """Return the attribute of the repository at `top`, "" if there is none.

    It changes when HEAD, the index or a file that is not ignored changes.
    """
    return _read_repository(store, root, top).attribute


def _read_repository(store: Path, root: Path, top: Path) -> KnownRepository:
    """Read a nested repository with the configuration of `store`, so that none of its own filters
    run, and with a git program from outside `root`.
    """
    repository = find_repository(top) if os.path.lexists(top / ".git") else None
    if repository is None or repository.top != top or git_program(root) is None:
        return KnownRepository("", (), ())
    git = Git(store, top, repository.index, top)
    listing = ("ls-files", "-z", "-t", "-s", "-m", "-o", "--exclude-standard")
    output = run_git(root, *GIT_OPTIONS, *listing, environment=git.environment(), cwd=top).out
    paths: list[str] = []
    changed: list[str] = []
    holds_repositories = False
    for entry in output.split(b"\0")[:-1]:
        is_untracked = entry[:1] == b"?"
        is_submodule = entry[2:8] == b"160000"
        path = os.fsdecode(entry[2:] if is_untracked else entry.partition(b"\t")[2])
        paths.append(path)
        if is_untracked or is_submodule or entry[:1] == b"C":
            changed.append(path)
        holds_repositories = holds_repositories or is_submodule or entry.endswith(b"/")
    head = _head(repository)
    names: tuple[str, ...] = ()
    if not holds_repositories:
        own_files = [str(file) for file in (*head, repository.index)]
        names = (*own_files, *dict.fromkeys(paths), *_parent_folders(paths))
    # taken before the files are read: a file written meanwhile is read again the next time
    stamps = _stamps(top, names)
    digest = hashlib.sha256(b"\0".join([*map(_bytes, head), output]))
    for number, path in enumerate(changed):
        data = _content(top / path, whole=number < MOST_WHOLE)
        digest.update(data or repository_state(store, root, top / path).encode())
    return KnownRepository(REPOSITORY + digest.hexdigest()[:16], names, stamps)


def _stamps(top: Path, names: Iterable[str]) -> tuple[object, ...]:
    """Return size and time of files and folders. Without names the result never equals another."""
    stamps = tuple(_stamp(os.path.join(top, name)) for name in names)  # noqa: PTH118
    return stamps or (object(),)


def _stamp(path: str) -> object:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_mode


def _head(repository: Repository) -> tuple[Path, ...]:
    """Return the files that say which commit is checked out: HEAD, and the file of its branch."""
    head = repository.folder / "HEAD"
    branch = os.fsdecode(_bytes(head).removeprefix(b"ref:").strip())
    return head, repository.common / branch, repository.common / "reftable" / "tables.list"


def _content(path: Path, *, whole: bool) -> bytes:
    """Return the content of a file or link; of a large file its size and time; b"" for a folder or
    nothing.
    """
    if path.is_symlink():
        return os.fsencode(path.readlink())
    stamp = size_stamp(path)
    return (
        _bytes(path)
        if stamp and whole and int(stamp.partition(" ")[0]) <= WHOLE
        else stamp.encode()
    )


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def permission_bits(root: Path, files: Iterable[str]) -> dict[str, int]:
    """Return the permission bits of regular files. Fast enough for a hundred thousand."""
    bits, top, look_at = {}, f"{root}/", os.lstat
    for name in files:
        try:
            mode = look_at(top + name).st_mode
        except OSError:
            continue
        if mode & 0o170000 == stat.S_IFREG:
            bits[name] = mode & 0o7777
    return bits


def _below(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield folders at and below `folder` with their names, without nested repositories."""
    for path, folders, files in os.walk(folder):
        if ".git" in folders or ".git" in files:
            folders.clear()
        else:
            yield path, [*folders, *files]


def _parent_folders(files: Iterable[str]) -> set[str]:
    """Return the folders around these files, "" for the outermost."""
    folders = {""}
    for folder in {name.rpartition("/")[0] for name in files}:
        while folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return folders


def _pipes(root: Path, folders: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield the named pipes in these folders, with their bits. Other entries cost no extra call."""
    for folder in sorted(folders):
        try:
            with os.scandir(root / folder) as entries:
                for entry in entries:
                    is_usual = entry.is_file(follow_symlinks=False) or entry.is_dir(
                        follow_symlinks=False
                    )
                    if is_usual or entry.is_symlink():
                        continue
                    mode = entry.stat(follow_symlinks=False).st_mode
                    if stat.S_ISFIFO(mode):
                        yield os.path.relpath(entry.path, root), stat.S_IMODE(mode)
        except OSError:
            continue  # gone meanwhile, or nobody may look


def holds_files(root: Path, folder: str) -> bool:
    """Return whether there is a file or link below `folder`, outside nested repositories."""
    return any(
        _is_held(Path(path) / name) for path, names in _below(root / folder) for name in names
    )


def _is_held(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def size_stamp(path: Path | str) -> str:
    """Return the size and modification time of a file, "" if there is none."""
    try:
        status = os.lstat(path)
    except OSError:
        return ""
    return f"{status.st_size} {status.st_mtime_ns}" if stat.S_ISREG(status.st_mode) else ""


def current_attribute(path: Path, expected: str) -> str:
    """Return the attribute of the thing at `path`, which is no nested repository. A large file is
    recognised by `expected`.
    """
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
    return (
        LARGE_FILE + size_stamp(path)
        if expected.startswith(LARGE_FILE)
        else attribute_of_bits(stat.S_IMODE(mode))
    )


def remove_folder_or_pipe(path: Path, root: Path) -> bool:
    """Remove a pipe or an empty folder, and the folders around it that are empty then. Return False
    if the path is neither.
    """
    try:
        with resolved_folder(path.parent) as folder:
            entry = folder / path.name
            if stat.S_ISFIFO(entry.lstat().st_mode):
                entry.unlink()
                return True
            entry.rmdir()
    except OSError:
        return False
    remove_empty_folders(path.parent, root)
    return True


def apply_attribute(path: Path, word: str) -> bool:
    """Make the attribute of `path` this one; False where it is already, or something is in the way.
    Raises OSError.
    """
    attribute, _, octal = word.partition(" ")
    if attribute in {EMPTY_FOLDER, "pipe"}:
        if os.path.lexists(path):
            return False
        with resolved_folder(path.parent, make=True) as folder:
            if attribute == EMPTY_FOLDER:
                (folder / path.name).mkdir()
                return True
            os.mkfifo(folder / path.name)
        with resolved_entry(path) as entry:
            entry.chmod(int(octal, 8))
        return True
    if path.is_symlink() or not path.is_file():
        return False
    with resolved_entry(path) as entry:
        mode = stat.S_IMODE(entry.stat().st_mode)
        bits = int(octal, 8) if attribute == "mode" else usual_bits(mode)
        if mode == bits:
            return False
        entry.chmod(bits)
    return True
