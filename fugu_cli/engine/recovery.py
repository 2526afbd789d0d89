"""Recovery from a process that was killed: an interrupted undo is finished, calls without a result
get one that tells what they changed, and drafts of half-written files are removed.

Runs before anything else is appended to a session, and when a session of the folder is opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.errors import SessionBusy, StorageError
from fugu_cli.messages import INTERRUPTED, Call
from fugu_cli.safety import paths
from fugu_cli.session.events import (
    KILLED,
    NO_EFFECTS,
    Asked,
    Assigned,
    Event,
    FileChange,
    FileEffects,
    Interrupted,
    Permitted,
    ToolRan,
    Undone,
    UndoStarted,
)
from fugu_cli.session.log import HEARTBEAT_SECONDS, Log
from fugu_cli.session.tool_facts import facts_of
from fugu_cli.system.atomic_files import is_draft, remove_drafts, write_atomically
from fugu_cli.tools.workspace import Workspace

MARKER = "undo-in-progress-"
"""Begins the name of a file in the store that names the session whose undo is under way."""


async def recover(log: Log, workspace: Workspace) -> None:
    """Finish an interrupted undo of this session, and record what killed calls did. Files that
    cannot be put back are recorded as left alone. Raises StorageError."""
    try:
        await finish_interrupted_undo(log, workspace)
    except StorageError:
        record = _interrupted_undo(log)
        assert record is not None
        planned = record.event.planned
        done = workspace.history.standing(planned.effects).effects
        _end_undo(log, workspace, planned, done, tuple(change.path for change in done.changes))
    await record_killed_calls(log, workspace)


async def carry_out(log: Log, workspace: Workspace, planned: Undone) -> Undone:
    """Put files back as `planned`: log the intent with a snapshot of the files as they are, restore,
    log the end. Raises StorageError; then the next start finishes it."""
    snapshot = await workspace.history.snapshot()
    if log.path is not None:
        write_atomically(_marker(log, workspace), str(log.path).encode("utf-8", "surrogateescape"))
    log.append(UndoStarted(planned=planned, snapshot=snapshot))
    restored = await workspace.take_back(planned.effects.back)
    return _end_undo(
        log, workspace, planned, planned.effects.without(restored.left), restored.paths
    )


async def finish_interrupted_undo(log: Log, workspace: Workspace) -> Undone | None:
    """Finish an undo or redo that was interrupted because the process was killed. Return None if
    there is none. Files that were changed since are left alone. Raises StorageError.
    """
    record = _interrupted_undo(log)
    if record is None:
        return None
    planned = record.event.planned
    restored = await workspace.take_back(planned.effects.back)
    done = planned.effects.without(restored.left)
    changed = [change.path for change in done.changes]
    put_back = dict.fromkeys([*changed, *restored.paths])
    folders = {_file_of(workspace, change).parent for change in planned.changes}
    remove_drafts(folders, since=record.at)
    return _end_undo(log, workspace, planned, done, tuple(put_back))


def finish_interrupted_undos(workspace: Workspace, journal: Log) -> tuple[str, ...]:
    """Finish the undos that killed processes began in this folder, in all sessions. Return a line
    about each.

    `journal` is the session that is open already. Runs its own event loops in another thread.
    """
    lines: list[str] = []
    for marker in sorted(workspace.store.glob(f"{MARKER}*")):
        path = Path(marker.read_bytes().decode("utf-8", "surrogateescape"))
        try:
            log = journal if path == journal.path else Log.open(path)
        except SessionBusy:  # it is being done at this moment
            continue
        except StorageError:  # the session was deleted or is damaged: nobody can finish it
            marker.unlink(missing_ok=True)
            continue
        try:
            with ThreadPoolExecutor(1) as executor:
                future = executor.submit(asyncio.run, finish_interrupted_undo(log, workspace))
                undone = future.result()
            marker.unlink(missing_ok=True)
            if undone is not None:
                lines.append(finished_text(undone))
        except StorageError as error:
            lines.append(f"an interrupted undo could not be finished: {error}")
        finally:
            if log is not journal:
                log.close()
    return tuple(lines)


def finished_text(undone: Undone) -> str:
    """Return a sentence like `the interrupted undo is finished: 3 files were put back`."""
    count = len(undone.paths)
    files = "1 file was" if count == 1 else f"{count} files were"
    left = f"; {undone.left_words}" if undone.left_words else ""
    return f"the interrupted {undone.kind} is finished: {files} put back{left}"


@dataclass(frozen=True)
class _StartedRecord:
    event: UndoStarted
    at: float


def _interrupted_undo(log: Log) -> _StartedRecord | None:
    for record in reversed(log.records):
        match record.event:
            case UndoStarted():
                return _StartedRecord(record.event, record.at)
            case Undone() | Asked():
                return None
            case _:
                continue
    return None


def _end_undo(
    log: Log, workspace: Workspace, planned: Undone, done: FileEffects, put_back: tuple[str, ...]
) -> Undone:
    """Record the end of an undo. `done` are the effects that it took back, `put_back` the paths of
    the files that it restored.
    """
    left = [path for path in planned.effects.paths if path not in done.paths]
    undone = planned.model_copy(
        update={
            "paths": put_back,
            "changes": done.changes,
            "attributes": done.attributes,
            "left": tuple(dict.fromkeys([*planned.left, *left])),
        }
    )
    log.append(undone)
    if log.path is not None:
        _marker(log, workspace).unlink(missing_ok=True)
    return undone


def _marker(log: Log, workspace: Workspace) -> Path:
    assert log.path is not None
    return workspace.store / f"{MARKER}{log.path.stem}"


def _file_of(workspace: Workspace, change: FileChange) -> Path:
    return workspace.root / paths.unquoted_path(change.path)


GRACE_SECONDS = 0.1
"""Seconds by which a disk's clock may differ from ours."""


