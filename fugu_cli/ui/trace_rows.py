"""The trace as data: the decisions of a finished log as rows, the same rows folded event by event
for a running session, and the session's totals. Pure; no text and no widths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from fugu_cli.app import event_text
from fugu_cli.app.event_text import decision_reason
from fugu_cli.errors import UsageError
from fugu_cli.formatting import first_line, known_cost, sanitize
from fugu_cli.messages import Usage
from fugu_cli.session import costs
from fugu_cli.session.checks import ACCEPTANCE_CHECK, RUN_CHECK
from fugu_cli.session.costs import PaidEvent, has_assumed_price
from fugu_cli.session.events import (
    ROLES,
    Asked,
    Assigned,
    Event,
    Failed,
    Finished,
    Interrupted,
    Member,
    Opened,
    Planned,
    Recorded,
    Replied,
    SteeringGiven,
    ToolRan,
    Undone,
    UndoStarted,
)
from fugu_cli.session.live_events import Live, TextStreamed
from fugu_cli.session.outcome import RUN_TESTS, TESTS_BEFORE, TestOutcome, TestRun
from fugu_cli.session.request_state import RequestState, request_after
from fugu_cli.session.state import SessionState
from fugu_cli.session.tool_facts import ADVISE
from fugu_cli.session.turns import Turn, Verdict
from fugu_cli.session.verdicts import EndLine, end_line, suggested_role
from fugu_cli.ui.request_clock import RequestClock, seconds_ended
from fugu_cli.ui.turn_notes import seconds_waited, turn_note


@dataclass(frozen=True)
class ScoreCell:
    """One row or role of the head in a decision: its probability, or why it was masked. `logit` is
    before any mask.
    """

    name: str
    probability: float | None
    logit: float | None
    masked: str = ""
    chosen: bool = False


@dataclass(frozen=True)
class DecisionRow:
    """One turn. Times are in seconds, money in USD. `reason` leaves out what an earlier row said
    already; `upto` is the number of records up to the turn's end.
    """

    request: int
    turn: Turn
    reason: str
    start: int
    upto: int
    seconds: float
    model_seconds: float
    usage: Usage
    cost: float
    unpriced: bool
    estimated: bool
    verdict: Verdict | None
    tests: TestRun | None
    tests_outcome: TestOutcome | None
    checked: tuple[bool, ...]
    """Each run of an acceptance check: whether it passed."""
    rows: tuple[ScoreCell, ...]
    roles: tuple[ScoreCell, ...]
    effort: str = ""
    """The reasoning effort of the agent, "" for its default."""
    pool: Mapping[str, Member] = field(default_factory=dict)

    @property
    def paid(self) -> str:
        """The cost in words, `unknown` without a price."""
        return known_cost(self.cost, unpriced=self.unpriced, estimated=self.estimated)

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines about what others said in the turn."""
        return tuple(note for event in self.turn.events if (note := turn_note(event)))

    @property
    def advice(self) -> tuple[ToolRan, ...]:
        """The results of its calls of `advise`."""
        results = [run.result for run in self.turn.runs if run.permitted.call.tool == ADVISE.name]
        return tuple(result for result in results if result is not None)

    @property
    def changed(self) -> tuple[str, ...]:
        """The paths that the turn changed, each once."""
        return tuple(dict.fromkeys(change.path for change in self.turn.changes))


@dataclass(frozen=True)
class TracedRequest:
    """A request, numbered from 1: its text, the result of the tests before it, its turns and its
    end.
    """

    number: int
    asked: Asked
    before: TestRun | None
    rows: tuple[DecisionRow, ...]
    end: Finished | None
    end_line: EndLine
    undone: tuple[Undone, ...]
    """Undos and redos before the next request."""
    upto: int


def traced_requests(records: Sequence[Recorded]) -> tuple[TracedRequest, ...]:
    """Return every request of a session, oldest first."""
    events = [record.event for record in records]
    starts = [index for index, event in enumerate(events) if isinstance(event, Asked)]
    ends = [*starts[1:], len(events)] if starts else []
    return tuple(
        _request(records, number, start, end)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True), start=1)
    )


