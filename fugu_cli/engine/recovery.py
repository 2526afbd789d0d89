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
    FileAttribute,
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
        done = workspace.history.standing(planned.made).made
        _end_undo(log, workspace, planned, done, tuple(change.path for change in done.changes))
    await record_killed_calls(log, workspace)


async def carry_out(log: Log, workspace: Workspace, planned: Undone) -> Undone:
    """Put files back as `planned`: log the intent with a snapshot of the files as they are, restore,
    log the end. Raises StorageError; then the next start finishes it."""
    snapshot = await workspace.history.snapshot()
    if log.path is not None:
        write_atomically(_marker(log, workspace), str(log.path).encode("utf-8", "surrogateescape"))
    log.append(UndoStarted(planned=planned, snapshot=snapshot))
    restored = await workspace.take_back(planned.made.back)
    return _end_undo(log, workspace, planned, planned.made.without(restored.left), restored.paths)


async def finish_interrupted_undo(log: Log, workspace: Workspace) -> Undone | None:
    """Finish an undo or redo that was interrupted because the process was killed. Return None if
    there is none. Files that were changed since are left alone. Raises StorageError.
    """
    record = _interrupted_undo(log)
    if record is None:
        return None
    planned = record.event.planned
    restored = await workspace.take_back(planned.made.back)
    done = planned.made.without(restored.left)
    put_back = dict.fromkeys([*(change.path for change in done.changes), *restored.paths])
    folders = {_file_of(workspace, change).parent for change in planned.changes}
    remove_drafts(folders, since=record.at)
    return _end_undo(log, workspace, planned, done, tuple(put_back))


def finish_interrupted_undos(workspace: Workspace, journal: Log) -> tuple[str, ...]:
    """Finish what killed processes left half undone in this folder, in any session; a line for each.
    `journal` is the session that is open already. For a thread without an event loop of its own.
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
            with ThreadPoolExecutor(1) as thread:
                finishing = thread.submit(asyncio.run, finish_interrupted_undo(log, workspace))
                undone = finishing.result()
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
    left = [path for path in _paths_of(planned.made) if path not in _paths_of(done)]
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


def _paths_of(effects: FileEffects) -> list[str]:
    changed = (change.path for change in effects.changes)
    return [*changed, *(attribute.path for attribute in effects.attributes)]


def _marker(log: Log, workspace: Workspace) -> Path:
    assert log.path is not None
    return workspace.store / f"{MARKER}{log.path.stem}"


def _file_of(workspace: Workspace, change: FileChange) -> Path:
    return workspace.root / paths.unquoted_path(change.path)


GRACE_SECONDS = 0.1
"""Seconds by which the clock of a disk may be behind."""


async def record_killed_calls(log: Log, workspace: Workspace) -> None:
    """Record what the killed calls of the newest request did. Where no snapshot tells, nothing.
    Raises StorageError.
    """
    events = log.state.request.events
    killed = [index for index in range(len(events)) if _was_killed(events, index)]
    if not killed or not workspace.in_git:
        return
    first = len(log.events) - len(events) + killed[0]
    from fugu_cli.engine.attribution import mark_unclaimed

    snapshots = (
        e.snapshot
        for e in reversed(log.events[: first + 1])
        if isinstance(e, Asked | Assigned | Permitted) and e.snapshot
    )
    before = next(snapshots, "")
    changed = await workspace.history.since(before) if before else NO_EFFECTS
    made = _until(changed, _end_of_call(log, first), workspace.root)
    drafts = [change for change in made.changes if _is_new_draft(change)]
    folders = {_file_of(workspace, change).parent for change in drafts}
    remove_drafts(folders, since=log.records[first].at)
    made = made.without({change.path for change in drafts})
    calls = [event for index in killed if isinstance(event := events[index], Permitted)]
    made = mark_unclaimed(made, [permitted.call for permitted in calls], workspace.root)
    if all(facts_of(permitted.call.tool).writes_files for permitted in calls):
        made = made.without(made.unclaimed)  # fugu's own tools write what they name alone
    for permitted in calls:
        log.append(
            ToolRan(
                turn=permitted.turn,
                call=_killed_call(permitted.call),
                output=INTERRUPTED,
                ok=False,
                changes=made.changes,
                attributes=made.attributes,
            )
        )
        made = NO_EFFECTS  # of calls that ran at the same time, one result names all changes


def _is_new_draft(change: FileChange) -> bool:
    return change.before is None and is_draft(Path(paths.unquoted_path(change.path)).name)


def _was_killed(events: Sequence[Event], index: int) -> bool:
    """Return whether a call in the repository that may have changed something began here and has no
    result.
    """
    permitted = events[index]
    if not isinstance(permitted, Permitted) or not permitted.allowed:
        return False
    if not permitted.snapshot:
        return False
    assigned = next(
        (
            e
            for e in reversed(events[:index])
            if isinstance(e, Assigned) and e.turn == permitted.turn
        ),
        None,
    )
    if assigned is not None and assigned.worktree:
        return False
    results = {
        e.call.id for e in events[index:] if isinstance(e, ToolRan) and e.turn == permitted.turn
    }
    return results.isdisjoint({permitted.call.id, _killed_call(permitted.call).id})


def _killed_call(call: Call) -> Call:
    """Return the call whose result tells what a killed `call` did. It does not answer that call:
    nobody takes it for the tests' result, or an agent's.
    """
    return call.model_copy(update={"id": f"{call.id}-{KILLED}", "tool": KILLED})


def _end_of_call(log: Log, index: int) -> float:
    """When the call that began at this index of the log was killed, in seconds since the epoch:
    what the log says, else when its process was last known to live."""
    for record in log.records[index + 1 :]:
        if isinstance(record.event, Interrupted):
            return record.at + GRACE_SECONDS
    return log.left + 2 * HEARTBEAT_SECONDS


def _until(made: FileEffects, end: float, root: Path) -> FileEffects:
    """Leave out what was written since. A file that is gone was deleted: to bring it back loses
    nothing.
    """

    def before_the_end(effect: FileChange | FileAttribute) -> bool:
        try:
            return (root / paths.unquoted_path(effect.path)).lstat().st_ctime <= end
        except OSError:
            return True

    changes = filter(before_the_end, made.changes)
    attributes = filter(before_the_end, made.attributes)
    return FileEffects(tuple(changes), tuple(attributes))
