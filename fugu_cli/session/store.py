"""The stored sessions: list, find, resume, fork and repair them.

Beside the log, which knows the file but not the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from fugu_cli.errors import StorageError, UsageError
from fugu_cli.session import costs, log, log_format
from fugu_cli.session.events import Asked, Event, Finished, Interrupted, Recorded, Replied
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import STOPPED, open_calls
from fugu_cli.session.verdicts import END_WORDS
from fugu_cli.system import atomic_files
from fugu_cli.system.bounded_json import parse_json

SUFFIX = ".jsonl"
OUTPUT_FILES = (
    "session.jsonl",
    "changes.patch",
    "trajectory.json",
    "summary.json",
    "prediction.jsonl",
)
"""The files of an `--output-dir`."""
OWNER = "session"
"""In the folder of a session's worktrees: where its log is."""
DAMAGED, NEWER, EARLIER = "damaged", "newer fugu", "early fugu"
"""States of a session that cannot be gone on with: a line of it is none, or another version of fugu
wrote it.
"""
TITLES = "titles.json"
"""Beside the sessions of a folder: the titles the user gave them."""

ARCHIVED = "archived.json"
"""Beside them: the ids of those that lists leave out."""

DAMAGED_NOTICE, REWOUND_NOTICE = (
    "the session's file was damaged here",
    "the session was rewound to here",
)
"""Why a turn of a copied session is interrupted."""
_RIGHTS = "check free space and permissions with `df -h` and `ls -l`"


@dataclass(frozen=True)
class SessionSummary:
    """A session as a list shows it. Times are seconds since the epoch; `state` is how its newest
    request ended. `cost` is in USD. `is_unpriced`: the cost of some calls is unknown.
    """

    id: str
    path: Path
    repo: str
    started: float
    newest: float
    title: str
    requests: int
    state: str
    cost: float = 0.0
    is_unpriced: bool = False
    is_estimated: bool = False

    @property
    def ended(self) -> str:
        """`state` in words."""
        return _in_words(self.state)


def _in_words(state: str) -> str:
    return END_WORDS.get(state, state.replace("_", " "))


def session_folder(data: Path, root: Path) -> Path:
    """Return the folder of a repository's sessions: its name, for people, and a hash of its path."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", root.name).strip("-") or "root"
    return (
        data
        / "sessions"
        / f"{name[:40]}-{hashlib.sha256(str(root).encode('utf-8', 'surrogateescape')).hexdigest()[:10]}"
    )


def recorded_root(root: Path) -> str:
    """Return the folder's name as events record it."""
    return log.as_written(str(root))


def hide_from_git(data: Path, root: Path) -> None:
    """Make git ignore fugu's own folder inside the repository. Raises StorageError.

    Otherwise snapshots would hold it, and an undo would restore the sessions themselves.
    """
    ignore = data.absolute() / ".gitignore"
    if ignore.is_relative_to(root) and not ignore.exists():
        try:
            data.mkdir(parents=True, exist_ok=True)
            ignore.write_text("*\n", encoding="utf-8")
        except OSError as error:
            raise StorageError(
                f"{data} cannot be written: {error.strerror}",
                hint="set data_dir to a folder that can be written",
            ) from error


def new_path(data: Path, root: Path) -> Path:
    """Return a path for a new session. Ids sort by time."""
    return (
        session_folder(data, root)
        / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}{SUFFIX}"
    )


def session_paths(data: Path, root: Path | None = None) -> list[Path]:
    """Return the session files of one repository or of all, newest first. Raises StorageError."""
    dated = []
    try:
        folders = _entries(data / "sessions") if root is None else [session_folder(data, root)]
        for folder in folders:
            for path in _entries(folder):
                written = _time_written(path) if path.name.endswith(SUFFIX) else None
                if written is not None:
                    dated.append((written, path.name, path))
    except OSError as error:
        raise StorageError(
            f"cannot look for sessions in {data}: {error.strerror}", hint=_RIGHTS
        ) from error
    dated.sort(reverse=True)
    return [path for _, _, path in dated]