async def record_killed_calls(log: Log, workspace: Workspace) -> None:
    """Record the file changes of the newest request's killed calls, if there is a snapshot to
    compare with. Raises StorageError.
    """
    events = log.state.request.events
    killed = [index for index in range(len(events)) if _was_killed(events, index)]
    if not killed or not workspace.in_git:
        return
    first = len(log.events) - len(events) + killed[0]
    from fugu_cli.engine.attribution import mark_unclaimed

    effects = NO_EFFECTS
    for event in reversed(log.events[: first + 1]):
        if isinstance(event, Asked | Assigned | Permitted) and event.snapshot:
            effects = await workspace.history.since(event.snapshot)
            break
    effects = _without_later(effects, _end_of_call(log, first), workspace.root)
    drafts = [change for change in effects.changes if _is_new_draft(change)]
    folders = {_file_of(workspace, change).parent for change in drafts}
    remove_drafts(folders, since=log.records[first].at)
    effects = effects.without({change.path for change in drafts})
    calls = [event for index in killed if isinstance(event := events[index], Permitted)]
    effects = mark_unclaimed(effects, [permitted.call for permitted in calls], workspace.root)
    if all(facts_of(permitted.call.tool).writes_files for permitted in calls):
        effects = effects.without(effects.unclaimed)  # these tools write only what they name
    for permitted in calls:
        log.append(
            ToolRan(
                turn=permitted.turn,
                call=_killed_call(permitted.call),
                output=INTERRUPTED,
                ok=False,
                changes=effects.changes,
                attributes=effects.attributes,
            )
        )
        effects = NO_EFFECTS  # of calls that ran at the same time, one result names all changes


def _is_new_draft(change: FileChange) -> bool:
    return change.before is None and is_draft(Path(paths.unquoted_path(change.path)).name)


def _was_killed(events: Sequence[Event], index: int) -> bool:
    """Return whether the event permits a call that may have changed the repository and has no
    result.
    """
    permitted = events[index]
    if not isinstance(permitted, Permitted) or not permitted.allowed:
        return False
    if not permitted.snapshot:
        return False
    for event in reversed(events[:index]):
        if isinstance(event, Assigned) and event.turn == permitted.turn:
            if event.worktree:
                return False
            break
    result_ids = {
        event.call.id
        for event in events[index:]
        if isinstance(event, ToolRan) and event.turn == permitted.turn
    }
    return result_ids.isdisjoint({permitted.call.id, _killed_call(permitted.call).id})


def _killed_call(call: Call) -> Call:
    """Return the call under which the file changes of a killed `call` are recorded. Its id and tool
    differ, so that its result is not taken for the result of `call`.
    """
    return call.model_copy(update={"id": f"{call.id}-{KILLED}", "tool": KILLED})


def _end_of_call(log: Log, index: int) -> float:
    """Return when the call at this index of the log was killed, in seconds since the epoch: the
    time of the interruption if it was recorded, else when its process was last known to be alive.
    """
    for record in log.records[index + 1 :]:
        if isinstance(record.event, Interrupted):
            return record.at + GRACE_SECONDS
    return log.left + 2 * HEARTBEAT_SECONDS


def _without_later(effects: FileEffects, end: float, root: Path) -> FileEffects:
    """Return the effects without those on files that were written after `end`. Deletions stay,
    because an undo of them loses nothing.
    """
    later = set()
    for path in effects.paths:
        try:
            written_at = (root / paths.unquoted_path(path)).lstat().st_ctime
        except OSError:
            continue
        if written_at > end:
            later.add(path)
    return effects.without(later)
