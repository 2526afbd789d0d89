"""What of git a command may write: everything but what git runs or obeys later, its hooks and its configuration.

Under places.py. Reads the disk; makes an empty hooks folder where there is none, so that none can be put there.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_HOOKS_PATH = re.compile(r"^\s*hookspath\s*=\s*\"?([^\"\n]+?)\"?\s*$", re.MULTILINE | re.IGNORECASE)

_WORKTREE = re.compile(r"^\s*worktree\s*=\s*\"?([^\"\n]+?)\"?\s*$", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True)
class GitPlaces:
    """Folders a command may write, and what in them stays as it is."""

    writable: tuple[Path, ...] = ()
    sealed: tuple[Path, ...] = ()


def git_places(root: Path) -> GitPlaces:
    """Of the repository at `root`; nothing where there is none."""
    entry = root / ".git"
    if entry.is_symlink() or not entry.exists():
        return GitPlaces(sealed=(entry,) if entry.exists() else ())
    if entry.is_dir():
        sealed = tuple(_sealed(entry, root))
        return GitPlaces((entry,), sealed)
    folder = _pointed_to(entry)
    if folder is None:
        return GitPlaces(sealed=(entry,))
    common = _common(folder)
    sealed = (entry, *_sealed(common, root), *(path for path in (folder / "config.worktree",) if path.exists()))
    return GitPlaces(tuple(dict.fromkeys((common, folder))), sealed)


def _sealed(folder: Path, root: Path) -> Iterator[Path]:
    """Hooks and configuration of a git folder and of the submodules it keeps; itself where a link stands for them."""
    hooks, config = folder / "hooks", folder / "config"
    if hooks.is_symlink() or config.is_symlink() or not config.is_file():
        yield folder
        return
    with contextlib.suppress(OSError):
        hooks.mkdir(exist_ok=True)
    yield from (path for path in (hooks, config, folder / "config.worktree") if path.exists())
    yield from _named(config, root)
    for module in _modules(folder / "modules"):
        yield from (path for path in (module / "hooks", module / "config") if path.exists())


def _named(config: Path, root: Path) -> Iterator[Path]:
    """The folder of hooks the configuration names, where it lies in the repository."""
    for name in _HOOKS_PATH.findall(config.read_text(encoding="utf-8", errors="replace")):
        place = Path(os.path.realpath(root / Path(name).expanduser()))
        if root in place.parents and place.exists():
            yield place


def _modules(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        if "HEAD" in files:
            yield Path(place)
            folders[:] = [name for name in folders if name == "modules"]


def _pointed_to(entry: Path) -> Path | None:
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
    try:
        return Path(os.path.realpath(folder / (folder / "commondir").read_text(encoding="utf-8").strip()))
    except OSError:
        return folder
