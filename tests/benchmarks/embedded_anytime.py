"""Arms at equal model seconds: what each has solved when every request is cut after T of them. Pure: rows in, text out.

A request that needed more than T model seconds counts as unsolved and costs T; one that ended before costs what it
cost. So an arm may be compared at any mean cost up to its own, from the rows alone. A request that was right before it
ended counts from its end: no arm is flattered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fugu_cli.evaluation.loop import Outcome

CUTS = (15, 30, 45, 60, 75, 90)
LEVELS = (5, 10, 15, 20, 30, 40)
SHARE = 0.7
"""Of the best single agent's seconds: what routing is wanted to need at most."""
DRAWS = 10_000
Numbers = NDArray[np.float64]
Resampled = NDArray[np.int64]
"""(draws, tasks): the tasks of each draw of a bootstrap."""


@dataclass(frozen=True)
class Curve:
    """An arm: by task (n,), in one order for all arms, whether it was solved and in how many model seconds."""

    name: str
    solved: Numbers
    seconds: Numbers

    def at(self, cut: float) -> tuple[float, float]:
        """Tasks solved, and mean model seconds, when every request is cut there."""
        return float(self.solved[self.seconds <= cut].sum()), float(np.minimum(self.seconds, cut).mean())

    def level(self, mean: float, of: Resampled | None = None) -> Numbers:
        """Share solved (draws,) when the mean is held at `mean` model seconds: by the cut that spends that much, or by
        none where the arm needs less."""
        return self.levels(np.array([mean]), np.arange(len(self.solved))[None] if of is None else of)

    def levels(self, means: Numbers, of: Resampled) -> Numbers:
        """The same with a mean of its own for every draw; one mean counts for all."""
        seconds, solved = self.seconds[of], self.solved[of]
        order = np.argsort(seconds, 1, kind="stable")
        seconds, solved = np.take_along_axis(seconds, order, 1), np.take_along_axis(solved, order, 1)
        count = seconds.shape[1]
        before = (
            np.cumsum(seconds, 1) - seconds
        )  # a cut at the k-th request's seconds spends theirs, and its on the rest
        spent = (before + seconds * (count - np.arange(count))) / count
        return np.asarray((solved * (spent <= means[:, None] + 1e-9)).sum(1) / count)


def curves(outcomes: Sequence[Outcome]) -> list[Curve]:
    """The arms on the tasks that all of them were run on."""
    rows: dict[str, dict[str, Outcome]] = {}
    for row in outcomes:
        rows.setdefault(row.arm, {})[row.task] = row
    common = sorted(set.intersection(*(set(own) for own in rows.values()))) if rows else []
    return [
        Curve(
            arm,
            np.array([float(own[task].ok) for task in common]),
            np.array([own[task].model_seconds for task in common]),
        )
        for arm, own in rows.items()
        if common
    ]


def anytime_table(outcomes: Sequence[Outcome]) -> str:
    """Solved, and mean model seconds, by cut."""
    lines = []
    for curve in curves(outcomes):
        cells = (curve.at(cut) for cut in CUTS)
        lines.append([f"`{curve.name}`", *(f"{solved:.0f} at {mean:.1f} s" for solved, mean in cells)])
    return table(["arm", *(f"cut at {cut} s" for cut in CUTS)], lines)


def level_table(outcomes: Sequence[Outcome], ours: str) -> str:
    """Solved at equal mean model seconds; then `ours` against every other arm at 70 % and at all of its seconds."""
    arms = curves(outcomes)
    mine = next((curve for curve in arms if curve.name == ours), None)
    if mine is None:
        return table([], [])
    count = len(mine.solved)
    steps = [[f"`{arm.name}`", *(f"{arm.level(mean)[0] * count:.0f}" for mean in LEVELS), _whole(arm)] for arm in arms]
    head = ["arm", *(f"at {mean} s" for mean in LEVELS), "not cut"]
    return f"{table(head, steps)}\n{_against(mine, [arm for arm in arms if arm is not mine])}"


def _against(mine: Curve, others: Iterable[Curve]) -> str:
    count = len(mine.solved)
    of = np.random.default_rng(0).integers(0, count, (DRAWS, count))
    lines = []
    for other in others:
        means, solved = other.seconds[of].mean(1), other.solved[of].mean(1)
        lines.append([f"`{other.name}`", _whole(other)])
        for share in (SHARE, 1.0):
            middle = float(mine.level(share * other.seconds.mean())[0] - other.solved.mean()) * count
            draws = (mine.levels(share * means, of) - solved) * count
            low, high = np.quantile(draws, 0.025), np.quantile(draws, 0.975)
            lines[-1].append(f"{middle:+.0f} [{low:+.0f}, {high:+.0f}]")
        seconds = mine.seconds / other.seconds.mean()
        low, high = np.quantile(mine.seconds[of].mean(1) / means, (0.025, 0.975))
        lines[-1].append(f"{seconds.mean():.0%} [{low:.0%}, {high:.0%}]")
    names = [f"`{mine.name}` at {SHARE:.0%} of its seconds", f"`{mine.name}` at its seconds"]
    return table(["against", "not cut", *names, f"seconds of `{mine.name}`, not cut"], lines)


def _whole(arm: Curve) -> str:
    return f"{arm.solved.sum():.0f} at {arm.seconds.mean():.1f} s"


def pace_table(outcomes: Sequence[Outcome]) -> str:
    """Seconds for a token written, by arm and agent: how alike the machine was for all of them."""
    found: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for row in outcomes:
        for one in row.spent:
            found.setdefault((row.arm, one.agent), []).append((one.seconds, one.output))
    lines = [
        [f"`{arm}`", agent, str(sum(written for _, written in own)), f"{1000 * _pace(own):.0f}"]
        for (arm, agent), own in found.items()
    ]
    return table(["arm", "agent", "tokens written", "ms a token"], lines)


def _pace(own: Sequence[tuple[float, int]]) -> float:
    return sum(seconds for seconds, _ in own) / max(sum(written for _, written in own), 1)


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """As Markdown."""
    if not lines:
        return "Not measured yet."
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *lines)) + "\n"
