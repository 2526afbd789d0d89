"""The frontier: accuracy against cost of what was learned, beside everything that needs no learning.

Best single, a random mix at the same cost, every fixed cascade, retrying the same row, the oracle; differences are
paired by case, with their standard errors. Everything is exact in expectation, like the replay itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from fugu_cli.training.outcomes import Case
from fugu_cli.training.replay import Check, Mass, grown
from fugu_cli.training.replay_sessions import Step, Trail
from fugu_cli.training.values import chance

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Arm:
    """A way to decide, by case (n,): chance solved, and relative cost."""

    name: str
    solved: Numbers
    cost: Numbers

    def reward(self, price: float) -> Numbers:
        """solved - lambda x cost (n,)."""
        return self.solved - price * self.cost


@dataclass(frozen=True)
class Paired:
    """A mean difference over the same cases, and its standard error."""

    difference: float
    error: float


def paired(first: Numbers, second: Numbers, of: Sequence[str] = ()) -> Paired:
    """first - second, both (n,). `of`: the issue of each case, where one may stand for several, as under several pools:
    they are not independent, and count together (a cluster-robust error, Liang & Zeger 1986)."""
    gap = first - second
    _, clusters = np.unique(np.array(of or [str(number) for number in range(len(gap))]), return_inverse=True)
    together = np.bincount(clusters, weights=gap - gap.mean())
    count = len(together)
    error = np.sqrt((together**2).sum() * count / (count - 1)) / len(gap) if count > 1 else 0.0
    return Paired(float(gap.mean()), float(error))


def sequence(name: str, cases: Sequence[Case], rows: Sequence[int], check: Check, talk: float = 0.0) -> Arm:
    """One row after another while the check fails; the last one's work is taken as it is, unchecked. `talk`: where the
    check passes, the cheapest other row verifies, as the rule cascade has it; that costs this share of its run."""
    found = [_followed(case, rows, check, talk) for case in cases]
    return Arm(name, np.array([one[0] for one in found]), np.array([one[1] for one in found]))


def _followed(case: Case, rows: Sequence[int], check: Check, talk: float) -> tuple[float, float]:
    solved, cost = 0.0, 0.0
    mass = Mass(0.0, 1.0)
    path: Trail = ()
    for place, row in enumerate(rows):
        if mass.total <= 0:  # the check cannot fail any more
            break
        cost += mass.total * chance(case.task, row, tuple(step.row for step in path))[1]
        ways = dict(grown(case, path, row, mass, check))
        passed = sum(part.right for step, part in ways.items() if step.passed)
        failed = next((part for step, part in ways.items() if not step.passed), Mass(0.0, 0.0))
        solved += passed + (failed.right if place == len(rows) - 1 else 0.0)
        if talk and place < len(rows) - 1:
            cost += talk * sum(part.total for step, part in ways.items() if step.passed) * _verdict(case, path, row)
        path = (*path, Step(row, False))
        mass = failed
    return solved, cost


def _verdict(case: Case, path: Trail, row: int) -> float:
    """A run of the cheapest row but the one whose work it is."""
    history = (*(step.row for step in path), row)
    others = [other for other in range(len(case.task.rows)) if other != row] or [row]
    return min(chance(case.task, other, history)[1] for other in others)


def singles(cases: Sequence[Case], names: Sequence[str]) -> list[Arm]:
    """Every row alone, one run, no check."""
    return [sequence(name, cases, (row,), Check()) for row, name in enumerate(names)]


def cascades(cases: Sequence[Case], names: Sequence[str], check: Check) -> list[Arm]:
    """Every order of two or more different rows."""
    orders = [order for size in range(2, len(names) + 1) for order in permutations(range(len(names)), size)]
    return [sequence(" > ".join(names[row] for row in order), cases, order, check) for order in orders]


def retries(cases: Sequence[Case], names: Sequence[str], check: Check, times: int = 3) -> list[Arm]:
    """The same row again while the check fails."""
    return [sequence(f"{name} x{times}", cases, (row,) * times, check) for row, name in enumerate(names)]


def oracle(cases: Sequence[Case]) -> Arm:
    """Knows which rows solve a case: the cheapest of them, the cheapest of all where none does."""
    solved, cost = [], []
    for case in cases:
        rows = sorted(case.task.rows, key=lambda rate: (-rate.first, rate.first_cost))
        best = rows[0] if rows[0].first > 0 else min(case.task.rows, key=lambda rate: rate.first_cost)
        solved.append(best.first)
        cost.append(best.first_cost)
    return Arm("oracle", np.array(solved), np.array(cost))


def mixed(arms: Sequence[Arm], cost: float) -> Arm:
    """A coin between two single rows that costs as much as asked for, the best such coin; the nearest row beyond both
    ends."""
    order = sorted(arms, key=lambda arm: float(arm.cost.mean()))
    best: Arm | None = None
    for low in order:
        for high in order:
            ends = float(low.cost.mean()), float(high.cost.mean())
            if not ends[0] <= cost <= ends[1]:
                continue
            share = 0.0 if ends[0] == ends[1] else (cost - ends[0]) / (ends[1] - ends[0])
            both = [low.solved * (1 - share) + high.solved * share, low.cost * (1 - share) + high.cost * share]
            arm = Arm("random mix at this cost", *both)
            best = arm if best is None or arm.solved.mean() > best.solved.mean() else best
    return best or (order[0] if cost < float(order[0].cost.mean()) else order[-1])


def best_fixed(arms: Sequence[Arm], price: float) -> Arm:
    """The arm with the highest mean reward at this lambda: chosen with hindsight, on the very cases it is judged on."""
    return max(arms, key=lambda arm: float(arm.reward(price).mean()))


def trained_fixed(arms: Sequence[Arm], folds: Sequence[NDArray[np.bool_]], price: float) -> Arm:
    """In every fold (n,) the arm that has the highest mean reward on the cases that are not in it: what choosing a
    fixed way without hindsight reaches, and so what learning has to be measured by."""
    solved, cost = np.zeros(len(arms[0].solved)), np.zeros(len(arms[0].solved))
    for held in folds:
        arm = max(arms, key=lambda one: float(one.reward(price)[~held].mean()))
        solved[held], cost[held] = arm.solved[held], arm.cost[held]
    return Arm("fixed, chosen on the training cases", solved, cost)
