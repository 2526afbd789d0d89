"""Diffs of recorded changes, from the contents that the workspace keeps. Above tools/workspace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from fugu_cli import views
from fugu_cli.diffs import unified
from fugu_cli.errors import StorageError
from fugu_cli.events import Change, Event
from fugu_cli.tools import blobs
from fugu_cli.tools.snapshots import reading
from fugu_cli.tools.workspace import Workspace


async def diffs(workspace: Workspace, changes: Iterable[Change]) -> dict[Change, str]:
    """Each change as a unified diff; one whose contents are gone says so."""
    return {change: await _diff(workspace, change) for change in dict.fromkeys(changes)}


async def _diff(workspace: Workspace, change: Change) -> str:
    try:
        before = await _content(workspace, change.path, change.before)
        after = await _content(workspace, change.path, change.after)
    except StorageError as error:
        return f"({change.path}: {error})\n"
    made = unified(change.path, before, after)
    return workspace.mask(made) if workspace.mask is not None else made


async def _content(workspace: Workspace, path: str, name: str | None) -> bytes | None:
    """What a side of a change held. Outside git only what was replaced is kept: the rest may still be in the file."""
    if name is None:
        return None
    try:
        return await workspace.blob(name)
    except StorageError:
        file = workspace.root / path
        data = file.read_bytes() if file.is_file() else b""
        if blobs.blob_id(data) != name:
            raise
        return data


async def request_patch(workspace: Workspace, events: Sequence[Event]) -> bytes:
    """What the newest request changed, as a diff: of snapshots, and of the files fugu wrote that they do not hold."""
    asked, now = views.asked(events), await workspace.snapshot()
    if asked is None or asked.snapshot is None or now is None:
        patch, more = b"", views.changes(events)
    else:
        patch, more = await workspace.patch(asked.snapshot, now, whole=True), views.beside(events)
    inside = [change for path, change in more.items() if not path.startswith("/")]
    return patch + "".join((await diffs(workspace, inside)).values()).encode("utf-8", "surrogateescape")


async def several(workspace: Workspace, names: Iterable[str]) -> dict[str, bytes]:
    """Many contents by their ids, without those that are gone."""
    objects = workspace.store / "objects"
    found = {name: blobs.kept(objects, name) for name in names}
    there = {name: data for name, data in found.items() if data is not None}
    missing = [name for name in found if name not in there]
    if not missing or workspace.snapshots is None:
        return there
    async with workspace.snapshots.held(), reading(workspace.snapshots.git) as source:
        for name in missing:
            with contextlib.suppress(StorageError):
                there[name] = await source.read(name)
    return there
