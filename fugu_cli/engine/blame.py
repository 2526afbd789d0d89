"""Blame: the lines of a file, or of what a session changed, with the turn that wrote each and its
cost.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Literal

from fugu_cli.errors import UsageError
from fugu_cli.safety import paths
from fugu_cli.session.costs import TurnCost, turn_costs
from fugu_cli.session.events import (
    EVIDENCE,
    Assigned,
    Event,
    FileChange,
    Merged,
    Permitted,
    Recorded,
    Replied,
    Role,
    ToolRan,
)
from fugu_cli.session.state import SessionState
from fugu_cli.snapshots.git_repositories import blob_id
from fugu_cli.tools import diff
from fugu_cli.tools.workspace import Workspace

SIMILAR_SHARE = 0.5
"""The share of equal lines from which a new file counts as a deleted one that was moved."""
LONG = 2000
"""The number of lines of two texts together from which frequent lines are not used for matches."""


@dataclass(frozen=True)
class LineAuthor:
    """The turn that wrote a line. `model` is the model that replied, `at` the time of the change."""

    session: str
    request: int
    turn: int
    agent: str
    role: Role
    model: str
    at: float

    @property
    def turn_key(self) -> tuple[str, int, int]:
        """Session, request and turn, which identify the turn among those of all sessions."""
        return (self.session, self.request, self.turn)


@dataclass(frozen=True)
class AttributedEdit:
    """The files that one call changed, and the author of the call."""

    author: LineAuthor
    changes: tuple[FileChange, ...]
    at: float
    seq: int


@dataclass(frozen=True)
class AttributedLines:
    """The lines of a content with the author of each, None if no recorded change wrote it."""

    lines: tuple[bytes, ...] = ()
    authors: tuple[LineAuthor | None, ...] = ()


@dataclass(frozen=True)
class FileState:
    """A file after the changes so far: its blob (None if the file does not exist) and its lines.
    `first` are its lines before the first change, `was` is its path at that time.
    """

    blob: str | None
    written: AttributedLines
    first: AttributedLines
    was: str


def attributed_edits(session: str, records: Sequence[Recorded]) -> list[AttributedEdit]:
    """Return the changes that agents made in a session, oldest first, without undone requests and
    rolled back turns.
    """
    records_by_event = {id(record.event): record for record in records}
    state = SessionState.of_records(records)
    edits = []
    for index in state.undo_history.requests:
        authors = _RequestAuthors(session, index + 1, state.requests[index].events)
        for event in state.requests[index].effective:
            record = records_by_event[id(event)]
            author = authors.author_of(event, record.at)
            if author is not None and isinstance(event, ToolRan | Merged):
                edits.append(AttributedEdit(author, event.changes, author.at, record.seq))
    return edits


def merged_edits(edits: Iterable[AttributedEdit]) -> list[AttributedEdit]:
    """Return the edits of several sessions in order of time. Edits that a fork repeats count once."""
    by_time: dict[tuple[float, int], AttributedEdit] = {}
    for edit in edits:
        by_time.setdefault((edit.at, edit.seq), edit)
    return [by_time[key] for key in sorted(by_time)]


class _RequestAuthors:
    """Maps a request's changes to their authors. Changes by fugu's own evidence runs have none."""

    def __init__(self, session: str, number: int, events: Sequence[Event]) -> None:
        self._session = session
        self._number = number
        self._turns = {event.turn: event for event in events if isinstance(event, Assigned)}
        replies = [event for event in events if isinstance(event, Replied)]
        self._models = {call.id: reply.model for reply in replies for call in reply.calls}
        self._newest_models = {reply.turn: reply.model for reply in replies}
        self._evidence_calls = {
            event.call.id
            for event in events
            if isinstance(event, Permitted) and event.by == EVIDENCE
        }

    def author_of(self, event: Event, at: float) -> LineAuthor | None:
        """Return the author of an event's changes, None if it has none or fugu made them.

        Work taken over from a worktree belongs to the turn that was chosen.
        """
        if isinstance(event, Merged):
            turn_number = event.chosen
            model = self._newest_models.get(turn_number, "")
        elif isinstance(event, ToolRan) and event.call.id not in self._evidence_calls:
            turn_number = event.turn
            model = self._models.get(event.call.id, "")
        else:
            return None
        turn = self._turns.get(turn_number)
        if turn is None or not event.changes:
            return None
        return LineAuthor(
            self._session, self._number, turn_number, turn.agent, turn.role, model, at
        )


def lines_of(data: bytes) -> tuple[bytes, ...]:
    """Return the lines, each ended by a newline without `\\r`: git may change line ends when it
    stores or writes a file. Data that is not text counts as one line.
    """
    if b"\0" in data:
        return (data,)
    *whole_lines, rest = data.replace(b"\r\n", b"\n").split(b"\n")
    lines = [line + b"\n" for line in whole_lines]
    return (*lines, rest) if rest else tuple(lines)


def matcher(old: Sequence[bytes], new: Sequence[bytes]) -> SequenceMatcher[bytes]:
    """Return a matcher of the two texts. In long texts the most frequent lines, such as empty ones,
    are not used to find matches: that would take seconds.
    """
    return SequenceMatcher(None, old, new, autojunk=len(old) + len(new) > LONG)


def carry_authors(
    old: AttributedLines, lines: Sequence[bytes], author: LineAuthor | None
) -> AttributedLines:
    """Return the lines. Those that `old` has keep their authors, the others are by `author`."""
    size = min(len(old.lines), len(lines))
    head = 0
    while head < size and old.lines[head] == lines[head]:
        head += 1
    tail = 0
    while tail < size - head and old.lines[-1 - tail] == lines[-1 - tail]:
        tail += 1
    old_end, new_end = len(old.lines) - tail, len(lines) - tail
    middle: list[LineAuthor | None] = [author] * (new_end - head)
    for match in matcher(old.lines[head:old_end], lines[head:new_end]).get_matching_blocks():
        first = head + match.a
        middle[match.b : match.b + match.size] = old.authors[first : first + match.size]
    return AttributedLines(tuple(lines), (*old.authors[:head], *middle, *old.authors[old_end:]))


@dataclass
class BlameTracker:
    """Follows the authors of lines through the edits of files. `contents` holds blobs by id.

    The lines of a blob that is missing there have no author, and its path is added to `lost`.
    """

    contents: Mapping[str, bytes]
    states: dict[str, FileState] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    _by_path_and_blob: dict[tuple[str, str], AttributedLines] = field(default_factory=dict)
    _by_blob: dict[str, AttributedLines] = field(default_factory=dict)

    def follow(self, edit: AttributedEdit) -> None:
        """Apply the changes of one call."""
        before = {change.path: self._state_before(change) for change in edit.changes}
        deleted = {
            change.path: before[change.path] for change in edit.changes if change.after is None
        }
        for change in edit.changes:
            state = before[change.path]
            if change.before is None and change.after is not None and deleted:
                state = self._moved_file(change, deleted) or state
            self._apply(change, state, edit.author)

    def _state_before(self, change: FileChange) -> FileState:
        """Return the file as the change found it."""
        path, blob = change.path, change.before
        state = self.states.get(path)
        if state is not None and state.blob == blob:
            return state
        old = state.written if state else AttributedLines()
        if blob is None:
            written = AttributedLines()
        elif (path, blob) in self._by_path_and_blob:
            written = self._by_path_and_blob[path, blob]
        elif state is None and blob in self._by_blob:
            written = self._by_blob[blob]  # somebody moved or copied it
        elif blob in self.contents:
            written = carry_authors(old, lines_of(self.contents[blob]), None)
        else:
            self.lost.add(path)
            written = AttributedLines()
        if state is None:
            return FileState(blob, written, first=written, was=path)
        return replace(state, blob=blob, written=written)

    def _moved_file(self, change: FileChange, deleted: dict[str, FileState]) -> FileState | None:
        """Return the file that was deleted in the same call and became this one, None if there is
        none. It is removed from `deleted`.
        """
        data = self.contents.get(change.after or "")
        if not data:
            return None
        lines = lines_of(data)
        similarities = {
            path: matcher(state.written.lines, lines).ratio() for path, state in deleted.items()
        }

        def preference(path: str) -> tuple[bool, float]:
            has_same_content = deleted[path].blob == change.after
            return has_same_content, similarities[path]

        best = max(similarities, key=preference)
        if similarities[best] < SIMILAR_SHARE:
            return None
        return deleted.pop(best)

    def _apply(self, change: FileChange, before: FileState, author: LineAuthor) -> None:
        """Record the file's state after the change."""
        path, blob = change.path, change.after
        if blob is None:
            written = AttributedLines()
        elif blob in self.contents and (change.before is None or change.before in self.contents):
            written = carry_authors(before.written, lines_of(self.contents[blob]), author)
        else:
            self.lost.add(path)
            lines = lines_of(self.contents.get(blob, b""))
            written = AttributedLines(lines, (None,) * len(lines))
        if blob is not None:
            self._by_path_and_blob[path, blob] = written
            self._by_blob[blob] = written
        self.states[path] = FileState(blob, written, before.first, before.was)

    def lines_now(self, path: str, blob: str, data: bytes) -> AttributedLines:
        """Return the lines of a file as it is now. Lines that were added after the last edit have no
        author.
        """
        state = self.states.get(path)
        if state is not None and state.blob == blob:
            return state.written
        if (path, blob) in self._by_path_and_blob:
            return self._by_path_and_blob[path, blob]
        last = state.written if state is not None else AttributedLines()
        return carry_authors(last, lines_of(data), None)


