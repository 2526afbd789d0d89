"""Files, and what git obeys, as they were before a command; put back after it where the sandbox
could not forbid writing them.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fugu_cli.errors import UsageError
from fugu_cli.safety.git_process import run_git, users_environment
from fugu_cli.safety.paths import inside
from fugu_cli.safety.sandbox.git_access import GitFolders

SavedFile = tuple[int, bytes]
"""A file's mode and content, or a link's mode and where it leads."""


class FileGuard:
    """Remembers the files at and below `paths`; `restore` makes them that again."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = tuple(Path(path) for path in paths)
        self._kept = {path: read_saved(path) for path in self._all()}

    def _all(self) -> Iterator[Path]:
        for path in self._paths:
            if path.is_dir() and not path.is_symlink():
                yield from (
                    Path(folder) / name for folder, _, names in os.walk(path) for name in names
                )
            elif os.path.lexists(path):
                yield path

    def restore(self) -> tuple[str, ...]:
        """Put back what was changed; return a sentence for each file. Raises OSError."""
        current = {path: read_saved(path) for path in self._all()}
        unknown = {
            path for path, kept in self._kept.items() if kept is None
        }  # it could not be read before
        changed = [
            path for path in {**current, **self._kept} if current.get(path) != self._kept.get(path)
        ]
        changed = [path for path in changed if path not in unknown]
        for path in changed:
            _clear(path)
            kept = self._kept.get(path)
            if kept is not None:
                write_saved(path, *kept)
        return _put_back(changed)


def _put_back(paths: Sequence[Path]) -> tuple[str, ...]:
    return tuple(f"{path} was changed and put back: commands may not write it" for path in paths)


BRINGS_BACK = "brings it back"
"""The end of a sentence on a file that was moved away."""


class NewFileGuard:
    """Notices files that other programs run and that appear while a command runs.

    `restore` moves them into the folder `taken`; if that is None, they may stay. Files in
    `expected` always stay, and so do files that were moved together with their folder.
    """

    def __init__(
        self,
        folders: GitFolders,
        before: Sequence[Path],
        expected: set[Path],
        opened: Sequence[Path],
        taken: Path | None,
    ) -> None:
        self._git_folders, self._expected, self._taken = folders, expected, taken
        self._opened = opened
        self._parents = {path: _identity(path.parent) for path in before}
        self._moved = {_identity(path) for path in before}

    def restore(self) -> tuple[str, ...]:
        """Move what is new; return a sentence for each file."""
        new_paths = [path for path in self._git_folders.run_by_others() if self._is_new(path)]
        if self._taken is None:
            self._expected.update(new_paths)
            return ()
        sentences = []
        for path in new_paths:
            self._taken.mkdir(parents=True, exist_ok=True)
            folder = Path(
                tempfile.mkdtemp(prefix=f"{time.strftime('%Y%m%d-%H%M%S')}-", dir=self._taken)
            )
            shutil.move(path, folder / path.name)
            sentences.append(
                f"{path} is a file that others run without a further word, which commands may not "
                f"make: it was moved to {folder}. Use the tool `write`, which asks. If the user "
                f"made it, {_move_back(folder / path.name, path)} {BRINGS_BACK}"
            )
        return tuple(sentences)

    def _is_new(self, path: Path) -> bool:
        if any(inside(expected, path) for expected in self._expected):
            return False
        if _identity(path) in self._moved or any(inside(path, top) for top in self._opened):
            return False
        return path not in self._parents or self._parents[path] != _identity(path.parent)


def _move_back(source: Path, target: Path) -> str:
    return f"`mv {shlex.quote(str(source))} {shlex.quote(str(target))}`"


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from every other that is there at the same time."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


class Restores(Protocol):
    """Something that was remembered; `restore` puts it back and says so. Raises OSError."""

    def restore(self) -> tuple[str, ...]: ...


class CombinedGuard:
    """Several of them as one."""

    def __init__(self, guards: Sequence[Restores]) -> None:
        self._guards = tuple(guards)

    def restore(self) -> tuple[str, ...]:
        """Restore all of them, in order; return what people and agents should know."""
        sentences = (sentence for guard in self._guards for sentence in guard.restore())
        return tuple(dict.fromkeys(sentences))


def read_saved(path: Path, largest: float = math.inf) -> SavedFile | None:
    """Return mode and content of a file, or the target of a link; None if there is nothing. Files
    of more than `largest` bytes have no content.
    """
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            return status.st_mode, os.fsencode(path.readlink())
        plain = stat.S_ISREG(status.st_mode) and status.st_size <= largest
        return status.st_mode, path.read_bytes() if plain else b""
    except OSError:
        return None


