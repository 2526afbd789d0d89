"""`/blame`: who wrote each line of what the session changed, or of a file over all sessions of the folder."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from fugu_cli import blame, log, views
from fugu_cli.errors import StorageError
from fugu_cli.marks import Remembered
from fugu_cli.ui import blame as plain
from fugu_cli.ui.tui import place
from fugu_cli.ui.tui.draw.detail import Section
from fugu_cli.ui.tui.draw.lines import rendered
from fugu_cli.ui.tui.draw.piece import Piece

if TYPE_CHECKING:
    from fugu_cli.sessions import Summary
    from fugu_cli.ui.tui.room import Room

TOGETHER = 40
"""Lines of one piece."""


def changed(room: Room) -> Sequence[str]:
    """Files that the newest request changed."""
    return tuple(views.changes(room.session.log.events)) if room.work.session else ()


async def show(room: Room, argument: str) -> None:
    """Without a path what this session changed; else the file. Raises UsageError for a file that is not there."""
    workspace = room.session.bench.workspace
    path = room.session.log.path
    own = (path.stem if path else "this session", list(room.session.log.records))
    mask = workspace.mask or str
    if not argument:
        _read(
            room,
            "Who wrote what this session changed",
            plain.session_lines(await blame.of_session(workspace, own), mask),
        )
        return
    others = [one for one in await asyncio.to_thread(room.desk.listed) if one.id != own[0]]
    mask = Remembered([one.path for one in others], mask).text
    known = sorted([*await asyncio.to_thread(_others, others), own], key=lambda one: one[0])
    made = await blame.of_path(workspace, place.typed(workspace.root, argument), known)
    _read(room, f"Who wrote {made.path}", plain.file_lines(made, mask))


def _others(found: Sequence[Summary]) -> list[blame.Named]:
    read: list[blame.Named] = []
    for one in found:
        try:
            read.append((one.id, log.examine(one.path).records))
        except StorageError:
            continue  # it was read for the list a moment ago
    return read


def _read(room: Room, title: str, lines: Sequence[Text]) -> None:
    pieces = [_piece(lines[start : start + TOGETHER]) for start in range(0, len(lines), TOGETHER)]
    room.front.read(title, [Section("", tuple(pieces))])


def _piece(lines: Sequence[Text]) -> Piece:
    text = Text("\n").join(lines)
    return Piece(lambda width, palette: rendered(text, width, palette), text.plain)