def related_edits(edits: Sequence[AttributedEdit], path: str) -> list[AttributedEdit]:
    """Return the edits a file's lines may come from: its own, and those of files it may have been
    moved or copied from.
    """
    path_of_blob = {change.after: change.path for edit in edits for change in edit.changes}
    related_paths, related = {path}, []
    for edit in reversed(edits):
        changes = [change for change in edit.changes if change.path in related_paths]
        if not changes:
            continue
        related.append(edit)
        for change in changes:
            if change.before in path_of_blob:
                related_paths.add(path_of_blob[change.before])
        if any(change.before is None for change in changes):
            deleted = [change.path for change in edit.changes if change.after is None]
            related_paths.update(deleted)
    only_related = []
    for edit in reversed(related):
        kept = tuple(change for change in edit.changes if change.path in related_paths)
        only_related.append(replace(edit, changes=kept))
    return only_related


def moved_from(
    edits: Sequence[AttributedEdit], data: bytes, contents: Mapping[str, bytes]
) -> str | None:
    """Return the path whose last content is most similar to `data`, None if none is similar.

    For a file that no edit names, because somebody may have moved it.
    """
    last_blobs = {change.path: change.after for edit in edits for change in edit.changes}
    lines = lines_of(data)
    best, best_share = None, SIMILAR_SHARE
    for path, blob in last_blobs.items():
        if blob is None or blob not in contents:
            continue
        share = matcher(lines_of(contents[blob]), lines).ratio()
        if share > best_share or (best is None and share == best_share):
            best, best_share = path, share
    return best


