"""A budget: what is mixed so that most is solved within it, chosen on the training cases."""

import numpy as np
import pytest

from fugu_cli.training import frontier
from fugu_cli.training.frontier import PolicyScores
from fugu_cli.training.pass_matrix import RowRates, TaskRates
from fugu_cli.training.recorded_outcomes import ReplayCase
from fugu_cli.training.replay import CheckRates, ReplayRules


@pytest.mark.parametrize(
    ("reached", "limit", "wanted"),
    [
        ([(0.6, 0.1), (0.8, 0.5)], 0.5, [0, 1]),  # it fits: nothing is mixed
        ([(0.6, 0.1), (0.8, 0.5)], 0.4, [0.25, 0.75]),
        ([(0.6, 0.1), (0.8, 0.5)], 0.05, [1, 0]),  # nothing fits: the cheapest
        ([(0.6, 0.1), (0.5, 0.3), (0.8, 0.5)], 0.3, [0.5, 0, 0.5]),  # a way between that is no use
        ([(0.6, 0.1), (0.7, 0.3), (0.7, 0.5)], 0.4, [0, 1, 0]),  # dearer and no better
    ],
)
def test_most_is_solved_within_the_limit(reached: list[tuple[float, float]], limit: float, wanted: list[float]) -> None:
    np.testing.assert_allclose(frontier.mixture_shares(reached, limit), wanted, atol=1e-12)


def test_the_budget_is_a_share_of_the_best_single_row_on_the_known_cases() -> None:
    def case(number: int) -> ReplayCase:
        rows = (RowRates(float(number % 2), 0.0, 0.1, 0.1), RowRates(1.0, 1.0, 1.0, 1.0))
        return ReplayCase(TaskRates(f"i{number}", "an issue", rows), "r", (1, 1))

    sure = CheckRates(1.0, 0.0)
    plans = [(ReplayRules(sure, turns, 0.0), price) for turns, price in ((2, 0.0), (1, 10.0))]
    parts = frontier.choose_mixture([case(number) for number in range(8)], plans, 0.35)
    np.testing.assert_allclose(parts, [0.5, 0.5])  # all solved for 0.6, half for 0.1: 0.35 is half way


def test_a_mixture_is_its_ways_in_their_shares() -> None:
    ways = [PolicyScores(name, np.array(solved), np.array(cost)) for name, solved, cost in WAYS]
    both = frontier.mix_policies("both", ways, np.array([[1.0, 0.25], [0.0, 0.75]]))
    assert (both.name, both.solved.tolist(), both.cost.tolist()) == ("both", [1.0, 0.75], [0.1, 0.8])


WAYS = (("cheap", [1.0, 0.0], [0.1, 0.2]), ("dear", [1.0, 1.0], [1.0, 1.0]))
