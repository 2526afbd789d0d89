"""The shape of a session: its requests and their turns, and subtasks as logs of their own.

A subtask is a turn that an agent's `task` call began. It reads its own prompt and nothing of the
request around it, so its events are those of a request that asks this prompt alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Literal, NamedTuple

from fugu_cli.messages import Call
from fugu_cli.session.events import (
    Assigned,
    Event,
    Failed,
    FileChange,
    Finished,
    Interrupted,
    Member,
    Merged,
    Permitted,
    Replied,
    ToolRan,
    Undone,
)
from fugu_cli.session.file_effects import net_changes

TASK = "task"
"""The tool whose call begins a subtask. It changes nothing: the subtask's changes are its own events."""
UNABLE = re.compile(r"\s*(\*\*|__|)UNABLE:\1\s*")
"""The beginning of an answer in which an agent gives up."""
BY_FILE = "file"
"""`Assigned.by` of a subtask whose subagent's file names the agent."""


@dataclass(frozen=True)
class CallRecord:
    """One tool call of a turn with its judgement, and its result if it was allowed and ended."""

    permitted: Permitted
    result: ToolRan | None

    @property
    def evidence(self) -> bool:
        """True if fugu made the call, not the agent."""
        return self.permitted.by_fugu


@dataclass(frozen=True)
class Turn:
    """A turn as the log holds it. `subtasks` are the turns that its `task` calls began.
    `rolled_back` is empty but in older logs: events that fugu took back, in parts that each end
    with an Undone. They are not in `events`.
    """

    number: int
    assigned: Assigned
    events: tuple[Event, ...]
    rolled_back: tuple[tuple[Event, ...], ...] = ()
    runs: tuple[CallRecord, ...] = field(default=())
    subtasks: tuple[Turn, ...] = ()

    @cached_property
    def work(self) -> tuple[CallRecord, ...]:
        """The calls of the turn. Calls of its subtasks stand before the `task` call that they
        answer.
        """
        if not self.subtasks:
            return self.runs
        inside: dict[str, list[CallRecord]] = {}
        for subtask in self.subtasks:
            assert subtask.assigned.subtask is not None
            inside.setdefault(subtask.assigned.subtask.call, []).extend(subtask.runs)
        return tuple(
            each for run in self.runs for each in (*inside.get(run.permitted.call.id, ()), run)
        )

    @cached_property
    def replies(self) -> tuple[Replied, ...]:
        """The agent's replies, oldest first."""
        return tuple(event for event in self.events if isinstance(event, Replied))

    @cached_property
    def failed(self) -> Failed | None:
        """Set when the agent failed after retries: the turn is closed without an answer."""
        return next((event for event in self.events if isinstance(event, Failed)), None)

    @cached_property
    def interrupted(self) -> bool:
        """True if the turn was cut before its answer. A cut after the turn's end does not count."""
        return any(
            isinstance(event, Interrupted) and event.turn == self.number for event in self.events
        )

    @cached_property
    def silent_cuts(self) -> int:
        """The number of newest replies in a row that reached their limit of tokens before they said
        a word.
        """
        newest_first = reversed(self.replies)
        return sum(1 for _ in takewhile(is_cut_in_silence, newest_first))

    @cached_property
    def text(self) -> str:
        """The agent's last words, "" before its first reply."""
        return self.replies[-1].text if self.replies else ""

    @cached_property
    def concluded(self) -> bool:
        """True if the agent said its last word: a reply without calls that is neither cut short nor
        a refusal. An empty reply counts only if the turn changed something.
        """
        ended = bool(self.replies) and not self.replies[-1].calls and self.replies[-1].stop == "end"
        return ended and bool(self.text.strip() or self.changes)

    @cached_property
    def unable(self) -> str | None:
        """The reason of a Worker that changed nothing and gave up with `UNABLE:`; None for other
        turns.
        """
        if self.assigned.role != "worker" or not self.concluded or self.changes:
            return None
        return unable_reason(self.text)

    @cached_property
    def changes(self) -> tuple[FileChange, ...]:
        """The net changes of files by the turn and its subtasks, without what was put back."""
        made = (change for run in self.work if run.result for change in run.result.changes)
        return tuple(net_changes(made).values())

    @cached_property
    def spent(self) -> tuple[Replied, ...]:
        """All paid replies, including those that were rolled back."""
        earlier = tuple(
            event for part in self.rolled_back for event in part if isinstance(event, Replied)
        )
        return earlier + self.replies