def _entries(folder: Path) -> list[Path]:
    """Return the entries of a folder, none if it is no folder. Raises other OSErrors, which
    `Path.glob` hides from Python 3.13 on.
    """
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _time_written(path: Path) -> int | None:
    """Return the time of the last write in nanoseconds; None if it is not a file, or was deleted
    meanwhile.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns if stat.S_ISREG(status.st_mode) else None


def find_session(data: Path, root: Path, key: str) -> Path:
    """Return the session that `key` names: `latest`, an id, the beginning of an id, or a path.

    Sessions of this repository are searched first, then all. An archived session, or one without a
    request (it was cut off, or a hook refused it), is the latest only if there is no other. Raises
    UsageError if no session, or more than one, fits.
    """
    if key.endswith(SUFFIX) and _time_written(Path(key)) is not None:
        return Path(key)
    own_paths = session_paths(data, root)
    if key == "latest":
        if not own_paths:
            raise UsageError(
                "this folder has no session yet", hint='start one with `fugu run "..."`'
            )
        archived = _archived(own_paths[0].parent)
        candidates = [path for path in own_paths if path.stem not in archived] or own_paths
        return next(filter(_has_request, candidates), candidates[0])
    for candidates in (own_paths, session_paths(data)):
        matches = [path for path in candidates if key and path.stem.startswith(key)]
        exact = [path for path in matches if path.stem == key]
        if len(exact or matches) == 1:
            return (exact or matches)[0]
        if matches:
            raise UsageError(
                f"{key!r} means {len(matches)} sessions",
                hint="give more of the id: `fugu sessions` lists them",
            )
    raise UsageError(f"there is no session {key!r}", hint="`fugu sessions` lists them")


def _has_request(path: Path) -> bool:
    """Return whether the session has a request. True for one that cannot be read, because its
    reader says why.
    """
    try:
        return any(isinstance(record.event, Asked) for record in log.read(path))
    except StorageError:
        return True


def session_summary(path: Path) -> SessionSummary | None:
    """Return the summary of a session; of a damaged one up to its fault. None for an empty or
    unreadable file.
    """
    try:
        content = log.examine(path)
        written = path.stat().st_mtime
    except (StorageError, OSError):
        return None
    records, fault = content.records, content.fault
    if not records and fault is None:
        return None
    session = SessionState.of_records(records)
    opened = session.opened
    requests = [request.asked for request in session.requests if request.asked is not None]
    return SessionSummary(
        id=path.stem,
        path=path,
        repo=opened.repo if opened is not None else "",
        started=records[0].at if records else written,
        newest=records[-1].at if fault is None else written,
        title=_title(requests[0]) if requests else "",
        requests=len(requests),
        state=_state_word(session.request.finished, fault),
        cost=session.cost,
        is_unpriced=bool(session.unpriced),
        is_estimated=costs.is_estimated(session.events, session.pool),
    )


def _state_word(end: Finished | None, fault: log.LogFault | None) -> str:
    """Return the fault of the session's file, else the reason why its newest request ended."""
    if fault is None:
        return end.reason if end is not None else "unfinished"
    if fault.newer:
        return NEWER
    return EARLIER if fault.earlier else DAMAGED


def _title(asked: Asked) -> str:
    """Return the first line of a request, "" if it has none."""
    return asked.said.strip().partition("\n")[0]


def session_summaries(files: Iterable[Path], *, archived: bool = False) -> list[SessionSummary]:
    """Return the summaries of the `archived` sessions or of the others, under the user's titles.

    A session without a request is left out unless it is damaged: there is nothing to continue.
    """
    notes = FolderNotes()
    summaries = []
    for path in files:
        if notes.is_archived(path) != archived:
            continue
        summary = session_summary(path)
        if summary is None:
            continue
        if summary.requests or summary.state in (DAMAGED, NEWER, EARLIER):
            summaries.append(replace(summary, title=notes.title(path) or summary.title))
    return summaries


class FolderNotes:
    """The titles and the archived sessions of folders, each file read once."""

    def __init__(self) -> None:
        self._titles: dict[Path, dict[str, str]] = {}
        self._archived: dict[Path, list[str]] = {}

    def title(self, path: Path) -> str:
        """Return the title that the user gave a session, "" for none."""
        folder = path.parent
        if folder not in self._titles:
            self._titles[folder] = _titles(folder)
        return self._titles[folder].get(path.stem, "")

    def is_archived(self, path: Path) -> bool:
        """Return whether the user has hidden a session from lists."""
        folder = path.parent
        if folder not in self._archived:
            self._archived[folder] = _archived(folder)
        return path.stem in self._archived[folder]


@dataclass(frozen=True)
class RecentSession:
    """A session's title, how its newest request ended ("" if unknown), and when that was."""

    title: str
    ended: str
    newest: float


