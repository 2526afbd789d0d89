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
    return _wilson_score(count, total, total, z)


def wilson_repeated(tries: Sequence[Sequence[bool]]) -> Proportion:
    """Return Wilson's interval for several tries of each task.

    Tries of one task are not independent, so their number is divided by the design effect (Kish
    1965, Korn & Graubard 1998), at least one a task. With one try a task it is `wilson`. A
    bootstrap over few solved tasks would claim 100 %.
    """
    groups = [outcomes for outcomes in tries if outcomes]
    tasks = len(groups)
    count = sum(map(sum, groups))
    total = sum(map(len, groups))
    if tasks < 2 or count in (0, total):
        return _wilson_score(count, total, tasks)
    share = count / total
    squares = sum((sum(group) - share * len(group)) ** 2 for group in groups)
    variance = squares * tasks / (tasks - 1) / total**2
    effective_tries = share * (1 - share) / variance if variance else total
    return _wilson_score(count, total, min(total, max(tasks, effective_tries)))


def _wilson_score(count: int, total: int, effective_tries: float, z: float = Z95) -> Proportion:
    """Return `count` of `total` with Wilson's interval of so many independent tries."""
    if not total:
        return Proportion(0, 0, 0.0, 1.0)
    low, high = _wilson_ends(count / total, effective_tries, z)
    return Proportion(count, total, low, high)


def _wilson_ends(share: float, tries: float, z: float = Z95) -> tuple[float, float]:
    scale = 1 + z * z / tries
    middle = (share + z * z / (2 * tries)) / scale
    variance = max(share * (1 - share), 0.0)
    half = z / scale * sqrt(variance / tries + z * z / (4 * tries * tries))
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


@dataclass(frozen=True)
class PairedCounts:
    """Two arms on the tasks that both were run on: the number that both, one, or neither solved.

    `p` is the probability of a split at least this uneven if the arms were equal.
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
    """Compare two arms with McNemar's exact two-sided test (McNemar 1947): a binomial test of the
    tasks on which they differ.

    Several tries of one `task` are not independent, so they change their sign together (a
    permutation test, Fisher 1935). With one try per task this is McNemar's test.
    """
    common = first.keys() & second.keys()
    both_right = sum(first[key] and second[key] for key in common)
    first_only = sum(first[key] and not second[key] for key in common)
    second_only = sum(second[key] and not first[key] for key in common)
    differences: Counter[object] = Counter()
    for key in common:
        differences[task(key)] += first[key] - second[key]
    neither = len(common) - both_right - first_only - second_only
    p = _sign_flip_probability(differences.values())
    return PairedCounts(both_right, first_only, second_only, neither, p)


def _sign_flip_probability(differences: Collection[int]) -> float:
    """Return the probability of a sum at least this far from 0 if each difference had a random
    sign.
    """
    sizes = [abs(difference) for difference in differences if difference]
    ways = {0: 1}  # sum -> number of choices of signs that lead to it
    for size in sizes:
        next_ways: Counter[int] = Counter()
        for total, count in ways.items():
            next_ways[total + size] += count
            next_ways[total - size] += count
        ways = next_ways
    observed = abs(sum(differences))
    as_far = sum(count for total, count in ways.items() if abs(total) >= observed)
    return as_far / (1 << len(sizes))


@dataclass(frozen=True)
class Mean:
    """A mean over tasks with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def wilson_of_mean(shares: Sequence[float]) -> Mean:
    """Return the mean of probabilities, one per task, with Wilson's interval for so many tasks.

    Probabilities vary less than outcomes, so the interval is rather too wide. A bootstrap over few
    solved tasks would claim 100 %.
    """
    if not shares:
        return Mean(0.0, 0.0, 1.0)
    share = sum(shares) / len(shares)
    return Mean(share, *_wilson_ends(share, len(shares)))


def bootstrap(groups: Sequence[Sequence[float]], draws: int = 2000, seed: int = 0) -> Mean:
    """Return the mean of all values with a percentile interval over resampled groups (Efron 1979).

    Repetitions of one task are one group, since they are not independent. Equal values give equal
    intervals. (0, 0, 0) for no values.
    """
    sums_and_sizes = [(sum(group), len(group)) for group in groups if group]
    if not sums_and_sizes:
        return Mean(0.0, 0.0, 0.0)
    value = sum(total for total, _ in sums_and_sizes) / sum(size for _, size in sums_and_sizes)
    chance = random.Random(seed)
    means = []
    for _ in range(draws):
        sample = chance.choices(sums_and_sizes, k=len(sums_and_sizes))
        means.append(sum(total for total, _ in sample) / sum(size for _, size in sample))
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
