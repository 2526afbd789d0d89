"""Chances behind outcomes: what many models did says which single outcome was luck, and plans are made of that."""

import numpy as np

from fugu_cli.training.pass_matrix import RowRates, TaskRates
from fugu_cli.training.recorded_outcomes import Issue, RecordedRun, ReplayCase
from tests.benchmarks import outcome_plans
from tests.benchmarks.outcome_plans import Smoothing

NAMES = [f"m{number:02}" for number in range(12)]


def drawn(issues: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """True chances (issues, models), and one run of each."""
    draw = np.random.default_rng(seed)
    hard, skill = draw.normal(size=(issues, 1)) * 2, np.linspace(-1, 1, len(NAMES))
    true = 1 / (1 + np.exp(-(skill - hard)))
    return true, (draw.random(true.shape) < true).astype(float)


def test_fitted_chances_are_nearer_to_the_truth_than_the_outcomes_are() -> None:
    true, oks = drawn(150)
    found = outcome_plans.fitted_rates(oks, Smoothing())
    assert np.square(found - true).mean() < 0.35 * np.square(oks - true).mean()
    np.testing.assert_allclose(found.mean(0), oks.mean(0), atol=0.01)  # a model's own share stays
    np.testing.assert_array_equal(found, outcome_plans.fitted_rates(oks, Smoothing()))


def test_models_that_were_not_run_on_an_issue_say_nothing_of_it() -> None:
    true, oks = drawn(150)
    holes = np.random.default_rng(1).random(oks.shape) < 0.2
    found = outcome_plans.fitted_rates(np.where(holes, np.nan, oks), Smoothing())
    assert np.square(found - true)[holes].mean() < 0.06
    assert found.min() > 0
    assert found.max() < 1


def case(number: int, oks: np.ndarray) -> ReplayCase:
    rows = tuple(RowRates(float(ok), 0.5, cost, cost) for ok, cost in zip(oks[[3, 8]], (0.1, 1.0), strict=True))
    return ReplayCase(TaskRates(f"i{number}", "an issue", rows), "r", (1, 1))


def issue(number: int, oks: np.ndarray) -> Issue:
    outcomes = {name: RecordedRun(ok=ok > 0) for name, ok in zip(NAMES, oks, strict=True)}
    return Issue(id=f"i{number}", text="", outcomes=outcomes)


def test_a_plan_sees_mostly_chances_and_its_costs_and_other_cases_stay() -> None:
    _, oks = drawn(60)
    known = [case(number, one) for number, one in enumerate(oks)]
    issues = [issue(number, one) for number, one in enumerate(oks[:50])]
    found = outcome_plans.smooth_cases(known, issues, ["m03", "m08"], Smoothing(trust=0.25))
    wanted = 0.25 * oks[:50] + 0.75 * outcome_plans.fitted_rates(oks[:50], Smoothing())
    rates = np.array([[row.first for row in one.task.rows] for one in found])
    np.testing.assert_allclose(rates[:50], wanted[:, [3, 8]])
    np.testing.assert_array_equal(rates[50:], oks[50:, [3, 8]])
    assert [[row.first_cost for row in one.task.rows] for one in found] == [[0.1, 1.0]] * 60
    assert outcome_plans.smooth_cases(known, (), ["m03", "m08"], Smoothing()) == known


def test_issues_that_are_not_known_have_no_say() -> None:
    _, oks = drawn(60)
    known = [case(number, one) for number, one in enumerate(oks[:40])]
    issues = [issue(number, one) for number, one in enumerate(oks)]
    names = ["m03", "m08"]
    assert outcome_plans.smooth_cases(known, issues, names, Smoothing()) == outcome_plans.smooth_cases(
        known, issues[:40], names, Smoothing()
    )