def recent_sessions(files: Iterable[Path], most: int) -> list[RecentSession]:
    """Return the first `most` sessions with a request, under the user's titles. However long a
    session is, only the ends of its file are read. Damaged and archived sessions are left out.
    """
    notes = FolderNotes()
    sessions: list[RecentSession] = []
    for path in files:
        if len(sessions) == most:
            break
        if notes.is_archived(path):
            continue
        with suppress(OSError, ValidationError, log_format.UnreadableFormat):
            recent = _recent_session(path, notes.title(path))
            if recent is not None:
                sessions.append(recent)
    return sessions


EDGE_BYTES = 256 * 1024
"""Bytes at either end of a session's file in which its first request and its end are looked for."""


def _recent_session(path: Path, title: str) -> RecentSession | None:
    """Return the session, None if it has no request. `title` is the user's, "" for none."""
    with path.open("rb") as file:
        head = file.read(EDGE_BYTES).split(b"\n")[:-1]
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - EDGE_BYTES, 0))
        tail = file.read().split(b"\n")[:-1]
    if size > EDGE_BYTES:
        del tail[:1]  # the end of a line that begins before these bytes
    reader = log_format.LineReader()
    first_request = None
    for line in head:
        event = reader.parse(line).event
        if isinstance(event, Asked):
            first_request = event
            break
    if first_request is None or not tail:
        return None
    state = ""
    for line in reversed(tail):
        event = reader.parse(line).event
        if isinstance(event, Asked | Finished):
            state = event.reason if isinstance(event, Finished) else "unfinished"
            break
    newest = reader.parse(tail[-1]).at
    return RecentSession(title or _title(first_request), _in_words(state), newest)


def mentions(session: SessionSummary, text: str) -> bool:
    """Return whether the text occurs in the session's title, requests or replies. Case does not
    count.
    """
    folded = text.casefold()
    if folded in session.title.casefold():
        return True
    try:
        events = [record.event for record in log.examine(session.path).records]
    except StorageError:
        return False
    return any(
        isinstance(event, Asked | Replied) and folded in event.text.casefold() for event in events
    )


def rename_session(path: Path, title: str) -> None:
    """Give a session another title in every list; its log stays as it is. Raises StorageError."""
    _write_json(path.parent / TITLES, {**_titles(path.parent), path.stem: title})


def archive_session(path: Path, *, archived: bool) -> None:
    """Hide a session from lists, or show it again. Its id still finds it. Raises StorageError."""
    others = [id for id in _archived(path.parent) if id != path.stem]
    if archived:
        others.append(path.stem)
    _write_json(path.parent / ARCHIVED, others)


def delete_session(data: Path, path: Path) -> None:
    """Remove a session with its pictures, worktrees and title. Raises StorageError, also where it
    is open.
    """
    with log.locked_if_closed(path) as closed:
        if not closed:
            raise StorageError(
                f"the session {path.stem} is open in another process", hint="close it there first"
            )
        try:
            for folder in (log.media_folder(path), worktrees_folder(data, path)):
                if folder.is_dir():
                    shutil.rmtree(folder)
            path.unlink()
        except OSError as error:
            raise StorageError(
                f"cannot delete the session {path.stem}: {error.strerror}", hint=_RIGHTS
            ) from error
    log.lock_path(path).unlink(missing_ok=True)
    if path.stem in (titles := _titles(path.parent)):
        _write_json(
            path.parent / TITLES, {id: title for id, title in titles.items() if id != path.stem}
        )
    if path.stem in _archived(path.parent):
        archive_session(path, archived=False)


def _write_json(file: Path, value: object) -> None:
    """Write a value as JSON to a file of the folder. Raises StorageError."""
    try:
        with atomic_files.replacement_file(file) as draft:
            draft.write_text(json.dumps(value, ensure_ascii=False, indent=1), "utf-8")
    except OSError as error:
        raise StorageError(f"cannot write {file}: {error.strerror}") from error


def _archived(folder: Path) -> list[str]:
    """Return the ids of archived sessions; none if the file is missing or holds something else."""
    content = _read_json(folder / ARCHIVED)
    return [str(id) for id in content] if isinstance(content, list) else []


def _titles(folder: Path) -> dict[str, str]:
    """Return the user's titles by session id; none if the file is missing or holds something else."""
    content = _read_json(folder / TITLES)
    if not isinstance(content, dict):
        return {}
    return {str(id): str(title) for id, title in content.items()}


