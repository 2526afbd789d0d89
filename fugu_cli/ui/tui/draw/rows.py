"""The trace as rows: one for every request, workflow and turn, folded from the log line by line.

Under the trace panel and the trace view. A row knows which lines of the log it came from, so that its detail can be
built when somebody opens it (detail.py). Adding a line costs the same in a long session as in a short one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from fugu_cli import views
from fugu_cli.events import (
    Asked,
    Assigned,
    Event,
    Failed,
    Finished,
    Interrupted,
    Live,
    Member,
    Opened,
    Planned,
    Recorded,
    Replied,
    Said,
    ToolRan,
    Undone,
)

TOLD = 25
"""Pieces of a reply after which its row is drawn again."""
State = Literal["open", "closed", "failed", "cut"]


@dataclass
class RequestRow:
    """A request. `index` is its place among the rows."""

    number: int
    asked: Asked
    first: int
    at: float
    index: int = 0
    finished: Finished | None = None
    seconds: float = 0.0


@dataclass
class PlanRow:
    """A planner's reply: a workflow, or why there is none. `steps` are the turns spent on each step so far."""

    request: RequestRow
    planned: Planned
    number: int
    index: int
    cost: float = 0.0
    unpriced: bool = False
    steps: dict[int, list[TurnRow]] = field(default_factory=dict)


@dataclass
class TurnRow:
    """A turn. `first` and `last` are its lines in the log (seq); `begun` and `ended` seconds since the epoch."""

    request: RequestRow
    assigned: Assigned
    first: int
    last: int
    begun: float
    ended: float
    tokens: int = 0
    cost: float = 0.0
    unpriced: bool = False
    writing: int = 0
    draws: int = 0
    tests: bool | None = None
    verdict: str = ""
    state: State = "open"
    plan: PlanRow | None = None
    index: int = 0
    said_all: bool = False
    """Its newest reply made no calls: what comes now is the tests, if anything."""

    @property
    def probability(self) -> float | None:
        """Of the row the head chose; None where nothing was computed."""
        scores = self.assigned.scores
        return max(scores.row_probabilities) if scores and scores.row_probabilities else None


Row = RequestRow | PlanRow | TurnRow


class Rows:
    """The rows so far; `take` grows them and says from which on something changed.

    Turns of a workflow may be open at the same time: a fact belongs to the turn it names.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._members: dict[str, Member] = {}
        self._request: RequestRow | None = None
        self._plans: list[PlanRow] = []
        self._open: dict[int, TurnRow] = {}
        self._facts: list[Event] = []
        self._opened: Opened | None = None

    def take(self, item: Recorded | Live) -> int | None:
        """One item of the log. Returns the first row that changed."""
        if not isinstance(item, Recorded):
            return self._writing(item) if isinstance(item, Said) else None
        event = item.event
        self._facts.append(event)
        first = self._first_open(len(self.rows))
        match event:
            case Opened():
                self._opened = event
                self._members |= {member.name: member for member in event.pool}
                return None
            case Asked():
                self._close(self._open)
                self._plans = []
                self._facts = [*([self._opened] if self._opened else []), event]
                self._request = RequestRow(1 + self._count(), event, item.seq, item.at, len(self.rows))
                self.rows.append(self._request)
            case Planned():
                self._plan(event)
            case Assigned():
                self._begin(item, event)
            case Finished():
                self._close(self._open)
                if self._request is not None:
                    self._request.finished = event
                    self._request.seconds = item.at - self._request.at
                    return self._request.index
            case _:
                self._inside(item)
        return max(first - 1, 0) if self.rows else None

    def _writing(self, said: Said) -> int | None:
        turn = self._open.get(said.turn)
        if turn is None:
            return None
        turn.writing += 1
        return self._first_open(len(self.rows) - 1) if turn.writing % TOLD == 1 else None

    def _first_open(self, default: int) -> int:
        """The first row that an open turn is drawn in: its own, or its workflow's."""
        shown = [row.index for row in self._plans if any(turn.plan is row for turn in self._open.values())]
        return min([default, *shown, *(turn.index for turn in self._open.values())])

    def _count(self) -> int:
        return self._request.number if self._request else 0

    def _plan(self, event: Planned) -> None:
        if self._request is None:
            return
        cost, unpriced = self._cost(event)
        self._plans.append(PlanRow(self._request, event, len(self._plans) + 1, len(self.rows), cost, unpriced))
        self.rows.append(self._plans[-1])

    def _cost(self, event: Planned | Replied) -> tuple[float, bool]:
        """USD, and whether nobody knows the price."""
        member = self._members.get(event.agent)
        return views.price(event, member), member is not None and member.price is None

    def _begin(self, record: Recorded, event: Assigned) -> None:
        over = [n for n, turn in self._open.items() if event.plan != turn.assigned.plan or not event.plan]
        over += [n for n, turn in self._open.items() if n not in over and (turn.said_all or turn.state != "open")]
        self._close(over)
        if self._request is None:
            return
        plan = self._plans[event.plan - 1] if 0 < event.plan <= len(self._plans) else None
        turn = TurnRow(self._request, event, record.seq, record.seq, record.at, record.at)
        turn.plan, turn.index = plan, len(self.rows)
        if plan is not None:
            plan.steps.setdefault(event.step, []).append(turn)
        self._open[event.turn] = turn
        self.rows.append(turn)

    def _inside(self, record: Recorded) -> None:
        event = record.event
        turn = self._open.get(getattr(event, "turn", 0))
        if turn is None or turn.state != "open":
            return
        turn.last, turn.ended = record.seq, record.at
        match event:
            case Replied():
                turn.tokens += event.usage.input + event.usage.output
                cost, unpriced = self._cost(event)
                turn.cost, turn.unpriced = turn.cost + cost, turn.unpriced or unpriced
                turn.writing, turn.said_all = 0, not event.calls
            case ToolRan():
                if event.call.tool == views.RUN_TESTS:
                    turn.tests = event.ok
            case Undone():
                turn.draws += 1
            case Failed():
                turn.state = "failed"
            case Interrupted():
                turn.state = "cut"
            case _:
                return

    def _close(self, numbers: Iterable[int]) -> None:
        """These turns are over: now their verdicts are known."""
        for number in list(numbers):
            turn = self._open.pop(number)
            if turn.state == "open":
                turn.state = "closed"
            if turn.assigned.role == "verifier" and turn.state == "closed":
                found = views.turn_of(self._facts, number)
                verdict = views.verdict(self._facts, found) if found else None
                turn.verdict = verdict or ""
