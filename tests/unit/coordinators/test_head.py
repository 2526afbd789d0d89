"""The head: numbers against their definition."""

import math
import random

import pytest

from fugu_cli.coordinators.trinity import logits, pick_row, probabilities, rounded_for_log


def test_logits_are_rows_times_the_hidden_state() -> None:
    assert logits([[1.0, 2.0], [0.5, -1.0]], [3.0, 4.0]) == [11.0, -2.5]


def test_a_head_of_another_width_is_a_bug() -> None:
    with pytest.raises(ValueError):
        logits([[1.0]], [1.0, 2.0])


def test_a_mask_is_applied_before_the_softmax() -> None:
    assert probabilities([5.0, 0.0, 0.0], {0}, 1.0) == [0.0, 0.5, 0.5]


def test_temperature_flattens_and_zero_is_argmax() -> None:
    cold = probabilities([1.0, 0.0], (), 0.0)
    assert cold == [1.0, 0.0]
    warm = probabilities([1.0, 0.0], (), 2.0)
    assert warm[0] == pytest.approx(1 / (1 + math.exp(-0.5)))


def test_huge_logits_do_not_overflow() -> None:
    assert probabilities([1e5, -1e5], (), 1.0) == [1.0, 0.0]


def test_the_best_row_is_picked_and_the_first_of_equals() -> None:
    assert pick_row([0.2, 0.4, 0.4], None) == 1


def test_draws_follow_the_probabilities_and_the_seed() -> None:
    draw = random.Random(3)
    counts = [pick_row([0.1, 0.0, 0.9], draw) for _ in range(500)]
    assert (counts.count(1), 20 < counts.count(0) < 90) == (0, True)
    assert [pick_row([0.5, 0.5], random.Random(7)) for _ in range(3)] == [
        pick_row([0.5, 0.5], random.Random(7))
    ] * 3


def test_the_log_gets_four_digits() -> None:
    assert rounded_for_log([1.23456789, -0.000012345]) == (1.235, -1.234e-05)
