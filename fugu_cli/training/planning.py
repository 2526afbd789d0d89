"""Plans from many cases at once: dynamic programming over who has tried and what the check said, and fitted Q
iteration that also reads how long the runs were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fugu_cli.training.pass_matrix import softmax, turn_rate_and_cost
from fugu_cli.training.recorded_outcomes import ReplayCase
from fugu_cli.training.replay import VERIFIER, ReplayRules
from fugu_cli.training.synthetic_sessions import WORKER, ReplayHistory, ReplayStep

Numbers = NDArray[np.float64]

RARE_PATH = 1e-3
"""Paths met less often are not told of."""
DISTRUST = 3
"""After so many turns work that passed the check is not done over."""


@dataclass(frozen=True)
class PolicyTarget:
    """A point worth learning: the path, a distribution over the rows, the role, and how often it is met."""

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
        """Every path that is met at all before the last turn, with what is best there; nothing beyond a point at which
        work is accepted."""
        yield from self._advised((), self._start(), tau)

    def followed(self) -> tuple[Numbers, Numbers]:
        """Chance solved and relative cost (cases,) of doing what is best on every path, on the very cases."""
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
        return verified is not None and (len(path) >= DISTRUST or verified >= max(self.worth(path, weights)))

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
                path, softmax([-cost for cost in talk], tau * max(self._rules.talk, 1e-3)), VERIFIER, met
            )
            return
        yield PolicyTarget(path, softmax(worth, tau), WORKER, met)
        if len(path) < self._rules.turns - 1:
            for row in self._left(path):
                for step, part in self._grown(path, row, weights):
                    yield from self._advised((*path, step), part, tau)

    def worth(self, path: ReplayHistory, weights: Numbers) -> tuple[float, ...]:
        """Expected reward of a Worker's turn by each row and of what is best after it, per unit of weight."""
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
        """The best that can follow, not normalised: to end here where the check passed, or to go on."""
        total = float(weights.sum())
        if len(path) >= self._rules.turns or not self._left(path) or total < 1e-6 * len(self._cases):
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
        """What a Verifier's turn brings, per unit of weight; None where the check failed: nothing can be accepted."""
        if not path or not path[-1].passed:
            return None
        return float(weights[0].sum() / weights.sum()) - self._price * min(self._talk(weights))

    def _talk(self, weights: Numbers) -> tuple[float, ...]:
        mass = weights.sum(0)
        costs = (self._rules.talk * self._table(row, ())[1] for row in self._rows)
        return tuple(float((mass * cost).sum() / (mass.sum() or 1.0)) for cost in costs)

    def _grown(self, path: ReplayHistory, row: int, weights: Numbers) -> Iterator[tuple[ReplayStep, Numbers]]:
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


FloatArray = NDArray[np.float64]

END = -1
"""The choice to end with the work there is: it passed, or it is given up."""
RIDGE = 20.0
"""Weighs as much as so many cases against a slope."""
LEAST_WEIGHT = 1e-4
"""Cost counts at least this much: of ways that are worth the same the cheaper one is taken."""


@dataclass(frozen=True)
class PathChoices:
    """What can be done at a path: rows or END, and what each is worth (k,): base + slope x how long the runs were."""

    rows: tuple[int, ...]
    base: FloatArray
    slope: FloatArray


@dataclass(frozen=True)
class CaseTable:
    """Cases as numbers (n, rows): chance to solve, relative cost, log calls."""

    rates: FloatArray
    costs: FloatArray
    calls: FloatArray

    @classmethod
    def of(cls, cases: Sequence[ReplayCase]) -> CaseTable:
        """Of recorded cases; a row that recorded no calls made one."""
        rates = np.array([[row.first for row in case.task.rows] for case in cases])
        costs = np.array([[row.first_cost for row in case.task.rows] for case in cases])
        calls = np.array([case.calls or (1,) * rates.shape[1] for case in cases], np.float64)
        return cls(rates, costs, np.log(np.maximum(calls, 1.0)))