def is_cut_in_silence(reply: Replied) -> bool:
    """Return whether a reply reached its limit of tokens before it said or called anything."""
    return reply.stop == "length" and not reply.calls and not reply.text.strip()


def call_records(events: Sequence[Event]) -> tuple[CallRecord, ...]:
    """Return each Permitted with its ToolRan, None if the call has no result."""
    judged = [event for event in events if isinstance(event, Permitted)]
    if not judged:
        return ()
    results = {event.call.id: event for event in events if isinstance(event, ToolRan)}
    return tuple([CallRecord(event, results.get(event.call.id)) for event in judged])


class TurnFold:
    """The turns of one request, built as its events arrive.

    An event belongs to the turn it names: turns that are open at the same time are interleaved in
    the log. Only the turn that an event belongs to, and the turn whose subtask that is, are built
    again.
    """

    def __init__(self) -> None:
        self._events: dict[int, list[Event]] = {}
        """The events of each turn and subtask, led by its Assigned."""
        self._parents: dict[int, int] = {}
        """The turns whose calls began subtasks, by the numbers of these."""
        self._built: dict[int, Turn] = {}

    def add(self, event: Event) -> None:
        """Add the next event of the request."""
        number = getattr(event, "turn", 0)
        if isinstance(event, Assigned):
            self._forget(number)
            self._events.pop(number, None)  # a turn that is assigned again is the newest
            self._events[number] = [event]
            self._parents.pop(number, None)
            if event.subtask is not None and event.subtask.turn != number:
                self._parents[number] = event.subtask.turn
        elif number in self._events:
            self._events[number].append(event)
        else:
            return
        self._forget(number)

    def _forget(self, number: int) -> None:
        self._built.pop(number, None)
        self._built.pop(self._parents.get(number, number), None)

    def assigned(self, number: int) -> Assigned | None:
        """Return the assignment of the turn or subtask with this number."""
        events = self._events.get(number)
        return events[0] if events and isinstance(events[0], Assigned) else None

    def turns(self) -> tuple[Turn, ...]:
        """Return the turns, oldest first, each with its subtasks."""
        subtasks: dict[int, list[int]] = {}
        for number in self._events:
            parent = self._parents.get(number)
            if parent in self._events:
                subtasks.setdefault(parent, []).append(number)
        inside = {number for numbers in subtasks.values() for number in numbers}
        return tuple(
            self._turn(number, subtasks.get(number, []))
            for number in self._events
            if number not in inside
        )

    def _turn(self, number: int, subtasks: Sequence[int]) -> Turn:
        if number not in self._built:
            inside = [_turn(self._events[subtask]) for subtask in subtasks]
            self._built[number] = _turn(self._events[number], inside)
        return self._built[number]


def _turn(events: Sequence[Event], subtasks: Sequence[Turn] = ()) -> Turn:
    assigned = events[0]
    assert isinstance(assigned, Assigned)
    opening: list[Event] = []
    rolled_back: list[tuple[Event, ...]] = []
    current: list[Event] = []
    for event in events[1:]:
        if isinstance(event, Undone) and event.turn == assigned.turn:
            rolled_back.append((*current, event))
            current = []
        elif isinstance(event, Finished | Undone):
            continue
        elif rolled_back or current or isinstance(event, Replied):
            current.append(event)
        else:
            opening.append(event)
    kept = (*opening, *current)
    runs = call_records(kept)
    calls = {run.permitted.call.id for run in runs}
    begun = [
        turn
        for turn in subtasks
        if turn.assigned.subtask is not None and turn.assigned.subtask.call in calls
    ]
    return Turn(assigned.turn, assigned, kept, tuple(rolled_back), runs, tuple(begun))


