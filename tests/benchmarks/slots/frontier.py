"""The accuracy-cost frontier: baselines that need no learning, and paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fugu_cli.training.pass_matrix import turn_rate_and_cost
from tests.benchmarks.slots.outcomes import ReplayCase
from tests.benchmarks.slots.replay import (
    CheckRates,
    PathBelief,
    ReplayHistory,
    ReplayStep,
    extend_path,
)

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
    """first - second, both (n,). `of`: the issue of each case, where one may stand for several, as
    under several pools: they are not independent, and count together (a cluster-robust error, Liang
    & Zeger 1986)."""
    gap = first - second
    _, clusters = np.unique(
        np.array(of or [str(number) for number in range(len(gap))]), return_inverse=True
    )
    together = np.bincount(clusters, weights=gap - gap.mean())
    count = len(together)
    error = np.sqrt((together**2).sum() * count / (count - 1)) / len(gap) if count > 1 else 0.0
    return PairedDifference(float(gap.mean()), float(error))


def sequence_policy(
    name: str,
    cases: Sequence[ReplayCase],
    rows: Sequence[int],
    check: CheckRates,
    talk: float = 0.0,
) -> PolicyScores:
    """One row after another while the check fails; the last one's work is taken as it is,
    unchecked. `talk`: where the check passes, the cheapest other row verifies, as the rule cascade
    has it; that costs this share of its run."""
    found = [_followed(case, rows, check, talk) for case in cases]
    return PolicyScores(
        name, np.array([one[0] for one in found]), np.array([one[1] for one in found])
    )


def _followed(
    case: ReplayCase, rows: Sequence[int], check: CheckRates, talk: float
) -> tuple[float, float]:
    solved, cost = 0.0, 0.0
    mass = PathBelief(0.0, 1.0)
    path: ReplayHistory = ()
    for place, row in enumerate(rows):
        if mass.total <= 0:  # the check cannot fail any more
            break
        cost += mass.total * turn_rate_and_cost(case.task, row, tuple(step.row for step in path))[1]
        ways = dict(extend_path(case, path, row, mass, check))
        passed = sum(part.right for step, part in ways.items() if step.passed)
        failed = next(
            (part for step, part in ways.items() if not step.passed), PathBelief(0.0, 0.0)
        )
        solved += passed + (failed.right if place == len(rows) - 1 else 0.0)
        if talk and place < len(rows) - 1:
            cost += (
                talk
                * sum(part.total for step, part in ways.items() if step.passed)
                * _verdict(case, path, row)
            )
        path = (*path, ReplayStep(row, False))
        mass = failed
    return solved, cost


def _verdict(case: ReplayCase, path: ReplayHistory, row: int) -> float:
    """A run of the cheapest row but the one whose work it is."""
    history = (*(step.row for step in path), row)
    others = [other for other in range(len(case.task.rows)) if other != row] or [row]
    return min(turn_rate_and_cost(case.task, other, history)[1] for other in others)
