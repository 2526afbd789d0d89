"""Who wrote which line: recorded changes carried forward over the contents they name. Pure.

A line keeps its writer as long as each recorded change, and each edit nobody recorded, leaves it as it is. What is not
recorded is found by comparing contents, never by line numbers: where a change does not begin with the content the one
before it left, somebody else wrote in between. Knows no store and no screen: contents are handed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher

from fugu_cli.events import EVIDENCE, Assigned, Change, Event, Merged, Permitted, Recorded, Replied, Role, ToolRan
from fugu_cli.views.standing import standing
from fugu_cli.views.turns import effective, requests

ALIKE = 0.5
"""Share of equal lines from which a file that appears where another one goes counts as that one, moved."""
LONG = 2000
"""Lines of two texts together that are too many to compare every one with every other."""


@dataclass(frozen=True)
class Author:
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
        """The turn, among all sessions."""
        return (self.session, self.request, self.turn)


@dataclass(frozen=True)
class Edit:
    """Files that one call changed, and whose call it was."""

    author: Author
    changes: tuple[Change, ...]
    at: float
    seq: int


@dataclass(frozen=True)
class Written:
    """A content by lines, with each line's writer; None where no recorded change wrote it."""

    lines: tuple[bytes, ...] = ()
    authors: tuple[Author | None, ...] = ()


@dataclass(frozen=True)
class State:
    """A file after the changes so far: the blob it is (None: it does not exist) and its lines. `first` is what it was
    before the first of them; `was` its path then, where it was moved since."""

    blob: str | None
    written: Written
    first: Written
    was: str


def edits(session: str, records: Sequence[Recorded]) -> list[Edit]:
    """The changes agents made in a session, oldest first, without undone requests and draws that were rolled back."""
    at = {id(record.event): record for record in records}
    events = [record.event for record in records]
    every, found = requests(events), []
    for place in standing(events).requests:
        writers = _Writers(session, place + 1, every[place])
        for fact in effective(every[place]):
            author = writers.of(fact, at[id(fact)].at)
            if author is not None and isinstance(fact, ToolRan | Merged):
                found.append(Edit(author, fact.changes, author.at, at[id(fact)].seq))
    return found


def together(found: Iterable[Edit]) -> list[Edit]:
    """Those of several sessions in the order of time; what a forked session repeats of its original counts once."""
    once: dict[tuple[float, int], Edit] = {}
    for edit in found:
        once.setdefault((edit.at, edit.seq), edit)
    return sorted(once.values(), key=lambda edit: (edit.at, edit.seq))


class _Writers:
    """Whose a request's changes are. What fugu ran itself, as evidence, is nobody's."""

    def __init__(self, session: str, number: int, facts: Sequence[Event]) -> None:
        self._name = (session, number)
        self._turns = {fact.turn: fact for fact in facts if isinstance(fact, Assigned)}
        replies = [fact for fact in facts if isinstance(fact, Replied)]
        self._models = {call.id: reply.model for reply in replies for call in reply.calls}
        self._newest = {reply.turn: reply.model for reply in replies}
        self._own = {fact.call.id for fact in facts if isinstance(fact, Permitted) and fact.by == EVIDENCE}

    def of(self, fact: Event, at: float) -> Author | None:
        """Who made the changes of this fact; None where there are none. What was taken over from a worktree is the
        work of the turn that was chosen."""
        if isinstance(fact, Merged):
            number, model = fact.chosen, self._newest.get(fact.chosen, "")
        elif isinstance(fact, ToolRan) and fact.call.id not in self._own:
            number, model = fact.turn, self._models.get(fact.call.id, "")
        else:
            return None
        turn = self._turns.get(number)
        if turn is None or not fact.changes:
            return None
        return Author(*self._name, number, turn.agent, turn.role, model, at)


def lines_of(data: bytes) -> tuple[bytes, ...]:
    """Lines with their ends, which are newlines alone; what is no text counts as one line."""
    if b"\0" in data:
        return (data,)
    pieces = data.split(b"\n")
    return tuple(piece + b"\n" for piece in pieces[:-1]) + ((pieces[-1],) if pieces[-1] else ())


def matcher(old: Sequence[bytes], new: Sequence[bytes]) -> SequenceMatcher[bytes]:
    """Compares lines; in long texts the commonest ones, such as empty ones, begin no match (it takes seconds)."""
    return SequenceMatcher(None, old, new, autojunk=len(old) + len(new) > LONG)


