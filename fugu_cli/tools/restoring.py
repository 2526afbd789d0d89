"""What was done to files, taken back: each file replaced whole, and only where it is still as it was left.

Beside snapshots.py, which says what was done from one snapshot to another. What was done is a list of changes, so this
works without the repository and outside of one. Nested repositories are not touched, nor is what git ignores.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.atomic import link_whole, write_whole
from fugu_cli.errors import StorageError
from fugu_cli.events import NOTHING, Attribute, Change, Made
from fugu_cli.policy import paths
from fugu_cli.tools import blobs, extras
from fugu_cli.tools.blobs import Blobs
from fugu_cli.tools.git import Git, names

LINK, EXECUTABLE = "120000", "100755"
AGAIN = "clear what is in the way, then undo again"


@dataclass(frozen=True)
class Standing:
    """What of a list of changes still stands.

    `made` is as it was left and can be taken back. `conflicts` are paths that were changed since; `beside` those of
    them that no snapshot holds. `unkept` are large files of which there is no copy.
    """

    made: Made = NOTHING
    conflicts: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    unkept: tuple[str, ...] = ()


def standing(root: Path, made: Made, hash_name: str) -> Standing:
    """Compare the files with what was done to them. Raises StorageError for one that may not be read."""
    changes: list[Change] = []
    attributes: list[Attribute] = []
    conflicts: list[str] = []
    beside: list[str] = []
    for change in made.net.changes:
        now = _state(root, change.path, hash_name)
        if _is(now, change.back):
            continue
        if _is(now, change):
            changes.append(change)
        else:
            (beside if change.beside else conflicts).append(change.path)
    for one in made.net.attributes:
        path = _inside(root, one.path)
        now_is = extras.now(path, one.after)
        if one.large or now_is == one.before:
            continue
        if now_is == one.after:
            attributes.append(one)
        elif path.is_file() and one.path not in conflicts:
            conflicts.append(one.path)
    unkept = tuple(one.path for one in made.net.attributes if one.large and not _as_before(root, one))
    return Standing(Made(tuple(changes), tuple(attributes)), tuple(conflicts), tuple(beside), unkept)


def _state(root: Path, name: str, hash_name: str) -> tuple[str | None, str]:
    path = _inside(root, name)
    if through_link(root, path):
        return None, ""  # what is behind the link is not ours
    try:
        return blobs.state(path, hash_name)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read: {error.strerror}", hint="make it readable, then do this again"
        ) from error


def _is(now: tuple[str | None, str], change: Change) -> bool:
    """The file is as the change left it. The mode of one that no snapshot holds is not known."""
    return now[0] == change.after and (change.after is None or change.beside or now[1] == change.mode)


def _as_before(root: Path, one: Attribute) -> bool:
    return extras.now(_inside(root, one.path), extras.LARGE) == one.before


async def take_back(root: Path, made: Made, contents: Blobs, git: Git | None) -> tuple[str, ...]:
    """Undo what still stands; returns the paths that changed, as the os module gives them.

    `git` tells which files are ignored; None outside a repository. Raises StorageError when something could not be put
    back, after doing all that could be done; running it again is safe. Ignore rules are put back first: a file that was
    ignored then is not deleted now.
    """
    cleared = [one.path for one in made.attributes if _goes(one) and extras.clear(_inside(root, one.path), root)]
    rules = [change for change in made.changes if _inside(root, change.path).name == ".gitignore"]
    others = [change for change in made.changes if change not in rules]
    failed = await _apply(root, rules, contents)
    kept = await _ignored(git, [c for c in others if c.before is None and not c.beside])
    done = [change for change in others if change.path not in kept]
    failed += await _apply(root, done, contents)
    more, broken = _set(root, [one for one in made.attributes if one.path not in kept])
    failed += broken
    count = len(rules) + len(done) + len(made.attributes)
    if failed:
        raise StorageError(f"{len(failed)} of {count} files could not be put back: {'; '.join(failed[:3])}", hint=AGAIN)
    return tuple(dict.fromkeys([*(change.path for change in rules + done), *cleared, *more]))


def _goes(one: Attribute) -> bool:
    """A folder or a pipe that was made."""
    return one.after == extras.FOLDER or one.after.startswith("pipe")


def _set(root: Path, attributes: Sequence[Attribute]) -> tuple[list[str], list[str]]:
    """Modes, empty folders and pipes as they were, once the files are there: those that changed, and what failed."""
    done, failed = [], []
    for one in attributes:
        try:
            if extras.put(_inside(root, one.path), one.before):
                done.append(one.path)
        except OSError as error:
            failed.append(f"{one.path} ({error.strerror})")
    return done, failed


async def _ignored(git: Git | None, made: Sequence[Change]) -> Collection[str]:
    """Those of the files that the rules now on the disk ignore."""
    if not made or git is None:
        return frozenset()
    given = b"".join(b"./" + os.fsencode(paths.actual(one.path)) + b"\0" for one in made)  # ./: no name is a pathspec
    done = await git.try_run("check-ignore", "--no-index", "-z", "--stdin", given=given)
    if done.code > 1:
        raise StorageError(f"git could not tell which files are ignored: {done.err}", hint="nothing was deleted")
    return frozenset(paths.shown(name.removeprefix("./")) for name in names(done.out))


async def _apply(root: Path, made: Sequence[Change], contents: Blobs) -> list[str]:
    """Deletions first, so that a folder can take a file's place and the other way round. Returns what failed."""
    failed = []
    for change in sorted(made, key=lambda change: change.before is not None):
        path = _inside(root, change.path)
        try:
            if change.before is None:
                _delete(root, path, folders=not change.beside)
            else:
                await _put(root, path, change, await contents.read(change.before))
        except (OSError, StorageError) as error:
            failed.append(f"{change.path} ({getattr(error, 'strerror', None) or error})")
    return failed


def _delete(root: Path, path: Path, *, folders: bool) -> None:
    """`folders`: those that are empty then go as well."""
    if through_link(root, path):
        return  # its folder is a link now: what is behind it is not ours
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()
    for folder in path.parents if folders else ():
        if folder == root:
            return
        try:
            folder.rmdir()
        except OSError:
            return


def _inside(root: Path, name: str) -> Path:
    """Where the file of a change is. `name` is as it is recorded."""
    return root / paths.actual(name)


def through_link(root: Path, path: Path) -> bool:
    """A folder on the way from the root to the path is a link now."""
    return any(folder.is_symlink() for folder in path.parents if root in folder.parents)


async def _put(root: Path, path: Path, change: Change, data: bytes) -> None:
    if through_link(root, path):
        raise OSError(0, "its folder is a link")
    mode = change.mode_before or change.mode
    if mode == LINK:
        link_whole(path, os.fsdecode(data))
        return
    is_new = not path.is_file() or path.is_symlink()
    if is_new or change.before != change.after:
        write_whole(path, data, change.permissions or None if is_new else None)
    bits = path.stat().st_mode & 0o7777
    if change.beside:
        return
    if is_new:
        path.chmod(extras.EXECUTABLE if mode == EXECUTABLE else extras.PLAIN)
    elif (mode == EXECUTABLE) != bool(bits & 0o100):
        path.chmod(bits | (bits & 0o444) >> 2 if mode == EXECUTABLE else bits & ~0o111)
