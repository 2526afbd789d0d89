"""What git obeys in the repository's git folders, as it was before a command, and put back to that after it.

Beside guarding.py, which does the same for named files, and for what the sandbox cannot forbid: a file that is not
there yet (`commondir` would give a repository another configuration), a nested repository, one that a command made and
tied into the index, so that the user's next `git status` would run its file monitor. Of a configuration only settings
that run no program and lead nowhere else are let through.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fugu_cli.sandbox.gitfolders import GitFolders
from fugu_cli.sandbox.guarding import Kept, content, put

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
"""Keys of a configuration that may be new after a command. `core.worktree` is let through where it stays inside."""
NAMES = ("config", "config.worktree", "commondir")
SAMPLE = ".sample"
LARGEST = 64_000_000
"""Bytes of the largest file whose content is kept."""


@dataclass(frozen=True)
class Obeyed:
    """What git obeys in one git folder: these files, and its hooks, each with its mode; samples left out."""

    files: Mapping[str, Kept] = field(default_factory=dict)
    hooks: Mapping[str, Kept] = field(default_factory=dict)


class GitGuard:
    """Remembers what git obeys below a root; `restore` makes it that again. `git` is the program's path."""

    def __init__(self, found: GitFolders, git: str | None) -> None:
        self._found, self._git = found, git
        self._entries = {entry: _content(entry) for entry in found.entries()}
        self._before = {folder: _obeyed(folder) for folder in found.folders(tuple(self._entries))}
        self._cut = found.cut

    def restore(self) -> tuple[Path, ...]:
        """Put back what was changed, take away what is new and dangerous; returns which files. Raises OSError."""
        changed = []
        now = self._found.entries()
        for entry in now:
            then = self._entries.get(entry)
            if then is not None and not stat.S_ISDIR(then[0]) and _content(entry) != then:
                _remove(entry)
                put(entry, *then)
                changed.append(entry)
        for folder in sorted(self._found.folders(now)):
            changed += self._checked(folder)
        return tuple(changed)

    def _checked(self, folder: Path) -> Iterator[Path]:
        then, found = self._before.get(folder), _obeyed(folder)
        if found == then or (then is None and found in self._moved()):
            return
        then = then if then is not None else self._unseen(folder, found)
        if found.hooks != then.hooks:
            yield from _hooks(folder / "hooks", found.hooks, then.hooks)
        old, new = then.files.get("commondir"), found.files.get("commondir")
        if old != new and not (old is None and self._of_known(folder)):
            yield _back(folder / "commondir", old)
        for name in ("config", "config.worktree"):
            old, new = then.files.get(name), found.files.get(name)
            if old != new and new is not None and self._dangers(folder, new, old):
                yield self._defused(folder / name, new, old)

    def _unseen(self, folder: Path, found: Obeyed) -> Obeyed:
        """What a folder held that was not looked into: nothing, it is new; in a tree too large to look into all of it,
        what is older than the session."""
        if not self._cut:
            return Obeyed()
        files = {name: kept for name, kept in found.files.items() if self._found.older(folder / name)}
        hooks = {name: kept for name, kept in found.hooks.items() if self._found.older(folder / "hooks" / name)}
        return Obeyed(files, hooks)

    def _moved(self) -> list[Obeyed]:
        """Of git folders that are not where they were any more."""
        return [obeyed for folder, obeyed in self._before.items() if not folder.exists()]

    def _of_known(self, folder: Path) -> bool:
        """A working tree of a repository that was there before."""
        with contextlib.suppress(OSError):
            named = (folder / "commondir").read_bytes()[:4096].strip()
            return folder not in self._before and Path(os.path.realpath(folder / os.fsdecode(named))) in self._before
        return False

    def _dangers(self, folder: Path, new: Kept, old: Kept | None) -> list[str]:
        """Keys that were not there, or had another value, and are not harmless. A file git cannot read is one."""
        lines = self._lines(new[1]) if stat.S_ISREG(new[0]) else None
        if lines is None:
            return ["include.path"]
        known = (self._lines(old[1]) or set()) if old is not None else set()
        return sorted({key for key, value in lines - known if not self._harmless(folder, key, value)})

    def _harmless(self, folder: Path, key: str, value: str) -> bool:
        if key == "core.worktree":
            real = Path(os.path.realpath(folder / value))
            return real == self._found.root or self._found.root in real.parents
        return HARMLESS.fullmatch(key) is not None

    def _defused(self, config: Path, new: Kept, old: Kept | None) -> Path:
        """As it was; a new one without the dangerous keys, or without any where that does not help."""
        if old is not None or not stat.S_ISREG(new[0]):
            return _back(config, old)
        for key in self._dangers(config.parent, new, None):
            self._run(b"", "--file", str(config), "--unset-all", key)
        left = _content(config)
        if left is not None and self._dangers(config.parent, left, None):
            config.write_bytes(b"[core]\n\trepositoryformatversion = 0\n")
        return config

    def _lines(self, config: bytes) -> set[tuple[str, str]] | None:
        """Keys with their values, None where git cannot read them."""
        said = self._run(config, "--file", "-", "--no-includes", "--list", "-z")
        if said is None:
            return None
        parts = (line.partition(b"\n") for line in said.split(b"\0") if line)
        return {(os.fsdecode(key), os.fsdecode(value)) for key, _, value in parts}

    def _run(self, given: bytes, *arguments: str) -> bytes | None:
        """`git config`, None where it fails. It runs nothing that a configuration names."""
        if self._git is None:
            return None
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        done = subprocess.run(
            [self._git, "config", *arguments], cwd="/", env=kept, input=given, capture_output=True, check=False
        )
        return None if done.returncode else done.stdout


def _obeyed(folder: Path) -> Obeyed:
    files = {name: found for name in NAMES if (found := _content(folder / name)) is not None}
    hooks = folder / "hooks"
    if hooks.is_symlink() or not hooks.is_dir():
        whole = _content(hooks)
        return Obeyed(files, {} if whole is None else {"": whole})
    inside = {path.name: _content(path) for path in sorted(hooks.iterdir()) if path.suffix != SAMPLE}
    return Obeyed(files, {name: found for name, found in inside.items() if found is not None})


def _hooks(folder: Path, found: Mapping[str, Kept], then: Mapping[str, Kept]) -> Iterator[Path]:
    """A link in the place of the folder goes, or comes back, as a whole: nothing is done where it leads."""
    if "" in found or "" in then:
        _remove(folder)
        for name, kept in then.items():
            yield _back(folder / name if name else folder, kept)
        yield folder
        return
    for name in sorted(found.keys() | then.keys()):
        if found.get(name) != then.get(name):
            yield _back(folder / name, then.get(name))


def _content(path: Path) -> Kept | None:
    return content(path, LARGEST)


def _back(path: Path, then: Kept | None) -> Path:
    _remove(path)
    if then is not None:
        put(path, *then)
    return path


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