def write_saved(path: Path, mode: int, data: bytes) -> None:
    """Make a file, a link or a folder what it was. Nothing is there. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if stat.S_ISLNK(mode):
        path.symlink_to(os.fsdecode(data))
    elif stat.S_ISREG(mode):
        path.write_bytes(data)
        path.chmod(stat.S_IMODE(mode))
    elif stat.S_ISDIR(mode):
        path.mkdir(exist_ok=True)


def _clear(path: Path) -> None:
    """Remove anything at `path`, and files or links in place of its folders."""
    for parent in path.parents:
        if parent.is_symlink() or parent.is_file():
            parent.unlink()
            break
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()


HARMLESS = re.compile(
    "|".join(
        (
            r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks)",
            r"core\.(autocrlf|eol|safecrlf|compression|sparsecheckout(cone)?|longpaths|quotepath|abbrev|untrackedcache)",
            r"remote\..*\.(url|pushurl|fetch|push|mirror|tagopt|prune|prunetags|promisor|partialclonefilter)",
            r"branch\..*\.(remote|pushremote|merge|rebase|description)|branch\.(autosetup\w+|sort)",
            r"submodule\..*\.(url|active|branch|ignore|path|shallow|fetchrecursesubmodules)|submodule\.active",
            r"extensions\.(objectformat|compatobjectformat|partialclone|refstorage|relativeworktrees|preciousobjects)",
            r"user\.(name|email|signingkey|useconfigonly)|author\.\w+|committer\.\w+|init\.defaultbranch",
            r"(pull|push|fetch|advice|color|log|status|index|feature|rebase|pack|maintenance|rerere)\.[\w.]+",
            r"gc\.(auto\w*|pruneexpire|reflogexpire\w*|packrefs|worktreepruneexpire|aggressive\w+)",
            r"(commit|tag)\.gpgsign|merge\.(ff|conflictstyle|renames|renamelimit)|diff\.(renames|renamelimit|algorithm)",
            r"lfs\.repositoryformatversion",
        )
    ),
    re.DOTALL,
)
"""Keys of a configuration that may be new after a command. `core.worktree` is let through where it
stays inside.
"""
NAMES = ("config", "config.worktree", "commondir")
SAMPLE = ".sample"
LARGEST = 64_000_000
"""Bytes of the largest file whose content is kept."""


@dataclass(frozen=True)
class GitConfiguration:
    """The files that git obeys in one git folder, and its hooks with their modes, without samples."""

    files: Mapping[str, SavedFile] = field(default_factory=dict)
    hooks: Mapping[str, SavedFile] = field(default_factory=dict)


class GitGuard:
    """Remembers the files that git obeys below a root; `restore` restores them."""

    def __init__(self, folders: GitFolders) -> None:
        self._git_folders = folders
        self._entries = {entry: _small_content(entry) for entry in folders.entries()}
        self._before = {
            folder: _git_configuration(folder) for folder in folders.folders(tuple(self._entries))
        }
        self._cut = folders.cut

    def restore(self) -> tuple[str, ...]:
        """Put back what was changed, take away what is new and dangerous; return a sentence for
        each file. Raises OSError.
        """
        changed = []
        entries = self._git_folders.entries()
        for entry in entries:
            then = self._entries.get(entry)
            if then is not None and not stat.S_ISDIR(then[0]) and _small_content(entry) != then:
                _remove(entry)
                write_saved(entry, *then)
                changed.append(entry)
        for folder in sorted(self._git_folders.folders(entries)):
            changed += self._checked(folder)
        return _put_back(changed)

    def _checked(self, folder: Path) -> Iterator[Path]:
        earlier, current = self._before.get(folder), _git_configuration(folder)
        if current == earlier or (earlier is None and current in self._moved()):
            return
        earlier = earlier if earlier is not None else self._unseen(folder, current)
        if current.hooks != earlier.hooks:
            yield from _hooks(folder / "hooks", current.hooks, earlier.hooks)
        old, new = earlier.files.get("commondir"), current.files.get("commondir")
        if old != new and not (old is None and self._of_known(folder)):
            yield _write_back(folder / "commondir", old)
        for name in ("config", "config.worktree"):
            old, new = earlier.files.get(name), current.files.get(name)
            if old != new and new is not None and self._dangers(folder, new, old):
                yield self._defused(folder / name, new, old)

    def _unseen(self, folder: Path, current: GitConfiguration) -> GitConfiguration:
        """Return the earlier content of a folder that was not searched before.

        A new folder held nothing. In a tree too large to search, files older than the session are
        taken as they are.
        """
        if not self._cut:
            return GitConfiguration()
        files = {
            name: kept
            for name, kept in current.files.items()
            if self._git_folders.older(folder / name)
        }
        hooks = {
            name: kept
            for name, kept in current.hooks.items()
            if self._git_folders.older(folder / "hooks" / name)
        }
        return GitConfiguration(files, hooks)

    def _moved(self) -> list[GitConfiguration]:
        """Return the configuration of git folders that are no longer in place."""
        return [obeyed for folder, obeyed in self._before.items() if not folder.exists()]

    def _of_known(self, folder: Path) -> bool:
        """Return whether it is a working tree of a repository that existed before."""
        with contextlib.suppress(OSError):
            named = (folder / "commondir").read_bytes()[:4096].strip()
            return (
                folder not in self._before
                and Path(os.path.realpath(folder / os.fsdecode(named))) in self._before
            )
        return False

    def _dangers(self, folder: Path, new: SavedFile, old: SavedFile | None) -> list[str]:
        """Return the keys that are new or changed and not harmless. An unreadable file counts as
        one.
        """
        lines = self._lines(new[1]) if stat.S_ISREG(new[0]) else None
        if lines is None:
            return ["include.path"]
        earlier = (self._lines(old[1]) or set()) if old is not None else set()
        return sorted(
            {key for key, value in lines - earlier if not self._harmless(folder, key, value)}
        )

    def _harmless(self, folder: Path, key: str, value: str) -> bool:
        if key == "core.worktree":
            real = Path(os.path.realpath(folder / value))
            return real == self._git_folders.root or self._git_folders.root in real.parents
        return HARMLESS.fullmatch(key) is not None

    def _defused(self, config: Path, new: SavedFile, old: SavedFile | None) -> Path:
        """Restore a configuration; remove the dangerous keys from a new one, or all of it if that
        does not help.
        """
        if old is not None or not stat.S_ISREG(new[0]):
            return _write_back(config, old)
        for key in self._dangers(config.parent, new, None):
            self._run(b"", "--file", str(config), "--unset-all", key)
        left = _small_content(config)
        if left is not None and self._dangers(config.parent, left, None):
            config.write_bytes(b"[core]\n\trepositoryformatversion = 0\n")
        return config

    def _lines(self, config: bytes) -> set[tuple[str, str]] | None:
        """Return keys with their values, None if git cannot read them."""
        listing = self._run(config, "--file", "-", "--no-includes", "--list", "-z")
        if listing is None:
            return None
        parts = (line.partition(b"\n") for line in listing.split(b"\0") if line)
        return {(os.fsdecode(key), os.fsdecode(value)) for key, _, value in parts}

    def _run(self, config: bytes, *arguments: str) -> bytes | None:
        """Run `git config` without starting any program that the configuration names. Return None
        if it fails.
        """
        environment = users_environment()
        try:
            output = run_git(
                self._git_folders.root, "config", *arguments,
                environment=environment, cwd=Path("/"), stdin=config,
            )  # fmt: skip
        except UsageError:
            return None
        return None if output.code else output.out


def _git_configuration(folder: Path) -> GitConfiguration:
    files = {name: saved for name in NAMES if (saved := _small_content(folder / name)) is not None}
    hooks = folder / "hooks"
    if hooks.is_symlink() or not hooks.is_dir():
        whole = _small_content(hooks)
        return GitConfiguration(files, {} if whole is None else {"": whole})
    inside = {
        path.name: _small_content(path) for path in sorted(hooks.iterdir()) if path.suffix != SAMPLE
    }
    return GitConfiguration(
        files, {name: saved for name, saved in inside.items() if saved is not None}
    )


def _hooks(
    folder: Path, current: Mapping[str, SavedFile], earlier: Mapping[str, SavedFile]
) -> Iterator[Path]:
    """Yield the restored hooks. A link in place of the folder is removed or restored as a whole;
    nothing is changed behind it.
    """
    if "" in current or "" in earlier:
        _remove(folder)
        for name, kept in earlier.items():
            yield _write_back(folder / name if name else folder, kept)
        yield folder
        return
    for name in sorted(current.keys() | earlier.keys()):
        if current.get(name) != earlier.get(name):
            yield _write_back(folder / name, earlier.get(name))


def _small_content(path: Path) -> SavedFile | None:
    return read_saved(path, LARGEST)


def _write_back(path: Path, then: SavedFile | None) -> Path:
    _remove(path)
    if then is not None:
        write_saved(path, *then)
    return path


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
