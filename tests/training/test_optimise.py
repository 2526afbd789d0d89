"""sep-CMA-ES through `cma`: small memory, the mean as the result, exact going on; and the planted optimum is found."""

import tracemalloc

import numpy as np
import pytest

from fugu_cli.errors import UsageError
from fugu_cli.training.optimise import Optimiser, RandomSearch, SepCMA, population_size
from fugu_cli.training.planted import Plan, Pool
from fugu_cli.training.reinforce import Reinforce

N = 19_456


def bowl(points: np.ndarray) -> np.ndarray:
    return -np.square(points - 1).sum(1)


def test_nineteen_thousand_numbers_need_no_square_matrix() -> None:
    search = SepCMA(np.zeros(N), 8, seed=1)
    search.tell(points := search.ask(), bowl(points))  # what is imported and made once
    tracemalloc.start()
    for _ in range(2):
        search.tell(points := search.ask(), bowl(points))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < N * N * 8 / 20
    assert search.mean.shape == (N,)


def test_the_population_is_that_of_the_paper() -> None:
    assert population_size(N) == 33
    assert SepCMA(np.zeros(10), 32)._search.sp.weights.mu == 16


def test_what_is_saved_is_the_mean_and_no_candidate() -> None:
    search = SepCMA(np.zeros(5), 6, sigma=0.5, seed=1)
    candidates = search.ask()
    search.tell(candidates, bowl(candidates))
    best = np.argsort(-bowl(candidates))[:3]
    weights = np.log(3.5) - np.log([1, 2, 3])
    np.testing.assert_allclose(search.mean, (weights / weights.sum()) @ candidates[best], atol=1e-9)
    assert not any(np.array_equal(search.mean, one) for one in candidates)


def test_higher_is_better() -> None:
    search = SepCMA(np.zeros(4), 8, sigma=0.5, seed=2)
    for _ in range(40):
        search.tell(points := search.ask(), bowl(points))
    np.testing.assert_allclose(search.mean, np.ones(4), atol=0.05)


def test_a_search_that_was_packed_goes_on_exactly() -> None:
    first = SepCMA(np.zeros(7), 6, sigma=0.3, seed=3)
    first.tell(points := first.ask(), bowl(points))
    second = SepCMA.unpack(first.pack())
    np.random.seed(99)  # the global generator plays no part
    for _ in range(3):
        one, other = first.ask(), second.ask()
        np.testing.assert_array_equal(one, other)
        first.tell(one, bowl(one))
        second.tell(other, bowl(other))
    assert (first.step, first.evaluations) == (second.step, second.evaluations)
    np.testing.assert_array_equal(first.mean, second.mean)


def test_a_fitness_that_is_no_number_is_refused() -> None:
    search = SepCMA(np.zeros(3), 4)
    with pytest.raises(ValueError, match="not a number"):
        search.tell(search.ask(), np.array([1.0, np.nan, 0.0, 0.0]))
    with pytest.raises(UsageError, match="cannot be ranked"):
        SepCMA(np.zeros(3), 2)


def test_random_search_keeps_the_best_candidate() -> None:
    search = RandomSearch(3, 5, seed=1)
    seen = []
    for _ in range(4):
        seen.append(search.ask())
        search.tell(seen[-1], bowl(seen[-1]))
    everything = np.concatenate(seen)
    np.testing.assert_array_equal(search.mean, everything[bowl(everything).argmax()])


def searched(pool: Pool, search: Optimiser) -> np.ndarray:
    for number in range(60):
        candidates, episodes = search.ask(), pool.episodes(16, number)
        worth = [pool.play(one.reshape(pool.rows, -1), episodes).mean() for one in candidates]
        search.tell(candidates, np.array(worth))
    return search.mean.reshape(pool.rows, -1)


def test_evolution_finds_what_was_planted_where_random_search_and_reinforce_do_not_come_as_near() -> None:
    """32 candidates x 16 episodes x 60 iterations, as 60 batches of 512."""
    pool = Pool(Plan(width=128, seed=2))
    count = pool.rows * pool.plan.width
    test = pool.episodes(4000, 10**6)
    heads = {
        "evolved": searched(pool, SepCMA(np.zeros(count), 32, seed=2)),
        "random": searched(pool, RandomSearch(count, 32, seed=2)),
    }
    for rate in (1e-4, 1e-2):
        learner = Reinforce(pool, rate=rate, seed=2)
        for number in range(60):
            learner.step(pool.episodes(512, 10**5 + number))
        heads[f"reinforce {rate:g}"] = learner.head
    best = pool.optimum(test).mean()
    reached = {name: pool.play(head, test).mean() / best for name, head in heads.items()}
    assert reached["evolved"] > 0.95
    assert reached["random"] < 0.8
    assert reached["evolved"] > max(reached["reinforce 0.0001"], reached["reinforce 0.01"])


def test_who_knows_the_plan_does_better_than_any_single_agent() -> None:
    pool = Pool(Plan(width=16))
    episodes = pool.episodes(2000, 1)
    single = np.zeros((pool.rows, 16))
    assert pool.optimum(episodes).mean() > pool.play(single, episodes).mean() + 0.2
