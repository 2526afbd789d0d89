"""The head, fitted by gradient (L-BFGS), and the forward pass of the second-to-last layer for a whole
population of SVF offsets at once.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fugu_cli.coordinators import svf
from fugu_cli.coordinators.backbone import Backbone, start_torch
from fugu_cli.coordinators.svf import LAYER_BLOCKS, Vector

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Linear

RoleLabels = NDArray[np.int64]


@dataclass(frozen=True)
class HeadExamples:
    """Training examples of a head, n in all. `hidden` are the hidden states (n, width), `rows` soft
    targets (n, L), `roles` indexes (n,), -1 where no role is wanted, `weights` (n,), and `groups`
    (n,), which a split never divides.
    """

    hidden: Vector
    rows: Vector
    roles: RoleLabels
    weights: Vector
    groups: tuple[str, ...]

    def take(self, chosen: NDArray[np.bool_]) -> HeadExamples:
        """Return only the chosen examples."""
        return self.at(np.flatnonzero(chosen))

    def at(self, indices: NDArray[np.int64]) -> HeadExamples:
        """Return the examples at these indices."""
        groups = tuple(self.groups[index] for index in indices)
        return HeadExamples(
            self.hidden[indices],
            self.rows[indices],
            self.roles[indices],
            self.weights[indices],
            groups,
        )


@dataclass(frozen=True)
class HeadScore:
    """The quality of a head on examples: mean KL over the rows, and how often it picks the best row
    and the wanted role.
    """

    kl: float
    row_accuracy: float
    role_accuracy: float

    def text(self) -> str:
        """Describe the score for people."""
        return (
            f"held-out examples: distance to the targets (KL) {self.kl:.3f}, best row picked "
            f"{self.row_accuracy:.0%}, "
            f"wanted role picked {self.role_accuracy:.0%}"
        )


def fit_head(examples: HeadExamples, roles: int, *, l2: float, steps: int = 300) -> Vector:
    """Fit a head of float32 numbers with a row for each agent and role. `roles` is 3, or 0 for a
    head without roles.
    """
    start_torch()
    import torch

    hidden = torch.from_numpy(examples.hidden).double()
    scale = hidden.square().mean(0).sqrt().clamp_min(1e-6)
    data = HeadLoss(hidden / scale, examples)
    weight = torch.zeros(
        examples.rows.shape[1] + roles, hidden.shape[1], dtype=torch.float64, requires_grad=True
    )
    optimiser = torch.optim.LBFGS(
        [weight], max_iter=steps, tolerance_grad=1e-7, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = data.of(weight) + l2 * weight.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    return np.asarray((weight.detach() / scale).float().numpy())


class HeadLoss:
    """The loss of a head on examples; `hidden` (n, width) stands in for theirs, scaled or still
    being changed.
    """

    def __init__(self, hidden: Tensor, examples: HeadExamples) -> None:
        import torch

        self._hidden = hidden
        self._rows = torch.from_numpy(examples.rows).to(hidden.dtype)
        self._roles = torch.from_numpy(examples.roles)
        weights = torch.from_numpy(examples.weights).to(hidden.dtype)
        self._weights = weights / weights.sum()

    def of(self, weight: Tensor) -> Tensor:
        """Return the loss of a head (L + roles, width)."""
        import torch.nn.functional as F

        logits = self._hidden @ weight.T
        count = self._rows.shape[1]
        kl = F.kl_div(logits[:, :count].log_softmax(1), self._rows, reduction="none").sum(1)
        total = (self._weights * kl).sum()
        if weight.shape[0] > count:
            role = F.cross_entropy(
                logits[:, count:], self._roles, ignore_index=-1, reduction="none"
            )
            total = total + (self._weights * role).sum()
        return total


def score_head(head: Vector, examples: HeadExamples) -> HeadScore:
    """Score `head` on `examples`, weighted."""
    logits = examples.hidden.astype(np.float64) @ head.T.astype(np.float64)
    count = examples.rows.shape[1]
    predicted = _log_softmax(logits[:, :count])
    target = np.clip(examples.rows.astype(np.float64), 1e-12, None)
    weights = examples.weights / examples.weights.sum()
    kl = (target * (np.log(target) - predicted)).sum(1)
    picked = logits[:, :count].argmax(1) == examples.rows.argmax(1)
    has_role = examples.roles >= 0
    right = (
        logits[has_role, count:].argmax(1) == examples.roles[has_role]
        if logits.shape[1] > count
        else has_role[has_role]
    )
    shares = weights[has_role] / max(weights[has_role].sum(), 1e-12)
    return HeadScore(
        float((weights * kl).sum()), float((weights * picked).sum()), float((shares * right).sum())
    )


def mean_score(scores: Sequence[tuple[HeadScore, int]]) -> HeadScore:
    """Return the mean score of several folds, weighted by their numbers of examples."""
    total = sum(count for _, count in scores)
    return HeadScore(*(
        sum(getattr(score, name) * count for score, count in scores) / total
        for name in ("kl", "row_accuracy", "role_accuracy")
    ))  # fmt: skip


def group_folds(groups: Sequence[str], count: int, seed: int) -> list[NDArray[np.bool_]]:
    """Return `count` masks of held-out examples. Every group is held out in exactly one."""
    names = sorted(set(groups))
    order = np.random.default_rng(seed).permutation(len(names))
    fold_of = {names[index]: position % count for position, index in enumerate(order)}
    fold_of_row = np.array([fold_of[group] for group in groups])
    return [fold_of_row == fold for fold in range(min(count, len(names)))]


def _log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = logits - logits.max(1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))


BATCH_TOKENS = 4096
"""Tokens times candidates of one batch: bounds the memory."""


class LastLayers:
    """The last two layers of a model for many offsets at once: W' x = U (1 + delta) s (V^T x) lets
    one batch carry all of them, and gradients flow through. `wide`: computed in fp32."""

    def __init__(
        self,
        backbone: Backbone,
        adapter: svf.SvfAdapter,
        *,
        wide: bool,
        at_once: int = BATCH_TOKENS,
    ) -> None:
        """Create the layers. `adapter` computes and stores the spectra of the layer's seven
        matrices once.
        """
        import torch

        self._backbone = backbone
        self._at_once = at_once
        self.ranks = svf.ranks(backbone.shape)
        self._kind = torch.float32 if wide else backbone.model.dtype
        self._two = copy.deepcopy(backbone.model.layers[-2:]).to(self._kind)
        self._norm = copy.deepcopy(backbone.model.norm).to(self._kind)
        matrices = svf.layer_matrices(self._two[0])
        self._matrices = [Factors(matrices[name], adapter.spectrum(name)) for name in LAYER_BLOCKS]
        self.sizes = tuple(len(matrix.values) for matrix in self._matrices)

    def below(self, tokens: Sequence[int]) -> Tensor:
        """Return the input of the second-to-last layer (1, tokens, width)."""
        import torch

        ids = torch.tensor([list(tokens)])
        with torch.no_grad():
            layer_input: Tensor = self._backbone.model(
                input_ids=ids, output_hidden_states=True
            ).hidden_states[-3]
        return layer_input

    def states(self, below: Tensor, offsets: Vector) -> Vector:
        """Return the state at the last position of `below` for each of `offsets` (size, sum of
        sizes): (size, width) fp32.
        """
        import torch

        blocks = torch.from_numpy(np.ascontiguousarray(offsets, np.float32)).split(self.sizes, 1)
        size = max(self._at_once // below.shape[1], 1)
        with torch.no_grad():
            parts = [
                self.through(below, [block[start : start + size] for block in blocks])
                for start in range(0, len(offsets), size)
            ]
            return np.asarray(torch.cat(parts).float().numpy())

    def through(self, below: Tensor, offsets: Sequence[Tensor]) -> Tensor:
        """Return the final state (size, width) at the last position of `below`, for seven blocks of
        offsets (size, rank).
        """
        import torch

        for matrix, delta in zip(self._matrices, offsets, strict=True):
            scale = 1 + delta
            energy = matrix.values.sum() / (scale * matrix.values).sum(1, keepdim=True)
            matrix.scale = (scale * energy).to(self._kind)[:, None]
        x = below.to(self._kind).expand(len(offsets[0]), -1, -1)
        places = torch.arange(x.shape[1])[None]
        rotations = self._backbone.model.rotary_emb(x, places)
        for layer in self._two:
            x = layer(x, position_embeddings=rotations, position_ids=places)
            x = x[0] if isinstance(x, tuple) else x  # of older transformers
        last_states: Tensor = self._norm(x[:, -1])
        return last_states


class Factors:
    """W' x by the factors of W, with a `scale` (size, 1, rank) of its own for each of a batch. It
    is the matrix's forward pass from now on."""

    def __init__(self, matrix: Linear, spectrum: svf.Spectrum) -> None:
        weight, dtype, basis = matrix.weight.data.float(), matrix.weight.dtype, spectrum.basis
        tall = weight.shape[0] >= weight.shape[1]
        inner, outer = (basis.T, weight @ basis) if tall else (basis.T @ weight, basis)
        self.values = self.scale = spectrum.values
        self._factors = (inner.to(dtype).contiguous(), outer.to(dtype).contiguous())
        self._bias = matrix.bias
        matrix.forward = self

    def __call__(self, x: Tensor) -> Tensor:
        import torch.nn.functional as F

        inner, outer = self._factors
        return F.linear(F.linear(x, inner) * self.scale, outer, self._bias)