def _read_json(file: Path) -> object:
    """Return the JSON value of a file, None if it cannot be read."""
    try:
        return parse_json(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def unfinished(events: Sequence[Event]) -> bool:
    """Return whether the newest request can be continued: it was cut, or a limit or a failure
    stopped it.
    """
    request = SessionState(events).request
    end = request.finished
    return request.asked is not None and (end is None or end.reason in STOPPED)


def worktrees_folder(data: Path, path: Path | None) -> Path:
    """Return the folder of a session's worktrees. `path` is its log, None for one in memory."""
    if path is None:
        return data / "worktrees" / "memory"
    location = os.path.realpath(path).encode("utf-8", "surrogateescape")
    return data / "worktrees" / f"{path.stem}-{hashlib.sha256(location).hexdigest()[:8]}"


def fork_session(data: Path, root: Path, path: Path, before: int | None = None) -> Path:
    """Copy a session with its worktrees under a new id, and return its path. `before` takes only
    the lines before that one, and interrupts the turns that are open there. Raises StorageError,
    also for a damaged session.
    """
    content = log.examine(path)
    if content.fault is not None:
        raise content.fault.error(path)
    if before is None:
        return _copy_session(data, new_path(data, root), path, content.size)
    kept = content.records[:before]
    size = sum(len(line) for line in path.read_bytes().splitlines(keepends=True)[:before])
    return _copy_session(
        data, new_path(data, root), path, size, _closing_lines(kept, REWOUND_NOTICE)
    )


def move_session(data: Path, root: Path, path: Path) -> Path:
    """Move a session to another folder under its own id, with its title, and archived if it was.
    Raises StorageError, also if it is open.
    """
    content = log.examine(path)
    moved = _copy_session(data, session_folder(data, root) / path.name, path, content.size)
    notes = FolderNotes()
    if title := notes.title(path):
        rename_session(moved, title)
    if notes.is_archived(path):
        archive_session(moved, archived=True)
    delete_session(data, path)
    return moved


def repair_session(data: Path, root: Path, path: Path) -> tuple[Path, log.LogFault]:
    """Copy a damaged session, up to the fault, under a new id beside it. Return the copy and the
    fault.

    Calls that an agent had made there may have run, so they are not run again: the copy says that
    they were interrupted. Raises UsageError for an undamaged session, and StorageError if nothing
    can be kept or a newer fugu wrote it.
    """
    content = log.examine(path)
    if content.fault is None:
        raise UsageError(
            f"the session {path.stem} is not damaged", hint=f"`fugu trace {path.stem}` shows it"
        )
    if content.fault.newer or not content.records:
        raise content.fault.error(path)
    home = path.absolute().parent
    target = new_path(data, root)
    if home.parent == data.absolute() / "sessions":
        target = home / target.name
    return _copy_session(
        data, target, path, content.size, _closing_lines(content.records, DAMAGED_NOTICE)
    ), content.fault


def _closing_lines(records: Sequence[Recorded], why: str) -> bytes:
    """Return lines that interrupt the turns that are open after these records, because their calls
    may have been started. They carry the time of the last line, so that later changes of files are
    taken for the user's.
    """
    request = SessionState.of_records(records).request
    open_turns = []
    if request.finished is None:
        open_turns = [
            turn.number for turn in request.turns if open_calls(turn) and not turn.interrupted
        ]
    lines = [
        Recorded(
            seq=len(records) + index, at=records[-1].at, event=Interrupted(turn=number, reason=why)
        )
        for index, number in enumerate(open_turns)
    ]
    return log_format.encode_lines(lines)


def _copy_session(data: Path, target: Path, path: Path, size: int, more: bytes = b"") -> Path:
    """Copy `size` bytes of a session and `more` to `target`, with its media and worktrees. Raises
    StorageError.
    """
    try:
        with path.open("rb") as source:
            kept = source.read(size)
        with atomic_files.replacement_file(target, 0o600) as draft:
            draft.write_bytes(kept + more)
        copy_media(path, target)
        if (worktrees := worktrees_folder(data, path)).is_dir():
            own = shutil.copytree(worktrees, worktrees_folder(data, target), symlinks=True)
            (own / OWNER).write_text(str(target), "utf-8")
    except OSError as error:
        raise StorageError(
            f"cannot copy the session {path.stem}: {error.strerror}", hint=_RIGHTS
        ) from error
    return target


def copy_media(path: Path, target: Path) -> None:
    """Copy the pictures and PDFs of the session at `path` to the one at `target`. Raises OSError."""
    if (kept := log.media_folder(path)).is_dir():
        shutil.copytree(kept, log.media_folder(target), dirs_exist_ok=True)
