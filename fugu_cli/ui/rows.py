"""The decisions of a session as rows: what each turn was, what it took and what came of it. Pure; no text, no widths.

Under trace.py (plain text, JSON) and the trace panel. Everything is read from the records; nothing is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fugu_cli import views
from fugu_cli.events import ROLES, Asked, Assigned, Event, Finished, Opened, Recorded, Replied, ToolRan, Undone
from fugu_cli.messages import Usage
from fugu_cli.ui.clean import spent
from fugu_cli.ui.render import reason_of


@dataclass(frozen=True)
class Cell:
    """One row or role of the head in a decision: its probability, or why it was masked. `logit` is before any mask."""

    name: str
    probability: float | None
    logit: float | None
    masked: str = ""
    chosen: bool = False


@dataclass(frozen=True)
class Row:
    """One turn. Times in seconds, money in USD.

    `reason` leaves out what an earlier row said already; `upto` counts the records that belong to it and all before.
    """

    request: int
    turn: views.Turn
    reason: str
    start: int
    upto: int
    seconds: float
    model_seconds: float
    usage: Usage
    cost: float
    unpriced: bool
    verdict: str | None
    tests: views.TestRun | None
    checked: tuple[bool, ...]
    """Each run of an acceptance check: whether it passed."""
    rows: tuple[Cell, ...]
    roles: tuple[Cell, ...]

    @property
    def paid(self) -> str:
        """`cost` in words, `unknown` where nobody knows the price."""
        return spent(self.cost, unpriced=self.unpriced)

    @property
    def changed(self) -> tuple[str, ...]:
        """Paths the turn changed, each once."""
        return tuple(dict.fromkeys(change.path for change in self.turn.changes))


@dataclass(frozen=True)
class Request:
    """One request: its text, how the tests stood before it, its turns and its end. Numbered from 1."""

    number: int
    asked: Asked
    before: views.TestRun | None
    rows: tuple[Row, ...]
    end: Finished | None
    end_line: views.EndLine
    undone: tuple[Undone, ...]
    """What the user took back and brought again before the next one."""
    upto: int


def requests(records: Sequence[Recorded]) -> tuple[Request, ...]:
    """Every request of a session, oldest first."""
    events = [record.event for record in records]
    starts = [index for index, event in enumerate(events) if isinstance(event, Asked)]
    ends = [*starts[1:], len(events)] if starts else []
    return tuple(
        _request(records, number, start, end)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True), start=1)
    )


def _request(records: Sequence[Recorded], number: int, start: int, end: int) -> Request:
    events = [record.event for record in records[:end]]
    asked = events[start]
    assert isinstance(asked, Asked)
    begins = [index for index in range(start, end) if isinstance(events[index], Assigned)]
    stops = [_stop(events, begin, stop) for begin, stop in zip(begins, [*begins[1:], end], strict=False)]
    rows = tuple(_row(records, number, begin, stop) for begin, stop in zip(begins, stops, strict=True))
    undone = tuple(event for event in events[start:] if isinstance(event, Undone) and not event.turn)
    return Request(
        number, asked, views.first_tests(events), rows, views.finished(events), views.end_line(events), undone, end
    )


def _stop(events: Sequence[Event], begin: int, stop: int) -> int:
    """The place after a turn's last fact. Steps of a workflow are interleaved with others that are open with them."""
    assigned = events[begin]
    assert isinstance(assigned, Assigned)
    if not assigned.plan:
        return stop
    return 1 + max(i for i in range(begin, len(events)) if getattr(events[i], "turn", 0) == assigned.turn)


def _row(records: Sequence[Recorded], number: int, begin: int, stop: int) -> Row:
    events = [record.event for record in records[:stop]]
    assigned = events[begin]
    assert isinstance(assigned, Assigned)
    events = list(views.lane(events, assigned.turn)) if assigned.plan else events
    turn = replace(views.turns(events)[-1], assigned=assigned)
    mine = events[begin:]
    ran = [event for event in mine if isinstance(event, ToolRan) and event.call.tool == views.RUN_TESTS]
    last = max((index for index in range(begin, stop) if not _after_it(records[index].event)), default=begin)
    return Row(
        request=number,
        turn=turn,
        reason=reason_of(turn.assigned, events[:begin]),
        start=begin,
        upto=stop,
        seconds=records[last].at - records[begin].at,
        model_seconds=sum(event.seconds for event in mine if isinstance(event, Replied)),
        usage=sum(views.usage(mine).values(), Usage()),
        cost=views.cost(mine, views.pool(events)),
        unpriced=bool(views.unpriced(mine, views.pool(events))),
        verdict=views.verdict(events, turn),
        tests=views.TestRun(ran[-1].ok, ran[-1].output, False, turn.number, ran[-1].tests) if ran else None,
        checked=tuple(found for event in mine if (found := _checked(event)) is not None),
        rows=_agent_cells(turn.assigned, events),
        roles=_role_cells(turn.assigned),
    )


def _after_it(event: Event) -> bool:
    """It is no part of a turn: the request's end, the user's undo, the session opened again."""
    return isinstance(event, Finished | Opened) or (isinstance(event, Undone) and not event.turn)


def _checked(event: Event) -> bool | None:
    """An acceptance check was run and passed; None for any other fact. Setting one counts as a run where it failed."""
    if isinstance(event, ToolRan) and event.call.tool in views.RUNS:
        return event.ok
    return False if isinstance(event, ToolRan) and event.call.tool in views.SETS and event.ok else None


def _agent_cells(event: Assigned, events: Sequence[Event]) -> tuple[Cell, ...]:
    scores = event.scores
    if scores is None:
        return ()
    masked = dict(scores.masked)
    member = views.pool(events).get(event.agent)
    own = {event.agent, member.slot if member else event.agent}
    return tuple(
        _cell(name, _at(scores.row_probabilities, index), _at(scores.row_logits, index), masked, name in own)
        for index, name in enumerate(scores.rows)
    )


def _role_cells(event: Assigned) -> tuple[Cell, ...]:
    scores = event.scores
    if scores is None or not scores.role_logits:
        return ()
    masked = dict(scores.masked)
    return tuple(
        _cell(name, _at(scores.role_probabilities, index), _at(scores.role_logits, index), masked, name == event.role)
        for index, name in enumerate(ROLES)
    )


def _cell(name: str, probability: float | None, logit: float | None, masked: dict[str, str], chosen: bool) -> Cell:
    why = masked.get(name, "")
    return Cell(name, None if why else probability, logit, why, chosen)


def _at(values: Sequence[float], index: int) -> float | None:
    return values[index] if index < len(values) else None
