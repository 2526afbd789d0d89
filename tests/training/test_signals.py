"""A plan that reads the runs: a cascade where calls say nothing, and where they do, other work for long runs."""

import numpy as np

from fugu_cli.training import frontier
from fugu_cli.training.matrix import Rates, TaskRates
from fugu_cli.training.outcomes import Case
from fugu_cli.training.replay import Check, Rules
from fugu_cli.training.replay_sessions import Step
from fugu_cli.training.signals import END, Signals, Table

SURE = Rules(Check(1.0, 0.0), turns=4, talk=0.0)
COSTS = (0.05, 0.2, 1.0)


def case(number: int, oks: tuple[float, float, float], calls: tuple[int, int, int] = (5, 5, 5)) -> Case:
    rows = tuple(Rates(ok, 0.5, cost, cost) for ok, cost in zip(oks, COSTS, strict=True))
    return Case(TaskRates(f"i{number}", f"issue {number}", rows), "r", calls)


def test_a_plan_that_calls_tell_nothing_is_the_cascade_it_describes() -> None:
    cases = [case(number, (number % 2, 1.0, 1.0)) for number in range(4)]
    for check, price, order in (
        (Check(0.9, 0.2), 2.0, (0, 1)),
        (Check(0.9, 0.2), 5.0, (0,)),
        (Check(1, 0), 0.1, (0, 1)),
    ):
        rules = Rules(check, turns=2, talk=0.0)
        plan = Signals(cases, rules, price)
        fixed = frontier.sequence("fixed", cases, order, check)
        solved, cost = plan.followed(cases)
        np.testing.assert_allclose(solved, fixed.solved)
        np.testing.assert_allclose(cost, fixed.cost)
        np.testing.assert_allclose(plan.worth, fixed.reward(price).mean())


def test_long_runs_are_given_up_and_short_ones_go_on_to_the_dear_row() -> None:
    """The cheap row solves a tenth; where its run is short the strong one solves what is left."""
    cases = [
        case(number, (float(number % 10 == 9), 0.0, float(number % 2)), (5 if number % 2 else 50, 5, 5))
        for number in range(200)
    ]
    plan = Signals(cases, SURE, 0.6)
    table = Table.of(cases[:2])
    failed = (Step(0, False),)
    assert plan.choose(failed, table).tolist() == [END, 2]
    solved, cost = plan.followed(cases[:2])
    np.testing.assert_allclose((solved, cost), ([0.0, 1.0], [0.05, 1.05]))


def test_chances_are_followed_as_if_a_coin_were_thrown() -> None:
    rules = Rules(Check(0.9, 0.2), turns=2, talk=0.0)
    sure = [case(number, (float(number < 3), 1.0, 1.0)) for number in range(4)]
    likely = [case(number, (0.75, 1.0, 1.0)) for number in range(4)]
    expected, cost = Signals(sure, rules, 0.2).followed(sure)
    found, paid = Signals(likely, rules, 0.2).followed(likely)
    np.testing.assert_allclose(found, [expected.mean()] * 4)
    np.testing.assert_allclose(paid, [cost.mean()] * 4)


def test_cases_that_are_judged_have_no_say_in_the_plan() -> None:
    taught = [case(number, (float(number % 2), 1.0, 1.0)) for number in range(4)]
    judged = [case(number, (0.0, 0.0, 1.0)) for number in range(3)]
    rules = Rules(Check(1.0, 0.0), turns=2, talk=0.0)
    solved, cost = Signals(taught, rules, 0.1).followed(judged)
    np.testing.assert_allclose((solved, cost), ([0.0] * 3, [0.25] * 3))  # cheap, then middle, as was taught
