"""`fugu replay`: recorded decisions beside those of another coordinator, and (`--run`) a recorded
request beside the same request carried out again. Text or JSON. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from fugu_cli.app import event_text
from fugu_cli.coordinators import Decision
from fugu_cli.engine.decision_replay import ReplayedDecision
from fugu_cli.formatting import (
    aligned_rows,
    compact_number,
    duration,
    first_line,
    money,
    plural,
    probability,
    sanitize,
)
from fugu_cli.messages import Usage
from fugu_cli.session import views
from fugu_cli.session.costs import PaidEvent
from fugu_cli.session.decision_scores import decision_scores
from fugu_cli.session.events import Asked, Assigned, Event, Finished, Member, Opened, Recorded
from fugu_cli.ui.json_output import routing_object

UNKNOWN = "each decision is made on the session as it was recorded; what would have followed another one is unknown"
HEADER = ("turn", "recorded", "p", "margin", "again", "p", "margin", "of recorded", "same")


@dataclass(frozen=True)
class ReplayReport:
    """All of it: the session's id, who decided then and who decides now, and the turns left out."""

    session: str
    before: str
    now: str
    compared: tuple[ReplayedDecision, ...]
    steps: int = 0


def replay_lines(events: Sequence[Event], report: ReplayReport) -> list[Text]:
    """A table for each request, then how often the two agree."""
    made = [
        Text(
            f"session {report.session}: decided by {report.before}, again by {report.now}; nothing is called",
            "bold",
        ),
        Text(UNKNOWN, "dim"),
    ]
    requests = views.requests(events)
    for number in dict.fromkeys(one.place.request for one in report.compared):
        asked = views.asked(requests[number - 1])
        assert asked is not None
        made += [Text(""), Text(f"request {number}: {first_line(asked.text, 200)}")]
        made += _decision_table(
            [_row(one, events) for one in report.compared if one.place.request == number]
        )
    made.append(Text(""))
    if report.steps:
        words = "turn was a step" if report.steps == 1 else "turns were steps"
        made.append(
            Text(
                f"left out: {report.steps} {words} of a workflow, which nobody decides one by one",
                "dim",
            )
        )
    return [*made, Text(_agreement(report.compared))]


def _agreement(compared: Sequence[ReplayedDecision]) -> str:
    if not compared:
        return "there is no decision to compare"
    agents = [one.same_agent for one in compared if one.same_agent is not None]
    roles = [one.same_role for one in compared if one.same_role is not None]
    same = sum(one.same for one in compared)
    said = f"the same: {same} of {len(compared)} decisions"
    return said + (
        f"; the agent in {sum(agents)} of {len(agents)}, the role in {sum(roles)}" if agents else ""
    )


def _row(one: ReplayedDecision, events: Sequence[Event]) -> list[str]:
    recorded, other = one.place.recorded, one.other
    opened = views.opened(events[: one.place.at])
    then = _confidence(recorded, opened.pool if opened else ())
    now = _confidence(other, one.pool)
    turn = str(recorded.turn) if isinstance(recorded, Assigned) else "end"
    given = now.of(recorded, one.pool) if isinstance(recorded, Assigned) else None
    return [
        turn,
        _decision_text(recorded),
        *then.cells,
        _decision_text(other),
        *now.cells,
        _probability(given),
        _same(one),
    ]


def _decision_text(decision: Decision) -> str:
    match decision:
        case Assigned():
            return f"{decision.agent} {decision.role}"
        case Finished():
            return f"ends: {decision.reason.replace('_', ' ')}"
    return type(decision).__name__.lower()


def _same(one: ReplayedDecision) -> str:
    if one.same:
        return "yes"
    return "agent" if one.same_agent else "role" if one.same_role else "no"


@dataclass(frozen=True)
class _Confidence:
    """How sure a decision was: probability of what was chosen and its lead, where anything was
    weighed.
    """

    probability: float | None = None
    margin: float | None = None
    rows: tuple[tuple[str, float], ...] = ()

    @property
    def cells(self) -> tuple[str, str]:
        return _probability(self.probability), "" if self.margin is None else f"{self.margin:+.3f}"

    def of(self, recorded: Assigned, pool: Sequence[Member]) -> float | None:
        """The probability that was given to the recorded agent's row."""
        names = (recorded.agent, _slot(recorded.agent, pool))
        return next((value for name, value in self.rows if name in names), None)


