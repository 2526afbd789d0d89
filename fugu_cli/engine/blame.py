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

ALIKE = 0.5
"""Share of equal lines from which a file that appears where another one goes counts as that one,
moved.
"""
LONG = 2000
"""Lines of two texts together that are too many to compare every one with every other."""


@dataclass(frozen=True)
class LineAuthor:
    """A turn that wrote something. `model` is the one that served, `at` the time of the change."""

    session: str
    request: int
    turn: int
    agent: str
    role: Role
    model: str
    at: float

    @property
    def place(self) -> tuple[str, int, int]:
        """Identify the turn among the turns of all sessions."""
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
    `first` is its blob before the first change, `was` its path then if it was moved since.
    """

    blob: str | None
    written: AttributedLines
    first: AttributedLines
    was: str


def attributed_edits(session: str, records: Sequence[Recorded]) -> list[AttributedEdit]:
    """Return the changes that agents made in a session, oldest first, without undone requests and
    rolled back turns.
    """
    at = {id(record.event): record for record in records}
    state, edits = SessionState.of_records(records), []
    for index in state.undo_history.requests:
        writers = _Writers(session, index + 1, state.requests[index].events)
        for event in state.requests[index].effective:
            author = writers.of(event, at[id(event)].at)
            if author is not None and isinstance(event, ToolRan | Merged):
                edits.append(AttributedEdit(author, event.changes, author.at, at[id(event)].seq))
    return edits


def merged_edits(edits: Iterable[AttributedEdit]) -> list[AttributedEdit]:
    """Return the edits of several sessions in order of time. Edits that a fork repeats count once."""
    once: dict[tuple[float, int], AttributedEdit] = {}
    for edit in edits:
        once.setdefault((edit.at, edit.seq), edit)
    return sorted(once.values(), key=lambda edit: (edit.at, edit.seq))


class _Writers:
    """Maps a request's changes to their authors. Changes by fugu's own evidence runs have none."""

    def __init__(self, session: str, number: int, events: Sequence[Event]) -> None:
        self._name = (session, number)
        self._turns = {event.turn: event for event in events if isinstance(event, Assigned)}
        replies = [event for event in events if isinstance(event, Replied)]
        self._models = {call.id: reply.model for reply in replies for call in reply.calls}
        self._newest = {reply.turn: reply.model for reply in replies}
        self._own = {
            event.call.id
            for event in events
            if isinstance(event, Permitted) and event.by == EVIDENCE
        }

    def of(self, event: Event, at: float) -> LineAuthor | None:
        """Return the author of an event's changes, None without changes.

        Work taken over from a worktree belongs to the turn that was chosen.
        """
        if isinstance(event, Merged):
            number, model = event.chosen, self._newest.get(event.chosen, "")
        elif isinstance(event, ToolRan) and event.call.id not in self._own:
            number, model = event.turn, self._models.get(event.call.id, "")
        else:
            return None
        turn = self._turns.get(number)
        if turn is None or not event.changes:
            return None
        return LineAuthor(*self._name, number, turn.agent, turn.role, model, at)


def lines_of(data: bytes) -> tuple[bytes, ...]:
    """Return the lines, each ended by a newline without `\\r`: git may change line ends when it
    stores or writes a file. Data that is not text counts as one line.
    """
    if b"\0" in data:
        return (data,)
    pieces = data.replace(b"\r\n", b"\n").split(b"\n")
    return tuple(piece + b"\n" for piece in pieces[:-1]) + ((pieces[-1],) if pieces[-1] else ())


def matcher(old: Sequence[bytes], new: Sequence[bytes]) -> SequenceMatcher[bytes]:
    """Return a matcher of the two texts. In long texts the most frequent lines, such as empty ones,
    are not used to find matches: that would take seconds.
    """
    return SequenceMatcher(None, old, new, autojunk=len(old) + len(new) > LONG)


def carry_authors(
    old: AttributedLines, lines: Sequence[bytes], author: LineAuthor | None
) -> AttributedLines:
    """Return the lines; those that `old` has keep their writers, the others are `author`'s."""
    size = min(len(old.lines), len(lines))
    head = next((i for i in range(size) if old.lines[i] != lines[i]), size)
    tail = next((i for i in range(size - head) if old.lines[-1 - i] != lines[-1 - i]), size - head)
    before, after = old.lines[head : len(old.lines) - tail], lines[head : len(lines) - tail]
    middle: list[LineAuthor | None] = [author] * len(after)
    for match in matcher(before, after).get_matching_blocks():
        first = head + match.a
        middle[match.b : match.b + match.size] = old.authors[first : first + match.size]
    kept = old.authors[len(old.lines) - tail :] if tail else ()
    return AttributedLines(tuple(lines), (*old.authors[:head], *middle, *kept))


