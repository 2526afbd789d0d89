"""Who can act now: before a decision, and while a call waits.

One hook of the orchestrator. A coordinator stays a function of the log: what the circuit breaker and the budgets know
becomes a `Masked` fact, and only where it differs from what the log says already. A call that would wait gives way to
an agent that is available sooner. Only where there is none is anybody waited for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from fugu_cli import views
from fugu_cli.agents import Pause
from fugu_cli.agents.circuit_breaker import MOMENT, CircuitBreaker
from fugu_cli.coordinators import Decision, masks
from fugu_cli.events import Event, Finished, Live, Masked, Retried, Waiting
from fugu_cli.log import Log

if TYPE_CHECKING:
    from fugu_cli.loop.environment import Crew


async def decide(log: Log, crew: Crew, dear: Mapping[str, str]) -> Decision:
    """The coordinator's decision, with everybody masked who is unavailable, nobody who is available again, and the
    agents whose next call no budget carries: `dear` says why."""
    breaker, limit = crew.breaker, crew.wait_limit
    left = limit.most
    while True:
        refresh(log, breaker, dear)
        decision = await crew.coordinator.decide(log.events)
        if breaker is None or not isinstance(decision, Finished) or decision.reason not in {"failed", "budget"}:
            return decision
        name, seconds = _next(log, breaker, crew)
        if not left or name is None or seconds > left:
            return decision
        log.tell(Waiting(why=f"waiting for {name}", seconds=seconds))
        await limit.sleep(seconds)
        breaker.wake(name)
        left -= seconds


def _next(log: Log, breaker: CircuitBreaker, crew: Crew) -> tuple[str | None, float]:
    """Who can be tried again first, and the seconds until then; None: nobody."""
    able = crew.members.keys() - crew.never
    if crew.wait_limit.seconds is None:
        return breaker.soonest(able, asked=True) or (None, 0.0)
    failed = views.failed_agents(log.events)
    back = [name for name, why in failed.items() if name in able and breaker.recovered(name, why)]
    return (back[0], 0.0) if back else breaker.soonest(able) or (None, 0.0)


def refresh(log: Log, breaker: CircuitBreaker | None, dear: Mapping[str, str]) -> None:
    """Write down who is out now, where that has changed.

    Who failed is tried again after its time once somebody has answered since, and when it is woken. Before that every
    other agent comes first, and where they all fail the request is over: without a network it would go on for minutes.
    Who was too dear stays out: what is left of a budget only shrinks.
    """
    known = views.failed_agents(log.events)
    unavailable, waits = breaker.unavailable() if breaker else {}, views.failed_since_reply(log.events)

    def back(name: str, why: str) -> bool:
        if breaker is None or views.is_budget(why):
            return False
        return breaker.woken(name) or (name not in waits and breaker.recovered(name, why))

    kept = {name: why for name, why in known.items() if not back(name, why)}
    now = {**{name: f"{views.BUDGET}: {why}" for name, why in dear.items()}, **kept, **unavailable}
    if now.keys() != known.keys():
        log.append(Masked(agents=tuple(sorted(now.items()))))


def all_unavailable(crew: Crew) -> bool:
    """Every agent that may be chosen is unavailable after a failure."""
    able = crew.members.keys() - crew.never
    return crew.breaker is not None and bool(able) and able <= crew.breaker.unavailable().keys()


Others = Literal["soon", "now", "none"]
"""Who may take a turn from a call that waits: whoever is available before the pause ends, only who is available at
once, or nobody."""


class Pauses:
    """The pauses of one call of `name`. They are made while none of `others` can act instead."""

    def __init__(self, crew: Crew, name: str, others: Others = "soon") -> None:
        self._crew = crew
        self._name = name
        self._others = others
        self._waited = 0.0

    def check(self, pause: Pause, events: Sequence[Event]) -> None:
        """Raises the failure behind the pause where the call is not to wait."""
        if pause.error is None:
            return
        if self._waited + pause.seconds > MOMENT:
            sooner = self._soonest(events) < pause.seconds
            if sooner or pause.seconds > self._crew.wait_limit.most:
                raise pause.error
        self._waited += pause.seconds

    def _soonest(self, events: Sequence[Event]) -> float:
        """Seconds until another agent may act; infinite where none may."""
        crew = self._crew
        if self._others == "none":
            return math.inf
        out = masks.agents_out(events, {*crew.never, self._name}, tuple(crew.members.values()))
        breaker = crew.breaker
        if breaker is None:
            return 0.0 if crew.members.keys() - out else math.inf
        if any(breaker.seconds(name) == 0 for name in crew.members.keys() - out):
            return 0.0
        able = crew.members.keys() - crew.never - {self._name}
        soonest = breaker.soonest(able, asked=True) if self._others == "soon" else None
        return soonest[1] if soonest else math.inf


def live(pause: Pause, turn: int, agent: str) -> Live:
    """What is told of a pause while it lasts."""
    if pause.error is None or not pause.retry:
        return Waiting(why=pause.why, seconds=pause.seconds)
    return Retried(
        turn=turn,
        agent=agent,
        kind=pause.error.kind,
        why=str(pause.error),
        seconds=pause.seconds,
        retry=pause.retry,
        retries=pause.retries,
    )