NamedSession = tuple[str, Sequence[Recorded]]
"""A session's id and its lines."""
LineKind = Literal["same", "added", "removed"]
CONTEXT_LINES = 3
"""Lines shown on each side of a change."""


@dataclass(frozen=True)
class BlameLine:
    """A line of a file or of a diff. `number` counts from 1, for removed lines in the old file."""

    kind: LineKind
    number: int
    text: bytes
    author: LineAuthor | None = None


@dataclass(frozen=True)
class TurnShare:
    """A turn with the number of the shown lines that it wrote, and the cost of the whole turn."""

    cost: TurnCost
    lines: int


@dataclass(frozen=True)
class FileBlame:
    """A file as it is now, with the author of each line and the turns that wrote them. `lost`: the
    contents of some changes are gone, so that authors may be missing.
    """

    path: str
    lines: tuple[BlameLine, ...]
    turns: tuple[TurnShare, ...]
    lost: bool = False
    noted: int = 0
    """The number of lines whose authors come from git notes (commit_blame.py)."""


@dataclass(frozen=True)
class FileDiff:
    """A session's changes to a file. `was` is its path before the session. `lost` as in FileBlame.
    `later`: the file has changed since the session.
    """

    path: str
    was: str
    hunks: tuple[tuple[BlameLine, ...], ...]
    binary: bool = False
    lost: bool = False
    later: bool = False


