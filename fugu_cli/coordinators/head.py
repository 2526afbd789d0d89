"""The head: logits, masks, softmax, the choice (TRINITY, arXiv 2512.04695). Few numbers, so that no library is needed.

l = W h,  agent ~ softmax(l[:L] / T),  role ~ softmax(l[L:] / T), independent; a mask is -inf before the softmax
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence


def logits(head: Sequence[Sequence[float]], hidden: Sequence[float]) -> list[float]:
    """One number per row of `head` (rows, width) for a hidden state (width,)."""
    return [math.fsum(weight * value for weight, value in zip(row, hidden, strict=True)) for row in head]


def probabilities(scores: Sequence[float], out: Collection[int], temperature: float) -> list[float]:
    """Softmax of `scores` / temperature without the rows in `out`; those get 0. At least one row must be left."""
    heat = max(temperature, 1e-6)
    top = max(score for index, score in enumerate(scores) if index not in out)
    weights = [0.0 if index in out else math.exp((score - top) / heat) for index, score in enumerate(scores)]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def pick(chances: Sequence[float], draw: random.Random | None) -> int:
    """The most probable row (the first of equals), or one drawn with its probability."""
    if draw is None:
        return max(range(len(chances)), key=chances.__getitem__)
    return draw.choices(range(len(chances)), weights=chances)[0]


def lead(scores: Sequence[float], out: Collection[int] = ()) -> float:
    """How far the highest of those not in `out` is ahead of the second; infinite where there is no second."""
    ordered = sorted((score for index, score in enumerate(scores) if index not in out), reverse=True)
    return ordered[0] - ordered[1] if len(ordered) > 1 else math.inf


def rounded(values: Sequence[float]) -> tuple[float, ...]:
    """For the log: four digits say all that bf16 knows."""
    return tuple(float(f"{value:.4g}") for value in values)
