"""What an evaluation may spend and has spent: requests, money, and which agents do not answer any more.

One for all rollouts of a process, beside their rows. Only calls that are really made are counted: a kept reply was paid
for before. It must not know tasks or coordinators.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.errors import AgentError, FuguError
from fugu_cli.evaluation import rows
from fugu_cli.messages import Value

SURROUNDINGS = frozenset({"refused", "credit", "absent", "limited", "overloaded", "network", "timeout", "protocol"})
"""Kinds of failure that say nothing about an agent: the rollout waits for better times, it is never scored 0."""
FINAL = frozenset({"refused", "credit", "absent"})
"""Those that no waiting mends: somebody has to do something about a key or an account."""
MENDED = {"refused": "give the agent a key that is accepted", "credit": "add credit to the account"}
"""What helps an evaluation, whose pool must stay as it is."""
STRIKES = 3
"""Failures in a row after which an agent is not asked again by this run."""


class Spent(FuguError):
    """A limit of the evaluation is reached. Nothing is lost; a larger limit goes on."""

    exit_code = 3


class Unanswered(FuguError):
    """An agent does not answer, for reasons outside it. `final`: nobody else should try either."""

    def __init__(self, message: str, *, agent: str, final: bool, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.agent = agent
        self.final = final


@dataclass(frozen=True)
class Limits:
    """What all rollouts together may take; None: no limit."""

    usd: float | None = None
    requests: int | None = None


class Paid(Value):
    """One call that was made. `rollout` is whose."""

    rollout: str
    agent: str
    input: int
    cached: int
    output: int
    seconds: float
    usd: float


class Spending:
    """Counts the calls in `file` and refuses those that would go beyond the limits."""

    def __init__(self, file: Path, limits: Limits) -> None:
        self._file = file
        self.limits = limits
        before = rows.read(file, Paid)
        self.requests = len(before)
        self.usd = sum(call.usd for call in before)
        self._reserved = 0.0
        self._under_way = 0
        self._failed: dict[str, int] = defaultdict(int)
        self._down: dict[str, Unanswered] = {}
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._wanted: dict[str, int] = defaultdict(int)

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncIterator[None]:
        """One at a time for one reply: whoever comes second finds it kept.

        A lock is gone with the last who wants it: it belongs to one event loop, and trainings run several in a row.
        """
        self._wanted[name] += 1
        try:
            async with self._locks[name]:
                yield
        finally:
            self._wanted[name] -= 1
            if not self._wanted[name]:
                del self._wanted[name], self._locks[name]

    @asynccontextmanager
    async def call(self, agent: str, worst: float) -> AsyncIterator[None]:
        """Around a call that may cost `worst` USD. Raises Spent, or Unanswered for an agent that is down."""
        if agent in self._down:
            raise self._down[agent]
        self._check(agent, worst)
        self._reserved += worst
        self._under_way += 1
        try:
            yield
        except AgentError as error:
            if error.kind in SURROUNDINGS:
                raise self._unanswered(agent, error) from error
            raise
        finally:
            self._reserved -= worst
            self._under_way -= 1
        self._failed[agent] = 0

    def down(self, agent: str) -> bool:
        """Whether this run does not ask the agent any more."""
        return agent in self._down

    def left(self) -> Limits:
        """What may still be spent."""
        limits = self.limits
        return Limits(
            usd=None if limits.usd is None else limits.usd - self.usd,
            requests=None if limits.requests is None else limits.requests - self.requests,
        )

    def pay(self, paid: Paid) -> None:
        """Record a call that was made. Raises StorageError."""
        rows.append(self._file, paid)
        self.requests += 1
        self.usd += paid.usd

    def _check(self, agent: str, worst: float) -> None:
        most, made = self.limits.requests, self.requests + self._under_way
        if most is not None and made >= most:
            raise Spent(f"{made} of {most} requests are made", hint="a larger --max-requests goes on")
        money = self.limits.usd
        if money is not None and self.usd + self._reserved + worst > money:
            raise Spent(
                f"${self.usd:.4f} of ${money:.4f} are spent, and the next call to {agent} may cost ${worst:.4f}",
                hint="a larger --max-budget-usd goes on",
            )

    def _unanswered(self, agent: str, error: AgentError) -> Unanswered:
        self._failed[agent] += 1
        final = error.kind in FINAL
        hint = MENDED.get(error.kind, error.hint)
        failure = Unanswered(f"{agent} does not answer: {error}", agent=agent, final=final, hint=hint)
        if final or self._failed[agent] >= STRIKES:
            self._down[agent] = failure
        return failure