@dataclass
class BlameTracker:
    """Carries files forward, edit after edit. `contents` holds blobs by id; what is missing makes
    its lines nobody's, and its path is one of `lost`."""

    contents: Mapping[str, bytes]
    states: dict[str, FileState] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    _known: dict[tuple[str, str], AttributedLines] = field(default_factory=dict)
    _anywhere: dict[str, AttributedLines] = field(default_factory=dict)

    def follow(self, edit: AttributedEdit) -> None:
        """Apply the changes of one call."""
        before = {change.path: self._before(change) for change in edit.changes}
        gone = {change.path: before[change.path] for change in edit.changes if change.after is None}
        for change in edit.changes:
            state = before[change.path]
            if change.before is None and change.after is not None and gone:
                state = self._moved(change, gone) or state
            self._after(change, state, edit.author)

    def _before(self, change: FileChange) -> FileState:
        """Return the file as the change found it."""
        path, blob = change.path, change.before
        state = self.states.get(path)
        if state is not None and state.blob == blob:
            return state
        old = state.written if state else AttributedLines()
        if blob is None:
            written = AttributedLines()
        elif (path, blob) in self._known:
            written = self._known[path, blob]
        elif state is None and blob in self._anywhere:
            written = self._anywhere[blob]  # somebody moved or copied it
        elif blob in self.contents:
            written = carry_authors(old, lines_of(self.contents[blob]), None)
        else:
            self.lost.add(path)
            written = AttributedLines()
        return FileState(
            blob, written, state.first if state else written, state.was if state else path
        )

    def _moved(self, change: FileChange, gone: dict[str, FileState]) -> FileState | None:
        """Return the file that was removed in the same call and became this one, None if there is
        none. It is taken out of `gone`.
        """
        data = self.contents.get(change.after or "")
        if not data:
            return None
        lines = lines_of(data)
        similarities = {
            path: matcher(state.written.lines, lines).ratio() for path, state in gone.items()
        }

        def order(path: str) -> tuple[bool, float]:
            return gone[path].blob == change.after, similarities[path]

        most_similar = max(similarities, key=order)
        if similarities[most_similar] < ALIKE:
            return None
        return gone.pop(most_similar)

    def _after(self, change: FileChange, before: FileState, author: LineAuthor) -> None:
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
            self._known[path, blob] = self._anywhere[blob] = written
        self.states[path] = FileState(blob, written, before.first, before.was)

    def now(self, path: str, blob: str, data: bytes) -> AttributedLines:
        """Return the present state of a file, whoever changed it since."""
        state = self.states.get(path)
        if state is not None and state.blob == blob:
            return state.written
        cached = self._known.get((path, blob))
        return cached or carry_authors(
            state.written if state else AttributedLines(), lines_of(data), None
        )


def related_edits(edits: Sequence[AttributedEdit], path: str) -> list[AttributedEdit]:
    """Return the edits a file's lines may come from: its own, and those of files it may have been
    moved or copied from.
    """
    left = {change.after: change.path for edit in edits for change in edit.changes}
    related, related_edits = {path}, []
    for edit in reversed(edits):
        mine = [change for change in edit.changes if change.path in related]
        if not mine:
            continue
        related_edits.append(edit)
        related |= {left[change.before] for change in mine if change.before in left}
        if any(change.before is None for change in mine):
            related |= {change.path for change in edit.changes if change.after is None}
    related_edits.reverse()
    return [
        replace(edit, changes=tuple(c for c in edit.changes if c.path in related))
        for edit in related_edits
    ]


