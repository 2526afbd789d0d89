"""A plan that reads the runs: a cascade where calls say nothing, and where they do, other work for long runs."""

import numpy as np

from fugu_cli.training import frontier
from fugu_cli.training.pass_matrix import RowRates, TaskRates
from fugu_cli.training.recorded_outcomes import ReplayCase
from fugu_cli.training.replay import CheckRates, ReplayRules
from fugu_cli.training.synthetic_sessions import ReplayStep
from tests.benchmarks.outcome_plans import END, CallCountPlan, CaseTable

SURE = ReplayRules(CheckRates(1.0, 0.0), turns=4, talk=0.0)
COSTS = (0.05, 0.2, 1.0)


def case(number: int, oks: tuple[float, float, float], calls: tuple[int, int, int] = (5, 5, 5)) -> ReplayCase:
    rows = tuple(RowRates(ok, 0.5, cost, cost) for ok, cost in zip(oks, COSTS, strict=True))
    return ReplayCase(TaskRates(f"i{number}", f"issue {number}", rows), "r", calls)


def test_a_plan_that_calls_tell_nothing_is_the_cascade_it_describes() -> None:
    cases = [case(number, (number % 2, 1.0, 1.0)) for number in range(4)]
    for check, price, order in (
        (CheckRates(0.9, 0.2), 2.0, (0, 1)),
        (CheckRates(0.9, 0.2), 5.0, (0,)),
        (CheckRates(1, 0), 0.1, (0, 1)),
    ):
        rules = ReplayRules(check, turns=2, talk=0.0)
        plan = CallCountPlan(cases, rules, price)
        fixed = frontier.sequence_policy("fixed", cases, order, check)
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
    plan = CallCountPlan(cases, SURE, 0.6)
    table = CaseTable.of(cases[:2])
    failed = (ReplayStep(0, False),)
    assert plan.choose(failed, table).tolist() == [END, 2]
    solved, cost = plan.followed(cases[:2])
    np.testing.assert_allclose((solved, cost), ([0.0, 1.0], [0.05, 1.05]))


def test_chances_are_followed_as_if_a_coin_were_thrown() -> None:
    rules = ReplayRules(CheckRates(0.9, 0.2), turns=2, talk=0.0)
    sure = [case(number, (float(number < 3), 1.0, 1.0)) for number in range(4)]
    likely = [case(number, (0.75, 1.0, 1.0)) for number in range(4)]
    expected, cost = CallCountPlan(sure, rules, 0.2).followed(sure)
    found, paid = CallCountPlan(likely, rules, 0.2).followed(likely)
    np.testing.assert_allclose(found, [expected.mean()] * 4)
    np.testing.assert_allclose(paid, [cost.mean()] * 4)


def test_cases_that_are_judged_have_no_say_in_the_plan() -> None:
    taught = [case(number, (float(number % 2), 1.0, 1.0)) for number in range(4)]
    judged = [case(number, (0.0, 0.0, 1.0)) for number in range(3)]
    rules = ReplayRules(CheckRates(1.0, 0.0), turns=2, talk=0.0)
    solved, cost = CallCountPlan(taught, rules, 0.1).followed(judged)
    np.testing.assert_allclose((solved, cost), ([0.0] * 3, [0.25] * 3))  # cheap, then middle, as was taught
