"""Diffs of recorded changes, from the contents that the workspace keeps. Above tools/workspace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from fugu_cli import views
from fugu_cli.diffs import unified
from fugu_cli.errors import StorageError
from fugu_cli.events import Change, Event
from fugu_cli.tools import blobs
from fugu_cli.tools.workspace import Workspace


async def diffs(workspace: Workspace, changes: Iterable[Change]) -> dict[Change, str]:
    """Each change as a unified diff; one whose contents are gone says so."""
    listed = list(dict.fromkeys(changes))
    known = await several(workspace, (name for change in listed for name in (change.before, change.after) if name))
    return {change: _diff(workspace, change, known) for change in listed}


def _diff(workspace: Workspace, change: Change, known: dict[str, bytes]) -> str:
    sides = []
    for name in (change.before, change.after):
        data = None if name is None else known.get(name)
        if name is not None and data is None:
            data = _still(workspace, change.path, name)
            if data is None:
                return f"({change.path}: the content {name[:12]} is not in the store)\n"
        sides.append(data)
    made = unified(change.path, *sides)
    return workspace.mask(made) if workspace.mask is not None else made


def _still(workspace: Workspace, path: str, name: str) -> bytes | None:
    """What the file holds, where that is the content meant."""
    file = workspace.root / path
    data = file.read_bytes() if file.is_file() else b""
    return data if blobs.blob_id(data, workspace.hash_name) == name else None


async def request_patch(workspace: Workspace, events: Sequence[Event]) -> bytes:
    """What the newest request changed, as a diff: of snapshots, and of the files fugu wrote that they do not hold."""
    began = views.began(events)
    now = await workspace.snapshot() if began else None
    patch = await workspace.patch(began, now, whole=True) if began and now else b""
    inside = [change for path, change in views.beside(events).items() if not path.startswith("/")]
    return patch + "".join((await diffs(workspace, inside)).values()).encode("utf-8", "surrogateescape")


async def several(workspace: Workspace, names: Iterable[str]) -> dict[str, bytes]:
    """Many contents by their ids, without those that are gone."""
    found: dict[str, bytes] = {}
    async with workspace.contents() as source:
        for name in dict.fromkeys(names):
            with contextlib.suppress(StorageError):
                found[name] = await source.read(name)
    return found
