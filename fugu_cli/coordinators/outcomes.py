"""The outcomes of an agent's turns, read from the logs of sessions.

A Worker's turn succeeded or failed by what judged it: tests and acceptance checks count in full, a
Verifier's verdict half, and work that the user took back has failed. The first Worker's turn of a
request counts in full. Later ones count `LATER_TURN`, and less again because they see only what
others could not do: an attempt whose chance was lower from the start says less when it fails.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fugu_cli.coordinators.list_plan import Candidate, conditional_rate
from fugu_cli.coordinators.skills import KINDS, SkillTable, shipped_table
from fugu_cli.session.costs import PaidEvent, price
from fugu_cli.session.events import (
    Assigned,
    Event,
    KindRead,
    Member,
    Opened,
    OutcomeCount,
    OutcomesKnown,
    Replied,
    ToolRan,
)
from fugu_cli.session.request_state import RequestState
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import Turn

CHECK_WEIGHT = 1.0
VERDICT_WEIGHT = 0.5
SCRIPTED = "scripted"
"""The provider whose agents follow a script: their outcomes say nothing."""
LATER_TURN = 0.4
"""The weight of a turn after others worked on the request without success."""


@dataclass(frozen=True)
class Attempt:
    """A Worker's turn that something judged. `kinds` are the probabilities of the request's kind,
    empty if they were never read. `after` names the agents whose turns failed before. `model` is
    the agent's model at that time. Requests of a session are counted from 1.
    """

    agent: str
    succeeded: bool
    weight: float
    kinds: Mapping[str, float]
    after: tuple[str, ...] = ()
    model: str = ""
    request: int = 1


@dataclass(frozen=True)
class TurnPrice:
    """The cost of one turn in USD."""

    agent: str
    kinds: Mapping[str, float]
    cost: float
    model: str = ""
    request: int = 1


@dataclass(frozen=True)
class SoloPrice:
    """The cost in USD of an agent's calls for a request that no other agent worked on."""

    agent: str
    kinds: Mapping[str, float]
    cost: float
    model: str = ""
    request: int = 1


@dataclass(frozen=True)
class SessionOutcomes:
    """The outcomes of one session."""

    attempts: tuple[Attempt, ...] = ()
    prices: tuple[TurnPrice, ...] = ()
    solo_prices: tuple[SoloPrice, ...] = ()
    kinds: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """Of each request, counted from 1; of one whose kind nobody read none."""


def session_outcomes(state: SessionState) -> SessionOutcomes:
    """Return the outcomes in a session: its judged attempts, the prices of its turns, and the kinds
    of its requests.
    """
    members = state.pool
    openings = tuple(event for event in state.events if isinstance(event, Opened))
    kinds_read = {
        event.request: dict(event.kinds)
        for event in state.events
        if isinstance(event, KindRead) and not event.session
    }
    standing = state.undo_history.requests
    attempts: list[Attempt] = []
    prices: list[TurnPrice] = []
    solo_prices: list[SoloPrice] = []
    kinds_of_requests: dict[int, Mapping[str, float]] = {}
    for number, request in enumerate(state.requests, start=1):
        kinds = kinds_read.get(number) or _kinds_in(request.events)
        kinds_of_requests[number] = kinds
        taken_back = bool(request.changes) and number - 1 not in standing
        alone = SessionState((*openings, *request.events))
        for attempt in _attempts(alone, kinds, taken_back=taken_back):
            member = members.get(attempt.agent)
            if member is not None and member.provider != SCRIPTED:
                attempts.append(replace(attempt, model=member.model, request=number))
        for turn in _prices(request.events, members, kinds):
            member = members.get(turn.agent)
            if member is not None and member.provider != SCRIPTED:
                prices.append(replace(turn, model=member.model, request=number))
        solo = _solo_price(request, members, kinds)
        if solo is not None and members[solo.agent].provider != SCRIPTED:
            model = members[solo.agent].model
            solo_prices.append(replace(solo, model=model, request=number))
    return SessionOutcomes(tuple(attempts), tuple(prices), tuple(solo_prices), kinds_of_requests)


