"""Blame: the lines of a file, or of what a session changed, with the turn that wrote each and what it took.

Above the logs and the workspace that keeps the contents; views/blame.py does the carrying, ui/blame.py the showing.
Changes nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fugu_cli import contents
from fugu_cli.errors import UsageError
from fugu_cli.events import Recorded
from fugu_cli.policy import paths
from fugu_cli.tools.blobs import blob_id
from fugu_cli.tools.workspace import Workspace
from fugu_cli.views.blame import Author, Edit, Follower, State, Written, edits, matcher, moved_from, together, touching
from fugu_cli.views.turn_costs import TurnCost, turn_costs

Named = tuple[str, Sequence[Recorded]]
"""A session's id and its lines."""
Kind = Literal["same", "added", "removed"]
AROUND = 3
"""Lines shown on each side of a change."""


@dataclass(frozen=True)
class Line:
    """A line of a file or of a diff. `number` counts from 1 in the file it stands in: the old one for removed lines."""

    kind: Kind
    number: int
    text: bytes
    author: Author | None = None


@dataclass(frozen=True)
class Share:
    """A turn, and how many of the lines shown it wrote. What a turn cost is the whole turn's."""

    cost: TurnCost
    lines: int


@dataclass(frozen=True)
class FileBlame:
    """A file as it is now. `turns` are those that wrote a line of it; `lost`: contents of some change are gone."""

    path: str
    lines: tuple[Line, ...]
    turns: tuple[Share, ...]
    lost: bool = False


@dataclass(frozen=True)
class FileDiff:
    """What a session made of a file, as it left it. `was`: where it stood before. `later`: it is not like that now."""

    path: str
    was: str
    hunks: tuple[tuple[Line, ...], ...]
    binary: bool = False
    lost: bool = False
    later: bool = False


@dataclass(frozen=True)
class SessionBlame:
    """What a session changed, with all its turns: those that wrote nothing were paid for, too."""

    session: str
    files: tuple[FileDiff, ...]
    turns: tuple[Share, ...]


async def of_path(workspace: Workspace, path: Path, sessions: Sequence[Named]) -> FileBlame:
    """The text file at `path`, links followed. Raises UsageError where there is none in the workspace."""
    found = Path(os.path.realpath(path))
    if not paths.inside(found, workspace.root):
        raise UsageError(f"{path} is not in {workspace.root}", hint="blame a file in its own repository")
    name = paths.shown(found.relative_to(workspace.root).as_posix())
    try:
        if found.is_dir():
            hint = "name a file; without one the newest session's changes are shown"
            raise UsageError(f"{path} is a folder", hint=hint)
        if not found.exists():
            what = f"there is no file {path}{_deleted(name, sessions)}"
            raise UsageError(what, hint="without a path the diff is shown")
        made = await of_file(workspace, name, sessions)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint="check the file's permissions") from error
    if any(b"\0" in line.text for line in made.lines):
        raise UsageError(f"{path} is binary and has no lines", hint="without a path the newest session's diff is shown")
    return made


def _deleted(name: str, every: Sequence[Named]) -> str:
    """Who deleted it, where that was an agent."""
    found = together(edit for session in every for edit in edits(*session))
    newest = next(((e.author, c) for e in reversed(found) for c in e.changes if c.path == name), None)
    if newest is None or newest[1].after is not None:
        return ""
    author = newest[0]
    return f": {author.agent} deleted it in request {author.request}, turn {author.turn} of session {author.session}"


