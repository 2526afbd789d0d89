"""The shape of a session: its requests, their turns, each turn's replies and tool runs. Pure folds of the facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fugu_cli.events import (
    EVIDENCE,
    Asked,
    Assigned,
    Change,
    Event,
    Failed,
    Finished,
    Interrupted,
    Masked,
    Member,
    Merged,
    Opened,
    Permitted,
    Replied,
    ToolRan,
    Undone,
)
from fugu_cli.messages import Call


@dataclass(frozen=True)
class Run:
    """One tool call of a turn: judged, and, when it was allowed and came to an end, its result."""

    permitted: Permitted
    result: ToolRan | None

    @property
    def evidence(self) -> bool:
        """Made by fugu itself, not by the agent."""
        return self.permitted.by == EVIDENCE


@dataclass(frozen=True)
class Turn:
    """One turn as the log holds it.

    `facts` are the evidence it opened with and the current draw; draws that were rolled back are only in `draws`, each
    ending with its Undone.
    """

    number: int
    assigned: Assigned
    facts: tuple[Event, ...]
    draws: tuple[tuple[Event, ...], ...] = ()
    runs: tuple[Run, ...] = field(default=())

    @property
    def replies(self) -> tuple[Replied, ...]:
        """The agent's replies in the current draw, oldest first."""
        return tuple(fact for fact in self.facts if isinstance(fact, Replied))

    @property
    def failed(self) -> Failed | None:
        """Set when the agent failed after retries: the turn is closed without an answer."""
        return next((fact for fact in self.facts if isinstance(fact, Failed)), None)

    @property
    def interrupted(self) -> bool:
        """The user cut it: closed without an answer. A cut after the turn's end does not undo it."""
        return any(isinstance(fact, Interrupted) and fact.turn == self.number for fact in self.facts)

    @property
    def text(self) -> str:
        """What the agent said last, "" before its first reply."""
        return self.replies[-1].text if self.replies else ""

    @property
    def concluded(self) -> bool:
        """Its agent came to its last word: that was not cut short, is no refusal, and asks for nothing more."""
        return bool(self.replies) and not self.replies[-1].calls and self.replies[-1].stop == "end"

    @property
    def changes(self) -> tuple[Change, ...]:
        """Files changed in the current draw, in order."""
        return tuple(change for run in self.runs if run.result for change in run.result.changes)

    @property
    def spent(self) -> tuple[Replied, ...]:
        """Every reply that was paid for, those of draws rolled back included."""
        earlier = tuple(fact for draw in self.draws for fact in draw if isinstance(fact, Replied))
        return earlier + self.replies


def request(events: Sequence[Event]) -> Sequence[Event]:
    """The facts of the newest request: from its Asked to the end. Empty before the first."""
    for index in range(len(events) - 1, -1, -1):
        if isinstance(events[index], Asked):
            return events[index:]
    return ()


def requests(events: Sequence[Event]) -> list[Sequence[Event]]:
    """Every request's facts, oldest first."""
    starts = [index for index, event in enumerate(events) if isinstance(event, Asked)]
    return [events[start:end] for start, end in zip(starts, [*starts[1:], len(events)], strict=False)]


def asked(events: Sequence[Event]) -> Asked | None:
    """The newest request itself."""
    facts = request(events)
    return facts[0] if facts and isinstance(facts[0], Asked) else None


def opened(events: Sequence[Event]) -> Opened | None:
    """The newest opening: the session's first line, or a later one where it was continued with another pool."""
    return next((event for event in reversed(events) if isinstance(event, Opened)), None)


def served(events: Sequence[Event]) -> bool:
    """What agents are shown now is what a client of `fugu serve` sent: no prompt is made of the facts."""
    newest = opened(events)
    return newest is not None and newest.served


def pool(events: Sequence[Event]) -> dict[str, Member]:
    """Every agent the session ever had, by name, as it was known last."""
    return {member.name: member for event in events if isinstance(event, Opened) for member in event.pool}


def turns(events: Sequence[Event]) -> tuple[Turn, ...]:
    """The turns of the newest request, oldest first. A fact belongs to the turn it names: turns that are open at the
    same time are interleaved in the log. Facts of no turn (`baseline`) are in none."""
    groups: dict[int, list[Event]] = {}
    for event in request(events):
        number = getattr(event, "turn", 0)
        if isinstance(event, Assigned):
            groups.pop(number, None)  # one that is assigned again is the newest
            groups[number] = [event]
        elif number in groups:
            groups[number].append(event)
    return tuple(_turn(group) for group in groups.values())


def turn_of(events: Sequence[Event], number: int) -> Turn | None:
    """The turn of the newest request with this number."""
    return next((turn for turn in turns(events) if turn.number == number), None)


def before(events: Sequence[Event], turn: Turn) -> Sequence[Event]:
    """The facts as they were when the turn, one of theirs, began."""
    return events[: next(place for place, event in enumerate(events) if event is turn.assigned)]


def lane(events: Sequence[Event], number: int) -> Sequence[Event]:
    """The facts as the turn `number` stands in them, as if it were the newest: without what others, open at the same
    time, did since it began. A worktree of its own is its repository here."""
    start = next((i for i in range(len(events) - 1, -1, -1) if _begins(events[i], number)), None)
    if start is None:
        return events
    later = [e for e in events[start + 1 :] if getattr(e, "turn", number) == number and not isinstance(e, Merged)]
    begin = events[start]
    assert isinstance(begin, Assigned)
    if not later and start == len(events) - 1 and not begin.worktree:
        return events
    own = begin.model_copy(update={"worktree": ""}) if begin.worktree else begin
    return (*events[:start], own, *later)


