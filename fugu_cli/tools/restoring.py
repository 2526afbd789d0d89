"""A snapshot put back: exactly its files, or some of them, each replaced whole; ignored files and nested repositories
are not touched.

Beside snapshots.py, which says what differs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.atomic import link_whole, write_whole
from fugu_cli.errors import StorageError
from fugu_cli.policy.paths import shown
from fugu_cli.tools.extras import Extras, clear, put_back
from fugu_cli.tools.git import names
from fugu_cli.tools.snapshots import Blobs, Difference, Snapshots, reading

LINK, EXECUTABLE = "120000", "100755"
AGAIN = "clear what is in the way, then undo again"


@dataclass(frozen=True)
class Part:
    """What is put back: the files whose difference, from now to then, it `holds`; with `folders` empty ones that were
    made since go."""

    holds: Callable[[Difference], bool] = lambda difference: True
    folders: bool = True


ALL = Part()


async def restore(snapshots: Snapshots, tree: str, part: Part = ALL) -> tuple[str, ...]:
    """Make the working tree what it was at `tree`, all of it or a part; returns the paths that changed, as the os
    module gives them.

    Raises StorageError when something could not be put back, after doing all that could be done; running it again is
    safe. Ignore rules are put back first: a file that was ignored then is not deleted now.
    """
    async with snapshots.held():
        now = await snapshots.take_held()
        differing = await snapshots.differences(now, tree)
        found = [d for d in differing if part.holds(d)]
        left = {d.path for d in differing} - {d.path for d in found}
        rules = [d for d in found if Path(d.path).name == ".gitignore"]
        others = [d for d in found if Path(d.path).name != ".gitignore"]
        wanted, had = await snapshots.extras(tree), await snapshots.extras(now)
        more = clear(snapshots.root, wanted, had) if part.folders else []
        async with reading(snapshots.git) as blobs:
            failed = await _apply(snapshots.root, rules, blobs)
            kept = await _ignored(snapshots, [d.path for d in others if not d.mode])
            done = [d for d in others if d.path not in kept]
            failed += await _apply(snapshots.root, done, blobs)
        more += await _extras(snapshots, tree, (wanted, had), [d.path for d in rules + done], left)
        if failed:
            raise StorageError(
                f"{len(failed)} of {len(rules) + len(done)} files could not be put back: {'; '.join(failed[:3])}",
                hint=AGAIN,
            )
        return tuple(dict.fromkeys([*(d.path for d in rules + done), *more]))


async def _extras(
    snapshots: Snapshots, then: str, extras: tuple[Extras, Extras], restored: Sequence[str], left: Collection[str]
) -> list[str]:
    """Modes and empty folders as they were `then`, once the files are there, but for files that are `left` alone; which
    were changed."""
    wanted, had = extras
    if wanted == had == Extras() and not restored:
        return []
    usual = (wanted.plain, wanted.executable) == (had.plain, had.executable)
    doubtful = {*wanted.modes, *had.modes, *restored} if usual else None
    out = await snapshots.git.run("ls-tree", "-r", "-z", "--full-tree", then)
    files = (line.partition(b"\t") for line in out.split(b"\0") if line)
    executable = {os.fsdecode(path): head.startswith(b"100755") for head, _, path in files if head.startswith(b"100")}
    some = {path: runs for path, runs in executable.items() if doubtful is None or path in doubtful}
    return list(put_back(snapshots.root, wanted, {path: runs for path, runs in some.items() if path not in left}))


async def _ignored(snapshots: Snapshots, paths: Sequence[str]) -> frozenset[str]:
    """Those of `paths` that the rules now on the disk ignore."""
    if not paths:
        return frozenset()
    given = b"".join(b"./" + os.fsencode(path) + b"\0" for path in paths)  # ./ so that no name reads as a pathspec
    done = await snapshots.git.try_run("check-ignore", "--no-index", "-z", "--stdin", given=given)
    if done.code > 1:
        raise StorageError(f"git could not tell which files are ignored: {done.err}", hint="nothing was deleted")
    return frozenset(name.removeprefix("./") for name in names(done.out))


async def _apply(root: Path, found: Sequence[Difference], blobs: Blobs) -> list[str]:
    """Deletions first, so that a folder can take a file's place and the other way round. Returns what failed."""
    failed = []
    for difference in sorted(found, key=lambda d: bool(d.mode)):
        path = root / difference.path
        try:
            if not difference.mode:
                _delete(root, path)
            else:
                await _put(root, path, difference, blobs)
        except (OSError, StorageError) as error:
            failed.append(f"{shown(difference.path)} ({getattr(error, 'strerror', None) or error})")
    return failed


def _delete(root: Path, path: Path) -> None:
    if _through_link(root, path):
        return  # its folder is a link now: what is behind it is not ours
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()
    for folder in path.parents:
        if folder == root:
            return
        try:
            folder.rmdir()
        except OSError:
            return


def _through_link(root: Path, path: Path) -> bool:
    return any(folder.is_symlink() for folder in path.parents if root in folder.parents)


async def _put(root: Path, path: Path, difference: Difference, blobs: Blobs) -> None:
    if _through_link(root, path):
        raise OSError(0, "its folder is a link")
    if difference.mode == LINK:
        link_whole(path, os.fsdecode(await blobs.read(difference.blob)))
        return
    same = difference.blob == difference.old_blob and difference.old_mode != LINK
    if not same:
        write_whole(path, await blobs.read(difference.blob))
    _set_executable(path, difference.mode == EXECUTABLE)


def put(path: Path, data: bytes | None, permissions: int) -> None:
    """One file as it was, with its permissions where it is gone; no `data` for none. Raises StorageError."""
    try:
        if data is None:
            path.unlink()
        else:
            write_whole(path, data, None if path.exists() else permissions or None)
    except OSError as error:
        raise StorageError(f"{path} could not be put back: {error.strerror}", hint=AGAIN) from error


def _set_executable(path: Path, executable: bool) -> None:
    """As git does: x where there is r, or nowhere."""
    mode = path.stat().st_mode & 0o7777
    wanted = mode | (mode & 0o444) >> 2 if executable else mode & ~0o111
    if wanted != mode:
        path.chmod(wanted)