def _confidence(decision: Decision, pool: Sequence[Member]) -> _Confidence:
    if not isinstance(decision, Assigned):
        return _Confidence()
    slot = _slot(decision.agent, pool)
    found = decision_scores(decision, slot)
    if found is None:
        return _Confidence()
    rows = tuple((row.name, row.after) for row in found.rows)
    chosen = next((value for name, value in rows if name in (decision.agent, slot)), None)
    return _Confidence(chosen, found.lead.margin if found.lead else None, rows)


def _slot(agent: str, pool: Sequence[Member]) -> str:
    return next((member.slot for member in pool if member.name == agent), "")


def _probability(value: float | None) -> str:
    return "" if value is None else probability(value)


def _decision_table(body: Sequence[Sequence[str]]) -> list[Text]:
    """Columns that hold nothing are left out."""
    kept = [i for i in range(len(HEADER)) if any(row[i] for row in body)]
    rows = [[row[i] for i in kept] for row in (HEADER, *body)]
    differs = [row[-1] not in ("yes", HEADER[-1]) for row in rows]
    return [
        Text(line, "yellow" if other else "")
        for line, other in zip(aligned_rows(rows), differs, strict=True)
    ]


def replay_object(events: Sequence[Event], report: ReplayReport) -> dict[str, object]:
    """The same for programs."""
    compared = report.compared
    return {
        "session_id": report.session,
        "recorded_by": report.before,
        "again_by": report.now,
        "note": UNKNOWN,
        "decisions": [_compared_object(one, events) for one in compared],
        "workflow_steps_left_out": report.steps,
        "agreement": {
            "decisions": len(compared),
            "same": sum(one.same for one in compared),
            "with_agents": sum(one.same_agent is not None for one in compared),
            "same_agent": sum(bool(one.same_agent) for one in compared),
            "same_role": sum(bool(one.same_role) for one in compared),
        },
    }


def _compared_object(one: ReplayedDecision, events: Sequence[Event]) -> dict[str, object]:
    opened = views.opened(events[: one.place.at])
    recorded = one.place.recorded
    return {
        "request": one.place.request,
        "turn": recorded.turn if isinstance(recorded, Assigned) else None,
        "recorded": _decision(recorded, opened.pool if opened else ()),
        "again": _decision(one.other, one.pool),
        "same": one.same,
        "same_agent": one.same_agent,
        "same_role": one.same_role,
    }


def _decision(decision: Decision, pool: Sequence[Member]) -> dict[str, object]:
    if not isinstance(decision, Assigned):
        return {
            "next": "finished",
            "reason": decision.reason if isinstance(decision, Finished) else None,
        }
    found = _confidence(decision, pool)
    slot = _slot(decision.agent, pool)
    return {
        "next": "assigned",
        **routing_object(decision),
        "slot": slot,
        "probability": found.probability,
        "margin": found.margin,
    }


@dataclass(frozen=True)
class RerunSide:
    """The result of a recorded request. `reason` is how it ended, "" where it did not; sizes are
    lines of its diff.
    """

    session: str
    coordinator: str
    reason: str
    message: str
    before: views.TestRun | None
    tests: views.TestRun | None
    test_summary: dict[str, object]
    taken: tuple[str, ...]
    calls: int
    usage: Usage
    dollars: float
    seconds: float
    files: int
    added: int
    removed: int

    @property
    def accepted(self) -> bool:
        """It ended as it should: accepted, or answered."""
        return self.reason in {"accepted", "answered"}


@dataclass(frozen=True)
class RerunPair:
    """Both times, numbered in the recorded session; and the file that holds the second one's
    diff.
    """

    request: int
    text: str
    recorded: RerunSide
    again: RerunSide
    patch: str


def rerun_side(session: str, records: Sequence[Recorded], number: int, patch: str) -> RerunSide:
    """Request `number` (from 1) of a session. `patch`: what it changed, as unified diffs."""
    starts = [i for i, record in enumerate(records) if isinstance(record.event, Asked)]
    start, end = starts[number - 1], [*starts[1:], len(records)][number - 1]
    events = [record.event for record in records[:end]]
    mine = events[start:]
    opened = views.opened(
        [*events[:start], *(event for event in mine if isinstance(event, Opened))]
    )
    finish = views.finished(events)
    body = [line for line in patch.splitlines() if not line.startswith(("+++ ", "--- "))]
    return RerunSide(
        session=session,
        coordinator=_deciders(opened.coordinator if opened else "", views.turns(events)),
        reason=finish.reason if finish else "",
        message=finish.message if finish else "",
        before=views.first_tests(events),
        tests=views.tests(events),
        test_summary=views.test_summary(events),
        taken=tuple(f"{turn.assigned.agent} {turn.assigned.role}" for turn in views.turns(events)),
        calls=sum(isinstance(event, PaidEvent) and bool(event.agent) for event in mine),
        usage=sum(views.usage(mine).values(), Usage()),
        dollars=views.cost(mine, views.pool(events)),
        seconds=_ended_at(records[start:end]) - records[start].at,
        files=len(views.changes(events)),
        added=sum(line.startswith("+") for line in body),
        removed=sum(line.startswith("-") for line in body),
    )