def _request(records: Sequence[Recorded], number: int, start: int, end: int) -> TracedRequest:
    events = [record.event for record in records[:end]]
    request = SessionState(events).request
    assert request.asked is not None
    begins = [index for index in range(start, end) if isinstance(events[index], Assigned)]
    stops = [
        _stop(events, begin, stop) for begin, stop in zip(begins, [*begins[1:], end], strict=False)
    ]
    rows = tuple(
        _row(records, number, begin, stop) for begin, stop in zip(begins, stops, strict=True)
    )
    undone = tuple(
        event for event in events[start:] if isinstance(event, Undone) and not event.turn
    )
    return TracedRequest(
        number,
        request.asked,
        request.first_tests,
        rows,
        request.finished,
        end_line(request),
        undone,
        end,
    )


def _stop(events: Sequence[Event], begin: int, stop: int) -> int:
    """Return the index after a turn's last event. Events of workflow steps and subtasks are mixed
    with those of other turns.
    """
    if not _is_interleaved(events, begin):
        return stop
    assigned = events[begin]
    assert isinstance(assigned, Assigned)
    return 1 + max(
        i for i in range(begin, len(events)) if getattr(events[i], "turn", 0) == assigned.turn
    )


def _is_interleaved(events: Sequence[Event], begin: int) -> bool:
    """Return whether other turns are open during this one: it is a step of a workflow or a subtask,
    or has subtasks.
    """
    assigned, after = events[begin], events[begin + 1 :]
    assert isinstance(assigned, Assigned)
    next_begun = next((event for event in after if isinstance(event, Assigned)), None)
    return bool(
        assigned.plan or assigned.subtask or (next_begun is not None and next_begun.subtask)
    )


def _row(records: Sequence[Recorded], number: int, begin: int, stop: int) -> DecisionRow:
    events = [record.event for record in records[:stop]]
    assigned = events[begin]
    assert isinstance(assigned, Assigned)
    state = SessionState(events)
    if _is_interleaved(events, begin):
        state = state.of_turn(assigned.turn)
    events, pool = state.events, state.pool
    turn = replace(state.request.turns[-1], assigned=assigned)
    first = next(
        index for index in range(len(events) - 1, -1, -1) if isinstance(events[index], Assigned)
    )
    mine = events[first:]
    ran = [event for event in mine if isinstance(event, ToolRan) and event.call.tool == RUN_TESTS]
    last = max(
        (index for index in range(begin, stop) if not _after_turn(records[index].event)),
        default=begin,
    )
    checks = [_checked(event) for event in mine]
    not_worked = sum(map(seconds_waited, mine)) + seconds_ended(records[begin : last + 1])
    tests = None
    if ran:
        tests = TestRun(ran[-1].ok, ran[-1].output, False, turn.number, ran[-1].tests)
    return DecisionRow(
        request=number,
        turn=turn,
        reason=decision_reason(turn.assigned, events[:first]),
        start=begin,
        upto=stop,
        seconds=max(records[last].at - records[begin].at - not_worked, 0.0),
        model_seconds=sum(event.seconds for event in mine if isinstance(event, Replied)),
        usage=sum(costs.usage(mine).values(), Usage()),
        cost=costs.cost(mine, pool),
        unpriced=bool(costs.unpriced(mine, pool)),
        estimated=costs.is_estimated(mine, pool),
        verdict=state.request.verdict(turn),
        tests=tests,
        tests_outcome=state.request.test_outcome(ran[-1]) if ran else None,
        checked=tuple(check for check in checks if check is not None),
        rows=_agent_cells(turn.assigned, state),
        roles=_role_cells(turn.assigned),
        effort=_effort(turn.assigned.agent, state),
        pool=pool,
    )


def _effort(agent: str, state: SessionState) -> str:
    member = state.pool.get(agent)
    return (state.request.effort_for(member) or member.effort) if member is not None else ""


