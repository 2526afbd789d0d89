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
    """The result of a replay: the session's id, its coordinator then and now, and the turns that
    were left out.
    """

    session: str
    before: str
    again_by: str
    compared: tuple[ReplayedDecision, ...]
    steps: int = 0


def replay_lines(state: SessionState, report: ReplayReport) -> list[Text]:
    """Return a table for each request, then how often the two agree."""
    lines = [
        Text(
            f"session {report.session}: decided by {report.before}, again by {report.again_by}; nothing is called",
            "bold",
        ),
        Text(UNKNOWN, "dim"),
    ]
    for number in dict.fromkeys(decision.point.request for decision in report.compared):
        request = state.requests[number - 1].asked
        assert request is not None
        lines += [Text(""), Text(f"request {number}: {first_line(request.text, 200)}")]
        lines += _decision_table(
            [
                _row(decision, state.events)
                for decision in report.compared
                if decision.point.request == number
            ]
        )
    lines.append(Text(""))
    if report.steps:
        words = "turn was a step" if report.steps == 1 else "turns were steps"
        lines.append(
            Text(
                f"left out: {report.steps} {words} of a workflow, which nobody decides one by one",
                "dim",
            )
        )
    return [*lines, Text(_agreement(report.compared))]


def _agreement(compared: Sequence[ReplayedDecision]) -> str:
    if not compared:
        return "there is no decision to compare"
    agents = [decision.same_agent for decision in compared if decision.same_agent is not None]
    roles = [decision.same_role for decision in compared if decision.same_role is not None]
    same = sum(decision.same for decision in compared)
    text = f"the same: {same} of {len(compared)} decisions"
    return text + (
        f"; the agent in {sum(agents)} of {len(agents)}, the role in {sum(roles)}" if agents else ""
    )


def _row(decision: ReplayedDecision, events: Sequence[Event]) -> list[str]:
    recorded, again = decision.point.recorded, decision.replayed
    opened = SessionState(events[: decision.point.at]).opened
    before = _confidence(recorded, opened.pool if opened else ())
    after = _confidence(again, decision.pool)
    turn = str(recorded.turn) if isinstance(recorded, Assigned) else "end"
    probability = after.of(recorded, decision.pool) if isinstance(recorded, Assigned) else None
    return [
        turn,
        _decision_text(recorded),
        *before.cells,
        _decision_text(again),
        *after.cells,
        _probability(probability),
        _same(decision),
    ]


def _decision_text(decision: Decision) -> str:
    match decision:
        case Assigned():
            return f"{decision.agent} {decision.role}"
        case Finished():
            return f"ends: {decision.reason.replace('_', ' ')}"
    return type(decision).__name__.lower()


def _same(decision: ReplayedDecision) -> str:
    if decision.same:
        return "yes"
    if decision.same_agent:
        return "agent"
    return "role" if decision.same_role else "no"


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
    scores = decision_scores(decision, slot)
    if scores is None:
        return _Confidence()
    rows = tuple((row.name, row.after) for row in scores.rows)
    chosen = next((value for name, value in rows if name in (decision.agent, slot)), None)
    return _Confidence(chosen, scores.lead.margin if scores.lead else None, rows)


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
        Text(line, "yellow" if is_different else "")
        for line, is_different in zip(aligned_rows(rows), differs, strict=True)
    ]


def replay_object(events: Sequence[Event], report: ReplayReport) -> dict[str, object]:
    """Return the comparison for programs."""
    compared = report.compared
    return {
        "session_id": report.session,
        "recorded_by": report.before,
        "again_by": report.again_by,
        "note": UNKNOWN,
        "decisions": [_compared_object(decision, events) for decision in compared],
        "workflow_steps_left_out": report.steps,
        "agreement": {
            "decisions": len(compared),
            "same": sum(decision.same for decision in compared),
            "with_agents": sum(decision.same_agent is not None for decision in compared),
            "same_agent": sum(bool(decision.same_agent) for decision in compared),
            "same_role": sum(bool(decision.same_role) for decision in compared),
        },
    }


def _compared_object(decision: ReplayedDecision, events: Sequence[Event]) -> dict[str, object]:
    opened = SessionState(events[: decision.point.at]).opened
    recorded = decision.point.recorded
    return {
        "request": decision.point.request,
        "turn": recorded.turn if isinstance(recorded, Assigned) else None,
        "recorded": _decision(recorded, opened.pool if opened else ()),
        "again": _decision(decision.replayed, decision.pool),
        "same": decision.same,
        "same_agent": decision.same_agent,
        "same_role": decision.same_role,
    }


def _decision(decision: Decision, pool: Sequence[Member]) -> dict[str, object]:
    if not isinstance(decision, Assigned):
        return {
            "next": "finished",
            "reason": decision.reason if isinstance(decision, Finished) else None,
        }
    confidence = _confidence(decision, pool)
    slot = _slot(decision.agent, pool)
    return {
        "next": "assigned",
        **routing_object(decision),
        "slot": slot,
        "probability": confidence.probability,
        "margin": confidence.margin,
    }
