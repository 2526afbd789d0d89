"""Puts files back: undo and redo of requests, rewind over several."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fugu_cli.engine import recovery
from fugu_cli.errors import UsageError
from fugu_cli.safety.sandbox.restoration import BRINGS_BACK
from fugu_cli.session import store
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Event,
    FileChange,
    FileEffects,
    ToolRan,
    Undone,
)
from fugu_cli.session.log import Log
from fugu_cli.session.request_state import RequestState
from fugu_cli.session.state import SessionState
from fugu_cli.snapshots.file_history import RestorePlan
from fugu_cli.tools.workspace import Workspace


class NothingToUndo(UsageError):
    """There is nothing to undo or to redo: the files are as they should be."""


@dataclass(frozen=True)
class UndoableRequest:
    """A request that can be undone, and its changes to files."""

    asked: Asked
    effects: FileEffects


def undoable_requests(state: SessionState) -> tuple[list[UndoableRequest], list[Undone]]:
    """Return the requests that can be undone, and the undos that can be redone. The next one stands
    last in each.
    """
    history = state.undo_history
    standing = [_undoable_request(state.requests[index]) for index in history.requests]
    return standing, list(history.undone)


def _undoable_request(request: RequestState) -> UndoableRequest:
    assert request.asked is not None
    return UndoableRequest(request.asked, request.file_effects)


async def undo_preview(log: Log, workspace: Workspace) -> str:
    """Return the change that `undo` would make, as a unified diff. Raises NothingToUndo, or
    UsageError if edits would be lost.
    """
    plan = await _undo_plan(log, workspace)
    return await _patch(workspace, plan)


async def unclaimed_paths(log: Log, workspace: Workspace) -> dict[str, str]:
    """Return files that `undo` would restore although the user may have changed them, each with the
    command that ran when it changed. Raises the errors of `undo_preview`.
    """
    return (await _undo_plan(log, workspace)).effects.unclaimed


async def undo_request(log: Log, workspace: Workspace, keep: Collection[str] = ()) -> Undone:
    """Take back the file changes of the newest request that was not undone yet, except for the
    files to `keep`. Background jobs that the request started end first.

    Raises UsageError, StorageError.
    """
    plan = await _undo_plan(log, workspace)
    request = undoable_requests(log.state)[0][-1].asked
    start = next(index for index, event in enumerate(log.events) if event is request)
    if await workspace.jobs.stop(log.state.jobs_since(start), "undo"):
        plan = await _undo_plan(log, workspace)  # the jobs may have written something meanwhile
    moved = []
    for event in log.events[start:]:
        if isinstance(event, ToolRan):
            moved += [note for note in event.restored if note.endswith(BRINGS_BACK)]
    return await _take_back(log, workspace, plan, "undo", keep, moved)


async def redo_preview(log: Log, workspace: Workspace) -> str:
    """Return the change that `redo` would make, as a unified diff. Raises NothingToUndo, or
    UsageError if edits would be lost.
    """
    plan = await _redo_plan(log, workspace)
    return await _patch(workspace, plan)


async def redo_request(log: Log, workspace: Workspace) -> Undone:
    """Bring back the changes that the newest undo took back. Raises UsageError, StorageError."""
    return await _take_back(log, workspace, await _redo_plan(log, workspace), "redo")


@dataclass(frozen=True)
class RewindPoint:
    """A point to which a session can go back: before a request, or before a turn of it. The log's
    lines from `line` on are dropped.
    """

    line: int
    request: int
    asked: Asked
    turn: int = 0
    """The number of the first turn that is dropped; 0 if the whole request is."""
    agent_and_role: str = ""
    """The turn's agent and role, "" for a request."""

    @property
    def name(self) -> str:
        """`2`, or `2.3` for the third turn of the second request."""
        return f"{self.request}.{self.turn}" if self.turn else str(self.request)

    @property
    def label(self) -> str:
        """`request 2` or `turn 2.3`, for a sentence."""
        return f"{'turn' if self.turn else 'request'} {self.name}"


def rewind_points(events: Sequence[Event]) -> list[RewindPoint]:
    """Return a point before every request and every turn but a request's first, oldest first."""
    points: list[RewindPoint] = []
    turns: set[int] = set()
    for line, event in enumerate(events):
        if isinstance(event, Asked):
            number = points[-1].request + 1 if points else 1
            points.append(RewindPoint(line, number, event))
            turns = set()
        elif isinstance(event, Assigned) and points and event.subtask is None:
            is_first_turn = not turns
            is_new = event.turn not in turns
            turns.add(event.turn)
            if is_new and not is_first_turn:
                agent_and_role = f"{event.agent}, {event.role}"
                point = replace(
                    points[-1], line=line, turn=event.turn, agent_and_role=agent_and_role
                )
                points.append(point)
    return points


