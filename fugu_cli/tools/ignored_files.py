"""What lies in the working tree and in no snapshot: files git ignores, repositories inside this one. As one id.

Beside content.py: what a tool said may have depended on them. Caches, dependencies and environments count by their
names only. Changes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.tools import tree
from fugu_cli.tools.git import names
from fugu_cli.tools.index import NESTED
from fugu_cli.tools.snapshots import Snapshots

UNREAD = tree.SKIPPED | {".hypothesis", ".coverage", "htmlcov", ".import_linter_cache", ".DS_Store", ".cache"}
"""Names of what nobody but its own tool looks into, and of what would take long to look through."""
MOST = 3000
"""Files that are looked at; where there are more, nothing can be told."""
SMALL = 65_536
"""Bytes up to which a file is known by its content; larger ones by size and time."""


@dataclass(frozen=True)
class Beside:
    """`name` is the id, "" where there is nothing. `unread`: there is something that counts by its name only."""

    name: str = ""
    unread: bool = False


async def beside(snapshots: Snapshots) -> Beside | None:
    """What there is now; None where it cannot be told."""
    listing = ("ls-files", "-z", "-o", "-i", "--directory", "--exclude-standard", "--", ".")
    found = names(await snapshots.git.run(*listing))
    entries = (await snapshots.git.run("ls-files", "-z", "-s", "--", ".")).split(b"\0")
    found += [os.fsdecode(entry.partition(b"\t")[2]) for entry in entries if entry.startswith(NESTED.encode())]
    return await asyncio.to_thread(_looked_at, snapshots.root, found) if found else Beside()


def _looked_at(root: Path, found: Sequence[str]) -> Beside | None:
    hashed = hashlib.sha1(usedforsecurity=False)
    count, unread = 0, False
    for name in sorted(found):
        for path in _below(root / name):
            count += 1
            if count > MOST:
                return None
            unread = unread or path.name in UNREAD
            hashed.update(os.fsencode(path.relative_to(root)) + b"\0" + _content(path) + b"\0")
    return Beside(hashed.hexdigest(), unread)


def _below(path: Path) -> Iterator[Path]:
    """A path and what is below it; links are not followed, nor is anything looked into that counts by its name."""
    yield path
    if path.name in UNREAD or path.is_symlink() or not path.is_dir():
        return
    for folder, folders, files in os.walk(path):
        yield from (Path(folder) / name for name in sorted([*folders, *files]))
        folders[:] = [name for name in folders if name not in UNREAD]


def _content(path: Path) -> bytes:
    """A file's content where it is small, else its size and time; where a link leads; nothing of what is unread."""
    try:
        if path.is_symlink():
            return os.fsencode(path.readlink())
        if path.name in UNREAD or path.is_dir():
            return b""
        found = path.stat()
        if not path.is_file() or found.st_size > SMALL:
            return b"%d %d" % (found.st_size, found.st_mtime_ns)
        return hashlib.sha1(path.read_bytes(), usedforsecurity=False).digest()
    except OSError:
        return b"gone"
