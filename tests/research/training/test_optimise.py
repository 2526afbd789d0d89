"""sep-CMA-ES through `cma`: small memory, the mean as the result, exact going on."""

import tracemalloc

import numpy as np
import pytest

from fugu_cli.errors import UsageError
from fugu_cli.training.evolution import SepCMA, population_size

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
    odd = SepCMA(np.zeros(10), 33)._search.sp.weights
    assert (odd.mu, round(float(odd.mueff), 3)) == (16, 9.437)


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
    assert (first.sigma, first.evaluations) == (second.sigma, second.evaluations)
    np.testing.assert_array_equal(first.mean, second.mean)


def test_a_fitness_that_is_no_number_is_refused() -> None:
    search = SepCMA(np.zeros(3), 4)
    with pytest.raises(ValueError, match="not a number"):
        search.tell(search.ask(), np.array([1.0, np.nan, 0.0, 0.0]))
    with pytest.raises(UsageError, match="cannot be ranked"):
        SepCMA(np.zeros(3), 2)


def test_other_options_of_cma_are_passed_on() -> None:
    first, second = (
        SepCMA(np.zeros(6), 8, seed=1),
        SepCMA(np.zeros(6), 8, seed=1, more={"CMA_cmean": 0.5}),
    )
    for search in (first, second):
        search.tell(points := search.ask(), bowl(points))
    np.testing.assert_allclose(second.mean, first.mean / 2)
