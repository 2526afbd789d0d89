"""The best plan for many cases at once: dynamic programming over who has tried and what the check
said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fugu_cli.training.pass_matrix import softmax, turn_rate_and_cost
from tests.benchmarks.slots.outcomes import ReplayCase
from tests.benchmarks.slots.replay import VERIFIER, WORKER, ReplayHistory, ReplayRules, ReplayStep

Numbers = NDArray[np.float64]

RARE_PATH = 1e-3
"""Paths met less often are not told of."""
DISTRUST = 3
"""After so many turns work that passed the check is not done over."""


@dataclass(frozen=True)
class PolicyTarget:
    """A point worth learning: the path, a distribution over the rows, the role, and how often it is
    met.
    """

    path: ReplayHistory
    rows: tuple[float, ...]
    role: int
    weight: float


class PathPlan:
    """`price` is lambda, the reward's weight of a relative cost of 1."""

    def __init__(self, cases: Sequence[ReplayCase], rules: ReplayRules, price: float) -> None:
        self._cases = [case for case in cases if not case.empty] or list(cases)
        self._rules = rules
        self._price = price
        self._rows = range(len(cases[0].task.rows))
        self._tables: dict[tuple[int, tuple[int, ...]], tuple[Numbers, Numbers]] = {}

    def advice(self, tau: float = 0.02) -> Iterator[PolicyTarget]:
        """Every path that is met at all before the last turn, with what is best there; nothing
        beyond a point at which work is accepted."""
        yield from self._advised((), self._start(), tau)

    def followed(self) -> tuple[Numbers, Numbers]:
        """Chance solved and relative cost (cases,) of doing what is best on every path, on the very
        cases.
        """
        solved, cost = np.zeros(len(self._cases)), np.zeros(len(self._cases))
        ways: list[tuple[ReplayHistory, Numbers]] = [((), self._start())]
        while ways:
            path, weights = ways.pop()
            if self._ended(path, weights):
                solved += weights[0]
                continue
            row = int(np.argmax(self.worth(path, weights)))
            cost += weights.sum(0) * self._table(row, path)[1]
            ways += [((*path, step), part) for step, part in self._grown(path, row, weights)]
        return solved, cost

    def _start(self) -> Numbers:
        weights = np.zeros((2, len(self._cases)))
        weights[1] = 1.0
        return weights

    def _ended(self, path: ReplayHistory, weights: Numbers) -> bool:
        """Nobody is left to work, or what there is had better be accepted."""
        if len(path) >= self._rules.turns or not self._left(path):
            return True
        verified = self._verified(path, weights)
        return verified is not None and (
            len(path) >= DISTRUST or verified >= max(self.worth(path, weights))
        )

    def _advised(self, path: ReplayHistory, weights: Numbers, tau: float) -> Iterator[PolicyTarget]:
        if not self._left(path) and not path[-1].passed:
            return
        met = float(weights.sum()) / len(self._cases)
        if met < RARE_PATH:
            return
        worth, verified = self.worth(path, weights), self._verified(path, weights)
        if verified is not None and verified >= max(worth):
            talk = self._talk(weights)
            yield PolicyTarget(
                path,
                softmax([-cost for cost in talk], tau * max(self._rules.talk, 1e-3)),
                VERIFIER,
                met,
            )
            return
        yield PolicyTarget(path, softmax(worth, tau), WORKER, met)
        if len(path) < self._rules.turns - 1:
            for row in self._left(path):
                for step, part in self._grown(path, row, weights):
                    yield from self._advised((*path, step), part, tau)

    def worth(self, path: ReplayHistory, weights: Numbers) -> tuple[float, ...]:
        """Expected reward of a Worker's turn by each row and of what is best after it, per unit of
        weight.
        """
        total = weights.sum() or 1.0
        found = []
        for row in self._rows:
            if row not in self._left(path):
                found.append(-np.inf)
                continue
            rates = self._table(row, path)
            value = -self._price * float((weights.sum(0) * rates[1]).sum())
            for step, part in self._grown(path, row, weights):
                value += self._best((*path, step), part)
            found.append(value / total)
        return tuple(found)

    def _best(self, path: ReplayHistory, weights: Numbers) -> float:
        """The best that can follow, not normalised: to end here where the check passed, or to go
        on.
        """
        total = float(weights.sum())
        if (
            len(path) >= self._rules.turns
            or not self._left(path)
            or total < 1e-6 * len(self._cases)
        ):
            return float(weights[0].sum())
        verified = self._verified(path, weights)
        if verified is not None and len(path) >= DISTRUST:
            return verified * total
        return total * max(*self.worth(path, weights), -np.inf if verified is None else verified)

    def _left(self, path: ReplayHistory) -> tuple[int, ...]:
        """Rows that can work now: where runs were recorded once, those that have not."""
        spent = set() if self._cases[0].looped else {step.row for step in path}
        return tuple(row for row in self._rows if row not in spent)

    def _verified(self, path: ReplayHistory, weights: Numbers) -> float | None:
        """What a Verifier's turn brings, per unit of weight; None where the check failed: nothing
        can be accepted.
        """
        if not path or not path[-1].passed:
            return None
        return float(weights[0].sum() / weights.sum()) - self._price * min(self._talk(weights))

    def _talk(self, weights: Numbers) -> tuple[float, ...]:
        mass = weights.sum(0)
        costs = (self._rules.talk * self._table(row, ())[1] for row in self._rows)
        return tuple(float((mass * cost).sum() / (mass.sum() or 1.0)) for cost in costs)

    def _grown(
        self, path: ReplayHistory, row: int, weights: Numbers
    ) -> Iterator[tuple[ReplayStep, Numbers]]:
        rate, check = self._table(row, path)[0], self._rules.check
        mass = weights.sum(0)
        right, wrong = mass * rate, mass * (1 - rate)
        passed = np.stack([right * check.right, wrong * check.wrong])
        yield ReplayStep(row, False), np.stack([right, wrong]) - passed
        yield ReplayStep(row, True), passed

    def _table(self, row: int, path: ReplayHistory) -> tuple[Numbers, Numbers]:
        """Rates and costs (cases,) of a turn by `row` after `path`."""
        history = tuple(sorted({step.row for step in path}))
        if (row, history) not in self._tables:
            pairs = np.array([turn_rate_and_cost(case.task, row, history) for case in self._cases])
            self._tables[row, history] = (pairs[:, 0], pairs[:, 1])
        return self._tables[row, history]