@dataclass(frozen=True)
class SessionBlame:
    """A session's changes and all its turns, also those that wrote nothing, because they cost money
    too.
    """

    session: str
    files: tuple[FileDiff, ...]
    turns: tuple[TurnShare, ...]


async def blame_path(
    workspace: Workspace, path: Path, sessions: Sequence[NamedSession]
) -> FileBlame:
    """Return the blame of the text file at `path`. Links are followed. Raises UsageError if there
    is no such file in the workspace.
    """
    real_path = Path(os.path.realpath(path))
    if not paths.inside(real_path, workspace.root):
        raise UsageError(
            f"{path} is not in {workspace.root}", hint="blame a file in its own repository"
        )
    name = paths.quoted_path(real_path.relative_to(workspace.root).as_posix())
    try:
        if real_path.is_dir():
            hint = "name a file; without one the newest session's changes are shown"
            raise UsageError(f"{path} is a folder", hint=hint)
        if not real_path.exists():
            what = f"there is no file {path}{_describe_deletion(name, sessions)}"
            raise UsageError(what, hint="without a path the diff is shown")
        file = await blame_file(workspace, name, sessions)
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", hint="check the file's permissions"
        ) from error
    if any(b"\0" in line.text for line in file.lines):
        raise UsageError(
            f"{path} is binary and has no lines",
            hint="without a path the newest session's diff is shown",
        )
    return file


def edits_of_sessions(sessions: Sequence[NamedSession]) -> list[AttributedEdit]:
    """Return the changes that agents made in these sessions, in order of time."""
    return merged_edits(edit for session in sessions for edit in attributed_edits(*session))


def _describe_deletion(path: str, sessions: Sequence[NamedSession]) -> str:
    """Return a clause on the agent that deleted the file, "" if none did."""
    for edit in reversed(edits_of_sessions(sessions)):
        for change in edit.changes:
            if change.path != path:
                continue
            if change.after is not None:
                return ""
            author = edit.author
            return (
                f": {author.agent} deleted it in request {author.request}, turn {author.turn} of "
                f"session {author.session}"
            )
    return ""


async def blame_file(
    workspace: Workspace, path: str, sessions: Sequence[NamedSession]
) -> FileBlame:
    """Return the blame of the file at `path` (from the workspace's root) over all these sessions.
    Raises OSError.
    """
    data = (workspace.root / paths.unquoted_path(path)).read_bytes()
    edits = edits_of_sessions(sessions)
    content, lost = await blame_content(workspace, path, data, edits)
    pairs = zip(content.lines, content.authors, strict=True)
    lines = tuple(
        BlameLine("same", number, text, author)
        for number, (text, author) in enumerate(pairs, start=1)
    )
    turns = [cost for session in sessions for cost in turn_costs(*session)]
    return FileBlame(path, lines, turn_shares(turns, lines, only_writers=True), lost)


async def blame_content(
    workspace: Workspace, path: str, data: bytes, edits: Sequence[AttributedEdit]
) -> tuple[AttributedLines, bool]:
    """Return the lines of a content of the file at `path` with their authors, and whether the
    contents of some edits are gone.
    """
    blob = blob_id(data, workspace.history.hash_name)
    source = await _edited_path(workspace, path, edits, data)
    related = related_edits(edits, source)
    contents = await diff.read_contents(workspace, _blobs(related))
    tracker = BlameTracker({**contents, blob: data})
    for edit in related:
        tracker.follow(edit)
    return tracker.lines_now(source, blob, data), bool(tracker.lost)