def moved_from(
    edits: Sequence[AttributedEdit], data: bytes, contents: Mapping[str, bytes]
) -> str | None:
    """Return the file whose last contents are most similar to `data`, None if no file is similar.
    This is for a file that no edit names, because somebody may have moved it.
    """
    last = {change.path: change.after for edit in edits for change in edit.changes}
    lines = lines_of(data)
    texts = {
        path: contents[blob] for path, blob in last.items() if blob is not None and blob in contents
    }
    shares = {path: matcher(lines_of(text), lines).ratio() for path, text in texts.items()}
    best = max(shares, key=lambda path: shares[path], default=None)
    return best if best is not None and shares[best] >= ALIKE else None


NamedSession = tuple[str, Sequence[Recorded]]
"""A session's id and its lines."""
LineKind = Literal["same", "added", "removed"]
CONTEXT_LINES = 3
"""Lines shown on each side of a change."""


@dataclass(frozen=True)
class BlameLine:
    """A line of a file or of a diff. `number` counts from 1 in the file it stands in: the old one
    for removed lines.
    """

    kind: LineKind
    number: int
    text: bytes
    author: LineAuthor | None = None


@dataclass(frozen=True)
class TurnShare:
    """A turn, and how many of the lines shown it wrote. What a turn cost is the whole turn's."""

    cost: TurnCost
    lines: int


@dataclass(frozen=True)
class FileBlame:
    """The authors of a file as it is now. `turns` are those that wrote a line of it. `lost`: the
    contents of some changes are gone.
    """

    path: str
    lines: tuple[BlameLine, ...]
    turns: tuple[TurnShare, ...]
    lost: bool = False
    noted: int = 0
    """Lines whose writers git notes tell (commit_blame.py), not the sessions here."""


@dataclass(frozen=True)
class FileDiff:
    """A session's changes to a file, as it left it. `was` is the earlier path. `later`: it has
    changed since.
    """

    path: str
    was: str
    hunks: tuple[tuple[BlameLine, ...], ...]
    binary: bool = False
    lost: bool = False
    later: bool = False


@dataclass(frozen=True)
class SessionBlame:
    """A session's changes, and all its turns: those that wrote nothing cost money too."""

    session: str
    files: tuple[FileDiff, ...]
    turns: tuple[TurnShare, ...]


