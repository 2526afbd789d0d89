"""Snapshots that no session needs any more, removed from fugu's store.

Beside snapshots.py. A session names what it needs by id; what no session of the repository names, and nothing named
reaches, goes once it is a day old. Called when a session ends, and then at most once a day.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from fugu_cli.errors import StorageError
from fugu_cli.tools.snapshots import PRUNED, Snapshots

DAY = 86_400.0
_ID = re.compile(rb"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")


def due(store: Path) -> bool:
    """The last time is a day ago or more."""
    return _rests(store / PRUNED)


def _rests(path: Path, seconds: float = DAY) -> bool:
    """It was not touched for so long, or is not there."""
    try:
        return time.time() - path.stat().st_mtime >= seconds
    except OSError:
        return True


async def prune(snapshots: Snapshots, sessions: Iterable[Path], age: str = "1.day.ago") -> int:
    """Remove what none of these session files needs and is older than `age`; how many objects went.

    Raises StorageError when a session cannot be read: then everything stays.
    """
    named = await asyncio.to_thread(_named, sessions)
    async with snapshots.held():
        given = b"".join(name + b"\n" for name in sorted(named))
        listed = await snapshots.git.run("cat-file", "--batch-check=%(objectname) %(objecttype)", given=given)
        there = [line.split()[0].decode() for line in listed.splitlines() if not line.endswith(b" missing")]
        before = await _count(snapshots)
        await snapshots.git.run("prune", f"--expire={age}", *there)
        await _repack(snapshots, there, 0.0 if age == "now" else DAY)
        (snapshots.store / PRUNED).touch()
        return before - await _count(snapshots)


async def _repack(snapshots: Snapshots, there: Sequence[str], age: float) -> None:
    """Make one pack of the packs that are older than `age` seconds, without what nothing in `there` reaches."""
    folder = snapshots.store / "objects" / "pack"
    old = [path for path in sorted(folder.glob("*.idx")) if _rests(path, age)]
    held = {name for path in old for name in await _packed(snapshots, path)}
    given = "".join(f"{name}\n" for name in there).encode()
    listing = ("rev-list", "--objects", "--no-object-names", "--no-walk", "--missing=allow-any", "--stdin")
    reached = set((await snapshots.git.run(*listing, given=given)).decode().split()) if there else set()
    if held <= reached:
        return
    made = ""
    if kept := sorted(held & reached):
        given = "".join(f"{name}\n" for name in kept).encode()
        made = (await snapshots.git.run("pack-objects", "-q", "--window=0", str(folder / "pack"), given=given)).decode()
    for path in old:
        if path.stem != f"pack-{made.strip()}":
            for part in folder.glob(f"{path.stem}.*"):
                part.unlink(missing_ok=True)


async def _packed(snapshots: Snapshots, index: Path) -> list[str]:
    """The objects of a pack."""
    listed = await snapshots.git.run("show-index", given=index.read_bytes())
    return [line.split()[1].decode() for line in listed.splitlines()]


async def sweep(data: Path, snapshots: Snapshots | None, session: Path | None) -> None:
    """Both, when they are due: for the repository of `session`, and for those of which no session is left."""
    if snapshots is None or session is None or not due(snapshots.store) or not snapshots.store.is_dir():
        return
    folders = {session.parent, data / "sessions" / snapshots.store.name}
    await prune(snapshots, [path for folder in folders for path in folder.glob("*.jsonl")])
    await asyncio.to_thread(forget, data)


def forget(data: Path) -> int:
    """Remove the stores of repositories of which no session is left, and in which nobody took a snapshot for a day; how
    many. For `data`, fugu's folder."""
    gone = 0
    for store in (data / "snapshots").glob("*"):
        rests = due(store) and _rests(store / "index")
        if store.is_dir() and rests and not any((data / "sessions" / store.name).glob("*.jsonl")):
            shutil.rmtree(store, ignore_errors=True)
            gone += 1
    return gone


def _named(sessions: Iterable[Path]) -> set[bytes]:
    found: set[bytes] = set()
    for path in sessions:
        try:
            with path.open("rb") as lines:
                for line in lines:
                    found.update(_ID.findall(line))
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error.strerror}", hint="nothing was pruned") from error
    return found


async def _count(snapshots: Snapshots) -> int:
    """Objects in the store."""
    said = (await snapshots.own.run("count-objects", "-v")).decode().split()
    return int(said[said.index("count:") + 1]) + int(said[said.index("in-pack:") + 1])
