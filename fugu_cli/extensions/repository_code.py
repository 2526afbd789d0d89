"""Code of a repository that MCP servers and hooks run: the paths that a command line names, and
whether what lies there is as the user trusted it.

What a program imports or starts cannot be told from its command line. All files in the folders of
the named ones are taken for its code; where that does not reach, the answer is no.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fugu_cli.safety.paths import expand_home, inside, is_file, is_folder, real_path
from fugu_cli.system.resolved_files import read_resolved

_PIECES = re.compile(r"[\s;&|()<>'\"=:,]+")
"""Characters between the paths of a word, which may be a whole command line (`sh -c`)."""
_DEPENDENCIES = frozenset({"node_modules", ".venv", "venv", "site-packages"})
"""Folders whose programs run code that lies in other folders."""
_NOT_CODE = frozenset({".git", "__pycache__"})
"""Folders that are not looked at: Python is told to keep its compiled files elsewhere."""
MOST_FILES, MOST_BYTES = 2000, 64_000_000
"""The most files, and bytes of them, that are compared."""
UNKNOWN = "unknown"
NO_COMPILED_FILES = {"PYTHONPYCACHEPREFIX": os.devnull}
"""Keeps Python from running compiled files beside the sources, which are not compared."""


def paths_in_repository(words: Iterable[str], root: Path) -> list[Path]:
    """Return the existing paths in `root` (resolved) that words of a command line name: as a path,
    in `--name=path`, in a line for a shell, or as a Python module. The name of a folder without a
    slash counts as an ordinary word.
    """
    paths: dict[Path, None] = {}
    for word in words:
        for piece in (word, *_PIECES.split(word)):
            paths.update(dict.fromkeys(_named(piece, root)))
    return list(paths)


def _named(piece: str, root: Path) -> Iterator[Path]:
    if not piece or "\0" in piece:
        return
    path = Path(os.path.normpath(root / expand_home(piece)))
    is_path = "/" in piece or piece in {".", ".."}
    if is_file(path) or (is_path and is_folder(path)):
        if inside(path, root):
            yield path
        if inside(real := real_path(path), root):
            yield real
    module = piece.replace(".", "/")
    for name in (f"{module}.py", f"{module}/__main__.py"):
        if is_file(root / name) and inside(real := real_path(root / name), root):
            yield real


def code_hashes(paths: Iterable[Path], root: Path) -> dict[str, str]:
    """Return a hash of all files in the folders of named paths, by the folder's name below `root`;
    UNKNOWN for a folder whose files do not tell what runs.
    """
    folders = {path if is_folder(path) else path.parent for path in paths}
    return {
        folder.relative_to(root).as_posix(): _folder_hash(folder, root)
        for folder in sorted(folders)
    }


def _folder_hash(folder: Path, root: Path) -> str:
    below_root = folder.relative_to(root).parts
    if not _DEPENDENCIES.isdisjoint(below_root) or is_file(folder.parent / "pyvenv.cfg"):
        return UNKNOWN
    folder = real_path(folder)
    digest = hashlib.sha256()
    count = size = 0
    try:
        for path in _files(folder):
            count, size = count + 1, size + path.lstat().st_size
            if count > MOST_FILES or size > MOST_BYTES:
                return UNKNOWN
            content = read_resolved(path)  # not of a link, a pipe or a device
            name = os.fsencode(path.relative_to(folder))
            digest.update(b"%d %s %d " % (len(name), name, len(content)))
            digest.update(content)
    except OSError:
        return UNKNOWN
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, in order, and the links to folders. Raises OSError."""

    def fail(error: OSError) -> None:
        raise error

    for parent, folders, files in os.walk(folder, onerror=fail):
        folders[:] = sorted(set(folders) - _NOT_CODE)
        links = [name for name in folders if Path(parent, name).is_symlink()]
        yield from (Path(parent, name) for name in sorted([*files, *links]))


class TrustedCode:
    """Tells whether named paths are unchanged since the user trusted them. `hashes` are those that
    `code_hashes` gave then.
    """

    def __init__(self, hashes: Mapping[str, str]) -> None:
        self._hashes = hashes

    def holds(self, paths: Sequence[Path], root: Path) -> bool:
        """Return whether all files around the paths in `root`, the repository or a copy of it, are
        as they were. False where no path is named or it cannot be told.
        """
        present = code_hashes(paths, root)
        return bool(present) and all(
            value != UNKNOWN and self._hashes.get(name) == value for name, value in present.items()
        )