async def blame_path(
    workspace: Workspace, path: Path, sessions: Sequence[NamedSession]
) -> FileBlame:
    """Return the text file at `path`, links followed. Raises UsageError where there is none in the
    workspace.
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
            what = f"there is no file {path}{_deleted(name, sessions)}"
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


def _deleted(name: str, every: Sequence[NamedSession]) -> str:
    """Describe which agent deleted the file, "" if none did."""
    edits = merged_edits(edit for session in every for edit in attributed_edits(*session))
    newest = next(
        ((e.author, c) for e in reversed(edits) for c in e.changes if c.path == name), None
    )
    if newest is None or newest[1].after is not None:
        return ""
    author = newest[0]
    return (
        f": {author.agent} deleted it in request {author.request}, turn {author.turn} of session "
        f"{author.session}"
    )


async def blame_file(workspace: Workspace, path: str, every: Sequence[NamedSession]) -> FileBlame:
    """Return the file at `path` (from the workspace's root) as it is now, over all these sessions.
    Raises OSError.
    """
    data = (workspace.root / paths.unquoted_path(path)).read_bytes()
    edits = merged_edits(edit for session in every for edit in attributed_edits(*session))
    content, lost = await blame_content(workspace, path, data, edits)
    pairs = zip(content.lines, content.authors, strict=True)
    lines = tuple(
        BlameLine("same", number, text, author)
        for number, (text, author) in enumerate(pairs, start=1)
    )
    turns = [cost for session in every for cost in turn_costs(*session)]
    return FileBlame(path, lines, turn_shares(turns, lines, writing=True), lost)


async def blame_content(
    workspace: Workspace, path: str, data: bytes, edits: Sequence[AttributedEdit]
) -> tuple[AttributedLines, bool]:
    """Return the lines of a content of the file at `path` with their authors, and whether the
    contents of some edits are gone.
    """
    blob = blob_id(data, workspace.history.hash_name)
    source = await _source(workspace, path, edits, data)
    related = related_edits(edits, source)
    tracker = BlameTracker({**await diff.read_contents(workspace, _blobs(related)), blob: data})
    for edit in related:
        tracker.follow(edit)
    return tracker.now(source, blob, data), bool(tracker.lost)


async def _source(
    workspace: Workspace, path: str, made: Sequence[AttributedEdit], data: bytes
) -> str:
    """Return the path itself. If no edit names it, return the path of a removed file that is very
    similar to it, because the user has moved that file.
    """
    last = {change.path: change.after for edit in made for change in edit.changes}
    if path in last:
        return path
    gone = [
        blob
        for name, blob in last.items()
        if blob and not (workspace.root / paths.unquoted_path(name)).exists()
    ]
    return moved_from(made, data, await diff.read_contents(workspace, gone)) or path


async def blame_session(workspace: Workspace, session: NamedSession) -> SessionBlame:
    """Return the part of a session's work that still stands."""
    edits = attributed_edits(*session)
    changed = dict.fromkeys(change.path for edit in edits for change in edit.changes)
    contents: dict[str, bytes] = {}
    for path in changed:
        data = _read(workspace, path)
        if data is not None:
            contents[path] = data
    by_blob = {blob_id(data, workspace.history.hash_name): data for data in contents.values()}
    tracker = BlameTracker({**await diff.read_contents(workspace, _blobs(edits)), **by_blob})
    for edit in edits:
        tracker.follow(edit)
    moved = {state.was for path, state in tracker.states.items() if state.was != path}
    files = []
    for path, state in tracker.states.items():
        if path in moved and state.blob is None:
            continue
        blob = blob_id(contents[path], workspace.history.hash_name) if path in contents else None
        file = _file(path, state, lost=path in tracker.lost, later=blob != state.blob)
        if file is not None:
            files.append(file)
    files.sort(key=lambda file: file.path)
    added = [line for file in files for hunk in file.hunks for line in hunk if line.kind == "added"]
    return SessionBlame(session[0], tuple(files), turn_shares(turn_costs(*session), added))


def _file(path: str, state: FileState, *, lost: bool, later: bool) -> FileDiff | None:
    """Return the changes of a file, None if it is as it was at first."""
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
    turns: Iterable[TurnCost], lines: Iterable[BlameLine], *, writing: bool = False
) -> tuple[TurnShare, ...]:
    """Return every turn with its count, or those alone that wrote some of the lines. A turn that
    went to another agent after a failure counts as two, told apart by the agent.
    """
    counted = Counter(
        (*line.author.place, line.author.agent) for line in lines if line.author is not None
    )
    once = {(*cost.place, cost.agent): cost for cost in turns}
    return tuple(
        TurnShare(cost, counted[key]) for key, cost in once.items() if counted[key] or not writing
    )


def _blobs(edits: Iterable[AttributedEdit]) -> list[str]:
    named = (
        blob for edit in edits for change in edit.changes for blob in (change.before, change.after)
    )
    return list(dict.fromkeys(blob for blob in named if blob is not None))


def _read(workspace: Workspace, path: str) -> bytes | None:
    file: Path = workspace.root / paths.unquoted_path(path)
    try:
        return file.read_bytes() if not file.is_symlink() else str(file.readlink()).encode()
    except OSError:
        return None