def _has_effects(event: Event) -> bool:
    return isinstance(event, ToolRan | Merged | Undone) and any(event.effects)


class EffectiveFold:
    """Collects the events that led to the present working tree.

    Work that was rolled back is left out. Work in worktrees is left out too, and what was taken
    over from it is in its Merged. If the user undid the request and it went on, earlier changes are
    left out, and the Undone is kept.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._in_worktrees: set[int] = set()
        self._undone: list[Undone] = []

    def add(self, event: Event) -> bool:
        """Add the next event. Return whether earlier events were removed."""
        if isinstance(event, Undone) and not event.turn:
            self._undone = self._undone[:-1] if event.kind == "redo" else [*self._undone, event]
            return False
        rewritten = False
        if self._undone and isinstance(event, Assigned | Replied | Permitted):
            unchanged = [kept for kept in self.events if not _has_effects(kept)]
            self.events = [*unchanged, self._undone[0]]
            self._undone = []
            rewritten = True
        if isinstance(event, Assigned) and event.worktree:
            self._in_worktrees.add(event.turn)
        if isinstance(event, Undone):
            self._leave_out_rolled_back(event.turn)
            return True
        if getattr(event, "turn", 0) not in self._in_worktrees:
            self.events.append(event)
        return rewritten

    def _leave_out_rolled_back(self, turn: int) -> None:
        """Remove the events of a turn and its subtasks from the turn's first reply on."""
        start = 0
        while start < len(self.events):
            event = self.events[start]
            if isinstance(event, Replied) and event.turn == turn:
                break
            start += 1
        rolled_back = {turn}
        for event in self.events[start:]:
            if not isinstance(event, Assigned) or event.subtask is None:
                continue
            if event.subtask.turn == turn:
                rolled_back.add(event.turn)
        kept = [
            event for event in self.events[start:] if getattr(event, "turn", 0) not in rolled_back
        ]
        self.events[start:] = kept


def open_calls(turn: Turn) -> tuple[Call, ...]:
    """Return the calls of the newest reply that have not been judged yet, in the agent's order."""
    if not turn.replies:
        return ()
    judged = {run.permitted.call.id for run in turn.runs}
    return tuple(call for call in turn.replies[-1].calls if call.id not in judged)


def interrupted_calls(turn: Turn) -> tuple[Call, ...]:
    """Return the calls that were started and have no result, also those of subtasks: they were
    killed, and are never run again.
    """
    runs = (run.permitted for run in turn.work if run.permitted.allowed and run.result is None)
    return tuple(permitted.call for permitted in runs if permitted.call.tool != TASK)


def without_effort(members: Mapping[str, Member]) -> tuple[str, ...]:
    """Return the agents whose reasoning effort cannot be set."""
    return tuple(name for name, member in members.items() if not member.reasoning)


STOPPED = frozenset(
    {"unaccepted", "turn_limit", "budget", "time_limit", "interrupted", "denied", "failed"}
)
"""Ends that an Opened after them takes back: the request goes on, with other limits, other agents,
another key.
"""


def unable_reason(text: str) -> str | None:
    """Return the text after `UNABLE:` at the beginning of a text, None if the text begins
    otherwise.
    """
    begun = UNABLE.match(text)
    return None if begun is None else text[begun.end() :].strip()


def may_be_unable(beginning: str) -> bool:
    """Return whether a text that begins like this gives up, or may turn out to when it is complete."""
    text = beginning.lstrip()
    if UNABLE.match(text):
        return True
    return any(f"{emphasis}UNABLE:".startswith(text) for emphasis in ("", "**", "__"))