def _after_turn(event: Event) -> bool:
    """Return whether the event belongs to no turn: the request's end, the user's undo, a reopened
    session.
    """
    if isinstance(event, UndoStarted):
        return not event.planned.turn
    return isinstance(event, Finished | Opened) or (isinstance(event, Undone) and not event.turn)


def _checked(event: Event) -> bool | None:
    """Return whether an acceptance check passed, None for other events. Setting one counts as a
    failed run.
    """
    if isinstance(event, ToolRan) and event.call.tool == RUN_CHECK:
        return event.ok
    return (
        False
        if isinstance(event, ToolRan) and event.call.tool == ACCEPTANCE_CHECK and event.ok
        else None
    )


def _agent_cells(event: Assigned, state: SessionState) -> tuple[ScoreCell, ...]:
    scores = event.scores
    if scores is None:
        return ()
    masked = dict(scores.masked)
    member = state.pool.get(event.agent)
    own = {event.agent, member.slot if member else event.agent}
    return tuple(
        _cell(
            name,
            _at(scores.row_probabilities, index),
            _at(scores.row_logits, index),
            masked,
            name in own,
        )
        for index, name in enumerate(scores.rows)
    )


def _role_cells(event: Assigned) -> tuple[ScoreCell, ...]:
    scores = event.scores
    if scores is None or not scores.role_logits:
        return ()
    masked = dict(scores.masked)
    return tuple(
        _cell(
            name,
            _at(scores.role_probabilities, index),
            _at(scores.role_logits, index),
            masked,
            name == event.role,
        )
        for index, name in enumerate(ROLES)
    )


def _cell(
    name: str, probability: float | None, logit: float | None, masked: dict[str, str], chosen: bool
) -> ScoreCell:
    why = masked.get(name, "")
    return ScoreCell(name, None if why else probability, logit, why, chosen)


def _at(values: Sequence[float], index: int) -> float | None:
    return values[index] if index < len(values) else None


REDRAWN_EVERY = 25
"""Pieces of a reply after which its row is drawn again."""
TurnState = Literal["open", "closed", "failed", "cut"]


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
    """A planner's reply: a workflow, or why there is none. `steps` are the turns of each step so
    far.
    """

    request: RequestRow
    planned: Planned
    number: int
    index: int
    cost: float = 0.0
    unpriced: bool = False
    estimated: bool = False
    steps: dict[int, list[TurnRow]] = field(default_factory=dict)


@dataclass
class TurnRow:
    """A turn. `first` and `last` are its lines in the log (seq); `begun` and `ended` seconds since
    the epoch.
    """

    request: RequestRow
    assigned: Assigned
    first: int
    last: int
    begun: float
    ended: float
    waited: float = 0.0
    paused: float = 0.0
    """Seconds between the end of its request and the message with which it went on."""
    tokens: int = 0
    cost: float = 0.0
    unpriced: bool = False
    estimated: bool = False
    writing: int = 0
    ran_tests: ToolRan | None = None
    tests: TestOutcome | None = None
    """The outcome of its newest run of tests."""
    verdict: str = ""
    failure: str = ""
    """The kind of failure that ended it."""
    unavailable: str = ""
    """Agents that could not act when it began, in words."""
    changed_files: bool = False
    state: TurnState = "open"
    plan: PlanRow | None = None
    index: int = 0
    notes: list[str] = field(default_factory=list)
    """Lines about what others said in it (`turn_note`), and a subtask's answer."""
    said_all: bool = False
    """Its newest reply made no calls: what comes now is the tests, if anything."""

    @property
    def seconds(self) -> float:
        """Return the duration in seconds, without waiting for the user."""
        return max(self.ended - self.begun - self.waited - self.paused, 0.0)

    @property
    def probability(self) -> float | None:
        """The probability of the chosen row, None if nothing was computed."""
        scores = self.assigned.scores
        return max(scores.row_probabilities) if scores and scores.row_probabilities else None


TraceRow = RequestRow | PlanRow | TurnRow


