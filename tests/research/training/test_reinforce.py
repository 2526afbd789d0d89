"""REINFORCE on planted pools: its gradient, its baseline, tunings side by side."""

import numpy as np
import pytest

from fugu_cli.training.search import Numbers
from tests.benchmarks.planted_pool import (
    ChooseAgentAndRole,
    PlantedEpisodes,
    PlantedPool,
    PlantedPoolSettings,
    Reinforce,
    ReinforceSettings,
)

TINY = PlantedPoolSettings(width=6, blocks=3, seed=1)


def test_the_gradient_by_offsets_and_head_is_the_slope() -> None:
    pool = PlantedPool(TINY)
    learner, draw = (
        Reinforce(pool, [ReinforceSettings(1.0), ReinforceSettings(1.0)]),
        np.random.default_rng(0),
    )
    learner.points = draw.normal(scale=0.3, size=(2, pool.count))
    wanted = draw.normal(size=(2, pool.rows, 6)).astype(np.float32)

    def along(point: np.ndarray, which: int) -> float:
        offsets = 1 + point[:18].reshape(3, 6)
        factors = (offsets / offsets.mean(1, keepdims=True)).prod(0) / pool.scale
        return float((point[18:].reshape(-1, 6) * factors * wanted[which]).sum())

    found = learner._gradient(wanted)
    for which, point in enumerate(learner.points):
        steps = np.eye(pool.count) * 1e-5
        slopes = [
            (along(point + step, which) - along(point - step, which)) / 2e-5 for step in steps
        ]
        np.testing.assert_allclose(found[which], slopes, atol=1e-4)


def test_tunings_side_by_side_are_what_each_is_alone() -> None:
    pool, tunings = (
        PlantedPool(TINY),
        [ReinforceSettings(0.01), ReinforceSettings(0.1, baseline=False)],
    )
    both, alone = Reinforce(pool, tunings), [Reinforce(pool, [one]) for one in tunings]
    for number in range(3):
        for learner in (both, *alone):
            learner.step(pool.episodes(50, number))
    np.testing.assert_allclose(
        both.points, np.concatenate([one.points for one in alone]), atol=1e-6
    )
    assert np.abs(both.points[0] - both.points[1]).max() > 0.01


@pytest.mark.parametrize("baseline", [True, False])
def test_rewards_climb(baseline: bool) -> None:
    pool = PlantedPool(PlantedPoolSettings(width=16))
    test, learner = pool.episodes(2000, 99), Reinforce(pool, [ReinforceSettings(0.01, baseline)])
    before = pool.play(learner.points, test).mean()
    for number in range(40):
        learner.step(pool.episodes(256, number))
    assert pool.play(learner.points, test).mean() > before + 0.2


class Paid(PlantedPool):
    """Every episode is worth 1."""

    def run(self, episodes: PlantedEpisodes, choose: ChooseAgentAndRole, size: int) -> Numbers:
        return super().run(episodes, choose, size) * 0 + 1


def test_without_a_difference_in_reward_a_baseline_moves_nothing() -> None:
    pool = Paid(TINY)
    learner = Reinforce(pool, [ReinforceSettings(0.01), ReinforceSettings(0.01, baseline=False)])
    learner.step(pool.episodes(64, 0))
    np.testing.assert_array_equal(learner.points[0], np.zeros(pool.count))
    assert np.abs(learner.points[1]).max() > 1e-3
