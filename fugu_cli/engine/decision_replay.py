"""A session's decisions made again by another coordinator, each on exactly the facts that the
recorded one had.

Deciding is a function of the log, so nothing is called for it. What would have followed another
decision is not known here, and not guessed. Must not know how a coordinator is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fugu_cli.coordinators import Coordinator, Decision
from fugu_cli.session.events import Asked, Assigned, Event, Finished, Member, Planned
from fugu_cli.session.state import SessionState

BuildCoordinator = Callable[[tuple[Member, ...]], Coordinator]
"""The other coordinator for a pool."""
ENDS = frozenset({"accepted", "answered", "unaccepted", "turn_limit"})
"""Ends that a coordinator decides; the others are limits, failures and the user's."""


@dataclass(frozen=True)
class RecordedDecision:
    """A decision in a log: the facts before it are `events[:at]`. Requests count from 1."""

    request: int
    at: int
    recorded: Assigned | Finished


@dataclass(frozen=True)
class ReplayedDecision:
    """A recorded decision beside the one that another coordinator makes there from the agents in
    `pool`.
    """

    point: RecordedDecision
    replayed: Decision
    pool: tuple[Member, ...]

    @property
    def same_agent(self) -> bool | None:
        """True if both chose the same agent; None if one of them ends the request."""
        pair = self._assigned
        return None if pair is None else pair[0].agent == pair[1].agent

    @property
    def same_role(self) -> bool | None:
        """None likewise."""
        pair = self._assigned
        return None if pair is None else pair[0].role == pair[1].role

    @property
    def same(self) -> bool:
        """The same agent in the same role, or the same end."""
        recorded, replayed = self.point.recorded, self.replayed
        if isinstance(recorded, Finished) and isinstance(replayed, Finished):
            return recorded.reason == replayed.reason
        return bool(self.same_agent and self.same_role)

    @property
    def _assigned(self) -> tuple[Assigned, Assigned] | None:
        recorded, replayed = self.point.recorded, self.replayed
        if isinstance(recorded, Assigned) and isinstance(replayed, Assigned):
            return recorded, replayed
        return None


def decision_points(events: Sequence[Event]) -> tuple[list[RecordedDecision], int]:
    """Return the decisions that a coordinator made turn by turn, and the number of turns that were
    steps of a workflow.

    Subtasks are left out: they were decided by their own prompts.
    """
    decisions: list[RecordedDecision] = []
    request = steps = 0
    planned = False
    for index, event in enumerate(events):
        match event:
            case Asked():
                request, planned = request + 1, False
            case Planned():
                planned = True
            case Assigned():
                steps += bool(event.plan)
                if not event.plan and event.subtask is None:
                    decisions.append(RecordedDecision(request, index, event))
            case Finished() if event.reason in ENDS and not planned:
                decisions.append(RecordedDecision(request, index, event))
            case _:
                continue
    return decisions, steps


async def replay_decisions(
    events: Sequence[Event],
    decisions: Sequence[RecordedDecision],
    build: BuildCoordinator,
    pool: tuple[Member, ...] | None = None,
) -> list[ReplayedDecision]:
    """Make each decision again among the agents that the session had then, or those of `pool`.

    Raises what `build` raises, and CoordinatorUnavailable.
    """
    built: dict[tuple[Member, ...], Coordinator] = {}
    compared = []
    for decision in decisions:
        before = events[: decision.at]
        opened = SessionState(before).opened
        members = pool
        if members is None:
            members = opened.pool if opened is not None else ()
        if members not in built:
            built[members] = build(members)
        compared.append(
            ReplayedDecision(decision, await built[members].decide(SessionState(before)), members)
        )
    return compared
