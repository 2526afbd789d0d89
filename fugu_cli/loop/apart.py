"""A step's worktree, by the log: made when the step begins, found again by whoever goes on, or gone, which is said.

Between the loop and worktrees.py, which knows folders only. A session's worktrees lie in a folder of their own among
fugu's data, and belong to whoever holds the session's lock; nobody else removes any.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from fugu_cli import sessions, views
from fugu_cli.errors import StorageError
from fugu_cli.events import Interrupted
from fugu_cli.log import Log, closed, read
from fugu_cli.loop import worktrees
from fugu_cli.tools.workspace import Workspace

GOING = ".going"
"""Ends the name of a folder that is being removed."""


def folder(log: Log, workspace: Workspace, turn: views.Turn) -> Path:
    """Where the turn's worktree is, or will be."""
    return _home(log, workspace) / turn.assigned.worktree


def _home(log: Log, workspace: Workspace) -> Path:
    return sessions.worktrees(workspace.store.parents[1], log.path)


async def opened(log: Log, workspace: Workspace, turns: Sequence[views.Turn]) -> list[Workspace]:
    """The worktrees of these turns, made where nothing was done in them yet.

    Raises StorageError where one is gone in which something was done. Its turn is cut in the log, with those that chose
    by what it had made, so that whoever goes on has them done again.
    """
    gone = [turn for turn in turns if _worked(turn) and not worktrees.there(folder(log, workspace, turn))]
    if gone:
        raise _lost(log, workspace, gone)
    home = _home(log, workspace)
    home.mkdir(parents=True, exist_ok=True)
    if log.path is not None:
        (home / sessions.OWNER).write_text(str(log.path.absolute()), "utf-8", "surrogateescape")
    return [await _made(workspace, turn, folder(log, workspace, turn)) for turn in turns]


async def _made(workspace: Workspace, turn: views.Turn, place: Path) -> Workspace:
    assert turn.assigned.snapshot is not None
    return await worktrees.make(workspace, turn.assigned.snapshot, place)


def _worked(turn: views.Turn) -> bool:
    """Something was done that somebody may still want."""
    return not turn.failed and not turn.interrupted and bool(turn.changes or views.interrupted_calls(turn))


def _lost(log: Log, workspace: Workspace, gone: Sequence[views.Turn]) -> StorageError:
    numbers = {turn.number for turn in gone}
    for turn in views.turns(log.events):
        chose = not turn.changes and any(number in turn.assigned.sees for number in numbers)
        if turn.number in numbers or (turn.assigned.plan and chose):
            log.append(Interrupted(turn=turn.number, reason="a worktree is gone"))
    who = ", ".join(f"turn {turn.number} ({turn.assigned.agent})" for turn in gone)
    return StorageError(
        f"the work of {who} is gone: nothing is left of it in {_home(log, workspace)}",
        hint="`fugu run --continue` has it done again; what is in the repository stays",
    )


def sweep(data: Path) -> None:
    """Remove the worktrees that nobody can go on with: of sessions that are gone, of requests that are over. Those of a
    session that is open stay."""
    root = data / "worktrees"
    for home in root.glob("*"):
        with contextlib.suppress(OSError, StorageError):  # a folder that is not ours, a session that cannot be read
            _set_apart(home)
    for folder in root.glob(f"*{GOING}"):
        shutil.rmtree(folder, ignore_errors=True)


def _set_apart(home: Path) -> None:
    """Rename what can go: that takes no time, and nobody opens the session meanwhile."""
    owner = Path((home / sessions.OWNER).read_text("utf-8", "surrogateescape"))
    with closed(owner) as free:
        if not free:
            return
        events = [record.event for record in read(owner)] if owner.exists() else []
        if not sessions.unfinished(events):
            home.rename(f"{home}{GOING}")
            return
        for tree in home.glob("*-*-*"):
            if not tree.name.startswith(f"{len(views.requests(events))}-"):
                tree.rename(f"{home}-{tree.name}{GOING}")
