"""The value of asking each agent next: the best list of attempts that begins with it.

A list is played until a check accepts an attempt. Its value is the share of requests that it solves
less `COST_WEIGHT` times its cost, measured in runs of the dearest agent. The search is exact: the
order of attempts that failed does not matter, so each set of them is looked at once.

Two things make a second attempt worth less than a first one. What one agent could not do is likely
to be hard, so the chance of everybody falls (`DIFFICULTY_SPREAD`); and an agent that tries again
repeats itself (`RETRY_SHARE`, from runs of 18 models on DeepSWE: a retry solves .33 of the failures
where another vendor's equal solves .47).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass

COST_WEIGHT = 0.1
"""The value of one run of the dearest agent, in solved requests."""
CHECK_PASSES_RIGHT = 0.925
CHECK_PASSES_WRONG = 0.15
"""Shares of right and of wrong work that a check accepts: between 95/10 and 90/20, which recorded
judges reach. Knowing them exactly adds less than half a point."""
DIFFICULTY_SPREAD = 1.2
"""Standard deviation, in logits, of how hard requests of one kind are."""
RETRY_SHARE = 0.7
"""The chance of an agent's next attempt, as a share of its first one's."""
LOWEST_RATE, HIGHEST_RATE = 0.02, 0.98

_NODES = ((-2.857, 0.01126), (-1.356, 0.22208), (0.0, 0.53333), (1.356, 0.22208), (2.857, 0.01126))
"""Gauss-Hermite nodes and weights for a standard normal distribution."""


@dataclass(frozen=True)
class Candidate:
    """An agent as a plan sees it: its success rate (0..1) and the expected cost of a run (USD)."""

    name: str
    success_rate: float
    cost: float


@dataclass(frozen=True)
class ListLimits:
    """The limits of a list: attempts of the request in all, money left (USD), and the cost of one run
    of the pool's dearest agent (USD), in which costs are measured.
    """

    attempts: int
    budget: float = math.inf
    dearest_run: float = 0.0


def values_of_asking(
    candidates: Sequence[Candidate], failed: Sequence[str], limits: ListLimits
) -> dict[str, float]:
    """Return the value of asking each candidate next, after the attempts of `failed` were refused.

    A candidate whose run costs more than the budget is left out. `failed` may name agents that are
    no candidates any more; they tell nothing here.
    """
    return _Search(candidates, limits).values(failed)


def conditional_rate(candidate: Candidate, failed: Sequence[Candidate]) -> float:
    """Return the chance that `candidate` solves what the attempts of `failed` did not."""
    search = _Search([candidate, *failed], ListLimits(attempts=1))
    names = [attempt.name for attempt in failed]
    rates = search.rates(candidate.name, names)
    weights = search.weights_after(names)
    return _mean(rates, weights)


class _Search:
    """The rates of each agent at every difficulty, and the values of sets that were looked at."""

    def __init__(self, candidates: Sequence[Candidate], limits: ListLimits) -> None:
        self._costs = {candidate.name: candidate.cost for candidate in candidates}
        self._limits = limits
        self._unit = limits.dearest_run or max(self._costs.values(), default=0.0) or 1.0
        self._rates = {
            candidate.name: _rates_by_difficulty(candidate.success_rate) for candidate in candidates
        }
        self._best: dict[tuple[str, ...], float] = {}

    def values(self, failed: Sequence[str]) -> dict[str, float]:
        """Return the value of asking each agent next, after those in `failed`."""
        known_failed = [name for name in failed if name in self._rates]
        weights = self.weights_after(known_failed)
        values: dict[str, float] = {}
        for name, cost in self._costs.items():
            if cost <= self._limits.budget:
                values[name] = self._value(
                    name, known_failed, len(failed), weights, self._limits.budget
                )
        return values

    def rates(self, name: str, failed: Sequence[str]) -> Sequence[float]:
        """Return the chances of the next attempt of `name` at every difficulty."""
        repeated = RETRY_SHARE ** failed.count(name)
        return [rate * repeated for rate in self._rates[name]]

    def weights_after(self, failed: Sequence[str]) -> list[float]:
        """Return how likely each difficulty is once these attempts were refused."""
        weights = [weight for _, weight in _NODES]
        for index, name in enumerate(failed):
            refused = _refused_weights(weights, self.rates(name, failed[:index]))
            weights = _normalised(refused)
        return weights

    def _value(
        self,
        name: str,
        failed: Sequence[str],
        attempts_made: int,
        weights: Sequence[float],
        budget: float,
    ) -> float:
        """Return the value of the best list that goes on with `name`."""
        rates = self.rates(name, failed)
        solved = _mean(rates, weights)
        value = solved * CHECK_PASSES_RIGHT - COST_WEIGHT * self._costs[name] / self._unit
        if attempts_made + 1 >= self._limits.attempts:
            return value
        refused = _refused_weights(weights, rates)
        going_on = self._best_value(
            tuple(sorted((*failed, name))),
            attempts_made + 1,
            _normalised(refused),
            budget - self._costs[name],
        )
        return value + sum(refused) * going_on

    def _best_value(
        self, failed: tuple[str, ...], attempts_made: int, weights: Sequence[float], budget: float
    ) -> float:
        """Return the value of going on in the best way, 0 where stopping is better."""
        if failed not in self._best:
            best = 0.0
            for name, cost in self._costs.items():
                if cost <= budget:
                    value = self._value(name, failed, attempts_made, weights, budget)
                    best = max(best, value)
            self._best[failed] = best
        return self._best[failed]


def _rates_by_difficulty(rate: float) -> list[float]:
    """Return the rates at every node whose mean over all difficulties is about `rate`."""
    bounded = min(max(rate, LOWEST_RATE), HIGHEST_RATE)
    # a logistic curve averaged over a normal spread is flatter by this factor
    steepness = math.sqrt(1 + 0.346 * DIFFICULTY_SPREAD**2)
    centre = math.log(bounded / (1 - bounded)) * steepness
    return [1 / (1 + math.exp(-(centre + DIFFICULTY_SPREAD * node))) for node, _ in _NODES]


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    mean: float = sum(map(operator.mul, values, weights))
    return mean


def _refused_weights(weights: Sequence[float], rates: Sequence[float]) -> list[float]:
    """Return the chance of each difficulty and of a check that refuses work done at it. `rates` are
    the chances that the work is right.
    """
    refused = []
    for weight, rate in zip(weights, rates, strict=True):
        share = rate * (1 - CHECK_PASSES_RIGHT) + (1 - rate) * (1 - CHECK_PASSES_WRONG)
        refused.append(weight * share)
    return refused


def _normalised(weights: Sequence[float]) -> list[float]:
    total = sum(weights)
    return [weight / total for weight in weights]