class CallCountPlan:
    """`price` is lambda, the reward's weight of a relative cost of 1."""

    def __init__(self, cases: Sequence[ReplayCase], rules: ReplayRules, price: float, ridge: float = RIDGE) -> None:
        self._table = CaseTable.of(cases)
        self._rules = rules
        self._price = max(price, LEAST_WEIGHT)
        self._ridge = ridge
        self._mean = self._table.calls.mean(0)
        self._spread = np.maximum(self._table.calls.std(0), 1e-6)
        self._choices: dict[ReplayHistory, PathChoices] = {}
        self.worth = float(self._value((), np.ones(len(cases)), self._table).mean())

    def choose(self, path: ReplayHistory, table: CaseTable) -> NDArray[np.int64]:
        """The best row or END (n,) at a path, for each case."""
        choices = self._choices[path]
        return np.asarray(np.array(choices.rows)[self._worths(choices, path, table).argmax(0)])

    def followed(self, cases: Sequence[ReplayCase]) -> tuple[FloatArray, FloatArray]:
        """Chance solved and relative cost (n,) of doing what is best on every path: on the very cases, or on others."""
        table = CaseTable.of(cases)
        solved, cost = np.zeros(len(cases)), np.zeros(len(cases))
        for path, weights, taken in self._ways(table):
            ends = weights if taken is None else np.where(taken == END, weights, 0.0)
            solved += ends * self._right(path, table) if path else 0.0
            if taken is not None:
                for row in set(taken.tolist()) - {END}:
                    cost += np.where(taken == row, weights, 0.0) * table.costs[:, row]
        return solved, cost

    def _ways(self, table: CaseTable) -> Iterator[tuple[ReplayHistory, FloatArray, NDArray[np.int64] | None]]:
        """Every path that is met, how often (n,), and what is chosen there: None where there is no choice left."""
        ways: list[tuple[ReplayHistory, FloatArray]] = [((), np.ones(len(table.rates)))]
        while ways:
            path, weights = ways.pop()
            taken = self.choose(path, table) if path in self._choices else None
            yield path, weights, taken
            for row in sorted(set(() if taken is None else taken.tolist()) - {END}):
                going = np.where(taken == row, weights, 0.0)
                for step in (ReplayStep(row, False), ReplayStep(row, True)):
                    part = going * self._chance(step, table)
                    if part.any():
                        ways.append(((*path, step), part))

    def _value(self, path: ReplayHistory, weights: FloatArray, table: CaseTable) -> FloatArray:
        """What the plan brings each case from here (n,); fits the plan there."""
        rows = self._rows(path)
        if not rows:
            return self._right(path, table)
        gains = np.empty((len(rows), len(weights)))
        for place, row in enumerate(rows):
            gains[place] = self._gain(path, row, weights, table)
        total = max(float(weights.sum()), 1e-12)
        means, length = gains @ weights / total, self._length(path, table)
        middle = float(weights @ length) / total
        apart = weights * (length - middle)
        slope = (gains - means[:, None]) @ apart / (float(apart @ (length - middle)) + self._ridge)
        self._choices[path] = PathChoices(rows, means - slope * middle, slope)
        best = self._worths(self._choices[path], path, table).argmax(0)
        return np.asarray(gains[best, np.arange(len(weights))])

    def _gain(self, path: ReplayHistory, row: int, weights: FloatArray, table: CaseTable) -> FloatArray:
        if row == END:
            return self._right(path, table)
        found = -self._price * table.costs[:, row]
        for step in (ReplayStep(row, False), ReplayStep(row, True)):
            chance = self._chance(step, table)
            found = found + chance * self._value((*path, step), weights * chance, table)
        return np.asarray(found)

    def _rows(self, path: ReplayHistory) -> tuple[int, ...]:
        """Rows that have not worked, and END after some work; nothing where nobody is left or the turns are spent."""
        spent = {step.row for step in path}
        left = tuple(row for row in range(self._table.rates.shape[1]) if row not in spent)
        if not left or len(path) >= self._rules.turns:
            return ()
        return (END, *left) if path else left

    def _worths(self, choices: PathChoices, path: ReplayHistory, table: CaseTable) -> FloatArray:
        return np.asarray(choices.base[:, None] + choices.slope[:, None] * self._length(path, table))

    def _length(self, path: ReplayHistory, table: CaseTable) -> FloatArray:
        """How long the runs were (n,): the mean of their standardised log calls."""
        rows = [step.row for step in path]
        if not rows:
            return np.zeros(len(table.rates))
        return np.asarray(((table.calls - self._mean) / self._spread)[:, rows].mean(1))

    def _chance(self, step: ReplayStep, table: CaseTable) -> FloatArray:
        """That the check says this of the row's work (n,)."""
        rates, check = table.rates[:, step.row], self._rules.check
        passed = rates * check.right + (1 - rates) * check.wrong
        return np.asarray(passed if step.passed else 1 - passed)

    def _right(self, path: ReplayHistory, table: CaseTable) -> FloatArray:
        """That the newest work is right (n,), after what the check said of it."""
        rates, check, step = table.rates[:, path[-1].row], self._rules.check, path[-1]
        right = rates * (check.right if step.passed else 1 - check.right)
        return np.asarray(right / np.maximum(self._chance(step, table), 1e-12))