def find_point(events: Sequence[Event], name: str) -> RewindPoint:
    """Return the point of this name. Raises UsageError."""
    points = {point.name: point for point in rewind_points(events)}
    if name not in points:
        names = ", ".join(points) if points else "none: nothing was asked yet"
        raise UsageError(
            f"there is no request or turn {name!r} to go back to", hint=f"there are {names}"
        )
    return points[name]


async def rewind_preview(log: Log, workspace: Workspace, point: RewindPoint) -> str:
    """Return the change that `rewind_files` would make, as a unified diff, "" for none. Raises
    UsageError if edits would be lost.
    """
    await recovery.recover(log, workspace)
    return await _patch(workspace, _rewind_plan(log, workspace, point))


async def rewind_files(log: Log, workspace: Workspace, point: RewindPoint) -> list[Undone]:
    """End background jobs that were started since the point, then restore the files as they were
    there, the newest request first. Raises UsageError, StorageError.
    """
    await recovery.recover(log, workspace)
    _rewind_plan(log, workspace, point)  # raises before anything is ended or restored
    if await workspace.jobs.stop(log.state.jobs_since(point.line), "undo"):
        _rewind_plan(log, workspace, point)  # the jobs may have written something meanwhile
    undone = []
    for effects in reversed(_effects_since(log.state, point)):
        plan = workspace.history.standing(effects)
        undone.append(await _take_back(log, workspace, plan, "undo"))
    return undone


def _rewind_plan(log: Log, workspace: Workspace, point: RewindPoint) -> RestorePlan:
    """Return the plan that takes back the changes since the point. Raises UsageError."""
    _refuse_elsewhere(log.events, point.asked, workspace)
    steps = _effects_since(log.state, point)
    changes = tuple(change for effects in steps for change in effects.changes)
    attributes = tuple(attribute for effects in steps for attribute in effects.attributes)
    plan = workspace.history.standing(FileEffects(changes, attributes))
    _refuse_where_all_were_edited(plan, "rewind")
    if between := _edited_between(steps):
        message = f"rewind would lose edits made between two requests: {_first_names(between)}"
        raise UsageError(message, hint="undo goes back one request at a time, up to those edits")
    return plan


def _effects_since(state: SessionState, point: RewindPoint) -> list[FileEffects]:
    """Return the file changes since the point, request by request, the oldest first. Requests that
    were undone are left out.
    """
    starts = [index for index, event in enumerate(state.events) if isinstance(event, Asked)]
    ends = [*starts[1:], len(state.events)]
    effects = []
    for number in state.undo_history.requests:
        start, end = starts[number], ends[number]
        if end <= point.line:
            continue
        first_dropped = max(point.line, start)
        kept = [
            event
            for event in state.events[start:first_dropped]
            if isinstance(event, Asked | Assigned)
        ]
        dropped = RequestState((*kept, *state.events[first_dropped:end]))
        effects.append(dropped.file_effects)
    return effects


def _edited_between(steps: Sequence[FileEffects]) -> list[str]:
    """Return the files that the user edited after one of the requests and before a later one that
    changed them. No copy of such an edit was kept.
    """
    last_changes: dict[str, FileChange] = {}
    edited = []
    for effects in steps:
        for change in effects.changes:
            last = last_changes.get(change.path)
            if last is not None and change.before not in (last.after, last.before):
                edited.append(change.path)
            last_changes[change.path] = change
    return edited


async def _undo_plan(log: Log, workspace: Workspace) -> RestorePlan:
    """Return the plan that takes back the newest request which was not undone. Finishes an
    interrupted undo first. Raises NothingToUndo, or UsageError if edits would be lost.
    """
    finished = await recovery.finish_interrupted_undo(log, workspace)
    if finished is not None and finished.kind == "undo":
        raise NothingToUndo(
            recovery.finished_text(finished), hint="undo again goes one request further back"
        )
    await recovery.record_killed_calls(log, workspace)
    requests, _ = undoable_requests(log.state)
    if not requests:
        raise NothingToUndo(
            "there is nothing to undo", hint="no request of this session stands that changed a file"
        )
    newest = requests[-1]
    _refuse_elsewhere(log.events, newest.asked, workspace)
    if not any(newest.effects):
        raise NothingToUndo("there is nothing to undo", hint="the newest request changed no file")
    plan = workspace.history.standing(newest.effects)
    if plan == RestorePlan():
        raise NothingToUndo(
            "there is nothing to undo", hint="the files are as they were before the request"
        )
    _refuse_where_all_were_edited(plan, "undo")
    return plan


