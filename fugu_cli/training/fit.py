"""Fitting the head: mean KL to soft targets over rows, cross-entropy over roles, a penalty on the weights.

    minimise  mean w [ KL(p || softmax(W_rows h)) - log softmax(W_roles h)[role] ] + l2 |W'|^2,   W' in scaled units

The problem is convex, so L-BFGS finds the one minimum and the seed only matters to the split. No bias (TRINITY): each
number of h is divided by its root mean square while fitting and the head is scaled back, which keeps it linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fugu_cli.coordinators.compute import start_torch
from fugu_cli.coordinators.svf import Vector

if TYPE_CHECKING:
    from torch import Tensor

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Examples:
    """`hidden` (n, width), `rows` (n, L) soft targets, `roles` (n,) or -1 where none is wanted, `weights` (n,), and the
    `groups` (n,) that a split never divides."""

    hidden: Vector
    rows: Vector
    roles: Labels
    weights: Vector
    groups: tuple[str, ...]

    def take(self, chosen: NDArray[np.bool_]) -> Examples:
        """Those examples only."""
        return self.at(np.flatnonzero(chosen))

    def at(self, places: NDArray[np.int64]) -> Examples:
        """The examples at these places."""
        groups = tuple(self.groups[place] for place in places)
        return Examples(self.hidden[places], self.rows[places], self.roles[places], self.weights[places], groups)


@dataclass(frozen=True)
class Scored:
    """How a head does on examples: mean KL over the rows, how often it picks the best row, and the wanted role."""

    kl: float
    row_accuracy: float
    role_accuracy: float


def fit(examples: Examples, roles: int, *, l2: float, steps: int = 300) -> Vector:
    """The head (L + roles, width), fp32. `roles` is 3, or 0 for a head without them."""
    start_torch()
    import torch

    hidden = torch.from_numpy(examples.hidden).double()
    scale = hidden.square().mean(0).sqrt().clamp_min(1e-6)
    data = Loss(hidden / scale, examples)
    weight = torch.zeros(examples.rows.shape[1] + roles, hidden.shape[1], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight], max_iter=steps, tolerance_grad=1e-7, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = data.of(weight) + l2 * weight.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    return np.asarray((weight.detach() / scale).float().numpy())


class Loss:
    """The loss of a head on examples; `hidden` (n, width) stands in for theirs, scaled or still being changed."""

    def __init__(self, hidden: Tensor, examples: Examples) -> None:
        import torch

        self._hidden = hidden
        self._rows = torch.from_numpy(examples.rows).to(hidden.dtype)
        self._roles = torch.from_numpy(examples.roles)
        weights = torch.from_numpy(examples.weights).to(hidden.dtype)
        self._weights = weights / weights.sum()

    def of(self, weight: Tensor) -> Tensor:
        """For a head (L + roles, width)."""
        import torch.nn.functional as F

        logits = self._hidden @ weight.T
        count = self._rows.shape[1]
        kl = F.kl_div(logits[:, :count].log_softmax(1), self._rows, reduction="none").sum(1)
        total = (self._weights * kl).sum()
        if weight.shape[0] > count:
            role = F.cross_entropy(logits[:, count:], self._roles, ignore_index=-1, reduction="none")
            total = total + (self._weights * role).sum()
        return total


def score(head: Vector, examples: Examples) -> Scored:
    """`head` on `examples`, weighted."""
    logits = examples.hidden.astype(np.float64) @ head.T.astype(np.float64)
    count = examples.rows.shape[1]
    predicted = _log_softmax(logits[:, :count])
    target = np.clip(examples.rows.astype(np.float64), 1e-12, None)
    weights = examples.weights / examples.weights.sum()
    kl = (target * (np.log(target) - predicted)).sum(1)
    picked = logits[:, :count].argmax(1) == examples.rows.argmax(1)
    wanted = examples.roles >= 0
    right = logits[wanted, count:].argmax(1) == examples.roles[wanted] if logits.shape[1] > count else wanted[wanted]
    shares = weights[wanted] / max(weights[wanted].sum(), 1e-12)
    return Scored(float((weights * kl).sum()), float((weights * picked).sum()), float((shares * right).sum()))


def folds(groups: Sequence[str], count: int, seed: int) -> list[NDArray[np.bool_]]:
    """`count` masks of held-out examples; every group is held out in exactly one."""
    names = sorted(set(groups))
    order = np.random.default_rng(seed).permutation(len(names))
    fold_of = {names[index]: place % count for place, index in enumerate(order)}
    places = np.array([fold_of[group] for group in groups])
    return [places == fold for fold in range(min(count, len(names)))]


def _log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = logits - logits.max(1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))
