"""The planted pool: what a point does, what chance decides, who knows the plan; evolution finds
what was planted.
"""

from dataclasses import replace

import numpy as np

from fugu_cli.training.evolution import SepCMA
from tests.benchmarks.planted_pool import (
    Optimiser,
    PlantedPool,
    PlantedPoolSettings,
    RandomSearch,
    sample_actions,
)

TINY = PlantedPoolSettings(width=12, blocks=2, seed=3)


def points(pool: PlantedPool, size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=0.3, size=(size, pool.count))


def test_the_size_of_the_paper_is_19456_numbers() -> None:
    assert PlantedPool(PlantedPoolSettings(width=1024, blocks=9)).count == 19_456


def test_candidates_played_together_are_what_each_is_alone() -> None:
    for plan in (TINY, replace(TINY, sampled=True)):
        pool = PlantedPool(plan)
        episodes, several = pool.episodes(40, 1), points(pool, 3)
        alone = np.concatenate([pool.play(one[None], episodes) for one in several])
        np.testing.assert_array_equal(pool.play(several, episodes), alone)
        assert len({row.tobytes() for row in alone}) == 3


def test_logits_are_the_head_times_the_state() -> None:
    pool = PlantedPool(TINY)
    episodes = pool.episodes(9, 1)
    phases = np.random.default_rng(0).integers(4, size=(2, 9))
    heads = pool.heads(points(pool, 2))
    states = pool.signs(episodes, phases) @ pool.signals + episodes.noise[:, 3]
    np.testing.assert_allclose(
        pool.logits(heads, episodes, 3, phases), states @ heads.transpose(0, 2, 1), atol=1e-5
    )


def test_a_point_is_read_in_units_of_the_states_size() -> None:
    scaled, raw = PlantedPool(TINY), PlantedPool(replace(TINY, scaled=False))
    found = points(raw, 1)
    in_units = found.copy()
    in_units[:, 24:] *= np.tile(scaled.scale, scaled.rows)
    np.testing.assert_allclose(scaled.heads(in_units), raw.heads(found), rtol=1e-5)
    assert scaled.scale.std() > 0.1
    np.testing.assert_array_equal(raw.scale, np.ones(12))


def test_offsets_turn_the_state_and_keep_its_energy() -> None:
    pool = PlantedPool(replace(TINY, scaled=False, blocks=1))
    point = np.concatenate([np.zeros(12), np.ones(pool.rows * 12)])[None]
    np.testing.assert_array_equal(pool.heads(point), np.ones((1, pool.rows, 12)))
    point[0, :12] = np.linspace(-0.5, 0.5, 12)
    turned = pool.heads(point)[0, 0]
    np.testing.assert_allclose(turned, 1 + np.linspace(-0.5, 0.5, 12), rtol=1e-6)
    point[0, :12] = 1.0
    np.testing.assert_allclose(pool.heads(point), np.ones((1, pool.rows, 12)), rtol=1e-6)


def test_the_same_seed_draws_the_same_episodes() -> None:
    pool = PlantedPool(TINY)
    one, same, other = pool.episodes(5, 1), pool.episodes(5, 1), pool.episodes(5, 2)
    np.testing.assert_array_equal(one.noise, same.noise)
    np.testing.assert_array_equal(one.luck, same.luck)
    np.testing.assert_array_equal(one.draws, same.draws)
    assert not np.array_equal(one.draws, other.draws)


def test_decisions_are_drawn_as_often_as_the_softmax_says() -> None:
    logits = np.tile(np.log(np.array([1, 2, 7], np.float32)), (20_000, 1))
    chosen, chances = sample_actions(logits, np.random.default_rng(1).random(20_000))
    np.testing.assert_allclose(chances[0], [0.1, 0.2, 0.7], atol=1e-6)
    np.testing.assert_allclose(np.bincount(chosen) / 20_000, [0.1, 0.2, 0.7], atol=0.015)
    assert sample_actions(logits[:1], np.array([1.0]))[0].tolist() == [2]


def test_who_knows_the_plan_does_better_than_any_single_agent() -> None:
    pool = PlantedPool(PlantedPoolSettings(width=16))
    episodes = pool.episodes(2000, 1)
    shared = pool.signals.sum(0) * pool.scale
    best = 0.0
    for agent in range(7):
        head = np.zeros((pool.rows, 16))
        head[agent] = shared
        best = max(best, float(pool.play(head.reshape(1, -1), episodes).mean()))
    assert pool.optimum(episodes).mean() > best + 0.2


def searched(pool: PlantedPool, search: Optimiser) -> np.ndarray:
    for number in range(60):
        candidates = search.ask()
        search.tell(candidates, pool.play(candidates, pool.episodes(16, number)).mean(1))
    return search.mean


def test_evolution_finds_what_was_planted_where_random_search_does_not_come_as_near() -> None:
    """32 candidates x 16 episodes x 60 iterations, as 60 batches of 512."""
    pool = PlantedPool(PlantedPoolSettings(seed=2))
    test = pool.episodes(4000, 10**6)
    evolved = searched(pool, SepCMA(np.zeros(pool.count), 32, seed=2))
    drawn = searched(pool, RandomSearch(pool.count, 32, seed=2))
    rewards = pool.play(np.array([evolved, drawn]), test).mean(1)
    reached = rewards / pool.optimum(test).mean()
    assert reached[0] > 0.95
    assert reached[1] < 0.85