class TraceRows:
    """The rows of the trace. Turns of a workflow may be open at the same time; an event belongs to
    the turn that it names.
    """

    def __init__(self) -> None:
        self.rows: list[TraceRow] = []
        self._members: dict[str, Member] = {}
        self._request: RequestRow | None = None
        self._plans: list[PlanRow] = []
        self._open: dict[int, TurnRow] = {}
        self._state = RequestState()
        """The newest request."""
        self._clock = RequestClock()

    def add_item(self, item: Recorded | Live, request: RequestState | None = None) -> int | None:
        """Handle an item of the log. `request`, if given, is the newest request after the item.
        Return the first row that changed.
        """
        if not isinstance(item, Recorded):
            return self._writing(item) if isinstance(item, TextStreamed) else None
        event = item.event
        first = self._first_open(len(self.rows))
        if isinstance(event, Asked):
            self._close(self._open)
        self._state = request or request_after(self._state, event)
        self._clock.add_event(event, item.at)
        match event:
            case Opened():
                self._members |= {member.name: member for member in event.pool}
                return None
            case Asked():
                self._plans = []
                self._request = RequestRow(
                    1 + self._count(), event, item.seq, item.at, len(self.rows)
                )
                self.rows.append(self._request)
            case Planned():
                self._plan(event)
            case Assigned():
                self._begin(item, event)
            case Finished():
                self._close(self._open)
                if self._request is not None:
                    self._request.finished = event
                    self._request.seconds = self._clock.seconds
                    return self._request.index
            case SteeringGiven():
                first = min(first, self._continue_turn(event, item.at))
                self._inside(item)
            case _:
                self._inside(item)
        return max(first - 1, 0) if self.rows else None

    def _continue_turn(self, event: SteeringGiven, at: float) -> int:
        """Open the turn again if its request had ended: a change of its plan. Return its row."""
        request = self._request
        if request is None or request.finished is None:
            return len(self.rows)
        turn = next(
            (
                row
                for row in self.rows[request.index + 1 :]
                if isinstance(row, TurnRow) and row.assigned.turn == event.turn
            ),
            None,
        )
        if turn is None:
            return len(self.rows)
        request.finished = None
        turn.state, turn.said_all = "open", False
        turn.paused += at - turn.ended
        self._open[event.turn] = turn
        return request.index

    def _writing(self, event: TextStreamed) -> int | None:
        turn = self._open.get(event.turn)
        if turn is None:
            return None
        turn.writing += 1
        return self._first_open(len(self.rows) - 1) if turn.writing % REDRAWN_EVERY == 1 else None

    def _first_open(self, default: int) -> int:
        """Return the first row that shows an open turn: its own, or its workflow's."""
        shown = [
            row.index
            for row in self._plans
            if any(turn.plan is row for turn in self._open.values())
        ]
        return min([default, *shown, *(turn.index for turn in self._open.values())])

    def _count(self) -> int:
        return self._request.number if self._request else 0

    def _plan(self, event: Planned) -> None:
        if self._request is None:
            return
        row = PlanRow(self._request, event, len(self._plans) + 1, len(self.rows))
        self._add_cost(row, event)
        self._plans.append(row)
        self.rows.append(self._plans[-1])

    def _add_cost(self, row: PlanRow | TurnRow, event: PaidEvent) -> None:
        member = self._members.get(event.agent)
        row.cost += costs.price(event, member)
        row.unpriced |= member is not None and member.price is None
        row.estimated |= event.usage.is_estimated or has_assumed_price(member)

    def _begin(self, record: Recorded, event: Assigned) -> None:
        if event.subtask is None:
            finished = []
            for number, turn in self._open.items():
                same_plan = event.plan and event.plan == turn.assigned.plan
                if not same_plan or turn.said_all or turn.state != "open":
                    finished.append(number)
            self._close(finished)
        if self._request is None:
            return
        plan = self._plans[event.plan - 1] if 0 < event.plan <= len(self._plans) else None
        turn = TurnRow(self._request, event, record.seq, record.seq, record.at, record.at)
        turn.plan, turn.index = plan, len(self.rows)
        failed_agents = self._state.failed_agents
        turn.unavailable = event_text.unavailable_text(failed_agents, event.seconds_left)
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
        turn.waited += seconds_waited(event)
        if note := turn_note(event):
            turn.notes.append(note)
        if isinstance(event, PaidEvent) and event.agent:
            turn.tokens += event.usage.input + event.usage.output
            self._add_cost(turn, event)
        match event:
            case Replied():
                turn.writing, turn.said_all = 0, not event.calls
            case ToolRan():
                turn.changed_files = turn.changed_files or bool(event.changes)
                if event.call.tool == RUN_TESTS:
                    turn.ran_tests = event
                if turn.ran_tests is not None and event.call.tool in (
                    RUN_TESTS,
                    TESTS_BEFORE,
                ):
                    turn.tests = self._state.test_outcome(turn.ran_tests)
                subtasks = [
                    number
                    for number, open_turn in self._open.items()
                    if _began(event.call.id, open_turn.assigned)
                ]
                for number in subtasks:
                    answer = first_line(event.output, 200)
                    self._open[number].notes.append(f"→ {answer}" if answer else "no answer")
                self._close(subtasks)
            case Failed():
                turn.state, turn.failure = "failed", event.kind
            case Interrupted():
                turn.state = "cut"
            case _:
                return

    def _close(self, numbers: Iterable[int]) -> None:
        """Close these turns and add their verdicts."""
        for number in list(numbers):
            turn = self._open.pop(number)
            if turn.state == "open":
                turn.state = "closed"
            if turn.assigned.role == "verifier" and turn.state == "closed":
                closed = self._state.turn(number)
                turn.verdict = (self._state.verdict(closed) if closed else None) or ""