def outcomes_known(events: Sequence[Event]) -> OutcomesKnown:
    """Return the outcomes that were known when the newest request was asked; none in older logs."""
    for event in reversed(events):
        if isinstance(event, OutcomesKnown):
            return event
    return OutcomesKnown()


def count_outcomes(
    sessions: Iterable[SessionOutcomes],
    members: Sequence[Member],
    table: SkillTable | None = None,
) -> tuple[OutcomeCount, ...]:
    """Add up the outcomes of these agents by kind of request, "" for an unknown kind."""
    table = table or shipped_table()
    by_name = {member.name: member for member in members}
    sums: dict[tuple[str, str], _OutcomeSums] = defaultdict(_OutcomeSums)
    for session in sessions:
        for attempt in session.attempts:
            member = by_name.get(attempt.agent)
            if member is None or member.model != attempt.model:
                continue
            for request_kind, share in (attempt.kinds or {"": 1.0}).items():
                weight = attempt.weight * share
                chance = _share_of_chance(attempt, request_kind, member, by_name, table)
                sums[attempt.agent, request_kind].successes += weight * attempt.succeeded
                sums[attempt.agent, request_kind].trials += weight * chance
        for turn in session.prices:
            member = by_name.get(turn.agent)
            if member is not None and member.model == turn.model:
                for request_kind, share in (turn.kinds or {"": 1.0}).items():
                    sums[turn.agent, request_kind].turns += share
                    sums[turn.agent, request_kind].cost += share * turn.cost
        for solo in session.solo_prices:
            member = by_name.get(solo.agent)
            if member is not None and member.model == solo.model:
                for request_kind, share in (solo.kinds or {"": 1.0}).items():
                    sums[solo.agent, request_kind].solo_requests += share
                    sums[solo.agent, request_kind].solo_cost += share * solo.cost
    return tuple(sums[key].count(*key) for key in sorted(sums))


@dataclass
class _OutcomeSums:
    """The outcomes of one agent in one kind of request, added up."""

    successes: float = 0.0
    trials: float = 0.0
    turns: float = 0.0
    cost: float = 0.0
    solo_requests: float = 0.0
    solo_cost: float = 0.0

    def count(self, agent: str, request_kind: str) -> OutcomeCount:
        """Return the sums, rounded."""
        return OutcomeCount(
            agent=agent,
            kind=request_kind,
            successes=round(self.successes, 3),
            # an attempt that succeeded against the odds is one trial at least
            trials=round(max(self.trials, self.successes), 3),
            turns=round(self.turns, 3),
            mean_cost=round(self.cost / self.turns, 6) if self.turns else 0.0,
            solo_requests=round(self.solo_requests, 3),
            solo_cost=round(self.solo_cost, 6),
        )


def _share_of_chance(
    attempt: Attempt,
    request_kind: str,
    member: Member,
    members: Mapping[str, Member],
    table: SkillTable,
) -> float:
    """Return an attempt's chance of success relative to a first attempt's, 1 for a first one."""
    if not attempt.after:
        return 1.0
    candidate = _candidate(member, request_kind, table)
    failed = [
        _candidate(members[name], request_kind, table) for name in attempt.after if name in members
    ]
    return conditional_rate(candidate, failed) / candidate.success_rate


def _candidate(member: Member, request_kind: str, table: SkillTable) -> Candidate:
    names = [name for name in KINDS if name == request_kind] or KINDS
    rates = [table.prior(member, name).rate for name in names]
    return Candidate(member.name, sum(rates) / len(rates), 0.0)


def _kinds_in(request: Sequence[Event]) -> Mapping[str, float]:
    """Return the kinds that a decision of the request recorded."""
    for event in request:
        if isinstance(event, Assigned) and event.scores and event.scores.kinds:
            return dict(event.scores.kinds)
    return {}


