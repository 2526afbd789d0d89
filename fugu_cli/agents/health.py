"""Which agents rest after a failure and which accounts are limited: one for all turns of a process.

Stands beside retry.py. `Watched` tells it what became of every call, `Retrying` keeps to an account's limits before a
call is sent. It must not know logs or coordinators: whoever decides asks `out()` and writes down what it says.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fugu_cli.agents import Agent, Say, Wait
from fugu_cli.errors import AgentError
from fugu_cli.messages import Prompt, Reply

RESTS = {
    "limited": 5.0,
    "overloaded": 5.0,
    "network": 5.0,
    "timeout": 10.0,
    "protocol": 15.0,
    "refused": 120.0,
    "credit": 300.0,
}
"""Seconds an agent rests after its first failure of a kind; each one after it doubles them.

`invalid` is missing: a request that one server will not take says nothing of the next one.
"""

LONGEST = 900.0


@dataclass(frozen=True)
class Rest:
    """An agent out of work. `until` on the monotonic clock; `failures` in a row; `woken` before its time."""

    kind: str
    until: float
    failures: int
    woken: bool = False


class Health:
    """Agents by name, accounts by whatever names them (`Access.account`)."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._rests: dict[str, Rest] = {}
        self._limits: dict[str, float] = {}

    def failed(self, name: str, kind: str, after: float | None = None) -> None:
        """`name` failed after its retries. `after`: the server's own wish in seconds, kept when it is longer.

        Calls that were under way together fail together: while `name` rests that is one failure, not many.
        """
        first = RESTS.get(kind)
        if first is None:
            return
        now, last = self._now(), self._rests.get(name)
        failures = 1 if last is None else last.failures + (last.until <= now)
        until = now + max(min(first * 2.0 ** (failures - 1), LONGEST), after or 0.0)
        if last is None or until > last.until:
            self._rests[name] = Rest(kind, until, failures)

    def well(self, name: str) -> None:
        """`name` answered: nothing is held against it any more."""
        self._rests.pop(name, None)

    def out(self) -> dict[str, str]:
        """The agents that rest now, each with the reason."""
        now = self._now()
        return {
            name: f"{rest.kind}: rests {rest.until - now:.0f} s after failure {rest.failures}"
            for name, rest in self._rests.items()
            if rest.until > now
        }

    def rested(self, name: str, why: str) -> bool:
        """`name` is masked for a failure (`why` begins with its kind) and its rest is over: it may be tried again."""
        rest = self._rests.get(name)
        return rest is not None and rest.until <= self._now() and why.partition(":")[0] in RESTS

    def woken(self, name: str) -> bool:
        """`name` was woken and has neither failed nor answered since."""
        rest = self._rests.get(name)
        return rest is not None and rest.woken

    def wake(self, name: str | None = None) -> None:
        """The user wants `name` (None: everybody who rests) to be tried at once. Failures so far stay counted."""
        now = self._now()
        for one, rest in self._rests.items():
            if name in (None, one):
                self._rests[one] = replace(rest, until=min(rest.until, now), woken=True)

    def soonest(self) -> tuple[str, float] | None:
        """The agent whose rest ends first and the seconds until then; None where nobody rests."""
        now = self._now()
        ends = [(rest.until - now, name) for name, rest in self._rests.items() if rest.until > now]
        return (min(ends)[1], min(ends)[0]) if ends else None

    def limit(self, account: str, seconds: float) -> None:
        """The account asked to be left alone for so long."""
        self._limits[account] = max(self._limits.get(account, 0.0), self._now() + seconds)

    def pause(self, account: str) -> float:
        """Seconds until the account may be asked again."""
        return max(self._limits.get(account, 0.0) - self._now(), 0.0)


class Watched:
    """`agent`, every call of which is told to `health`. The outermost wrapper: what it sees failed for good."""

    def __init__(self, agent: Agent, health: Health) -> None:
        self._agent = agent
        self._health = health

    @property
    def name(self) -> str:
        return self._agent.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        try:
            reply = await self._agent.reply(prompt, say, wait)
        except AgentError as error:
            self._health.failed(self.name, error.kind, error.after)
            raise
        self._health.well(self.name)
        return reply

    async def close(self) -> None:
        await self._agent.close()


if TYPE_CHECKING:

    def _fits(agent: Watched) -> Agent:
        return agent
