"""Before a decision: who rests or is too dear is written down, and where nobody is left it is waited for, if the user
wants that.

One hook of the orchestrator. A coordinator stays a function of the log: what `Health` and the budgets know becomes a
`Masked` fact, and only where it differs from what the log says already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from fugu_cli import views
from fugu_cli.coordinators import Coordinator, Decision
from fugu_cli.events import Finished, Masked, Waiting
from fugu_cli.log import Log


class Rests(Protocol):
    """What is known of agents that failed (agents.health.Health)."""

    def out(self) -> Mapping[str, str]: ...

    def rested(self, name: str, why: str) -> bool: ...

    def woken(self, name: str) -> bool: ...

    def soonest(self) -> tuple[str, float] | None: ...

    def wake(self, name: str | None = None) -> None: ...


@dataclass(frozen=True)
class Patience:
    """How long a request waits, in seconds and in all, when every agent rests; 0: it ends. Tests bring their sleep."""

    seconds: float = 0.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


async def decide(
    log: Log, coordinator: Coordinator, rests: Rests | None, patience: Patience, dear: Mapping[str, str]
) -> Decision:
    """The coordinator's decision, with everybody masked who rests, nobody who does not any more, and the agents whose
    next call no budget carries: `dear` says why."""
    left = patience.seconds
    while True:
        refresh(log, rests, dear)
        decision = await coordinator.decide(log.events)
        if rests is None or not isinstance(decision, Finished) or decision.reason not in {"failed", "budget"}:
            return decision
        name, seconds = _next(log, rests)
        if not left or name is None or seconds > left:
            return decision
        log.tell(Waiting(why=f"every agent rests; {name} is tried again", seconds=seconds))
        await patience.sleep(seconds)
        rests.wake(name)
        left -= seconds


def _next(log: Log, rests: Rests) -> tuple[str | None, float]:
    """Who can be tried again first, and the seconds until then; None: nobody."""
    rested = [name for name, why in views.failed_agents(log.events).items() if rests.rested(name, why)]
    return (rested[0], 0.0) if rested else rests.soonest() or (None, 0.0)


def refresh(log: Log, rests: Rests | None, dear: Mapping[str, str]) -> None:
    """Write down who is out now, where that has changed.

    Who failed is tried again after its rest once somebody has answered since, and when it is woken. Before that every
    other agent comes first, and where they all fail the request is over: without a network it would go on for minutes.
    Who was too dear stays out: what is left of a budget only shrinks.
    """
    known = views.failed_agents(log.events)
    resting, waits = rests.out() if rests else {}, views.failed_since_reply(log.events)

    def back(name: str, why: str) -> bool:
        if rests is None or views.is_budget(why):
            return False
        return rests.woken(name) or (name not in waits and rests.rested(name, why))

    kept = {name: why for name, why in known.items() if not back(name, why)}
    now = {**{name: f"{views.BUDGET}: {why}" for name, why in dear.items()}, **kept, **resting}
    if now.keys() != known.keys():
        log.append(Masked(agents=tuple(sorted(now.items()))))
