"""The plan over lists of attempts: who is worth asking next, by rates, costs and what has failed."""

import itertools
import math

import pytest

from fugu_cli.coordinators.list_plan import (
    COST_WEIGHT,
    Candidate,
    ListLimits,
    conditional_rate,
    values_of_asking,
)

CHEAP = Candidate("cheap", 0.5, 0.1)
MIDDLE = Candidate("middle", 0.6, 0.3)
DEAR = Candidate("dear", 0.7, 1.0)


def best(candidates: list[Candidate], failed: list[str], limits: ListLimits) -> str:
    values = values_of_asking(candidates, failed, limits)
    return max(values, key=values.__getitem__)


def test_a_cheap_agent_that_solves_nearly_as_much_is_asked_first() -> None:
    assert best([DEAR, Candidate("cheap", 0.65, 0.01)], [], ListLimits(4)) == "cheap"


def test_with_one_attempt_left_the_rate_counts_and_with_more_the_order_by_cost() -> None:
    weak = Candidate("weak", 0.45, 0.02)
    assert best([weak, DEAR], [], ListLimits(1)) == "dear"
    assert best([weak, DEAR], [], ListLimits(4)) == "weak"


def test_one_attempt_is_worth_its_accepted_solutions_less_its_cost() -> None:
    values = values_of_asking([DEAR], [], ListLimits(1))
    assert values["dear"] == pytest.approx(0.7 * 0.925 - COST_WEIGHT, abs=0.02)


def test_an_agent_that_the_budget_does_not_carry_has_no_value() -> None:
    assert set(values_of_asking([CHEAP, DEAR], [], ListLimits(4, budget=0.5))) == {"cheap"}


def test_a_budget_that_carries_one_more_run_is_kept_for_the_better_agent() -> None:
    weak = Candidate("weak", 0.2, 0.4)
    assert best([weak, DEAR], [], ListLimits(4, budget=1.1)) == "dear"


def test_what_one_agent_could_not_do_lowers_the_chance_of_everybody() -> None:
    assert conditional_rate(DEAR, [CHEAP]) < conditional_rate(DEAR, []) == pytest.approx(0.7, 0.03)
    assert conditional_rate(DEAR, [CHEAP, MIDDLE]) < conditional_rate(DEAR, [CHEAP])


def test_an_agent_that_failed_is_worth_less_than_its_equal_that_has_not_tried() -> None:
    equals = [CHEAP, Candidate("equal", CHEAP.success_rate, CHEAP.cost)]
    values = values_of_asking(equals, ["cheap"], ListLimits(4))
    assert values["equal"] > values["cheap"]


def test_the_order_of_failures_does_not_matter() -> None:
    candidates = [CHEAP, MIDDLE, DEAR]
    first = values_of_asking(candidates, ["cheap", "middle"], ListLimits(4))
    second = values_of_asking(candidates, ["middle", "cheap"], ListLimits(4))
    assert first == pytest.approx(second)


def test_a_failure_of_an_agent_that_left_the_pool_uses_up_an_attempt() -> None:
    values = values_of_asking([DEAR], ["gone"], ListLimits(2))
    assert values == values_of_asking([DEAR], [], ListLimits(1))


@pytest.mark.parametrize("budget", [0.75, 1.35, math.inf])
def test_the_value_of_an_agent_is_that_of_the_best_list_that_begins_with_it(budget: float) -> None:
    candidates = [CHEAP, MIDDLE, DEAR]
    values = values_of_asking(candidates, [], ListLimits(3, budget=budget, dearest_run=1.0))
    for first in candidates:
        if first.cost > budget:
            continue
        lists = [
            (first, *rest)
            for length in range(3)
            for rest in itertools.product(candidates, repeat=length)
        ]
        assert values[first.name] == pytest.approx(
            max(value_of_list(order) for order in lists if fits(order, budget)),
            abs=1e-4,
        )


def fits(order: tuple[Candidate, ...], budget: float) -> bool:
    left = budget
    for candidate in order:
        if candidate.cost > left:
            return False
        left -= candidate.cost
    return True


def value_of_list(order: tuple[Candidate, ...]) -> float:
    """The value of a list by its single steps: each is asked where all before it were refused."""
    value, reached = 0.0, 1.0
    for place, candidate in enumerate(order):
        before = [earlier.name for earlier in order[:place]]
        step = values_of_asking(
            list({c.name: c for c in order}.values()),
            before,
            ListLimits(len(before) + 1, dearest_run=1.0),
        )[candidate.name]
        solved = (step + COST_WEIGHT * candidate.cost) / 0.925
        value += reached * step
        reached *= solved * (1 - 0.925) + (1 - solved) * (1 - 0.15)
    return value
