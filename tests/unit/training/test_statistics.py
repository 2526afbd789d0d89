import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu_cli.training.evaluation.intervals import (
    PairedCounts,
    Proportion,
    mcnemar,
    wilson,
    wilson_repeated,
)


def test_wilsons_interval_has_the_published_values() -> None:
    """Newcombe 1998 (Statistics in Medicine 17, 857), table I, method 3: 81/263, 15/148, 0/20 and
    1/29.
    """
    intervals = [wilson(81, 263), wilson(15, 148), wilson(0, 20), wilson(1, 29)]
    rounded = [(round(share.low, 4), round(share.high, 4)) for share in intervals]
    assert rounded == [(0.2553, 0.3662), (0.0624, 0.1605), (0.0, 0.1611), (0.0061, 0.1718)]


def test_no_tasks_say_nothing_and_an_impossible_count_is_refused() -> None:
    assert wilson(0, 0) == Proportion(0, 0, 0.0, 1.0)
    with pytest.raises(ValueError, match="3 of 2 is no share"):
        wilson(3, 2)


@given(st.integers(0, 300), st.integers(0, 300))
def test_an_interval_holds_its_share_and_mirrors(solved: int, failed: int) -> None:
    share = wilson(solved, solved + failed)
    mirror = wilson(failed, solved + failed)
    if share.total:
        assert 0 <= share.low <= share.count / share.total <= share.high <= 1
    assert share.low == pytest.approx(1 - mirror.high)


def test_only_tasks_of_both_arms_are_compared_and_only_differences_count() -> None:
    first = {"a": True, "b": True, "c": True, "d": False, "e": True, "first alone": True}
    second = {"a": True, "b": False, "c": False, "d": False, "e": False, "second alone": True}
    assert mcnemar(first, second) == PairedCounts(
        both=1, first_only=3, second_only=0, neither=1, p=0.25
    )


def test_equal_arms_are_not_told_apart() -> None:
    assert mcnemar({"a": True, "b": False}, {"a": False, "b": True}).p == 1.0
    assert mcnemar({}, {}) == PairedCounts(0, 0, 0, 0, 1.0)


def test_ten_differences_to_one_side_are_no_chance() -> None:
    arms = {str(n): True for n in range(10)}, {str(n): False for n in range(10)}
    assert mcnemar(*arms).p == mcnemar(*reversed(arms)).p == 2 / 1024


def test_tries_of_one_task_are_no_further_tasks() -> None:
    """Worked out by hand from all signs of the tasks' differences: with (3) alone 2 of 2 are as far
    from 0; with (3, 1) 2 of 4; with (3, 1, -1) the sums are +-5, +-3, +-3, +-1, and 6 of 8 are at
    least 3; with (2, 2, 2, 2, 1) 2 of 32."""

    def compared(*differences: int) -> float:
        arms: tuple[dict[tuple[int, int], bool], ...] = ({}, {})
        for task, difference in enumerate(differences):
            for seed in range(3):
                arms[0][task, seed] = seed < difference
                arms[1][task, seed] = seed < -difference
        return mcnemar(arms[0], arms[1], task=lambda key: key[0]).p

    assert [compared(3), compared(3, 1), compared(3, 1, -1), compared(2, 2, 2, 2, 1)] == [
        1.0,
        0.5,
        0.75,
        0.0625,
    ]


def test_mcnemars_test_has_the_values_of_the_exact_binomial_test() -> None:
    """scipy.stats.binomtest(min(b, c), b + c).pvalue, scipy 1.16: for (b, c) = (1, 6), (3, 12),
    (10, 25), (40, 70).
    """
    found = []
    for one, two in ((1, 6), (3, 12), (10, 25), (40, 70)):
        differing = {n: n < one for n in range(one + two)}
        found.append(round(mcnemar(differing, {n: not ok for n, ok in differing.items()}).p, 8))
    assert found == [0.125, 0.03515625, 0.01667385, 0.00544743]


def test_tasks_that_were_all_solved_again_and_again_are_no_certainty() -> None:
    assert wilson_repeated([[True] * 5, [True] * 5, [True] * 5]) == Proportion(
        15, 15, wilson(3, 3).low, 1.0
    )
    assert wilson_repeated([[False] * 40]) == Proportion(0, 40, 0.0, wilson(0, 1).high)
    assert wilson_repeated([]) == wilson_repeated([[]]) == Proportion(0, 0, 0.0, 1.0)


def test_repeated_tries_are_worth_what_they_differ() -> None:
    """By hand: 8 of 12 in groups of 3, 3, 2, 0 have the variance 4/3 x (1 + 1 + 0 + 4) / 144 = 1/18
    where 12 tries of as many tasks had 2/9/12 = 1/54, so they are worth 4; 6 of 12 with 2, 1, 2, 1
    of 3 differ less than chance would have it, and are worth all 12. The intervals are statsmodels'
    proportion_confint(method="wilson") of 4 and 12."""

    def of(*solved: int) -> tuple[int, int, float, float]:
        share = wilson_repeated([[place < count for place in range(3)] for count in solved])
        return share.count, share.total, round(share.low, 6), round(share.high, 6)

    assert of(3, 3, 2, 0) == (8, 12, 0.24512, 0.924917)
    assert of(2, 1, 2, 1) == (6, 12, 0.253782, 0.746218)


@given(st.lists(st.booleans(), max_size=60))
def test_one_try_a_task_is_wilsons_interval(tries: list[bool]) -> None:
    assert wilson_repeated([[ok] for ok in tries]) == wilson(sum(tries), len(tries))