async def of_file(workspace: Workspace, path: str, every: Sequence[Named]) -> FileBlame:
    """The file at `path` (from the workspace's root) as it is now, over all these sessions. Raises OSError."""
    data = (workspace.root / paths.actual(path)).read_bytes()
    blob = blob_id(data, workspace.hash_name)
    made = together(edit for session in every for edit in edits(*session))
    source = await _source(workspace, path, made, data)
    found = touching(made, source)
    known = Follower({**await contents.several(workspace, _blobs(found)), blob: data})
    for edit in found:
        known.follow(edit)
    now = known.now(source, blob, data)
    pairs = zip(now.lines, now.authors, strict=True)
    lines = tuple(Line("same", number, text, author) for number, (text, author) in enumerate(pairs, start=1))
    turns = [cost for session in every for cost in turn_costs(*session)]
    shares = tuple(share for share in _shares(turns, lines) if share.lines)
    return FileBlame(path, lines, shares, bool(known.lost))


async def _source(workspace: Workspace, path: str, made: Sequence[Edit], data: bytes) -> str:
    """The path itself; where no edit names it, that of a file which is gone and much like it: the user moved it."""
    last = {change.path: change.after for edit in made for change in edit.changes}
    if path in last:
        return path
    gone = [blob for name, blob in last.items() if blob and not (workspace.root / paths.actual(name)).exists()]
    return moved_from(made, data, await contents.several(workspace, gone)) or path


async def of_session(workspace: Workspace, session: Named) -> SessionBlame:
    """What stands of what a session did, as it left it."""
    found = edits(*session)
    changed = dict.fromkeys(change.path for edit in found for change in edit.changes)
    there = {path: data for path in changed if (data := _read(workspace, path)) is not None}
    now = {blob_id(data, workspace.hash_name): data for data in there.values()}
    known = Follower({**await contents.several(workspace, _blobs(found)), **now})
    for edit in found:
        known.follow(edit)
    moved = {state.was for path, state in known.states.items() if state.was != path}
    files = []
    for path, state in known.states.items():
        if path in moved and state.blob is None:
            continue
        left = blob_id(there[path], workspace.hash_name) if path in there else None
        if made := _file(path, state, (path in known.lost, left != state.blob)):
            files.append(made)
    files.sort(key=lambda file: file.path)
    added = [line for file in files for hunk in file.hunks for line in hunk if line.kind == "added"]
    return SessionBlame(session[0], tuple(files), tuple(_shares(turn_costs(*session), added)))


def _file(path: str, state: State, said: tuple[bool, bool]) -> FileDiff | None:
    """None where the file is as it was at first."""
    lost, later = said
    hunks = tuple(_hunks(state.first, state.written))
    if not hunks and path == state.was and not lost:
        return None
    binary = any(b"\0" in line for side in (state.first, state.written) for line in side.lines)
    return FileDiff(path, state.was, hunks, binary, lost, later)


def _hunks(old: Written, new: Written) -> Iterable[tuple[Line, ...]]:
    if old.lines == new.lines:
        return
    for group in matcher(old.lines, new.lines).get_grouped_opcodes(AROUND):
        lines: list[Line] = []
        for tag, first, last, start, end in group:
            if tag == "equal":
                lines += [Line("same", i + 1, new.lines[i]) for i in range(start, end)]
                continue
            lines += [Line("removed", i + 1, old.lines[i]) for i in range(first, last)]
            lines += [Line("added", i + 1, new.lines[i], new.authors[i]) for i in range(start, end)]
        yield tuple(lines)


def _shares(turns: Iterable[TurnCost], lines: Iterable[Line]) -> list[Share]:
    """Every turn with its count. One that went to another agent, the first having failed, is two: the writer's name
    tells them apart."""
    counted = Counter((*line.author.place, line.author.agent) for line in lines if line.author is not None)
    once = {(*cost.place, cost.agent): cost for cost in turns}
    return [Share(cost, counted[key]) for key, cost in once.items()]


def _blobs(found: Iterable[Edit]) -> list[str]:
    named = (blob for edit in found for change in edit.changes for blob in (change.before, change.after))
    return list(dict.fromkeys(blob for blob in named if blob is not None))


def _read(workspace: Workspace, path: str) -> bytes | None:
    file: Path = workspace.root / paths.actual(path)
    try:
        return file.read_bytes() if not file.is_symlink() else str(file.readlink()).encode()
    except OSError:
        return None