def _deciders(coordinator: str, turns: Sequence[views.Turn]) -> str:
    """The coordinator, and the rules that decided in its place."""
    own = coordinator.partition(":")[0]
    rules = [rule for rule in dict.fromkeys(turn.assigned.by for turn in turns) if rule != own]
    return f"{coordinator} (decided: {', '.join(rules)})" if rules else coordinator


def _ended_at(records: Sequence[Recorded]) -> float:
    """When the request was over. What the user did later, such as an undo, took none of its
    time.
    """
    ended = [record.at for record in records if isinstance(record.event, Finished)]
    worked = [record.at for record in records if getattr(record.event, "turn", 0)]
    return (ended or worked or [records[0].at])[-1]


def rerun_lines(pairs: Sequence[RerunPair]) -> list[Text]:
    """One small table for each request, then all of them together where there are several."""
    made: list[Text] = []
    for pair in pairs:
        made += [Text(""), Text(f"request {pair.request}: {first_line(pair.text, 200)}", "bold")]
        made += map(Text, aligned_rows([["", "recorded", "again"], *_compared(pair)]))
        made.append(Text(f"diff: {sanitize(pair.patch)}"))
    return [*made, *(_summed_table(pairs) if len(pairs) > 1 else [])]


def _compared(pair: RerunPair) -> list[list[str]]:
    then, now = _cells(pair.recorded), _cells(pair.again)
    return [[name, then[name], now[name]] for name in then]


def _cells(one: RerunSide) -> dict[str, str]:
    changed = f"{plural(one.files, 'file')}, +{one.added} -{one.removed}"
    return {
        "decided by": one.coordinator,
        "ended": one.reason.replace("_", " ") or "not finished",
        "tests": _tests(one),
        "turns": f"{len(one.taken)}: {', '.join(one.taken)}" if one.taken else "0",
        "model calls": str(one.calls),
        "tokens": f"{compact_number(one.usage.input)} in ({compact_number(one.usage.cached)} cached), "
        f"{compact_number(one.usage.output)} out",
        "cost": money(one.dollars),
        "time": duration(one.seconds),
        "diff": changed if one.files else "nothing changed",
        "session": one.session,
    }


def _tests(one: RerunSide) -> str:
    if one.tests is None:
        return "not run"
    now = event_text.test_counts_text(one.tests.ok, one.tests.output) + (
        " (before the last change)" * one.tests.stale
    )
    return (
        f"{event_text.test_counts_text(one.before.ok, one.before.output)} -> {now}"
        if one.before
        else now
    )


def _summed_table(pairs: Sequence[RerunPair]) -> list[Text]:
    rows = [["all requests", "recorded", "again"]]
    both = [[pair.recorded for pair in pairs], [pair.again for pair in pairs]]
    sums = [
        [
            f"{sum(one.accepted for one in sides)} of {len(sides)}",
            str(sum(len(one.taken) for one in sides)),
            str(sum(one.calls for one in sides)),
            money(sum(one.dollars for one in sides)),
            duration(sum(one.seconds for one in sides)),
        ]
        for sides in both
    ]
    names = ("accepted", "turns", "model calls", "cost", "time")
    rows += [[name, sums[0][i], sums[1][i]] for i, name in enumerate(names)]
    return [Text(""), *map(Text, aligned_rows(rows))]


def rerun_object(session: str, pairs: Sequence[RerunPair]) -> dict[str, object]:
    """The same for programs."""
    return {"session_id": session, "requests": [_pair_object(pair) for pair in pairs]}


def _pair_object(pair: RerunPair) -> dict[str, object]:
    return {
        "request": pair.request,
        "prompt": pair.text,
        "recorded": _side(pair.recorded),
        "again": _side(pair.again),
        "diff": pair.patch,
    }


def _side(one: RerunSide) -> dict[str, object]:
    return {
        "session_id": one.session,
        "coordinator": one.coordinator,
        "accepted": one.accepted,
        "reason": one.reason or None,
        "message": one.message,
        "tests": one.test_summary,
        "turns": list(one.taken),
        "model_calls": one.calls,
        **one.usage.model_dump(),
        "cost_usd": round(one.dollars, 8),
        "seconds": round(one.seconds, 3),
        "files": one.files,
        "lines_added": one.added,
        "lines_removed": one.removed,
    }
