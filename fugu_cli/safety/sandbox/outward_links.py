"""Links of a repository that lead to hidden places outside: to its dependencies, which commands may
read, or to anything else, which they do not see.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from fugu_cli.safety.paths import path_exists

DEPENDENCY_FOLDERS = (".venv", "venv", "env", "node_modules", "vendor", ".tox", ".nox")
"""Names of folders of dependencies, in the root and in the folders in it."""
_MARKS = ("pyvenv.cfg", "package.json", "autoload.php", "modules.txt")
"""Files of which one shows that a folder is an environment or a package, or holds packages."""
LOOKED_AT_ENTRIES = 50
"""Entries of a folder that may be packages."""
MOST_OPENED = 200
SEARCHED_DEPTH, SEARCHED_ENTRIES = 3, 5000
LONGEST_CHAIN = 10
"""Links that may follow each other."""


def linked_dependencies(root: Path, is_hidden: Callable[[Path], bool]) -> list[Path]:
    """Return the hidden folders of dependencies that links of the repository lead to.

    A link's name proves nothing, for a command can make any link: the folder must look like
    dependencies, and the way there must not lead over a hidden link.
    """
    folders = [root, *(folder for folder in _entries(root) if _is_plain_folder(folder))]
    targets: dict[Path, None] = {}
    for folder in folders:
        for name in DEPENDENCY_FOLDERS:
            for link in _links_at(folder / name):
                target = Path(os.path.realpath(link))
                if target in targets or not is_hidden(target):
                    continue
                if _way_is_seen(link, is_hidden) and _holds_dependencies(target):
                    targets[target] = None
    return list(targets)[:MOST_OPENED]


def links_to(root: Path, is_hidden: Callable[[Path], bool]) -> list[str]:
    """Return the links in the repository whose target exists and is hidden, relative to `root`."""
    paths: list[Path] = []
    waiting, count = [(root, 1)], 0
    while waiting and count < SEARCHED_ENTRIES:
        folder, depth = waiting.pop()
        for path in _entries(folder):
            count += 1
            if path.is_symlink():
                paths.append(path)
            elif path.name == "node_modules":
                paths += _links_at(path)
            elif depth < SEARCHED_DEPTH and path.name != ".git" and path.is_dir():
                waiting.append((path, depth + 1))
    return [
        path.relative_to(root).as_posix()
        for path in paths
        if path_exists(path)
        and (is_hidden(Path(os.path.realpath(path))) or not _way_is_seen(path, is_hidden))
    ]


def _links_at(folder: Path) -> Iterator[Path]:
    """Yield a folder of dependencies where it is a link, and the links to packages in it."""
    if folder.is_symlink():
        yield folder
    if folder.name != "node_modules":
        return
    for path in islice(_entries(folder), SEARCHED_ENTRIES):
        if path.is_symlink():
            yield path
        elif path.name.startswith("@"):
            yield from (inner for inner in _entries(path) if inner.is_symlink())


def _way_is_seen(link: Path, is_hidden: Callable[[Path], bool]) -> bool:
    """Return whether a command can follow a link up to its target: no link on the way is hidden."""
    for _ in range(LONGEST_CHAIN):
        named = Path(os.path.normpath(Path(os.path.realpath(link.parent), link.readlink())))
        parent = Path(os.path.realpath(named.parent))
        if parent != named.parent and is_hidden(named.parent):
            return False
        link = parent / named.name
        if not link.is_symlink():
            return True
        if is_hidden(link):
            return False
    return False


def _holds_dependencies(folder: Path) -> bool:
    inside = [path for path in islice(_entries(folder), LOOKED_AT_ENTRIES) if path.is_dir()]
    return any(path_exists(path / mark) for path in (folder, *inside) for mark in _MARKS)


def _is_plain_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and path.name != ".git"


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
