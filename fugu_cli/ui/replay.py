"""`fugu replay`: recorded decisions beside those of another coordinator, as text or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from fugu_cli.coordinators import Decision
from fugu_cli.engine.decision_replay import ReplayedDecision
from fugu_cli.formatting import (
    aligned_rows,
    first_line,
    probability,
)
from fugu_cli.session.decision_scores import decision_scores
from fugu_cli.session.events import Assigned, Event, Finished, Member
from fugu_cli.session.state import SessionState
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


def replay_lines(state: SessionState, report: ReplayReport) -> list[Text]:
    """Return a table for each request, then how often the two agree."""
    made = [
        Text(
            f"session {report.session}: decided by {report.before}, again by {report.now}; nothing is called",
            "bold",
        ),
        Text(UNKNOWN, "dim"),
    ]
    for number in dict.fromkeys(one.place.request for one in report.compared):
        asked = state.requests[number - 1].asked
        assert asked is not None
        made += [Text(""), Text(f"request {number}: {first_line(asked.text, 200)}")]
        made += _decision_table(
            [_row(one, state.events) for one in report.compared if one.place.request == number]
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
    opened = SessionState(events[: one.place.at]).opened
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
    """The probability of the chosen option and its lead over the next one. None for a rule."""

    probability: float | None = None
    margin: float | None = None
    rows: tuple[tuple[str, float], ...] = ()

    @property
    def cells(self) -> tuple[str, str]:
        return _probability(self.probability), "" if self.margin is None else f"{self.margin:+.3f}"

    def of(self, recorded: Assigned, pool: Sequence[Member]) -> float | None:
        """Return the probability of the recorded agent's row."""
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
    """Return the table without its empty columns."""
    kept = [i for i in range(len(HEADER)) if any(row[i] for row in body)]
    rows = [[row[i] for i in kept] for row in (HEADER, *body)]
    differs = [row[-1] not in ("yes", HEADER[-1]) for row in rows]
    return [
        Text(line, "yellow" if other else "")
        for line, other in zip(aligned_rows(rows), differs, strict=True)
    ]


def replay_object(events: Sequence[Event], report: ReplayReport) -> dict[str, object]:
    """Return the comparison for programs."""
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
    opened = SessionState(events[: one.place.at]).opened
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