def carried(old: Written, lines: Sequence[bytes], author: Author | None) -> Written:
    """`lines`, where those of `old` keep their writers and the others are `author`'s."""
    size = min(len(old.lines), len(lines))
    head = next((i for i in range(size) if old.lines[i] != lines[i]), size)
    tail = next((i for i in range(size - head) if old.lines[-1 - i] != lines[-1 - i]), size - head)
    before, after = old.lines[head : len(old.lines) - tail], lines[head : len(lines) - tail]
    middle: list[Author | None] = [author] * len(after)
    for match in matcher(before, after).get_matching_blocks():
        first = head + match.a
        middle[match.b : match.b + match.size] = old.authors[first : first + match.size]
    kept = old.authors[len(old.lines) - tail :] if tail else ()
    return Written(tuple(lines), (*old.authors[:head], *middle, *kept))


@dataclass
class Follower:
    """Carries files forward, edit after edit. `contents` holds blobs by id; what is missing makes its lines nobody's,
    and its path is one of `lost`."""

    contents: Mapping[str, bytes]
    states: dict[str, State] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    _known: dict[tuple[str, str], Written] = field(default_factory=dict)
    _anywhere: dict[str, Written] = field(default_factory=dict)

    def follow(self, edit: Edit) -> None:
        """One call's changes."""
        before = {change.path: self._before(change) for change in edit.changes}
        gone = {change.path: before[change.path] for change in edit.changes if change.after is None}
        for change in edit.changes:
            now = before[change.path]
            if change.before is None and change.after is not None and gone:
                now = self._moved(change, gone) or now
            self._after(change, now, edit.author)

    def _before(self, change: Change) -> State:
        """The file as the change found it."""
        path, blob = change.path, change.before
        state = self.states.get(path)
        if state is not None and state.blob == blob:
            return state
        old = state.written if state else Written()
        if blob is None:
            written = Written()
        elif (path, blob) in self._known:
            written = self._known[path, blob]
        elif state is None and blob in self._anywhere:
            written = self._anywhere[blob]  # somebody moved or copied it
        elif blob in self.contents:
            written = carried(old, lines_of(self.contents[blob]), None)
        else:
            self.lost.add(path)
            written = Written()
        return State(blob, written, state.first if state else written, state.was if state else path)

    def _moved(self, change: Change, gone: dict[str, State]) -> State | None:
        """The file that went in the same call and is this one, if any; it is taken out of `gone`."""
        data = self.contents.get(change.after or "")
        if not data:
            return None
        lines = lines_of(data)
        shares = {path: matcher(state.written.lines, lines).ratio() for path, state in gone.items()}
        path = max(shares, key=lambda one: (gone[one].blob == change.after, shares[one]))
        return gone.pop(path) if shares[path] >= ALIKE else None

    def _after(self, change: Change, before: State, author: Author) -> None:
        path, blob = change.path, change.after
        if blob is None:
            written = Written()
        elif blob in self.contents and (change.before is None or change.before in self.contents):
            written = carried(before.written, lines_of(self.contents[blob]), author)
        else:
            self.lost.add(path)
            lines = lines_of(self.contents.get(blob, b""))
            written = Written(lines, (None,) * len(lines))
        if blob is not None:
            self._known[path, blob] = self._anywhere[blob] = written
        self.states[path] = State(blob, written, before.first, before.was)

    def now(self, path: str, blob: str, data: bytes) -> Written:
        """The file as it is at last, whoever changed it since."""
        state = self.states.get(path)
        if state is not None and state.blob == blob:
            return state.written
        known = self._known.get((path, blob))
        return known or carried(state.written if state else Written(), lines_of(data), None)


def touching(found: Sequence[Edit], path: str) -> list[Edit]:
    """The edits a file's lines may come from: its own, and those of files it may have been moved or copied from."""
    left = {change.after: change.path for edit in found for change in edit.changes}
    wanted, kept = {path}, []
    for edit in reversed(found):
        mine = [change for change in edit.changes if change.path in wanted]
        if not mine:
            continue
        kept.append(edit)
        wanted |= {left[change.before] for change in mine if change.before in left}
        if any(change.before is None for change in mine):
            wanted |= {change.path for change in edit.changes if change.after is None}
    kept.reverse()
    return [replace(edit, changes=tuple(c for c in edit.changes if c.path in wanted)) for edit in kept]


def moved_from(found: Sequence[Edit], data: bytes, contents: Mapping[str, bytes]) -> str | None:
    """The file among those that are given with their last contents which `data` is most like, if it is alike at all.

    For a file that no edit names: somebody may have moved it.
    """
    last = {change.path: change.after for edit in found for change in edit.changes}
    lines = lines_of(data)
    texts = {path: contents[blob] for path, blob in last.items() if blob is not None and blob in contents}
    shares = {path: matcher(lines_of(text), lines).ratio() for path, text in texts.items()}
    best = max(shares, key=lambda path: shares[path], default=None)
    return best if best is not None and shares[best] >= ALIKE else None
