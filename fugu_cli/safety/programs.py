"""Programs that fugu starts for itself, with the user's rights. They are found, and find others, on
a PATH without folders of a repository, because an agent may write there.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_repositories: set[Path] = set()
_path_lock = threading.RLock()


def add_repository(folder: Path) -> None:
    """Let no program of fugu be found in `folder` (resolved) while this process lives.

    The root of the file system is left out: other sessions of this process would find nothing.
    """
    if folder != Path(folder.anchor):
        _repositories.add(folder)


def search_path_outside(*repositories: Path) -> str:
    """Return PATH without relative folders and those that lie in a repository or are reached
    through a link in one. `repositories` (resolved) are added to those of this process.
    """
    excluded = {*repositories, *_repositories}
    folders = []
    for entry in os.get_exec_path():
        named, real = Path(os.path.normpath(entry)), Path(os.path.realpath(entry))
        around = {named, *named.parents, real, *real.parents}
        if entry.startswith("/") and excluded.isdisjoint(around):
            folders.append(entry)
    return os.pathsep.join(folders)


def find_program(name: str, *repositories: Path) -> str | None:
    """Return the path of a program on PATH, None where there is none outside the repositories."""
    return shutil.which(name, path=search_path_outside(*repositories))


def program_environment(*repositories: Path) -> dict[str, str]:
    """Return the variables of a program that fugu starts for itself."""
    return {**os.environ, "PATH": search_path_outside(*repositories)}


@contextmanager
def libraries_search_outside() -> Iterator[None]:
    """Let libraries that start programs by themselves find none in a repository. The whole process
    has another PATH until the block is left; another thread's block waits for it.
    """
    with _path_lock:
        path = os.environ.get("PATH")
        os.environ["PATH"] = search_path_outside()
        try:
            yield
        finally:
            if path is None:
                del os.environ["PATH"]
            else:
                os.environ["PATH"] = path
