"""What of git a command may write: nothing, unless it is git alone; then all but its hooks and its configuration.

Under places.py. Reads the disk; makes an empty hooks folder where there is none, so that none can be put there.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.policy.paths import expanded

_HOOKS_PATH = re.compile(r"^\s*hookspath\s*=\s*\"?([^\"\n]+?)\"?\s*$", re.MULTILINE | re.IGNORECASE)
_INCLUDED = re.compile(r"^\s*path\s*=\s*\"?([^\"\n]+?)\"?\s*$", re.MULTILINE | re.IGNORECASE)
_WORKTREE = re.compile(r"^\s*worktree\s*=\s*\"?([^\"\n]+?)\"?\s*$", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True)
class GitPlaces:
    """Folders a command may write, and what in them stays as it is."""

    writable: tuple[Path, ...] = ()
    sealed: tuple[Path, ...] = ()
    loose: tuple[Path, ...] = ()
    """What git would obey if it were there: nothing can be laid over it, it is looked after instead."""


def git_places(root: Path, opened: Path | None = None) -> GitPlaces:
    """Of the repository at `root`; nothing where there is none. `opened`: the `.git` that may be written now."""
    entry = root / ".git"
    if entry.is_symlink() or not entry.exists():
        return GitPlaces(sealed=(entry,) if entry.exists() else ())
    folder = entry if entry.is_dir() else _pointed_to(entry)
    if folder is None:
        return GitPlaces(sealed=(entry,))
    common = folder if folder == entry else _common(folder)
    whole = tuple(dict.fromkeys((common, folder)))
    named = list(_named(common, root))
    if opened is None or not _leads_into(opened, entry, whole):
        return _split((), [entry, *whole, *named])
    own = [] if folder == entry else [entry, *_of_tree(folder)]
    return _split(whole, [*own, *_sealed(common), *named])


def _leads_into(opened: Path, entry: Path, whole: tuple[Path, ...]) -> bool:
    """A `.git` is the repository's own, or that of a submodule or a working tree which it keeps."""
    if opened == entry:
        return True
    behind = _pointed_to(opened)
    return behind is not None and any(folder in behind.parents for folder in whole)


def _split(writable: tuple[Path, ...], wanted: list[Path]) -> GitPlaces:
    there = tuple(dict.fromkeys(path for path in wanted if os.path.lexists(path)))
    loose = tuple(dict.fromkeys(path for path in wanted if not os.path.lexists(path)))
    return GitPlaces(tuple(dict.fromkeys(writable)), there, loose)


def _sealed(folder: Path) -> Iterator[Path]:
    """Hooks and configuration of a git folder, of its working trees and of the submodules it keeps; itself where a link
    stands for them."""
    hooks, config = folder / "hooks", folder / "config"
    if hooks.is_symlink() or config.is_symlink() or not config.is_file():
        yield folder
        return
    with contextlib.suppress(OSError):
        hooks.mkdir(exist_ok=True)
    yield from (hooks, config, folder / "config.worktree", folder / "commondir")
    for tree in _folders(folder / "worktrees"):
        yield from _of_tree(tree)
    for module in _modules(folder / "modules"):
        yield from (module / name for name in ("hooks", "config", "config.worktree", "commondir"))


def _of_tree(folder: Path) -> Iterator[Path]:
    """Of a linked working tree's own git folder."""
    yield from (folder / name for name in ("commondir", "config.worktree"))


def _named(folder: Path, root: Path) -> Iterator[Path]:
    """The folder of hooks and the further files that the configuration names, where they lie in the repository."""
    user = (Path("~/.gitconfig").expanduser(), Path("~/.config/git/config").expanduser())
    for config in (folder / "config", folder / "config.worktree", *user):
        try:
            text = config.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        named = [root / expanded(name) for name in _HOOKS_PATH.findall(text)]
        named += [config.parent / expanded(name) for name in _INCLUDED.findall(text)]
        yield from (place for path in named if root in (place := Path(os.path.realpath(path))).parents)


def _folders(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_dir()]
    except OSError:
        return []


def _modules(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        if "HEAD" in files:
            yield Path(place)
            folders[:] = [name for name in folders if name == "modules"]


def _pointed_to(entry: Path) -> Path | None:
    if not entry.is_file():
        return None
    text = entry.read_text(encoding="utf-8", errors="surrogateescape")
    if not text.startswith("gitdir:"):
        return None
    folder = Path(os.path.realpath(entry.parent / text.removeprefix("gitdir:").strip()))
    return folder if folder.is_dir() and _points_back(folder, entry) else None


def _points_back(folder: Path, entry: Path) -> bool:
    """The git folder says that it belongs here: else a file `.git` could open any folder to be written."""
    with contextlib.suppress(OSError):
        named = (folder / "gitdir").read_text(encoding="utf-8", errors="surrogateescape").strip()
        return Path(os.path.realpath(folder / named)) == entry
    with contextlib.suppress(OSError):
        found = _WORKTREE.search((folder / "config").read_text(encoding="utf-8", errors="surrogateescape"))
        return found is not None and Path(os.path.realpath(folder / found.group(1))) == entry.parent
    return False


def _common(folder: Path) -> Path:
    """The repository of a linked working tree's git folder, which lies in its `worktrees`; any other folder itself: a
    `commondir` that leads elsewhere must not open that."""
    with contextlib.suppress(OSError):
        named = (folder / "commondir").read_text(encoding="utf-8", errors="surrogateescape").strip()
        common = Path(os.path.realpath(folder / named))
        return common if folder.parent == common / "worktrees" else folder
    return folder
