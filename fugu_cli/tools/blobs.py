"""Contents kept in the store as git objects: single ones, written and read without starting git, and any, with it.

Beside snapshots.py. This is how files fugu changes outside a repository, or that git ignores, can be put back.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fugu_cli.atomic import write_whole
from fugu_cli.errors import StorageError
from fugu_cli.processes import reap
from fugu_cli.tools.git import Git

LARGEST = 64 << 20
"""Bytes of a file that is read whole."""


def blob_id(data: bytes, hash_name: str = "sha1") -> str:
    """The id git gives these bytes."""
    return hashlib.new(hash_name, b"blob %d\0" % len(data) + data).hexdigest()


def state(path: Path, hash_name: str = "sha1") -> tuple[str | None, str]:
    """The id of what a file or link holds and its mode, as git writes it; None and "" where there is neither. Raises
    OSError."""
    if path.is_symlink():
        return blob_id(os.fsencode(path.readlink()), hash_name), "120000"
    if not path.is_file():
        return None, ""
    return blob_id(path.read_bytes(), hash_name), "100755" if path.stat().st_mode & 0o100 else "100644"


def keep(objects: Path, data: bytes, hash_name: str = "sha1") -> str:
    """Store `data`; returns its id. Raises StorageError when there is no room."""
    name = blob_id(data, hash_name)
    path = objects / name[:2] / name[2:]
    if not path.exists():
        write_whole(path, zlib.compress(b"blob %d\0" % len(data) + data, 1), 0o444)
    return name


def kept(objects: Path, name: str) -> bytes | None:
    """The bytes of an object `keep` (or git, unpacked) stored; None when it is not here."""
    try:
        raw = zlib.decompress((objects / name[:2] / name[2:]).read_bytes())
    except (FileNotFoundError, zlib.error):
        return None
    return raw.partition(b"\0")[2]


class Blobs:
    """Contents read from a store one after the other, by a single git process where they do not lie there unpacked."""

    def __init__(self, objects: Path, git: Git | None) -> None:
        self._objects, self._git = objects, git
        self._process: asyncio.subprocess.Process | None = None

    async def read(self, name: str) -> bytes:
        """The bytes of a blob. Raises StorageError when it is gone."""
        data = kept(self._objects, name)
        if data is None and self._git is not None:
            self._process = self._process or await self._git.start("cat-file", "--batch")
            data = await _read(self._process, name)
        if data is None:
            raise StorageError(f"the content {name[:12]} is not in the store", hint="it cannot be put back")
        return data

    async def close(self) -> None:
        """End the git process."""
        if self._process is not None:
            await reap(self._process)


async def _read(process: asyncio.subprocess.Process, name: str) -> bytes | None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(name.encode() + b"\n")
    await process.stdin.drain()
    head = (await process.stdout.readline()).split()
    if len(head) != 3 or head[1] != b"blob":
        return None
    data = await process.stdout.readexactly(int(head[2]))
    await process.stdout.readexactly(1)
    return data


@asynccontextmanager
async def reading(objects: Path, git: Git | None) -> AsyncIterator[Blobs]:
    """Open `Blobs` on a store's folder of objects; `git` reads those that it has packed."""
    found = Blobs(objects, git)
    try:
        yield found
    finally:
        await found.close()
