"""Thrift: as much as possible solved within a budget, by mixing what was learned for several lambdas.

Lambda says what cost is worth, a budget how much there is; between the two stands a mixture of at most two ways to
decide. What is mixed is chosen by what the plans of the training cases (Prior.followed) reach on those, for each fold
by itself: the cases that are judged have no say. Knows no texts and no heads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fugu_cli.training import frontier
from fugu_cli.training.frontier import Arm
from fugu_cli.training.outcomes import Case
from fugu_cli.training.prior import Prior
from fugu_cli.training.replay import Rules

Numbers = NDArray[np.float64]


def shares(reached: Sequence[tuple[float, float]], limit: float) -> Numbers:
    """How often each way (solved, cost) is taken, so that most is solved and the mean cost stays within `limit`: one
    way, or two. The cheapest where all cost more."""
    solved, costs = np.array(reached).T
    within = [place for place, cost in enumerate(costs) if cost <= limit]
    beyond = [place for place, cost in enumerate(costs) if cost > limit]
    if not within:
        return _pair(len(costs), int(costs.argmin()), 0, 0.0)
    ways = [_pair(len(costs), low, low, 0.0) for low in within]
    for low in within:
        ways += [_pair(len(costs), low, high, (limit - costs[low]) / (costs[high] - costs[low])) for high in beyond]
    return max(ways, key=lambda way: float(way @ solved))


def _pair(count: int, low: int, high: int, part: float) -> Numbers:
    found = np.zeros(count)
    found[low] += 1 - part
    found[high] += part
    return found


def chosen(known: Sequence[Case], plans: Sequence[tuple[Rules, float]], share: float) -> Numbers:
    """How often to decide as for each of `plans` (rules and lambda), from the `known` cases: their plans within `share`
    of what the best single row costs on them."""
    names = [str(row) for row in range(len(known[0].task.rows))]
    single = max(frontier.singles(known, names), key=lambda arm: float(arm.solved.mean()))
    reached = []
    for rules, price in plans:
        solved, cost = Prior(known, rules, price).followed()
        reached.append((float(solved.mean()), float(cost.mean())))
    return shares(reached, share * float(single.cost.mean()))


def mixed(name: str, arms: Sequence[Arm], parts: Numbers) -> Arm:
    """In expectation, `parts` (ways, n): how often each way decides each case."""
    solved = sum((part * arm.solved for part, arm in zip(parts, arms, strict=True)), np.zeros(parts.shape[1]))
    cost = sum((part * arm.cost for part, arm in zip(parts, arms, strict=True)), np.zeros(parts.shape[1]))
    return Arm(name, solved, cost)
