"""The accuracy-cost frontier: baselines that need no learning, and paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from fugu_cli.training.pass_matrix import turn_rate_and_cost
from fugu_cli.training.recorded_outcomes import ReplayCase
from fugu_cli.training.replay import CheckRates, PathBelief, extend_path
from fugu_cli.training.synthetic_sessions import ReplayHistory, ReplayStep

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class PolicyScores:
    """A way to decide, by case (n,): chance solved, and relative cost."""

    name: str
    solved: Numbers
    cost: Numbers

    def reward(self, price: float) -> Numbers:
        """solved - lambda x cost (n,)."""
        return self.solved - price * self.cost


@dataclass(frozen=True)
class PairedDifference:
    """A mean difference over the same cases, and its standard error."""

    difference: float
    error: float


def paired_difference(first: Numbers, second: Numbers, of: Sequence[str] = ()) -> PairedDifference:
    """first - second, both (n,). `of`: the issue of each case, where one may stand for several, as under several pools:
    they are not independent, and count together (a cluster-robust error, Liang & Zeger 1986)."""
    gap = first - second
    _, clusters = np.unique(np.array(of or [str(number) for number in range(len(gap))]), return_inverse=True)
    together = np.bincount(clusters, weights=gap - gap.mean())
    count = len(together)
    error = np.sqrt((together**2).sum() * count / (count - 1)) / len(gap) if count > 1 else 0.0
    return PairedDifference(float(gap.mean()), float(error))


def sequence_policy(
    name: str, cases: Sequence[ReplayCase], rows: Sequence[int], check: CheckRates, talk: float = 0.0
) -> PolicyScores:
    """One row after another while the check fails; the last one's work is taken as it is, unchecked. `talk`: where the
    check passes, the cheapest other row verifies, as the rule cascade has it; that costs this share of its run."""
    found = [_followed(case, rows, check, talk) for case in cases]
    return PolicyScores(name, np.array([one[0] for one in found]), np.array([one[1] for one in found]))


def _followed(case: ReplayCase, rows: Sequence[int], check: CheckRates, talk: float) -> tuple[float, float]:
    solved, cost = 0.0, 0.0
    mass = PathBelief(0.0, 1.0)
    path: ReplayHistory = ()
    for place, row in enumerate(rows):
        if mass.total <= 0:  # the check cannot fail any more
            break
        cost += mass.total * turn_rate_and_cost(case.task, row, tuple(step.row for step in path))[1]
        ways = dict(extend_path(case, path, row, mass, check))
        passed = sum(part.right for step, part in ways.items() if step.passed)
        failed = next((part for step, part in ways.items() if not step.passed), PathBelief(0.0, 0.0))
        solved += passed + (failed.right if place == len(rows) - 1 else 0.0)
        if talk and place < len(rows) - 1:
            cost += talk * sum(part.total for step, part in ways.items() if step.passed) * _verdict(case, path, row)
        path = (*path, ReplayStep(row, False))
        mass = failed
    return solved, cost


def _verdict(case: ReplayCase, path: ReplayHistory, row: int) -> float:
    """A run of the cheapest row but the one whose work it is."""
    history = (*(step.row for step in path), row)
    others = [other for other in range(len(case.task.rows)) if other != row] or [row]
    return min(turn_rate_and_cost(case.task, other, history)[1] for other in others)


def single_policies(cases: Sequence[ReplayCase], names: Sequence[str]) -> list[PolicyScores]:
    """Every row alone, one run, no check."""
    return [sequence_policy(name, cases, (row,), CheckRates()) for row, name in enumerate(names)]


def cascade_policies(cases: Sequence[ReplayCase], names: Sequence[str], check: CheckRates) -> list[PolicyScores]:
    """Every order of two or more different rows."""
    orders = [order for size in range(2, len(names) + 1) for order in permutations(range(len(names)), size)]
    return [sequence_policy(" > ".join(names[row] for row in order), cases, order, check) for order in orders]


def oracle_scores(cases: Sequence[ReplayCase]) -> PolicyScores:
    """Knows which rows solve a case: the cheapest of them, the cheapest of all where none does."""
    solved, cost = [], []
    for case in cases:
        rows = sorted(case.task.rows, key=lambda rate: (-rate.first, rate.first_cost))
        best = rows[0] if rows[0].first > 0 else min(case.task.rows, key=lambda rate: rate.first_cost)
        solved.append(best.first)
        cost.append(best.first_cost)
    return PolicyScores("oracle", np.array(solved), np.array(cost))


def best_fixed(arms: Sequence[PolicyScores], price: float) -> PolicyScores:
    """The arm with the highest mean reward at this lambda: chosen with hindsight, on the very cases it is judged on."""
    return max(arms, key=lambda arm: float(arm.reward(price).mean()))


def best_fixed_without_hindsight(
    arms: Sequence[PolicyScores], folds: Sequence[NDArray[np.bool_]], price: float
) -> PolicyScores:
    """In every fold (n,) the arm that has the highest mean reward on the cases that are not in it: what choosing a
    fixed way without hindsight reaches, and so what learning has to be measured by."""
    solved, cost = np.zeros(len(arms[0].solved)), np.zeros(len(arms[0].solved))
    for held in folds:
        arm = max(arms, key=lambda one: float(one.reward(price)[~held].mean()))
        solved[held], cost[held] = arm.solved[held], arm.cost[held]
    return PolicyScores("fixed, chosen on the training cases", solved, cost)
