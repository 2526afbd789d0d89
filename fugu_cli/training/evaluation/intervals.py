"""Confidence intervals and tests: Wilson's interval, McNemar's exact test, a bootstrap over tasks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import TypeVar

Z95 = 1.959963984540054
Key = TypeVar("Key")


@dataclass(frozen=True)
class Proportion:
    """`count` of `total`, with the ends of its 95 % interval as fractions."""

    count: int
    total: int
    low: float
    high: float

    @property
    def fraction(self) -> float:
        return self.count / self.total if self.total else 0.0


def wilson(count: int, total: int, z: float = Z95) -> Proportion:
    """Return Wilson's score interval (Wilson 1927), which is valid for few tasks and for shares
    near 0 and 1. (0, 1) for no tasks.
    """
    if not 0 <= count <= total:
        raise ValueError(f"{count} of {total} is no share")
    return _scored(count, total, total, z)


def wilson_repeated(tries: Sequence[Sequence[bool]]) -> Proportion:
    """Return Wilson's interval for several tries of each task.

    Tries of one task are not independent, so their number is divided by the design effect (Kish
    1965, Korn & Graubard 1998), at least one a task. With one try a task it is `wilson`. A
    bootstrap over few solved tasks would claim 100 %.
    """
    kept = [(sum(own), len(own)) for own in tries if own]
    tasks, count, total = len(kept), sum(ok for ok, _ in kept), sum(size for _, size in kept)
    if tasks < 2 or count in (0, total):
        return _scored(count, total, tasks)
    share = count / total
    spread = sum((ok - share * size) ** 2 for ok, size in kept) * tasks / (tasks - 1) / total**2
    worth = share * (1 - share) / spread if spread else total
    return _scored(count, total, min(total, max(tasks, worth)))


def _scored(count: int, total: int, worth: float, z: float = Z95) -> Proportion:
    return (
        Proportion(count, total, *_ends(count / total, worth, z))
        if total
        else Proportion(0, 0, 0.0, 1.0)
    )


def _ends(share: float, worth: float, z: float = Z95) -> tuple[float, float]:
    scale = 1 + z * z / worth
    middle = (share + z * z / (2 * worth)) / scale
    half = z / scale * sqrt(max(share * (1 - share), 0.0) / worth + z * z / (4 * worth * worth))
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


@dataclass(frozen=True)
class PairedCounts:
    """Two arms on the tasks both were run on. `p` is the chance of a split at least this uneven if
    they were equal.
    """

    both: int
    first_only: int
    second_only: int
    neither: int
    p: float


def mcnemar(
    first: Mapping[Key, bool],
    second: Mapping[Key, bool],
    task: Callable[[Key], object] = lambda key: key,
) -> PairedCounts:
    """Run McNemar's exact two-sided test: a binomial test of the tasks on which the arms differ
    (McNemar 1947).

    Keys of one `task` are not independent: they change sides together (a permutation test, Fisher
    1935). With one try a task that is McNemar's test.
    """
    common = first.keys() & second.keys()
    both_right = sum(first[key] and second[key] for key in common)
    first_only = sum(first[key] and not second[key] for key in common)
    second_only = sum(second[key] and not first[key] for key in common)
    differences: Counter[object] = Counter()
    for key in common:
        differences[task(key)] += first[key] - second[key]
    neither = len(common) - both_right - first_only - second_only
    return PairedCounts(
        both_right, first_only, second_only, neither, _flipped(differences.values())
    )


def _flipped(differences: Collection[int]) -> float:
    """Return how likely a sum at least this far from 0 is if each part may have either sign."""
    parts = [abs(difference) for difference in differences if difference]
    sums = {0: 1}
    for part in parts:
        next_sums: Counter[int] = Counter()
        for total, count in sums.items():
            next_sums[total + part] += count
            next_sums[total - part] += count
        sums = next_sums
    far = abs(sum(differences))
    return sum(count for total, count in sums.items() if abs(total) >= far) / (1 << len(parts))


@dataclass(frozen=True)
class Mean:
    """A mean over tasks with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def wilson_of_mean(shares: Sequence[float]) -> Mean:
    """Return the mean of chances, one a task, with Wilson's interval for so many tasks.

    Chances spread less than outcomes do, so it is rather too wide. A bootstrap over few solved
    tasks would claim 100 %.
    """
    if not shares:
        return Mean(0.0, 0.0, 1.0)
    share = sum(shares) / len(shares)
    return Mean(share, *_ends(share, len(shares)))


def bootstrap(groups: Sequence[Sequence[float]], draws: int = 2000, seed: int = 0) -> Mean:
    """Return the mean of all values with a percentile interval over resampled groups (Efron 1979).

    Repetitions of one task are one group, since they are not independent. Equal values give equal
    intervals. (0, 0, 0) for no values.
    """
    kept = [(sum(group), len(group)) for group in groups if group]
    if not kept:
        return Mean(0.0, 0.0, 0.0)
    value = sum(total for total, _ in kept) / sum(count for _, count in kept)
    draw = random.Random(seed)
    means = []
    for _ in range(draws):
        again = draw.choices(kept, k=len(kept))
        means.append(sum(total for total, _ in again) / sum(count for _, count in again))
    means.sort()
    return Mean(value, means[int(0.025 * draws)], means[min(draws - 1, int(0.975 * draws))])


@dataclass(frozen=True)
class PairedGap:
    """A mean difference over the same cases, and its standard error."""

    mean: float
    error: float

    @property
    def in_points(self) -> str:
        """The gap as `-3.1 ± 1.2`, in hundredths."""
        return f"{100 * self.mean:+.1f} ± {100 * self.error:.1f}"


def paired_difference(first: Sequence[float], second: Sequence[float]) -> PairedGap:
    """Return the mean of first - second over the cases. The error of a single case is 0."""
    gaps = [
        first_value - second_value for first_value, second_value in zip(first, second, strict=True)
    ]
    error = stdev(gaps) / sqrt(len(gaps)) if len(gaps) > 1 else 0.0
    return PairedGap(fmean(gaps), error)