def find_turn(rows: Sequence[TraceRow], number: int, request: int | None = None) -> TurnRow:
    """Return turn `number` of the newest request, or of `request` (from 1).

    Raises UsageError, which names the turns that exist.
    """
    every = [row.number for row in rows if isinstance(row, RequestRow)]
    if not every:
        raise UsageError(
            "nothing was asked in this session yet", hint="ask something with `fugu run --resume`"
        )
    chosen = every[-1] if request is None else request
    if chosen not in every:
        raise UsageError(f"there is no request {request}", hint=f"the session has {len(every)}")
    turns = [row for row in rows if isinstance(row, TurnRow) and row.request.number == chosen]
    for row in turns:
        if row.assigned.turn == number:
            return row
    numbers = ", ".join(str(row.assigned.turn) for row in turns) or "none"
    raise UsageError(f"request {chosen} has no turn {number}", hint=f"its turns: {numbers}")


def turn_result(row: DecisionRow) -> str:
    """Return the result of a turn in a few words."""
    turn = row.turn
    parts = []
    if turn.failed is not None:
        parts.append(f"failed: {first_line(turn.failed.message, 200)}")
    if turn.interrupted:
        parts.append("interrupted")
    if row.verdict is not None:
        parts.append(event_text.VERDICT_MARKS[row.verdict][0])
    if (role := suggested_role(turn)) is not None:
        parts.append(f"suggests a {role}")
    if row.tests is not None and row.tests_outcome is not None:
        parts.append(f"tests {event_text.test_counts_text(row.tests_outcome, row.tests.output)}")
    if row.checked:
        parts.append(
            f"acceptance check {' -> '.join('pass' if ok else 'FAIL' for ok in row.checked)}"
        )
    if row.changed:
        parts.append(f"changed {', '.join(sanitize(path) for path in row.changed)}")
    if turn.rolled_back:
        parts.append(f"{len(turn.rolled_back)} rolled back")
    works = turn.assigned.role == "worker" and turn.assigned.subtask is None
    return "; ".join(parts) or ("no change" if works else "answered")


def _began(call: str, assigned: Assigned) -> bool:
    return assigned.subtask is not None and assigned.subtask.call == call
