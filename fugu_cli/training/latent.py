"""Latent: how likely each model was to solve each issue, from what all recorded models did on all known issues.

One run is a coin thrown once: a plan made of some two hundred of them orders two nearly equal models by luck. A
logistic model with a few numbers for each issue (how hard it is, and for whom) and for each model tells chance from
skill; its rates stand in for most of the outcome itself where a plan is made. What is judged keeps its outcomes.

    chance(issue, model) = sigmoid(a_model + b_model . theta_issue),   a penalty on theta and on b - (1, 0, ...)

Pure numbers: knows nothing of texts, checks or heads. The method is item response theory's, fitted by Newton steps in
turn (Birnbaum 1968: joint maximum likelihood, here penalised).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fugu_cli.training.matrix import Rates
from fugu_cli.training.outcomes import Case, Issue

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Smoothing:
    """`trust` is how much of a rate is the outcome itself, the rest is the model's. `numbers` describe an issue."""

    trust: float = 0.5
    numbers: int = 3
    rounds: int = 40
    penalty: float = 1.0
    seed: int = 0


def chances(oks: Numbers, how: Smoothing) -> Numbers:
    """The fitted rates (issues, models) of outcomes `oks` (issues, models): 1 solved, 0 not, NaN never run."""
    run = ~np.isnan(oks)
    solved = np.where(run, oks, 0.0)
    share = solved.sum(1) / np.maximum(run.sum(1), 1)
    issues = np.random.default_rng(how.seed).normal(0, 0.3, (len(oks), how.numbers))
    issues[:, 0] = (share - share.mean()) / max(float(share.std()), 1e-6)
    towards = np.eye(1, how.numbers + 1, 1)[0]
    models = np.tile(towards, (oks.shape[1], 1))
    held = np.full(how.numbers + 1, how.penalty)
    held[0] = 0.01
    for _ in range(how.rounds):
        told = np.hstack([np.ones((len(oks), 1)), issues])
        models = _stepped(models, towards, held, (told, solved.T, run.T), np.zeros(len(oks)))
        issues = _stepped(issues, 0 * towards[1:], held[1:], (models[:, 1:], solved, run), models[:, 0])
    return _sigmoid(models[:, 0] + issues @ models[:, 1:].T)


def _stepped(
    points: Numbers, towards: Numbers, held: Numbers, data: tuple[Numbers, Numbers, NDArray[np.bool_]], base: Numbers
) -> Numbers:
    """One Newton step for every point (n, d) on its own; `data`: features (m, d), outcomes and which were run (n, m).
    `base` (m,) is added to the logits."""
    features, solved, run = data
    rates = _sigmoid(points @ features.T + base)
    weights = np.where(run, rates * (1 - rates) + 1e-6, 0.0)
    slope = np.where(run, solved - rates, 0.0) @ features - held * (points - towards)
    curve = np.einsum("nm,ma,mb->nab", weights, features, features, optimize=True) + np.diag(held)
    return np.asarray(points + np.linalg.solve(curve, slope[:, :, None])[:, :, 0])


def _sigmoid(logits: Numbers) -> Numbers:
    return np.asarray(1 / (1 + np.exp(-np.clip(logits, -30, 30))))


def smoothed(known: Sequence[Case], issues: Sequence[Issue], names: Sequence[str], how: Smoothing) -> list[Case]:
    """`known` as a plan sees them: the rates of their rows (models `names`) from what every model did on these very
    issues. `issues` that are not known have no say; known cases that no issue tells of stay as they are."""
    by_id = {issue.id: issue for issue in issues}
    told = [case for case in known if case.task.task in by_id]
    models = sorted({model for case in told for model in by_id[case.task.task].outcomes})
    if not told or not set(names) <= set(models):
        return list(known)
    oks = np.array([[_ok(by_id[case.task.task], model) for model in models] for case in told])
    found = how.trust * oks + (1 - how.trust) * chances(oks, how)
    columns = [models.index(name) for name in names]
    rates = {case.task.task: found[place, columns] for place, case in enumerate(told)}
    return [_told(case, rates) for case in known]


def _ok(issue: Issue, model: str) -> float:
    return float(issue.outcomes[model].ok) if model in issue.outcomes else np.nan


def _told(case: Case, rates: Mapping[str, Numbers]) -> Case:
    found = rates.get(case.task.task)
    if found is None:
        return case
    rows: tuple[Rates, ...] = tuple(
        replace(row, first=float(rate)) for row, rate in zip(case.task.rows, found, strict=True)
    )
    return replace(case, task=replace(case.task, rows=rows))