Verdict = Literal["ACCEPT", "REVISE"]
_MARKS = r"[\s*_#>`\"'“”‘’(\[•–—✅✔☑\uFE0F-]*"
_LEADING = re.compile(
    rf"{_MARKS}(?:verdict\s*[:=]?{_MARKS})?(accept|revise|reject)(?:ed)?(?:\b|(?=_+(?:\W|$)))",
    re.IGNORECASE,
)
_LONE = re.compile(
    r"^[ \t*_`#>]*(?:verdict:[ \t*_`]*)?(ACCEPT|REVISE|REJECT)(?:ED)?[*_`.! \t]*$", re.I | re.M
)


_CLOSING = re.compile(
    r"^[ \t*_`#]*verdict[*_` \t]*:[*_`\" \t]*(accept|revise|reject)(?:ed)?\b[*_`\".:,;!\u2013\u2014 \t-]*",
    re.IGNORECASE | re.MULTILINE,
)
"""A line `VERDICT: ...` behind the reason. One that is quoted does not count."""
_FENCED = re.compile(r"^ {0,3}(```|~~~).*?(?:^ {0,3}\1|\Z)", re.DOTALL | re.MULTILINE)


_AFTER_VERDICT = re.compile(r"[*_`)]*[.,:;!]*[*_`)]*[ \t]*[\u2013\u2014:-]*[ \t]*")
"""Marks behind a verdict on its own line: the end of an emphasis, and what separates the reason."""


class LeadingVerdict(NamedTuple):
    """The verdict at the beginning of a text: its meaning, the word as written, and the text after
    it.
    """

    verdict: Verdict
    written: str
    rest: str


def leading_verdict(text: str) -> LeadingVerdict | None:
    """Read a verdict at the beginning of a text, in any case ("Accepted" counts, REJECT means REVISE).

    Marks of emphasis, headings, lists and quotes, and the label "Verdict:" before it are skipped.
    """
    lead = _LEADING.match(text)
    if lead is None:
        return None
    return LeadingVerdict(
        "ACCEPT" if lead[1].lower() == "accept" else "REVISE", lead[1], text[lead.end() :]
    )


def closing_verdict(text: str) -> tuple[str, Verdict, str] | None:
    """Find the last line `VERDICT: ...` outside of code. Return the text before it, the verdict and
    the text after it; None if there is no such line.
    """
    code = [match.span() for match in _FENCED.finditer(text)]
    verdict = None
    for match in _CLOSING.finditer(text):
        if not any(start <= match.start() < end for start, end in code):
            verdict = match
    if verdict is None:
        return None
    before, behind = text[: verdict.start()].rstrip(), text[verdict.end() :].strip()
    return before, "ACCEPT" if verdict[1].lower() == "accept" else "REVISE", behind


def verdict_of(text: str) -> Verdict:
    """Return the verdict of a text: that of its last line `VERDICT: ...`, else its first word.
    Without these it is ACCEPT if the text says ACCEPT or "I accept" and neither revise nor reject,
    else REVISE.
    """
    if closing := closing_verdict(text):
        return closing[1]
    if lead := leading_verdict(text):
        return lead.verdict
    words = {
        word.lower() for word in re.findall(r"\b(accept|revise|reject)\b", text, re.IGNORECASE)
    }
    is_verdict = re.search(r"\bACCEPT\b|\bI accept\b", text) is not None
    return "ACCEPT" if words == {"accept"} and is_verdict else "REVISE"


def find_verdict(text: str, *, leading: bool) -> tuple[str, Verdict, str] | None:
    """Find the verdict in a Verifier's text. Return the text before it, the verdict and the text
    after it. The verdict stands in a `VERDICT:` line, alone on a line, or, with `leading`, at the
    start of the text.
    """
    if closing := closing_verdict(text):
        return closing
    if leading and (lead := leading_verdict(text)) is not None:
        separator = _AFTER_VERDICT.match(lead.rest)
        assert separator is not None
        return "", lead.verdict, lead.rest[separator.end() :].lstrip("\n")
    match = _LONE.search(text)
    if match is None:
        return None
    return (
        text[: match.start()].rstrip(),
        "ACCEPT" if match[1].upper() == "ACCEPT" else "REVISE",
        text[match.end() :],
    )
