"""Commands about the working tree: what changed, take it back, bring it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fugu_cli import views
from fugu_cli.contents import diffs
from fugu_cli.errors import UsageError
from fugu_cli.events import Made
from fugu_cli.ui.tui.draw import diff
from fugu_cli.ui.tui.draw.detail import Section
from fugu_cli.ui.tui.draw.piece import Piece
from fugu_cli.ui.tui.draw.text import count

if TYPE_CHECKING:
    from fugu_cli.ui.tui.room import Room


async def undo(room: Room, argument: str) -> None:
    """Put the working tree back to before the newest request, after showing what would change."""
    del argument
    _idle(room)
    patch = await room.session.undo_preview()
    if await room.front.confirm(f"Undo the newest request? {summed(patch)}", patch):
        await room.session.undo()


async def redo(room: Room, argument: str) -> None:
    """Take the newest undo back, after showing what would change."""
    del argument
    _idle(room)
    patch = await room.session.redo_preview()
    if await room.front.confirm(f"Redo what was undone? {summed(patch)}", patch):
        await room.session.redo()


async def show(room: Room, argument: str) -> None:
    """What changed since the newest request began; with `all`, since the session began."""
    patch = await since(room, all=argument == "all")
    if not patch.strip():
        room.say("nothing changed since the newest request began")
        return
    room.front.read(summed(patch), [Section("", (Piece(lambda w, p: diff.painted(patch, w, p), patch),))])


async def since(room: Room, *, all: bool = False) -> str:
    """What changed since the newest request began, or the first one, as a diff. Outside git: of the files that fugu's
    own tools changed, and only what still stands."""
    workspace, requests = room.session.bench.workspace, views.requests(room.session.log.events)
    shown = requests if all else requests[-1:]
    began = next((tree for facts in shown if (tree := views.began(facts))), "")
    now = await workspace.snapshot() if began else None
    patch = (await workspace.patch(began, now)).decode("utf-8", "replace") if now else ""
    beside = tuple(change for facts in shown for change in views.beside(facts).values())
    more = workspace.standing(Made(beside)).made.changes
    return patch + "".join((await diffs(workspace, more)).values())


def summed(patch: str) -> str:
    """`2 files, +3 -1`."""
    files = sum(line.startswith("+++ ") for line in patch.splitlines())
    added, removed = diff.size(patch)
    return f"{count(files, 'file')}, +{added} -{removed}"


def _idle(room: Room) -> None:
    if room.work.running:
        raise UsageError("a request is being worked on", hint="Esc stops it; then undo")