async def _edited_path(
    workspace: Workspace, path: str, edits: Sequence[AttributedEdit], data: bytes
) -> str:
    """Return the path under which the edits name the file: its own, or that of a similar file that
    is gone, because the user may have moved it.
    """
    last_blobs = {change.path: change.after for edit in edits for change in edit.changes}
    if path in last_blobs:
        return path
    gone = [
        blob
        for name, blob in last_blobs.items()
        if blob and not (workspace.root / paths.unquoted_path(name)).exists()
    ]
    return moved_from(edits, data, await diff.read_contents(workspace, gone)) or path


async def blame_session(workspace: Workspace, session: NamedSession) -> SessionBlame:
    """Return the changes of a session, with the author of each line."""
    edits = attributed_edits(*session)
    present_blobs: dict[str, str] = {}
    contents = await diff.read_contents(workspace, _blobs(edits))
    for path in {change.path for edit in edits for change in edit.changes}:
        data = _read(workspace, path)
        if data is not None:
            blob = blob_id(data, workspace.history.hash_name)
            present_blobs[path] = blob
            contents[blob] = data
    tracker = BlameTracker(contents)
    for edit in edits:
        tracker.follow(edit)
    moved = {state.was for path, state in tracker.states.items() if state.was != path}
    files = []
    for path, state in tracker.states.items():
        if path in moved and state.blob is None:
            continue
        is_later = present_blobs.get(path) != state.blob
        file = _file_diff(path, state, lost=path in tracker.lost, later=is_later)
        if file is not None:
            files.append(file)
    files.sort(key=lambda file: file.path)
    added = [line for file in files for hunk in file.hunks for line in hunk if line.kind == "added"]
    return SessionBlame(session[0], tuple(files), turn_shares(turn_costs(*session), added))


def _file_diff(path: str, state: FileState, *, lost: bool, later: bool) -> FileDiff | None:
    """Return the changes of a file, None if it is as it was before the session."""
    hunks = tuple(_hunks(state.first, state.written))
    if not hunks and path == state.was and not lost:
        return None
    binary = any(b"\0" in line for side in (state.first, state.written) for line in side.lines)
    return FileDiff(path, state.was, hunks, binary, lost, later)


def _hunks(old: AttributedLines, new: AttributedLines) -> Iterable[tuple[BlameLine, ...]]:
    if old.lines == new.lines:
        return
    for group in matcher(old.lines, new.lines).get_grouped_opcodes(CONTEXT_LINES):
        lines: list[BlameLine] = []
        for tag, first, last, start, end in group:
            if tag == "equal":
                lines += [BlameLine("same", i + 1, new.lines[i]) for i in range(start, end)]
                continue
            lines += [BlameLine("removed", i + 1, old.lines[i]) for i in range(first, last)]
            lines += [
                BlameLine("added", i + 1, new.lines[i], new.authors[i]) for i in range(start, end)
            ]
        yield tuple(lines)


def turn_shares(
    turns: Iterable[TurnCost], lines: Iterable[BlameLine], *, only_writers: bool = False
) -> tuple[TurnShare, ...]:
    """Return the turns with the number of the lines that each wrote. `only_writers` leaves out
    turns that wrote none. A turn that went to another agent after a failure counts as two.
    """
    counts = Counter(
        (*line.author.turn_key, line.author.agent) for line in lines if line.author is not None
    )
    costs = {(*cost.turn_key, cost.agent): cost for cost in turns}
    return tuple(
        TurnShare(cost, counts[key])
        for key, cost in costs.items()
        if counts[key] or not only_writers
    )


def _blobs(edits: Iterable[AttributedEdit]) -> list[str]:
    """Return the blobs before and after each change, each once."""
    blobs: dict[str, None] = {}
    for edit in edits:
        for change in edit.changes:
            for blob in (change.before, change.after):
                if blob is not None:
                    blobs[blob] = None
    return list(blobs)


def _read(workspace: Workspace, path: str) -> bytes | None:
    """Return the content of a file, or the target of a link; None if it cannot be read."""
    file = workspace.root / paths.unquoted_path(path)
    try:
        if file.is_symlink():
            return str(file.readlink()).encode()
        return file.read_bytes()
    except OSError:
        return None
