"""Walking the repository without falling into what is not its own: dependencies, builds, caches.

For suggestions, finding tests and implicated files; tools that search for an agent use ripgrep (search.py).
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path

from fugu_cli.policy.paths import shown

SKIPPED = frozenset({
    ".git", ".hg", ".svn", "node_modules", ".venv", "venv", "env", "site-packages", "dist-packages", "__pycache__",
    ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache", "target", "dist", "build", ".next", ".gradle",
    ".idea", "vendor", ".eggs",
})  # fmt: skip
LIMIT = 20_000


def files(root: Path, *, depth: int = 12, limit: int = LIMIT) -> Iterator[Path]:
    """Files below `root` that can be read, folders in `SKIPPED` left out, links to folders not followed; a folder's own
    first, sorted, at most `limit`."""
    count, waiting = 0, [(root, 0)]
    while waiting:
        folder, below = waiting.pop()
        found, folders = _inside(folder)
        for name in found:
            count += 1
            if count > limit:
                return
            yield folder / name
        if below < depth:
            waiting += [(folder / name, below + 1) for name in reversed(folders) if name not in SKIPPED]


def _inside(folder: Path) -> tuple[list[str], list[str]]:
    """The names of a folder's files and folders. A pipe or a device is neither: opening one waits for somebody."""
    try:
        with os.scandir(folder) as inside:
            entries = sorted(inside, key=lambda entry: entry.name)
    except OSError:
        return [], []
    folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    return [entry.name for entry in entries if _is_file(entry)], folders


def _is_file(entry: os.DirEntry[str]) -> bool:
    """A regular file, or a link to one."""
    try:
        return entry.is_file()
    except OSError:
        return False


class Index:
    """The files below `root` by name, looked up when first asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._by_name: dict[str, list[Path]] | None = None

    def ending(self, tail: str, most: int = 2) -> list[Path]:
        """Files whose path ends with `tail`; none when more than `most` do: then it says nothing."""
        if self._by_name is None:
            self._by_name = {}
            for path in files(self._root, limit=5000):
                self._by_name.setdefault(path.name, []).append(path)
        tail = tail.lstrip("./")
        same = [path for path in self._by_name.get(Path(tail).name, []) if path.as_posix().endswith(f"/{tail}")]
        return same if len(same) <= most else []


def near(root: Path, wanted: Path) -> list[str]:
    """Up to three files in `root` that a mistaken path may have meant, nearest first."""
    name = wanted.name.casefold()
    found = list(files(root, limit=5000))
    same = [path for path in found if path.name.casefold() == name]
    if not same:
        by_name = {path.name: path for path in found}
        same = [by_name[close] for close in difflib.get_close_matches(wanted.name, by_name, n=3, cutoff=0.75)]
    same.sort(key=lambda path: -sum(a == b for a, b in zip(path.parts[::-1], wanted.parts[::-1], strict=False)))
    return [shown(path.relative_to(root).as_posix()) for path in same[:3]]
