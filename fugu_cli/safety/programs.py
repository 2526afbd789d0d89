"""Programs that fugu starts for itself, with the user's rights. They are found, and find others, on
a PATH without folders of a repository, because an agent may write there. They load no library from
there.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fugu_cli.safety.git_configuration import (
    UnreadableConfiguration,
    git_folder_at,
    shared_git_folder,
)
from fugu_cli.safety.paths import is_folder, real_path

LIBRARY_VARIABLES = (
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LD_AUDIT",
    "GCONV_PATH",
    "DYLD_LIBRARY_PATH",
    "DYLD_INSERT_LIBRARIES",
    "DYLD_FRAMEWORK_PATH",
    "DYLD_FALLBACK_LIBRARY_PATH",
    "DYLD_FALLBACK_FRAMEWORK_PATH",
    "DYLD_VERSIONED_LIBRARY_PATH",
    "DYLD_VERSIONED_FRAMEWORK_PATH",
)
"""Variables by which every program loads code. entry.sh handles the same ones for fugu itself."""
USERS_VALUE = "FUGU_USERS_"
"""Before a variable's name: the value that the user has set, where entry.sh has changed it."""
_in_use: Counter[Path] = Counter()
_lock = threading.RLock()


def use_repositories(holder: object, *folders: Path) -> None:
    """Let no program of fugu be found in `folders` (resolved), or in the main checkouts that they
    are worktrees of, while `holder` lives: an open session, a configuration, a git command.
    """
    repositories = {*folders, *filter(None, map(_main_checkout, folders))}
    with _lock:
        _in_use.update(repositories)
    weakref.finalize(holder, _release, repositories)


@contextmanager
def repositories_in_use(*folders: Path) -> Iterator[None]:
    """Let no program of fugu be found in `folders` (resolved) in the block."""
    repositories = set(folders)
    with _lock:
        _in_use.update(repositories)
    try:
        yield
    finally:
        _release(repositories)


def add_repository(folder: Path) -> None:
    """Let no program of fugu be found in `folder` (resolved) while this process lives."""
    with _lock:
        _in_use[folder] += 1


def _release(repositories: set[Path]) -> None:
    with _lock:
        for repository in repositories:
            _in_use[repository] -= 1
            if _in_use[repository] < 1:
                del _in_use[repository]


def _main_checkout(folder: Path) -> Path | None:
    """Return the checkout beside the git folder that a worktree shares."""
    try:
        git_folder = git_folder_at(folder)
        if git_folder is None:
            return None
        shared = real_path(shared_git_folder(git_folder))
    except UnreadableConfiguration:
        return None
    return shared.parent if shared.name == ".git" and is_folder(shared) else None


def search_path_outside(*repositories: Path) -> str:
    """Return PATH without relative folders and those that lie in a repository or are reached
    through a link in one. `repositories` (resolved) are added to those in use.

    If the repository is the whole file system, folders stay that only root can write.
    """
    with _lock:
        excluded = {*repositories, *_in_use}
    top = Path("/")
    # each with a slash at the end, so that /repo does not exclude /repository
    beginnings = tuple(f"{folder}/" for folder in excluded - {top})
    folders = []
    for entry in os.get_exec_path():
        named, real = os.path.normpath(entry), os.path.realpath(entry)
        inside = f"{named}/".startswith(beginnings) or f"{real}/".startswith(beginnings)
        if not entry.startswith("/") or inside:
            continue
        if top not in excluded or (_is_roots_alone(Path(named)) and _is_roots_alone(Path(real))):
            folders.append(entry)
    return os.pathsep.join(folders)


def lies_in_repository(path: Path, *repositories: Path) -> bool:
    """Return whether a path, or what it leads to, lies in one of `repositories` (resolved) or of
    those in use.
    """
    with _lock:
        excluded = {*repositories, *_in_use}
    named, real = Path(os.path.normpath(path)), real_path(path)
    return not excluded.isdisjoint({named, *named.parents, real, *real.parents})


def _is_roots_alone(path: Path) -> bool:
    """Return whether only root can write the folder and those that it lies in."""
    for folder in (path, *path.parents):
        try:
            status = folder.stat()
        except OSError:
            return False
        if status.st_uid != 0 or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return False
    return True


def find_program(name: str, *repositories: Path) -> str | None:
    """Return the path of a program on PATH, None where there is none outside the repositories."""
    return shutil.which(name, path=search_path_outside(*repositories))


def program_environment(*repositories: Path) -> dict[str, str]:
    """Return the variables of a program that fugu starts for itself."""
    variables = {**os.environ, "PATH": search_path_outside(*repositories)}
    return without_libraries_inside(variables, *repositories)


def without_libraries_inside(environment: Mapping[str, str], *repositories: Path) -> dict[str, str]:
    """Return `environment` with variables that have programs load libraries, but none that is named
    by a relative path or lies in one of `repositories` (resolved) or of those in use.
    """
    variables = dict(environment)
    for name in LIBRARY_VARIABLES:
        separators = "[: ]" if name == "LD_PRELOAD" else "[:;]"
        entries = [
            entry
            for entry in re.split(separators, variables.pop(name, ""))
            if entry.startswith("/") and not lies_in_repository(Path(entry), *repositories)
        ]
        if entries:
            variables[name] = ":".join(entries)
    return variables


def users_variables() -> dict[str, str]:
    """Return the variables that the user started fugu with, for the user's own commands and for
    those in the sandbox.
    """
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(USERS_VALUE)
    }
    for name in LIBRARY_VARIABLES:
        if (value := os.environ.get(USERS_VALUE + name)) is not None:
            variables[name] = value
    return variables


@contextmanager
def libraries_search_outside() -> Iterator[None]:
    """Let libraries that start programs by themselves find none in a repository. The whole process
    has another PATH until the block is left; another thread's block waits for it.
    """
    with _lock:
        path = os.environ.get("PATH")
        os.environ["PATH"] = search_path_outside()
        try:
            yield
        finally:
            if path is None:
                del os.environ["PATH"]
            else:
                os.environ["PATH"] = path