async def _redo_plan(log: Log, workspace: Workspace) -> RestorePlan:
    """Return the plan that brings back the newest undo. Finishes an interrupted redo first. Raises
    NothingToUndo, or UsageError if edits would be lost.
    """
    finished = await recovery.finish_interrupted_undo(log, workspace)
    if finished is not None and finished.kind == "redo":
        raise NothingToUndo(
            recovery.finished_text(finished), hint="redo again goes one request further forward"
        )
    _, undos = undoable_requests(log.state)
    if not undos:
        raise NothingToUndo(
            "there is nothing to redo",
            hint=(
                "redo brings back what undo took, until something is asked; what a rewind took, it "
                "brings back in the original session"
            ),
        )
    _refuse_elsewhere(log.events, undos[-1], workspace)
    plan = workspace.history.standing(undos[-1].effects)
    _refuse_where_all_were_edited(plan, "redo")
    return plan


def _refuse_elsewhere(events: Sequence[Event], event: Event, workspace: Workspace) -> None:
    """Raise UsageError if the session worked in another folder when `event` was recorded."""
    position = next(index for index, candidate in enumerate(events) if candidate is event)
    opened = SessionState(events[:position]).opened
    if opened is not None and opened.repo != store.recorded_root(workspace.root):
        hint = "that folder is gone: take its changes back with git"
        if Path(opened.repo).is_dir():
            hint = "undo and redo it in that folder"
        raise UsageError(f"this was done in {opened.repo}, not in {workspace.root}", hint=hint)


def _refuse_where_all_were_edited(plan: RestorePlan, command: str) -> None:
    """Raise UsageError if the plan could only take back edits that were made since."""
    edited = plan.conflicts
    if not edited or any(plan.effects):
        return
    count = "1 file" if len(edited) == 1 else f"{len(edited)} files"
    raise UsageError(
        f"{command} would lose edits made since in {count}: {_first_names(edited)}",
        hint="no other change is left to take back; `git diff` shows what these files hold",
    )


def _first_names(files: Sequence[str]) -> str:
    names = ", ".join(files[:5])
    return f"{names} and {len(files) - 5} more" if len(files) > 5 else names


async def _patch(workspace: Workspace, plan: RestorePlan) -> str:
    """Return the plan as text: contents as diffs, modes and other attributes as a line each, and a
    line for each file that stays as it is.
    """
    from fugu_cli.tools.diff import change_diffs

    back = plan.effects.back
    unclaimed = back.unclaimed
    own = back.without(unclaimed)
    parts = [*(await change_diffs(workspace, own.changes)).values(), *_attribute_lines(own)]
    for command in dict.fromkeys(unclaimed.values()):
        other_paths = {path for path, while_ran in unclaimed.items() if while_ran != command}
        while_it_ran = back.without({*own.paths, *other_paths})
        parts.append(f"changed while {command} ran, perhaps by you:\n")
        parts += (await change_diffs(workspace, while_it_ran.changes)).values()
        parts += _attribute_lines(while_it_ran)
    edited = (*plan.conflicts, *plan.beside)
    parts += [f"{path}: stays as it is, for it was changed since\n" for path in edited]
    uncopied = (*plan.unkept, *plan.nested)
    parts += [f"{path}: stays as it is, for no copy was kept\n" for path in uncopied]
    return "".join(parts)


def _attribute_lines(effects: FileEffects) -> list[str]:
    lines = []
    for change in effects.changes:
        if change.mode_before:
            lines.append(f"mode of {change.path}: {change.mode_before} -> {change.mode}\n")
    for attribute in effects.attributes:
        before, after = attribute.before or "as usual", attribute.after or "as usual"
        lines.append(f"{attribute.path}: {before} -> {after}\n")
    return lines


async def _take_back(
    log: Log,
    workspace: Workspace,
    plan: RestorePlan,
    direction: Literal["undo", "redo"],
    keep: Collection[str] = (),
    moved: Sequence[str] = (),
) -> Undone:
    back = plan.effects.without(keep).back
    planned = Undone(
        snapshot=None,
        kind=direction,
        changes=back.changes,
        attributes=back.attributes,
        left=(*plan.conflicts, *plan.beside),
        unkept=plan.unkept,
        nested=plan.nested,
        kept=tuple(keep),
        moved=tuple(moved),
    )
    return await recovery.carry_out(log, workspace, planned)
