"""Finds links of a repository that lead to hidden folders outside. Commands may read the target of
a link to the repository's dependencies, and do not see that of any other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from fugu_cli.safety.paths import path_exists

DEPENDENCY_FOLDERS = (".venv", "venv", "env", "node_modules", "vendor", ".tox", ".nox")
"""Names of dependency folders, looked for in the root and one level below it."""
_DEPENDENCY_FILES = ("pyvenv.cfg", "package.json", "autoload.php", "modules.txt")
"""Files that show that a folder is an environment or a package, or holds packages."""
EXAMINED_ENTRIES = 50
"""Entries of a folder that are examined for packages."""
MOST_TARGETS = 200
SEARCHED_DEPTH = 3
"""Levels of folders in which links are looked for."""
SEARCHED_ENTRIES = 5000
LONGEST_CHAIN = 10
"""Links that may follow each other."""


def linked_dependencies(root: Path, is_hidden: Callable[[Path], bool]) -> list[Path]:
    """Return the hidden dependency folders that links of the repository lead to.

    A command can make a link of any name. So the target must look like dependencies itself, and no
    link on the way there may be hidden.
    """
    folders = [root]
    for path in _entries(root):
        if path.is_dir() and not path.is_symlink() and path.name != ".git":
            folders.append(path)
    targets: dict[Path, None] = {}
    for folder in folders:
        for name in DEPENDENCY_FOLDERS:
            for link in _links_at(folder / name):
                target = Path(os.path.realpath(link))
                if target in targets or not is_hidden(target):
                    continue
                if _can_be_followed(link, is_hidden) and _holds_dependencies(target):
                    targets[target] = None
    return list(targets)[:MOST_TARGETS]


def links_to(root: Path, is_hidden: Callable[[Path], bool]) -> list[str]:
    """Return the links in the repository whose target exists and is hidden, relative to `root`."""
    links: list[Path] = []
    waiting = [(root, 1)]
    count = 0
    while waiting and count < SEARCHED_ENTRIES:
        folder, depth = waiting.pop()
        for path in _entries(folder):
            count += 1
            if path.is_symlink():
                links.append(path)
            elif path.name == "node_modules":
                links += _links_at(path)
            elif depth < SEARCHED_DEPTH and path.name != ".git" and path.is_dir():
                waiting.append((path, depth + 1))
    hidden: list[str] = []
    for link in links:
        if not path_exists(link):
            continue
        target = Path(os.path.realpath(link))
        if is_hidden(target) or not _can_be_followed(link, is_hidden):
            hidden.append(link.relative_to(root).as_posix())
    return hidden


def _links_at(folder: Path) -> Iterator[Path]:
    """Yield a dependency folder that is a link, or the links to packages in a `node_modules`."""
    if folder.is_symlink():
        yield folder
    if folder.name != "node_modules":
        return
    for path in islice(_entries(folder), SEARCHED_ENTRIES):
        if path.is_symlink():
            yield path
        elif path.name.startswith("@"):
            yield from (inner for inner in _entries(path) if inner.is_symlink())


def _can_be_followed(link: Path, is_hidden: Callable[[Path], bool]) -> bool:
    """Return whether a command can follow a link to its target: no link on the way is hidden."""
    for _ in range(LONGEST_CHAIN):
        folder = Path(os.path.realpath(link.parent))
        target = Path(os.path.normpath(folder / link.readlink()))
        real_parent = Path(os.path.realpath(target.parent))
        if real_parent != target.parent and is_hidden(target.parent):
            return False
        link = real_parent / target.name
        if not link.is_symlink():
            return True
        if is_hidden(link):
            return False
    return False


def _holds_dependencies(folder: Path) -> bool:
    for path in (folder, *_entries(folder)[:EXAMINED_ENTRIES]):
        if any(path_exists(path / name) for name in _DEPENDENCY_FILES):
            return True
    return False


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
