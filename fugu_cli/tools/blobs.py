"""Single contents kept in the store as git objects, written and read without starting git.

Beside snapshots.py. This is how files fugu changes outside a repository, or that git ignores, can be put back.
"""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

from fugu_cli.atomic import write_whole
from fugu_cli.errors import StorageError


def blob_id(data: bytes, hash_name: str = "sha1") -> str:
    """The id git gives these bytes."""
    return hashlib.new(hash_name, b"blob %d\0" % len(data) + data).hexdigest()


def of_file(path: Path, hash_name: str = "sha1") -> str | None:
    """The id of what the file holds, None where there is none. Raises StorageError for one that may not be read."""
    try:
        return blob_id(path.read_bytes(), hash_name) if path.is_file() else None
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read: {error.strerror}", hint="make it readable, then do this again"
        ) from error


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