def _begins(event: Event, number: int) -> bool:
    return isinstance(event, Assigned) and event.turn == number


def _turn(group: list[Event]) -> Turn:
    assigned = group[0]
    assert isinstance(assigned, Assigned)
    opening: list[Event] = []
    draws: list[tuple[Event, ...]] = []
    current: list[Event] = []
    for fact in group[1:]:
        if isinstance(fact, Undone) and fact.turn == assigned.turn:
            draws.append((*current, fact))
            current = []
        elif isinstance(fact, Finished | Undone):
            continue
        elif draws or current or isinstance(fact, Replied):
            current.append(fact)
        else:
            opening.append(fact)
    facts = (*opening, *current)
    return Turn(assigned.turn, assigned, facts, tuple(draws), pair_runs(facts))


def effective(events: Sequence[Event]) -> tuple[Event, ...]:
    """The newest request without the draws that were rolled back and without what was done in worktrees: what the
    working tree is the result of. What was taken over from a worktree is in its Merged. Where the user undid the
    request and it went on, what had changed files until then is left out, and the Undone is there."""
    kept: list[Event] = []
    apart: set[int] = set()
    undone: list[Undone] = []
    for event in request(events):
        if isinstance(event, Undone) and not event.turn:
            undone = undone[:-1] if event.redoes else [*undone, event]
            continue
        if undone and isinstance(event, Assigned | Replied | Permitted):
            kept = [*(fact for fact in kept if not any(getattr(fact, "made", ()))), undone[0]]
            undone = []
        if isinstance(event, Assigned) and event.worktree:
            apart.add(event.turn)
        if isinstance(event, Undone):
            start = next((i for i, fact in enumerate(kept) if _draw_of(fact, event.turn)), len(kept))
            others = [fact for fact in kept[start:] if getattr(fact, "turn", 0) != event.turn]
            kept = [*kept[:start], *others]
        elif getattr(event, "turn", 0) not in apart:
            kept.append(event)
    return tuple(kept)


def _draw_of(fact: Event, turn: int) -> bool:
    return isinstance(fact, Replied) and fact.turn == turn


def pair_runs(facts: Sequence[Event]) -> tuple[Run, ...]:
    """Each Permitted with its ToolRan, where there is one."""
    results = {fact.call.id: fact for fact in facts if isinstance(fact, ToolRan)}
    return tuple(Run(fact, results.get(fact.call.id)) for fact in facts if isinstance(fact, Permitted))


def baseline(events: Sequence[Event]) -> tuple[Run, ...]:
    """Evidence taken before the first turn of the newest request."""
    facts: list[Event] = []
    for event in request(events):
        if isinstance(event, Assigned):
            break
        facts.append(event)
    return pair_runs(facts)


def open_calls(turn: Turn) -> tuple[Call, ...]:
    """Calls of the newest reply that nobody has judged yet, in the order the agent made them."""
    if not turn.replies:
        return ()
    judged = {run.permitted.call.id for run in turn.runs}
    return tuple(call for call in turn.replies[-1].calls if call.id not in judged)


def interrupted_calls(turn: Turn) -> tuple[Call, ...]:
    """Calls that were started and never came back: killed. They are never run again."""
    return tuple(run.permitted.call for run in turn.runs if run.permitted.allowed and run.result is None)


def began(events: Sequence[Event]) -> str:
    """The working tree before the newest request did anything to it, a snapshot's id; "" where it did nothing, and
    outside git."""
    for fact in request(events):
        if isinstance(fact, Asked | Assigned | Permitted) and fact.snapshot:
            return fact.snapshot
    return ""


BUDGET = "budget"
"""The kind of a failure that is none of the agent's: no budget carries its next call."""


def is_budget(why: str) -> bool:
    """Whether an agent is out, for the reason `why`, because it is too dear."""
    return why.startswith(f"{BUDGET}: ")


def failed_agents(events: Sequence[Event]) -> dict[str, str]:
    """Agents that failed in this request, with kind and message: masked until the next one, or until it is opened
    again."""
    failed: dict[str, str] = {}
    for fact in request(events):
        if isinstance(fact, Opened):
            failed.clear()
        elif isinstance(fact, Masked):
            failed = dict(fact.agents)
        elif isinstance(fact, Failed):
            failed[fact.what] = f"{fact.kind}: {fact.message}"
    return failed


def failed_since_reply(events: Sequence[Event]) -> frozenset[str]:
    """Agents that failed in this request after whoever answered last, or with nobody having answered at all."""
    failed: set[str] = set()
    for fact in request(events):
        if isinstance(fact, Opened | Replied):
            failed.clear()
        elif isinstance(fact, Failed):
            failed.add(fact.what)
    return frozenset(failed)


STOPPED = frozenset({"unaccepted", "turn_limit", "budget", "time_limit", "interrupted", "denied", "failed"})
"""Ends that an Opened after them takes back: the request goes on, with other limits, other agents, another key."""


def finished(events: Sequence[Event]) -> Finished | None:
    """How the newest request ended; None while it runs, or where it was stopped and then opened again."""
    again = False
    for event in reversed(request(events)):
        if isinstance(event, Finished):
            return None if again and event.reason in STOPPED else event
        again = again or isinstance(event, Opened)
    return None
