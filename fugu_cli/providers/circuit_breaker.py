"""Which agents are unavailable after a failure, and which accounts are rate-limited; one for all
turns of a process.

Stands beside retry.py. `Watched` tells it what became of every call, `Retrying` keeps to an
account's limits before a call is sent. It must not know logs or coordinators: whoever decides asks
`unavailable()` and writes down what it says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fugu_cli.errors import AgentError
from fugu_cli.messages import Prompt, Reply
from fugu_cli.providers import Agent, AgentWrapper, Say, Wait
from fugu_cli.session.events import Exclusion

COOLDOWN = {
    "limited": 5.0,
    "overloaded": 5.0,
    "network": 5.0,
    "timeout": 10.0,
    "protocol": 15.0,
    "refused": 120.0,
    "credit": 300.0,
}
"""Seconds an agent is unavailable after its first failure of a kind; each one after it doubles
them.

`invalid` is missing: a request that one server will not take says nothing of the next one.
"""

LONGEST_COOLDOWN = 900.0
SHORT_WAIT = 3.0
"""Seconds that a call waits in all while another agent could act: two pauses of `retry.Backoff`,
never the third.
"""


@dataclass(frozen=True)
class Trip:
    """An agent that failed. It is unavailable until `until` on the monotonic clock; `failures` in a
    row.

    `asked`: its server named the time. `woken`: the user wants it tried before its time.
    """

    kind: str
    until: float
    failures: int
    asked: bool = False
    woken: bool = False


class RateLimits:
    """Until when accounts asked to be left alone. `accounts`: those of agents, by name; one that is
    missing has its own."""

    def __init__(self, accounts: Mapping[str, str], now: Callable[[], float]) -> None:
        self._accounts = dict(accounts)
        self._now = now
        self._until: dict[str, float] = {}

    def sharing(self, name: str) -> set[str]:
        """The agents that share the account of `name`, itself too."""
        return {name, *(one for one in self._accounts if self._account(one) == self._account(name))}

    def hold(self, name: str, seconds: float) -> None:
        """The account of `name` asked to be left alone for so long."""
        account = self._account(name)
        self._until[account] = max(self._until.get(account, 0.0), self._now() + seconds)

    def seconds(self, name: str) -> float:
        """Seconds until the account of `name` may be asked again."""
        return max(self._until.get(self._account(name), 0.0) - self._now(), 0.0)

    def lift(self, name: str | None) -> None:
        """Let the account of `name` (None: every one) be asked at once."""
        if name is None:
            self._until.clear()
        else:
            self._until.pop(self._account(name), None)

    def _account(self, name: str) -> str:
        return self._accounts.get(name, name)


class CircuitBreaker:
    """Agents by name, and the rate `limits` of their `accounts`."""

    def __init__(
        self, accounts: Mapping[str, str] | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = RateLimits(accounts or {}, now)
        self._now = now
        self._trips: dict[str, Trip] = {}

    def failed(self, name: str, kind: str, after: float | None = None) -> None:
        """`name` failed after its retries. `after`: the server's own wish in seconds; one that is
        longer than a moment holds exactly, also for all that share a limited account.

        Calls that were under way together fail together: while `name` is unavailable that is one
        failure, not many.
        """
        first = COOLDOWN.get(kind)
        if first is None:
            return
        asked = after is not None and after > SHORT_WAIT
        for one in self.limits.sharing(name) if asked and kind == "limited" else {name}:
            self._trip(one, kind, first, after if asked else None)

    def _trip(self, name: str, kind: str, first: float, asked: float | None) -> None:
        now, last = self._now(), self._trips.get(name)
        failures = 1 if last is None else last.failures + (last.until <= now)
        seconds = min(first * 2.0 ** (failures - 1), LONGEST_COOLDOWN) if asked is None else asked
        if last is None or now + seconds > last.until:
            self._trips[name] = Trip(kind, now + seconds, failures, asked is not None)

    def succeeded(self, name: str) -> None:
        """`name` answered: nothing is held against it any more."""
        self._trips.pop(name, None)

    def seconds(self, name: str) -> float:
        """Seconds until `name` is available again; 0 where it is."""
        trip = self._trips.get(name)
        return 0.0 if trip is None else max(trip.until - self._now(), 0.0)

    def unavailable(self) -> dict[str, Exclusion]:
        """The agents that are unavailable now, each with the reason."""
        return {
            name: Exclusion(kind=trip.kind, message=f"retrying in {left:.0f} s")
            for name, trip, left in self._open()
        }

    def _open(self) -> list[tuple[str, Trip, float]]:
        return [
            (name, trip, left)
            for name, trip in self._trips.items()
            if (left := self.seconds(name)) > 0
        ]

    def recovered(self, name: str, kind: str) -> bool:
        """`name` is masked for a failure of this kind and its time is over: it may be tried
        again.
        """
        return name in self._trips and self.seconds(name) <= 0 and kind in COOLDOWN

    def woken(self, name: str) -> bool:
        """`name` was woken and has neither failed nor answered since."""
        trip = self._trips.get(name)
        return trip is not None and trip.woken

    def wake(self, name: str | None = None) -> None:
        """Let `name` (None: everybody) be tried at once, and its account be asked. Failures so far
        stay counted.
        """
        now = self._now()
        for one, trip in self._trips.items():
            if name in (None, one):
                self._trips[one] = replace(trip, until=min(trip.until, now), woken=True)
        self.limits.lift(name)

    def soonest(self, names: Collection[str], *, asked: bool = False) -> tuple[str, float] | None:
        """Of `names`, the unavailable one that may be tried first, and the seconds until then; None
        where there is none. `asked`: only those whose server named the time."""
        found = [
            (left, name)
            for name, trip, left in self._open()
            if name in names and (trip.asked or not asked)
        ]
        return (min(found)[1], min(found)[0]) if found else None


class BreakerAgent(AgentWrapper):
    """`agent`, every call of which is told to `breaker`. The outermost wrapper: what it sees failed
    for good.
    """

    def __init__(self, agent: Agent, breaker: CircuitBreaker) -> None:
        super().__init__(agent)
        self._breaker = breaker

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        try:
            reply = await self._agent.reply(prompt, say, wait)
        except AgentError as error:
            self._breaker.failed(self.name, error.kind, error.after)
            raise
        self._breaker.succeeded(self.name)
        return reply


if TYPE_CHECKING:

    def _fits(agent: BreakerAgent) -> Agent:
        return agent
