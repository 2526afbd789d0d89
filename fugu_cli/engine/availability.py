"""Decides which agents can act now: not those that failed, must wait, or exceed a budget."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fugu_cli.coordinators import Decision, action_space
from fugu_cli.errors import AgentError
from fugu_cli.messages import Prompt
from fugu_cli.providers import Pause
from fugu_cli.providers.circuit_breaker import COOLDOWN_SECONDS, SHORT_WAIT, CircuitBreaker
from fugu_cli.session import spending
from fugu_cli.session.events import (
    BUDGET,
    Assigned,
    BudgetLeft,
    Exclusion,
    Failed,
    Finished,
    Masked,
    Member,
)
from fugu_cli.session.live_events import Live, Retried, Waiting
from fugu_cli.session.log import Log
from fugu_cli.session.spending import Limit
from fugu_cli.session.state import SessionState

if TYPE_CHECKING:
    from fugu_cli.engine.environment import Team


FAILED_TURNS = 3
"""After so many failed turns in a request, an agent is not tried again of our own accord."""
FAILED_TURNS_AFTER_WAITING = 10
"""The same where the request has waited for the agent before each new try."""


@dataclass(frozen=True)
class NextTry:
    """The unavailable agent that a request tries next, and the seconds to wait. `probe`: it is
    tried too early, because no other agent is left.
    """

    agent: str
    seconds: float = 0.0
    probe: bool = False


def wake(team: Team, names: Collection[str]) -> None:
    """Let these agents be tried at once, because the user wants it. An agent whose key was refused
    is not asked again; that is what `retry_agent` does.
    """
    if team.breaker is not None:
        team.breaker.wake(names)


def retry_agent(team: Team, name: str) -> None:
    """Let this agent be tried at once, whatever it failed with, as the user wants it."""
    if team.breaker is not None:
        team.breaker.try_early(name)


def readmit(log: Log, team: Team, name: str) -> None:
    """Take back that `name` failed in the request under way, where it is available now."""
    if log.state.request.asked is None or log.state.request.finished is not None:
        return
    excluded = log.state.request.failed_agents
    available = team.breaker is None or team.breaker.seconds(name) == 0
    if available and name in excluded and excluded[name].kind not in ("", BUDGET):
        del excluded[name]
        log.append(Masked(agents=tuple(sorted(excluded.items()))))


async def decide(
    log: Log,
    team: Team,
    over_budget: Mapping[str, str],
    read: Callable[[SessionState], SessionState] = lambda state: state,
) -> Decision:
    """Return the coordinator's decision among the agents that can act.

    Excluded are those that are unavailable, and those whose next call no budget carries:
    `over_budget` says why. Where nobody is left, the request tries or waits for one. `read` selects
    the events that the coordinator reads."""
    breaker, limit = team.breaker, team.wait_limit
    seconds_left = limit.most
    next_try = None
    while True:
        record_exclusions(log, breaker, over_budget, next_try)
        decision = await team.coordinator.decide(read(log.state))
        if breaker is None:
            return decision
        if not _ends_for_want_of_agents(log, team, decision):
            return _with_seconds_left(decision, log, breaker)
        next_try = _next_try(log, team, breaker, over_budget, seconds_left)
        if next_try is None:
            return decision
        if next_try.seconds > 0:
            log.tell(Waiting(why=f"waiting for {next_try.agent}", seconds=next_try.seconds))
            await limit.sleep(next_try.seconds)
            seconds_left -= next_try.seconds
        breaker.try_early(next_try.agent)


def _with_seconds_left(decision: Decision, log: Log, breaker: CircuitBreaker) -> Decision:
    """Return the decision with the times at which failed agents may be asked again."""
    if not isinstance(decision, Assigned):
        return decision
    seconds = {name: breaker.seconds(name) for name in log.state.request.failed_agents}
    left = tuple((name, round(left, 1)) for name, left in seconds.items() if left > 0)
    return decision.model_copy(update={"seconds_left": left}) if left else decision


def _ends_for_want_of_agents(log: Log, team: Team, decision: Decision) -> bool:
    if not isinstance(decision, Finished) or decision.reason not in {"failed", "budget"}:
        return False
    return not team.members.keys() - team.excluded - log.state.request.failed_agents.keys()


def _next_try(
    log: Log,
    team: Team,
    breaker: CircuitBreaker,
    over_budget: Mapping[str, str],
    seconds_left: float,
) -> NextTry | None:
    """Return the agent to try in a request that has no available agent left, None if none may be
    tried.

    The first choice is an agent that this request has not tried yet, then an agent that is
    available again soon enough, then one whose server asked for a longer pause than may be waited
    for. Until an agent has replied, only one is tried before its time.
    """
    request = log.state.request
    excluded, failures = request.failed_agents, request.failed_turns
    able = []
    for name in team.members:
        if name in team.excluded or name in over_budget:
            continue
        can_recover = excluded[name].kind in COOLDOWN_SECONDS
        if can_recover and failures[name] < FAILED_TURNS_AFTER_WAITING:
            able.append(name)
    untried = [name for name in able if name not in request.failed_since_reply]
    may_probe = not request.probed_since_reply
    if may_probe:
        without_named_pause = [name for name in untried if not breaker.server_named(name)]
        agent = breaker.tried_longest_ago(without_named_pause)
        if agent is not None:
            return NextTry(agent, probe=True)
    if seconds_left > 0:
        if team.wait_limit.seconds is None:
            able = [name for name in able if breaker.server_named(name)]
        for name in able:
            if breaker.seconds(name) == 0:
                return NextTry(name)
        soonest = breaker.soonest(able)
        if soonest is not None and soonest[1] <= seconds_left:
            return NextTry(*soonest)
    if may_probe:
        agent = breaker.tried_longest_ago(untried)
        if agent is not None:
            return NextTry(agent, probe=True)
    return None


def record_exclusions(
    log: Log,
    breaker: CircuitBreaker | None,
    over_budget: Mapping[str, str],
    next_try: NextTry | None = None,
) -> None:
    """Record the excluded agents if they have changed. `next_try` is not excluded any more.

    An agent that failed is tried again when its cooldown is over and another agent has replied. If
    its host could not be reached, that holds for all agents of the host. Until then every other
    agent is preferred; if all fail, the request ends, because without a network it would go on for
    minutes. An agent that exceeds a budget stays excluded, because the rest of a budget only
    shrinks.
    """
    excluded = log.state.request.failed_agents
    failed_lately = log.state.request.failed_since_reply
    failures = log.state.request.failed_turns
    unreachable = {why.unreachable for name, why in excluded.items() if name in failed_lately}

    def may_act_again(name: str, why: Exclusion) -> bool:
        if breaker is None or why.kind == BUDGET:
            return False
        if next_try is not None and name == next_try.agent:
            return True
        if name in failed_lately or (why.unreachable and why.unreachable in unreachable):
            return False
        return breaker.recovered(name, why.kind) and failures[name] < FAILED_TURNS

    exclusions = {name: Exclusion(kind=BUDGET, message=why) for name, why in over_budget.items()}
    for name, why in excluded.items():
        if not may_act_again(name, why):
            exclusions[name] = why
    for name, why in (breaker.unavailable() if breaker is not None else {}).items():
        if name not in exclusions or exclusions[name].kind:  # else it was left out, and stays so
            exclusions[name] = why
    probed = next_try.agent if next_try is not None and next_try.probe else ""
    if probed or exclusions.keys() != excluded.keys():
        log.append(Masked(agents=tuple(sorted(exclusions.items())), probed=probed))


def record_budget(log: Log, limit: Limit) -> None:
    """Write down what the tightest budget leaves, where that has changed in the request."""
    remaining = spending.remaining_budget(log.state, spending.budgets_of(limit))
    if remaining is None:
        return
    left = BudgetLeft(dollars=round(max(remaining[0], 0.0), 6))
    recorded = [event for event in log.state.request.events if isinstance(event, BudgetLeft)]
    if recorded[-1:] != [left]:
        log.append(left)


OtherAgents = Literal["soon", "now", "none"]
"""The agents that may take a waiting turn: those available before the pause ends, those available
at once, or none.
"""


class CallPauses:
    """The pauses of one call of `name`. They are made while none of `others` can act instead."""

    def __init__(self, team: Team, name: str, others: OtherAgents = "soon") -> None:
        self._team = team
        self._name = name
        self._others = others
        self._waited = 0.0

    def check(self, pause: Pause, state: SessionState) -> None:
        """Raise the failure behind the pause if the call must not wait."""
        if pause.error is None:
            return
        if self._waited + pause.seconds > SHORT_WAIT:
            sooner = self._soonest(state) < pause.seconds
            if sooner or pause.seconds > self._team.wait_limit.most:
                raise pause.error
        self._waited += pause.seconds

    def _soonest(self, state: SessionState) -> float:
        """Return the seconds until another agent may act, infinite if none may."""
        team = self._team
        if self._others == "none":
            return math.inf
        excluded = action_space.agents_out(
            state, {*team.excluded, self._name}, tuple(team.members.values())
        )
        breaker = team.breaker
        if breaker is None:
            return 0.0 if team.members.keys() - excluded else math.inf
        if any(breaker.seconds(name) == 0 for name in team.members.keys() - excluded):
            return 0.0
        able = team.members.keys() - team.excluded - {self._name}
        soonest = breaker.soonest(able, server_named=True) if self._others == "soon" else None
        return soonest[1] if soonest else math.inf


def waiting_event(pause: Pause, turn: int, agent: str) -> Live:
    """Return the live event that announces a pause."""
    if pause.error is None or not pause.retry:
        return Waiting(why=pause.why, seconds=pause.seconds, notice=pause.notice)
    return Retried(
        turn=turn,
        agent=agent,
        kind=pause.error.kind,
        why=str(pause.error),
        seconds=pause.seconds,
        retry=pause.retry,
        retries=pause.retries,
        status=pause.error.status,
        unreachable=pause.error.unreachable,
    )


class BudgetReservations:
    """The estimated cost of running calls, by turn, in USD."""

    def __init__(self) -> None:
        self._by_turn: dict[int, float] = {}
        self._released = asyncio.Event()

    def reserve(self, turn: int, dollars: float) -> None:
        """Reserve money for a turn's call; 0 releases it."""
        self._by_turn[turn] = dollars
        if not dollars:
            self._released.set()

    async def wait_for_release(self) -> None:
        """Wait until a running call is over."""
        self._released.clear()
        await self._released.wait()

    @property
    def total(self) -> float:
        """The money reserved for all turns, in USD."""
        return sum(self._by_turn.values())

    def of_other_turns(self, turn: int) -> float:
        """Return the money reserved for other turns, in USD."""
        return self.total - self._by_turn.get(turn, 0.0)


async def may_call(
    log: Log,
    turn: int,
    member: Member,
    prompt: Prompt,
    budget: Limit,
    reservations: BudgetReservations,
) -> bool:
    """Return whether the budget carries this call. A refusal is recorded as the agent's failure in
    `turn`.
    """
    limits = spending.budgets_of(budget)
    while refusal := spending.over_budget(log.state, member, prompt, limits, reservations.total):
        refusal_alone = spending.over_budget(log.state, member, prompt, limits)
        if refusal_alone:
            log.append(Failed(turn=turn, what=member.name, kind=BUDGET, message=refusal_alone))
            return False
        log.tell(Waiting(why=f"{member.name} waits for calls under way: {refusal}"))
        await reservations.wait_for_release()
    return True


def check_budget(
    state: SessionState, member: Member, prompt: Prompt, budget: Limit, reserved: float = 0.0
) -> None:
    """Raise AgentError if another try of a call might exceed the rest of a budget. `reserved` is
    money set aside for other calls and spent on earlier tries.
    """
    if refusal := spending.over_budget(
        state, member, prompt, spending.budgets_of(budget), reserved
    ):
        raise AgentError(refusal, kind="budget")
