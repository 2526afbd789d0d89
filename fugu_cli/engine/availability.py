"""Who can act now: agents that failed, must wait, or that no budget carries."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from fugu_cli.coordinators import Decision, action_space
from fugu_cli.errors import AgentError
from fugu_cli.messages import Prompt
from fugu_cli.providers import Pause
from fugu_cli.providers.circuit_breaker import SHORT_WAIT, CircuitBreaker
from fugu_cli.session import spending, views
from fugu_cli.session.events import Event, Exclusion, Failed, Finished, Masked, Member
from fugu_cli.session.live_events import Live, Retried, Waiting
from fugu_cli.session.log import Log
from fugu_cli.session.spending import Limit

if TYPE_CHECKING:
    from fugu_cli.engine.environment import Team


def wake(team: Team, name: str | None = None) -> None:
    """Let an agent, or all of them, be tried at once that are unavailable after a failure: the user
    has said so.
    """
    if team.breaker is not None:
        team.breaker.wake(name)


async def decide(
    log: Log,
    team: Team,
    dear: Mapping[str, str],
    read: Callable[[Sequence[Event]], Sequence[Event]] = lambda events: events,
) -> Decision:
    """The coordinator's decision, with everybody masked who is unavailable, nobody who is available
    again, and the agents whose next call no budget carries: `dear` says why. `read`: what it reads
    of the facts."""
    breaker, limit = team.breaker, team.wait_limit
    left = limit.most
    while True:
        record_exclusions(log, breaker, dear)
        decision = await team.coordinator.decide(read(log.events))
        if (
            breaker is None
            or not isinstance(decision, Finished)
            or decision.reason not in {"failed", "budget"}
        ):
            return decision
        name, seconds = _next(log, breaker, team)
        if not left or name is None or seconds > left:
            return decision
        log.tell(Waiting(why=f"waiting for {name}", seconds=seconds))
        await limit.sleep(seconds)
        breaker.wake(name)
        left -= seconds


def _next(log: Log, breaker: CircuitBreaker, team: Team) -> tuple[str | None, float]:
    """Who can be tried again first, and the seconds until then; None: nobody."""
    able = team.members.keys() - team.never
    if team.wait_limit.seconds is None:
        return breaker.soonest(able, asked=True) or (None, 0.0)
    failed = views.failed_agents(log.events)
    back = [
        name for name, why in failed.items() if name in able and breaker.recovered(name, why.kind)
    ]
    return (back[0], 0.0) if back else breaker.soonest(able) or (None, 0.0)


def record_exclusions(log: Log, breaker: CircuitBreaker | None, dear: Mapping[str, str]) -> None:
    """Write down who is out now, where that has changed.

    Who failed is tried again after its time once somebody has answered since, and when it is woken.
    Before that every other agent comes first, and where they all fail the request is over: without
    a network it would go on for minutes. Who was too dear stays out: what is left of a budget only
    shrinks.
    """
    known = views.failed_agents(log.events)
    unavailable, waits = (
        breaker.unavailable() if breaker else {},
        views.failed_since_reply(log.events),
    )

    def back(name: str, kind: str) -> bool:
        if breaker is None or kind == views.BUDGET:
            return False
        return breaker.woken(name) or (name not in waits and breaker.recovered(name, kind))

    kept = {name: why for name, why in known.items() if not back(name, why.kind)}
    over_budget = {name: Exclusion(kind=views.BUDGET, message=why) for name, why in dear.items()}
    now = {**over_budget, **kept, **unavailable}
    if now.keys() != known.keys():
        log.append(Masked(agents=tuple(sorted(now.items()))))


def all_unavailable(team: Team) -> bool:
    """Every agent that may be chosen is unavailable after a failure."""
    able = team.members.keys() - team.never
    return team.breaker is not None and bool(able) and able <= team.breaker.unavailable().keys()


OtherAgents = Literal["soon", "now", "none"]
"""Who may take a turn from a call that waits: whoever is available before the pause ends, only who
is available at once, or nobody."""


class CallPauses:
    """The pauses of one call of `name`. They are made while none of `others` can act instead."""

    def __init__(self, team: Team, name: str, others: OtherAgents = "soon") -> None:
        self._team = team
        self._name = name
        self._others = others
        self._waited = 0.0

    def check(self, pause: Pause, events: Sequence[Event]) -> None:
        """Raises the failure behind the pause where the call is not to wait."""
        if pause.error is None:
            return
        if self._waited + pause.seconds > SHORT_WAIT:
            sooner = self._soonest(events) < pause.seconds
            if sooner or pause.seconds > self._team.wait_limit.most:
                raise pause.error
        self._waited += pause.seconds

    def _soonest(self, events: Sequence[Event]) -> float:
        """Seconds until another agent may act; infinite where none may."""
        team = self._team
        if self._others == "none":
            return math.inf
        out = action_space.agents_out(
            events, {*team.never, self._name}, tuple(team.members.values())
        )
        breaker = team.breaker
        if breaker is None:
            return 0.0 if team.members.keys() - out else math.inf
        if any(breaker.seconds(name) == 0 for name in team.members.keys() - out):
            return 0.0
        able = team.members.keys() - team.never - {self._name}
        soonest = breaker.soonest(able, asked=True) if self._others == "soon" else None
        return soonest[1] if soonest else math.inf


def waiting_event(pause: Pause, turn: int, agent: str) -> Live:
    """The live event that announces a pause."""
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
    )


class BudgetReservations:
    """What calls under way may still cost, by turn, in USD."""

    def __init__(self) -> None:
        self._held: dict[int, float] = {}
        self._back = asyncio.Event()

    def hold(self, turn: int, dollars: float) -> None:
        """Set aside for a call; 0 gives it back."""
        self._held[turn] = dollars
        if not dollars:
            self._back.set()

    async def given_back(self) -> None:
        """Until a call under way is over."""
        self._back.clear()
        await self._back.wait()

    @property
    def held(self) -> float:
        """All that is set aside."""
        return sum(self._held.values())

    def beside(self, turn: int) -> float:
        """What is set aside for other turns."""
        return self.held - self._held.get(turn, 0.0)


async def may_call(
    log: Log, turn: int, who: tuple[Member, Prompt], budget: Limit, reserved: BudgetReservations
) -> bool:
    """Whether the budget carries this call; the refusal is recorded as the agent's failure in
    `turn`.
    """
    (member, prompt), limits = who, spending.budgets_of(budget)
    while said := spending.over_budget(log.events, member, prompt, limits, reserved.held):
        if alone := spending.over_budget(log.events, member, prompt, limits):
            log.append(Failed(turn=turn, what=member.name, kind=views.BUDGET, message=alone))
            return False
        log.tell(Waiting(why=f"{member.name} waits for calls under way: {said}"))
        await reserved.given_back()
    return True


def check_budget(
    events: Sequence[Event], member: Member, prompt: Prompt, budget: Limit, held: float = 0.0
) -> None:
    """Raises AgentError where a try of a call might exceed the rest of a budget. `held`: set aside
    for other calls, and spent on tries before it."""
    if said := spending.over_budget(events, member, prompt, spending.budgets_of(budget), held):
        raise AgentError(said, kind="budget")
