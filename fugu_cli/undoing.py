"""Undo and redo of requests: what would change, whether edits made since would be lost, and doing it.

Over the log and the workspace; the facts it adds are `Undone`. A request is undone by taking back what its calls did to
files, as the log tells it: no other file is looked at. What can be undone or redone next is read from the log
(views/standing.py).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fugu_cli import sessions, views
from fugu_cli.contents import diffs
from fugu_cli.errors import UsageError
from fugu_cli.events import Asked, Attribute, Event, Made, ToolRan, Undone
from fugu_cli.log import Log
from fugu_cli.loop.cut_calls import settle
from fugu_cli.policy import paths
from fugu_cli.tools.restoring import Standing
from fugu_cli.tools.workspace import Workspace
from fugu_cli.views.standing import REDONE, UNDONE, standing, tree_left

SINCE = "; left alone, because they were changed since: "
UNKEPT = "; left alone, because files so large are not copied before a command: "


class Nothing(UsageError):
    """There is nothing to undo or to redo: the files are as they should be."""


@dataclass(frozen=True)
class Step:
    """A request that can be taken back, and what it did to files."""

    asked: Asked
    made: Made
    extras: bool = False
    """An older log: what it did to modes and empty folders is to be read from its snapshot."""


def steps(events: Sequence[Event]) -> tuple[list[Step], list[Undone]]:
    """Requests that can be undone, the next one last; and undos that can be redone, the next one last."""
    found, every = standing(events), views.requests(events)
    return [_step(every[place]) for place in found.requests], list(found.undone)


def _step(facts: Sequence[Event]) -> Step:
    asked = facts[0]
    assert isinstance(asked, Asked)
    extras = any(isinstance(fact, ToolRan) and fact.extras for fact in facts)
    return Step(asked, views.made(facts), extras and bool(asked.snapshot))


async def undo_preview(log: Log, workspace: Workspace) -> str:
    """What `undo` would change, as a unified diff. Raises Nothing, or UsageError where edits would be lost."""
    found = await _undoable(log, workspace)
    return await _patch(workspace, found.made)


async def undo(log: Log, workspace: Workspace) -> Undone:
    """Take back what the newest request that stands did to files; the background jobs it started end first.

    Raises UsageError, StorageError.
    """
    found = await _undoable(log, workspace)
    asked = steps(log.events)[0][-1].asked
    begun = next(index for index, event in enumerate(log.events) if event is asked)
    if await workspace.jobs.stop(views.jobs(log.events[begun:]), "undo"):
        found = await _undoable(log, workspace)  # they may have written something meanwhile
    return await _take_back(log, workspace, found, UNDONE)


async def redo_preview(log: Log, workspace: Workspace) -> str:
    """What `redo` would change, as a unified diff. Raises Nothing, or UsageError where edits would be lost."""
    found = await _redoable(log, workspace)
    return await _patch(workspace, found.made)


async def redo(log: Log, workspace: Workspace) -> Undone:
    """Bring back what the newest undo took. Raises UsageError, StorageError."""
    return await _take_back(log, workspace, await _redoable(log, workspace), REDONE)


async def _undoable(log: Log, workspace: Workspace) -> Standing:
    await settle(log, workspace)
    done, _ = steps(log.events)
    if not done:
        raise Nothing("there is nothing to undo", hint="no request of this session stands that changed a file")
    step = done[-1]
    _refuse_elsewhere(log.events, step.asked, workspace)
    made = step.made
    if step.extras and step.asked.snapshot and (now := await workspace.snapshot()):
        made = Made(made.changes, (await workspace.made(step.asked.snapshot, now)).attributes)
    found = workspace.standing(made)
    if not any(made):
        raise Nothing("there is nothing to undo", hint="the newest request changed no file")
    if not any(found.made) and found.unkept:
        said = _named(found.unkept)
        raise Nothing(f"there is nothing that could be undone: no copy was kept of {said}", hint=_WHY_UNKEPT)
    if not (any(found.made) or found.conflicts or found.beside):
        raise Nothing("there is nothing to undo", hint="the files are as they were before the request")
    _refuse(found.conflicts, "undo", workspace.root)
    return found


_WHY_UNKEPT = "large files that git does not track are not copied before every command (`fugu help sessions`)"


async def _redoable(log: Log, workspace: Workspace) -> Standing:
    _, taken = steps(log.events)
    if not taken:
        raise Nothing("there is nothing to redo", hint="redo brings back what undo took, until something is asked")
    undone = taken[-1]
    _refuse_elsewhere(log.events, undone, workspace)
    made = undone.made
    if undone.snapshot and (left := tree_left(undone)):  # an older version's
        told = await workspace.made(left, undone.snapshot)
        made = Made((*told.changes, *made.changes), told.attributes)
    found = workspace.standing(made)
    _refuse(found.conflicts, "redo", workspace.root)
    return found


def _refuse_elsewhere(events: Sequence[Event], fact: Event, workspace: Workspace) -> None:
    """A session may have gone on in another folder: its files are put back there."""
    place = next(index for index, event in enumerate(events) if event is fact)
    opened = views.opened(events[:place])
    if opened is not None and opened.repo != sessions.place(workspace.root):
        raise UsageError(
            f"this was done in {opened.repo}, not in {workspace.root}", hint="undo and redo it in that folder"
        )


def _refuse(edited: Sequence[str], what: str, root: Path) -> None:
    """The user's own edits are never lost. A commit would not help, for files are compared."""
    if edited:
        files = shlex.join(map(paths.actual, edited)) if len(edited) <= 5 else "FILE ..."
        aside = f"git -C {shlex.quote(str(root))} stash push -u -- {files}"
        raise UsageError(
            f"{what} would lose edits made since in {len(edited)} {'file' if len(edited) == 1 else 'files'}: "
            f"{_named(edited)}",
            hint=f"put them aside (`{aside}`), {what}, then `git stash pop`",
        )


def _named(found: Sequence[str]) -> str:
    return ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")


async def _patch(workspace: Workspace, made: Made) -> str:
    """What taking this back would change: contents as diffs, the rest as a line each."""
    found = await diffs(workspace, made.back.changes)
    modes = [f"mode of {one.path}: {one.mode_before} -> {one.mode}\n" for one in made.back.changes if one.mode_before]
    return "".join([*found.values(), *modes, *map(_line, made.back.attributes)])


def _line(one: Attribute) -> str:
    return f"{one.path}: {one.before or 'as usual'} -> {one.after or 'as usual'}\n"


async def _take_back(log: Log, workspace: Workspace, found: Standing, reason: str) -> Undone:
    done = await workspace.take_back(found.made)
    reason += SINCE + ", ".join(found.beside) if found.beside else ""
    reason += UNKEPT + ", ".join(found.unkept) if found.unkept else ""
    back = done.made.back
    undone = Undone(
        snapshot=None,
        reason=reason,
        paths=done.paths,
        changes=back.changes,
        attributes=back.attributes,
        left=(*found.beside, *found.unkept),
    )
    log.append(undone)
    return undone
