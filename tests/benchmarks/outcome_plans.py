"""Two yardsticks for recorded outcomes: success rates smoothed by a latent model (item response theory), and a plan by
fitted Q iteration that also reads how long the runs were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fugu_cli.training.pass_matrix import RowRates
from fugu_cli.training.recorded_outcomes import Issue, ReplayCase
from fugu_cli.training.replay import ReplayRules
from fugu_cli.training.synthetic_sessions import ReplayHistory, ReplayStep

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Smoothing:
    """`trust` is how much of a rate is the outcome itself, the rest is the model's. `numbers` describe an issue."""

    trust: float = 0.5
    numbers: int = 3
    rounds: int = 40
    penalty: float = 1.0
    seed: int = 0


def fitted_rates(oks: Numbers, how: Smoothing) -> Numbers:
    """The fitted rates (issues, models) of outcomes `oks` (issues, models): 1 solved, 0 not, NaN never run."""
    run = ~np.isnan(oks)
    solved = np.where(run, oks, 0.0)
    share = solved.sum(1) / np.maximum(run.sum(1), 1)
    issues = np.random.default_rng(how.seed).normal(0, 0.3, (len(oks), how.numbers))
    issues[:, 0] = (share - share.mean()) / max(float(share.std()), 1e-6)
    towards = np.eye(1, how.numbers + 1, 1)[0]
    models = np.tile(towards, (oks.shape[1], 1))
    held = np.full(how.numbers + 1, how.penalty)
    held[0] = 0.01
    for _ in range(how.rounds):
        told = np.hstack([np.ones((len(oks), 1)), issues])
        models = _newton_step(models, towards, held, (told, solved.T, run.T), np.zeros(len(oks)))
        issues = _newton_step(issues, 0 * towards[1:], held[1:], (models[:, 1:], solved, run), models[:, 0])
    return _sigmoid(models[:, 0] + issues @ models[:, 1:].T)


def _newton_step(
    points: Numbers, towards: Numbers, held: Numbers, data: tuple[Numbers, Numbers, NDArray[np.bool_]], base: Numbers
) -> Numbers:
    """One Newton step for every point (n, d) on its own; `data`: features (m, d), outcomes and which were run (n, m).
    `base` (m,) is added to the logits."""
    features, solved, run = data
    rates = _sigmoid(points @ features.T + base)
    weights = np.where(run, rates * (1 - rates) + 1e-6, 0.0)
    slope = np.where(run, solved - rates, 0.0) @ features - held * (points - towards)
    curve = np.einsum("nm,ma,mb->nab", weights, features, features, optimize=True) + np.diag(held)
    return np.asarray(points + np.linalg.solve(curve, slope[:, :, None])[:, :, 0])


def _sigmoid(logits: Numbers) -> Numbers:
    return np.asarray(1 / (1 + np.exp(-np.clip(logits, -30, 30))))


def smooth_cases(
    known: Sequence[ReplayCase], issues: Sequence[Issue], names: Sequence[str], how: Smoothing
) -> list[ReplayCase]:
    """`known` as a plan sees them: the rates of their rows (models `names`) from what every model did on these very
    issues. `issues` that are not known have no say; known cases that no issue tells of stay as they are."""
    by_id = {issue.id: issue for issue in issues}
    told = [case for case in known if case.task.task in by_id]
    models = sorted({model for case in told for model in by_id[case.task.task].outcomes})
    if not told or not set(names) <= set(models):
        return list(known)
    oks = np.array([[_ok(by_id[case.task.task], model) for model in models] for case in told])
    found = how.trust * oks + (1 - how.trust) * fitted_rates(oks, how)
    columns = [models.index(name) for name in names]
    rates = {case.task.task: found[place, columns] for place, case in enumerate(told)}
    return [_with_rates(case, rates) for case in known]


def _ok(issue: Issue, model: str) -> float:
    return float(issue.outcomes[model].ok) if model in issue.outcomes else np.nan


def _with_rates(case: ReplayCase, rates: Mapping[str, Numbers]) -> ReplayCase:
    found = rates.get(case.task.task)
    if found is None:
        return case
    rows: tuple[RowRates, ...] = tuple(
        replace(row, first=float(rate)) for row, rate in zip(case.task.rows, found, strict=True)
    )
    return replace(case, task=replace(case.task, rows=rows))


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
    base: Numbers
    slope: Numbers


@dataclass(frozen=True)
class CaseTable:
    """Cases as numbers (n, rows): chance to solve, relative cost, log calls."""

    rates: Numbers
    costs: Numbers
    calls: Numbers

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

    def followed(self, cases: Sequence[ReplayCase]) -> tuple[Numbers, Numbers]:
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

    def _ways(self, table: CaseTable) -> Iterator[tuple[ReplayHistory, Numbers, NDArray[np.int64] | None]]:
        """Every path that is met, how often (n,), and what is chosen there: None where there is no choice left."""
        ways: list[tuple[ReplayHistory, Numbers]] = [((), np.ones(len(table.rates)))]
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

    def _value(self, path: ReplayHistory, weights: Numbers, table: CaseTable) -> Numbers:
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

    def _gain(self, path: ReplayHistory, row: int, weights: Numbers, table: CaseTable) -> Numbers:
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

    def _worths(self, choices: PathChoices, path: ReplayHistory, table: CaseTable) -> Numbers:
        return np.asarray(choices.base[:, None] + choices.slope[:, None] * self._length(path, table))

    def _length(self, path: ReplayHistory, table: CaseTable) -> Numbers:
        """How long the runs were (n,): the mean of their standardised log calls."""
        rows = [step.row for step in path]
        if not rows:
            return np.zeros(len(table.rates))
        return np.asarray(((table.calls - self._mean) / self._spread)[:, rows].mean(1))

    def _chance(self, step: ReplayStep, table: CaseTable) -> Numbers:
        """That the check says this of the row's work (n,)."""
        rates, check = table.rates[:, step.row], self._rules.check
        passed = rates * check.right + (1 - rates) * check.wrong
        return np.asarray(passed if step.passed else 1 - passed)

    def _right(self, path: ReplayHistory, table: CaseTable) -> Numbers:
        """That the newest work is right (n,), after what the check said of it."""
        rates, check, step = table.rates[:, path[-1].row], self._rules.check, path[-1]
        right = rates * (check.right if step.passed else 1 - check.right)
        return np.asarray(right / np.maximum(self._chance(step, table), 1e-12))