def _attempts(
    state: SessionState, kinds: Mapping[str, float], *, taken_back: bool
) -> list[Attempt]:
    """Return the turns of the newest request that something judged."""
    attempts: list[Attempt] = []
    failed: list[str] = []
    turns = [
        turn
        for turn in state.request.turns
        if turn.assigned.subtask is None and not turn.assigned.plan
    ]
    workers = [turn for turn in turns if turn.assigned.role == "worker"]
    for turn in workers:
        if turn.failed or turn.interrupted or not turn.replies:
            continue
        judged = _judgement(state, turn, turns)
        if taken_back and turn is workers[-1]:
            judged = (False, CHECK_WEIGHT)
        if judged is None:
            continue
        succeeded, weight = judged
        share = 1.0 if not failed else LATER_TURN
        attempts.append(
            Attempt(turn.assigned.agent, succeeded, weight * share, kinds, tuple(failed))
        )
        if not succeeded:
            failed.append(turn.assigned.agent)
    return attempts


def _judgement(state: SessionState, turn: Turn, turns: Sequence[Turn]) -> tuple[bool, float] | None:
    """Return whether the work of a turn was right and the weight of that judgement; None if nothing
    judged it.
    """
    following = next((later for later in turns if later.number > turn.number), None)
    request = SessionState(_until_next_reply(state.events, following)).request
    if request.acceptance_blocker:
        return False, CHECK_WEIGHT
    run = request.tests
    if turn.changes and ((run is not None and run.passes) or request.checks):
        return True, CHECK_WEIGHT
    if following is not None and following.assigned.role == "verifier" and following.replies:
        verdict = state.request.verdict(following)
        if verdict is not None:
            return verdict == "ACCEPT", VERDICT_WEIGHT
    return None


def _until_next_reply(events: Sequence[Event], following: Turn | None) -> Sequence[Event]:
    """Return the events up to the next turn's first reply. The tests that fugu runs before it judge
    the turn before.
    """
    if following is None:
        return events
    for index, event in enumerate(events):
        if isinstance(event, Replied) and event.turn == following.number:
            return events[:index]
    return events


def _prices(
    request: Sequence[Event], members: Mapping[str, Member], kinds: Mapping[str, float]
) -> list[TurnPrice]:
    """Return the cost of each Worker's turn of the request."""
    costs: dict[int, float] = {}
    agents: dict[int, str] = {}
    for event in request:
        if isinstance(event, Assigned) and event.role == "worker":
            agents[event.turn] = event.agent
            costs.setdefault(event.turn, 0.0)
        elif isinstance(event, PaidEvent):
            turn = getattr(event, "turn", None)
            if turn in costs:
                costs[turn] += price(event, members.get(agents[turn]))
    return [TurnPrice(agents[turn], kinds, cost) for turn, cost in costs.items() if cost > 0]


def _solo_price(
    request: RequestState, members: Mapping[str, Member], kinds: Mapping[str, float]
) -> SoloPrice | None:
    """Return the price of the only agent that worked on a request, Verifiers left out. None if
    there were several, if its price is unknown, or if the request changed no file or was not
    completed.
    """
    end = request.finished
    if end is None or end.reason not in ("accepted", "answered") or not request.changes:
        return None
    events = request.events
    workers = {
        event.agent for event in events if isinstance(event, Assigned) and event.role != "verifier"
    }
    advisors = {event.agent for event in events if isinstance(event, ToolRan) and event.agent}
    agents = workers | advisors
    agent = agents.pop() if len(agents) == 1 else ""
    if agent not in members:
        return None
    cost = sum(
        price(event, members[agent])
        for event in request.events
        if isinstance(event, PaidEvent) and event.agent == agent
    )
    return SoloPrice(agent, kinds, cost) if cost > 0 else None
