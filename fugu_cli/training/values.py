"""What a turn is worth: the expected reward of giving the next Worker turn to each row, from a task's rates.

    Q(row) = p(row) - cost_weight * cost(row) + (1 - p(row)) * max Q(next),  0 when no turn is left to verify

A state is which rows have failed so far, in order. Pure numbers; knows nothing of texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fugu_cli.training.matrix import TaskRates

History = tuple[int, ...]
"""Rows whose Worker turns failed, oldest first."""
Choose = Callable[[TaskRates, History], int]
"""A policy: the row of the next Worker turn."""


@dataclass(frozen=True)
class Terms:
    """`turns` is K; one of them verifies. `cost` is the weight of a turn's relative cost, `tau` the softness."""

    turns: int = 5
    cost: float = 0.1
    tau: float = 0.1


@dataclass(frozen=True)
class Outcome:
    """What a policy is expected to reach on one task: solved, relative cost, Worker turns."""

    solved: float
    cost: float
    turns: float


def chance(task: TaskRates, row: int, history: History) -> tuple[float, float]:
    """(rate, cost) of a turn by `row`: a model that has failed before draws other answers, and one that follows another
    begins where a second draw does."""
    rate = task.rows[row]
    if any(row == before or (rate.agent and rate.agent == task.rows[before].agent) for before in history):
        return rate.again, rate.again_cost
    return rate.after if history and rate.after else (rate.first, rate.first_cost)


def values(task: TaskRates, history: History, terms: Terms) -> tuple[float, ...]:
    """Q of every row. All zero when the turns are spent."""
    left = terms.turns - 1 - len(history)
    if left <= 0:
        return (0.0,) * len(task.rows)
    found = []
    for row in range(len(task.rows)):
        rate, cost = chance(task, row, history)
        after = max(*values(task, (*history, row), terms), 0.0) if rate < 1 and left > 1 else 0.0
        found.append(rate - terms.cost * cost + (1 - rate) * after)
    return tuple(found)


def soft(worth: Sequence[float], tau: float) -> tuple[float, ...]:
    """softmax(worth / tau)."""
    top = max(worth)
    weights = [math.exp((value - top) / tau) for value in worth]
    return tuple(weight / sum(weights) for weight in weights)


def follow(task: TaskRates, choose: Choose, turns: int) -> Outcome:
    """A policy on one task, in expectation."""
    solved, cost, taken, reached = 0.0, 0.0, 0.0, 1.0
    history: History = ()
    for _ in range(turns - 1):
        row = choose(task, history)
        rate, price = chance(task, row, history)
        solved += reached * rate
        cost += reached * price
        taken += reached
        reached *= 1 - rate
        history = (*history, row)
    return Outcome(solved, cost, taken)


def cascade(task: TaskRates, history: History) -> int:
    """One row up after each failure, from the first."""
    return min(len(history), len(task.rows) - 1)


def always(row: int) -> Choose:
    """One row, whatever happened."""
    return lambda task, history: row


def best(terms: Terms) -> Choose:
    """The oracle: knows every task's rates."""

    def choose(task: TaskRates, history: History) -> int:
        worth = values(task, history, terms)
        return max(range(len(worth)), key=worth.__getitem__)

    return choose
