"""Signals: a plan that reads the runs - who has tried, what the check said, and how many calls it took them.

Beside prior.py, whose plan sees the path alone. Long runs fail more often, and so does whoever comes after them: where
a plan sees the calls it can give up, or ask the dear model, on some issues only. Fitted backwards from the last turn
(fitted Q iteration, Ernst et al. 2005): what each choice was worth on the cases, regressed at every path on one number,
the mean of the runs' log calls, with a penalty on the slope. Without calls it is dynamic programming over paths.

The rates may be chances (latent.py): a path is met with the chance that they and the check give it. For recorded
outcomes only, where every row ran once. Pure numbers: knows nothing of texts and heads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fugu_cli.training.outcomes import Case
from fugu_cli.training.replay import Rules
from fugu_cli.training.replay_sessions import Step, Trail

Numbers = NDArray[np.float64]

END = -1
"""The choice to end with the work there is: it passed, or it is given up."""
RIDGE = 20.0
"""Weighs as much as so many cases against a slope."""
LEAST = 1e-4
"""Cost counts at least this much: of ways that are worth the same the cheaper one is taken."""


@dataclass(frozen=True)
class Choices:
    """What can be done at a path: rows or END, and what each is worth (k,): base + slope x how long the runs were."""

    rows: tuple[int, ...]
    base: Numbers
    slope: Numbers


@dataclass(frozen=True)
class Table:
    """Cases as numbers (n, rows): chance to solve, relative cost, log calls."""

    rates: Numbers
    costs: Numbers
    calls: Numbers

    @classmethod
    def of(cls, cases: Sequence[Case]) -> Table:
        """Of recorded cases; a row that recorded no calls made one."""
        rates = np.array([[row.first for row in case.task.rows] for case in cases])
        costs = np.array([[row.first_cost for row in case.task.rows] for case in cases])
        calls = np.array([case.calls or (1,) * rates.shape[1] for case in cases], np.float64)
        return cls(rates, costs, np.log(np.maximum(calls, 1.0)))


class Signals:
    """`price` is lambda, the reward's weight of a relative cost of 1."""

    def __init__(self, cases: Sequence[Case], rules: Rules, price: float, ridge: float = RIDGE) -> None:
        self._table = Table.of(cases)
        self._rules = rules
        self._price = max(price, LEAST)
        self._ridge = ridge
        self._mean = self._table.calls.mean(0)
        self._spread = np.maximum(self._table.calls.std(0), 1e-6)
        self._choices: dict[Trail, Choices] = {}
        self.worth = float(self._value((), np.ones(len(cases)), self._table).mean())

    def choose(self, path: Trail, table: Table) -> NDArray[np.int64]:
        """The best row or END (n,) at a path, for each case."""
        choices = self._choices[path]
        return np.asarray(np.array(choices.rows)[self._worths(choices, path, table).argmax(0)])

    def followed(self, cases: Sequence[Case]) -> tuple[Numbers, Numbers]:
        """Chance solved and relative cost (n,) of doing what is best on every path: on the very cases, or on others."""
        table = Table.of(cases)
        solved, cost = np.zeros(len(cases)), np.zeros(len(cases))
        for path, weights, taken in self._ways(table):
            ends = weights if taken is None else np.where(taken == END, weights, 0.0)
            solved += ends * self._right(path, table) if path else 0.0
            if taken is not None:
                for row in set(taken.tolist()) - {END}:
                    cost += np.where(taken == row, weights, 0.0) * table.costs[:, row]
        return solved, cost

    def _ways(self, table: Table) -> Iterator[tuple[Trail, Numbers, NDArray[np.int64] | None]]:
        """Every path that is met, how often (n,), and what is chosen there: None where there is no choice left."""
        ways: list[tuple[Trail, Numbers]] = [((), np.ones(len(table.rates)))]
        while ways:
            path, weights = ways.pop()
            taken = self.choose(path, table) if path in self._choices else None
            yield path, weights, taken
            for row in sorted(set(() if taken is None else taken.tolist()) - {END}):
                going = np.where(taken == row, weights, 0.0)
                for step in (Step(row, False), Step(row, True)):
                    part = going * self._chance(step, table)
                    if part.any():
                        ways.append(((*path, step), part))

    def _value(self, path: Trail, weights: Numbers, table: Table) -> Numbers:
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
        self._choices[path] = Choices(rows, means - slope * middle, slope)
        best = self._worths(self._choices[path], path, table).argmax(0)
        return np.asarray(gains[best, np.arange(len(weights))])

    def _gain(self, path: Trail, row: int, weights: Numbers, table: Table) -> Numbers:
        if row == END:
            return self._right(path, table)
        found = -self._price * table.costs[:, row]
        for step in (Step(row, False), Step(row, True)):
            chance = self._chance(step, table)
            found = found + chance * self._value((*path, step), weights * chance, table)
        return np.asarray(found)

    def _rows(self, path: Trail) -> tuple[int, ...]:
        """Rows that have not worked, and END after some work; nothing where nobody is left or the turns are spent."""
        spent = {step.row for step in path}
        left = tuple(row for row in range(self._table.rates.shape[1]) if row not in spent)
        if not left or len(path) >= self._rules.turns:
            return ()
        return (END, *left) if path else left

    def _worths(self, choices: Choices, path: Trail, table: Table) -> Numbers:
        return np.asarray(choices.base[:, None] + choices.slope[:, None] * self._length(path, table))

    def _length(self, path: Trail, table: Table) -> Numbers:
        """How long the runs were (n,): the mean of their standardised log calls."""
        rows = [step.row for step in path]
        if not rows:
            return np.zeros(len(table.rates))
        return np.asarray(((table.calls - self._mean) / self._spread)[:, rows].mean(1))

    def _chance(self, step: Step, table: Table) -> Numbers:
        """That the check says this of the row's work (n,)."""
        rates, check = table.rates[:, step.row], self._rules.check
        passed = rates * check.right + (1 - rates) * check.wrong
        return np.asarray(passed if step.passed else 1 - passed)

    def _right(self, path: Trail, table: Table) -> Numbers:
        """That the newest work is right (n,), after what the check said of it."""
        rates, check, step = table.rates[:, path[-1].row], self._rules.check, path[-1]
        right = rates * (check.right if step.passed else 1 - check.right)
        return np.asarray(right / np.maximum(self._chance(step, table), 1e-12))
