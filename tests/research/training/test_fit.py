"""Fitting a head: it finds what is there, splits by task, and repeats."""

import numpy as np
import pytest

from fugu_cli.training.fitting import HeadExamples, HeadScore, fit_head, group_folds, score_head

DRAW = np.random.default_rng(0)


def separable(count: int = 80) -> HeadExamples:
    """The best row depends on one direction of the state, the role on another; scales differ
    wildly.
    """
    hidden = DRAW.normal(size=(count, 12)) * np.geomspace(0.01, 100, 12)
    right = (hidden[:, 0] > 0).astype(int)
    rows = np.where(np.arange(3) == right[:, None], 0.9, 0.05)
    return HeadExamples(
        hidden.astype(np.float32),
        rows.astype(np.float32),
        (hidden[:, 11] > 0).astype(np.int64) * 2,
        np.ones(count, np.float32),
        tuple(f"g{n % 20}" for n in range(count)),
    )


def test_a_head_learns_rows_and_roles_whatever_the_scale_of_the_state() -> None:
    examples = separable()
    found = score_head(fit_head(examples, 3, l2=1e-4), examples)
    assert found.row_accuracy > 0.95
    assert found.role_accuracy > 0.95
    assert found.kl < 0.25


def test_a_head_without_roles_has_a_row_per_agent() -> None:
    examples = separable()
    head = fit_head(examples, 0, l2=1e-3)
    assert head.shape == (3, 12)
    assert score_head(head, examples).role_accuracy == pytest.approx(1)


def test_a_fit_repeats_exactly() -> None:
    examples = separable()
    assert np.array_equal(fit_head(examples, 3, l2=1e-3), fit_head(examples, 3, l2=1e-3))


def test_examples_without_a_wanted_role_teach_none() -> None:
    examples = separable()
    silent = HeadExamples(
        examples.hidden, examples.rows, np.full(80, -1), examples.weights, examples.groups
    )
    assert np.array_equal(fit_head(silent, 3, l2=1e-3)[3:], np.zeros((3, 12), np.float32))


def test_weights_decide_between_contradicting_examples() -> None:
    hidden = np.ones((2, 4), np.float32)
    rows = np.array([[1, 0], [0, 1]], np.float32)
    examples = HeadExamples(
        hidden, rows, np.array([0, 0]), np.array([3, 1], np.float32), ("a", "b")
    )
    logits = fit_head(examples, 0, l2=1e-9) @ hidden[0]
    assert 1 / (1 + np.exp(logits[1] - logits[0])) == pytest.approx(0.75, abs=0.01)


def test_scores_are_those_of_the_definition() -> None:
    hidden = np.eye(2, dtype=np.float32)
    head = np.array([[0, 0], [0, 0], [1, 0], [0, 1], [0, 0]], np.float32)
    rows = np.array([[0.5, 0.5], [1.0, 0.0]], np.float32)
    examples = HeadExamples(
        hidden, rows, np.array([0, 2]), np.array([1, 1], np.float32), ("a", "b")
    )
    assert score_head(head, examples) == HeadScore(pytest.approx(np.log(2) / 2, abs=1e-6), 1.0, 0.5)


def test_folds_hold_every_group_out_once_and_never_divide_one() -> None:
    groups = [f"g{n % 7}" for n in range(50)]
    masks = group_folds(groups, 3, seed=1)
    assert np.array_equal(np.sum(masks, axis=0), np.ones(50))
    for mask in masks:
        held = {group for group, kept in zip(groups, mask, strict=True) if kept}
        rest = {group for group, kept in zip(groups, mask, strict=True) if not kept}
        assert not held & rest
    assert all(
        np.array_equal(a, b) for a, b in zip(masks, group_folds(groups, 3, seed=1), strict=True)
    )
    assert len(group_folds(["a", "b"], 5, seed=0)) == 2
