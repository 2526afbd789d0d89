"""Arms at equal model seconds: what each has solved when every request is cut after T of them.
Pure: rows in, text out.

A request that needed more than T model seconds counts as unsolved and costs T; one that ended
before costs what it cost. So an arm may be compared at any mean cost up to its own, from the rows
alone. A request that was right before it ended counts from its end: no arm is flattered. Seconds
are those that were measured, or those of the same tokens at an even pace: on a machine that does
other work, too, the same answer takes one arm longer than the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fugu_cli.training.evaluation.rollout import RolloutOutcome

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
    """An arm: by task (n,), in one order for all arms, whether it was solved and in how many model
    seconds.
    """

    name: str
    solved: Numbers
    seconds: Numbers

    def at(self, cut: float) -> tuple[float, float]:
        """Tasks solved, and mean model seconds, when every request is cut there."""
        return float(self.solved[self.seconds <= cut].sum()), float(
            np.minimum(self.seconds, cut).mean()
        )

    def level(self, mean: float, of: Resampled | None = None) -> Numbers:
        """Share solved (draws,) when the mean is held at `mean` model seconds: by the cut that
        spends that much, or by none where the arm needs less."""
        return self.levels(
            np.array([mean]), np.arange(len(self.solved))[None] if of is None else of
        )

    def levels(self, means: Numbers, of: Resampled) -> Numbers:
        """The same with a mean of its own for every draw; one mean counts for all."""
        seconds, solved = self.seconds[of], self.solved[of]
        order = np.argsort(seconds, 1, kind="stable")
        seconds, solved = (
            np.take_along_axis(seconds, order, 1),
            np.take_along_axis(solved, order, 1),
        )
        count = seconds.shape[1]
        before = (
            np.cumsum(seconds, 1) - seconds
        )  # a cut at the k-th request's seconds spends theirs, and its on the rest
        spent = (before + seconds * (count - np.arange(count))) / count
        return np.asarray((solved * (spent <= means[:, None] + 1e-9)).sum(1) / count)


@dataclass(frozen=True)
class Pace:
    """Seconds a model takes for a token that it reads anew, and for one that it writes."""

    read: float
    write: float


def paces(outcomes: Sequence[RolloutOutcome]) -> dict[str, Pace]:
    """Each model's pace over all arms: least squares through what every request spent on it."""
    found: dict[str, list[tuple[float, float, float]]] = {}
    for row in outcomes:
        for one in row.spent:
            found.setdefault(model_of(one.agent), []).append(
                (one.input - one.cached, one.output, one.seconds)
            )
    fitted = {}
    for model, own in found.items():
        table = np.array(own)
        read, write = np.linalg.lstsq(table[:, :2], table[:, 2], rcond=None)[0]
        fitted[model] = Pace(max(float(read), 0.0), max(float(write), 0.0))
    return fitted


def model_of(agent: str) -> str:
    """`coder-5x` is `coder` asked up to five times."""
    return agent.partition("-5x")[0]


def evened(row: RolloutOutcome, known: dict[str, Pace]) -> float:
    """The row's model seconds, had the machine been equally quick all the time."""
    return sum(
        known[model_of(one.agent)].read * (one.input - one.cached)
        + known[model_of(one.agent)].write * one.output
        for one in row.spent
    )


def curves(outcomes: Sequence[RolloutOutcome], *, even: bool) -> list[Curve]:
    """The arms on the tasks that all of them were run on, in seconds as measured or at an even
    pace.
    """
    known = paces(outcomes)
    rows: dict[str, dict[str, RolloutOutcome]] = {}
    for row in outcomes:
        rows.setdefault(row.arm, {})[row.task] = row
    common = sorted(set.intersection(*(set(own) for own in rows.values()))) if rows else []
    return [
        Curve(
            arm,
            np.array([float(own[task].ok) for task in common]),
            np.array(
                [evened(own[task], known) if even else own[task].model_seconds for task in common]
            ),
        )
        for arm, own in rows.items()
        if common
    ]


def anytime_table(outcomes: Sequence[RolloutOutcome], *, even: bool) -> str:
    """Solved, and mean model seconds, by cut."""
    lines = []
    for curve in curves(outcomes, even=even):
        cells = (curve.at(cut) for cut in CUTS)
        lines.append(
            [f"`{curve.name}`", *(f"{solved:.0f} at {mean:.1f} s" for solved, mean in cells)]
        )
    return table(["arm", *(f"cut at {cut} s" for cut in CUTS)], lines)


def level_table(outcomes: Sequence[RolloutOutcome], ours: str, *, even: bool) -> str:
    """Solved at equal mean model seconds; then `ours` against every other arm at 70 % and at all of
    its seconds.
    """
    arms = curves(outcomes, even=even)
    mine = next((curve for curve in arms if curve.name == ours), None)
    if mine is None:
        return table([], [])
    count = len(mine.solved)
    steps = [
        [f"`{arm.name}`", *(f"{arm.level(mean)[0] * count:.0f}" for mean in LEVELS), _whole(arm)]
        for arm in arms
    ]
    head = ["arm", *(f"at {mean} s" for mean in LEVELS), "not cut"]
    return f"{table(head, steps)}\n{_against(mine, [arm for arm in arms if arm is not mine])}"


@dataclass(frozen=True)
class Gap:
    """A number with the ends of 95 % of its paired bootstrap over tasks."""

    middle: float
    low: float
    high: float

    def tasks(self) -> str:
        return f"{self.middle:+.0f} [{self.low:+.0f}, {self.high:+.0f}]"

    def share(self) -> str:
        return f"{self.middle:.0%} [{self.low:.0%}, {self.high:.0%}]"


@dataclass(frozen=True)
class Match:
    """One arm against another that is not cut: tasks solved more at 70 % and at all of its seconds
    and in as many as it takes, which are a ratio of the other's."""

    less: Gap
    equal: Gap
    whole: Gap
    ratio: Gap


def match(mine: Curve, other: Curve) -> Match:
    """The first against the second."""
    count = len(mine.solved)
    of = np.random.default_rng(0).integers(0, count, (DRAWS, count))
    itself = np.arange(count)[None]

    def gap(value: Callable[[Resampled], Numbers]) -> Gap:
        low, high = np.quantile(value(of), (0.025, 0.975))
        return Gap(float(value(itself)[0]), float(low), float(high))

    def held(share: float) -> Gap:
        means = share * other.seconds
        return gap(
            lambda at: (mine.levels(means[at].mean(1), at) - other.solved[at].mean(1)) * count
        )

    return Match(
        held(SHARE),
        held(1.0),
        gap(lambda at: (mine.solved - other.solved)[at].sum(1)),
        gap(lambda at: mine.seconds[at].mean(1) / other.seconds[at].mean(1)),
    )


def _against(mine: Curve, others: Iterable[Curve]) -> str:
    lines = []
    for other in others:
        found = match(mine, other)
        cells = [found.less.tasks(), found.equal.tasks(), found.whole.tasks(), found.ratio.share()]
        lines.append([f"`{other.name}`", _whole(other), *cells])
    names = [
        f"held at {SHARE:.0%} of its seconds",
        "held at its seconds",
        "not cut",
        "in so much of its seconds",
    ]
    return table(["against", "which solves", *names], lines)


def bars(outcomes: Sequence[RolloutOutcome], ours: str, single: str) -> str:
    """What was to be reached, and whether it was: by the seconds as measured, and at an even
    pace.
    """
    lines = []
    for even in (False, True):
        arms = {curve.name: curve for curve in curves(outcomes, even=even)}
        if not {ours, single} <= arms.keys():
            return "Not measured yet."
        pace = "at an even pace" if even else "in seconds as measured"
        against = match(arms[ours], arms[single])
        cheap = against.whole.middle >= 0 and against.ratio.middle <= SHARE
        more = against.equal.middle > 0
        lines.append(
            f"- {pace}, against `{single}`: {_said(against)}: at least as many in {SHARE:.0%} is "
            f"{_reached(cheap)}; "
            f"{against.equal.tasks()} at equal seconds: more is "
            f"{_reached(more, against.equal.low > 0)}"
        )
        for name in (name for name in arms if name not in (ours, single)):
            found = match(arms[ours], arms[name])
            ahead = found.whole.middle > 0 or (found.whole.middle == 0 and found.ratio.middle < 1)
            sure = found.whole.low > 0 or (found.whole.low == 0 and found.ratio.high < 1)
            lines.append(
                f"- {pace}, against `{name}`: {_said(found)}: being ahead is "
                f"{_reached(ahead, sure)}"
            )
    return "\n".join(lines)


def _said(found: Match) -> str:
    return f"{found.whole.tasks()} tasks in {found.ratio.share()} of its seconds"


def _reached(reached: bool, sure: bool = True) -> str:
    return "not reached" if not reached else "reached" if sure else "not reached beyond chance"


def _whole(arm: Curve) -> str:
    return f"{arm.solved.sum():.0f} at {arm.seconds.mean():.1f} s"


def pace_table(outcomes: Sequence[RolloutOutcome]) -> str:
    """How alike the machine was for all arms: seconds as measured over seconds at an even pace, by
    arm and model.
    """
    known = paces(outcomes)
    found: dict[tuple[str, str], list[tuple[float, float, int, int]]] = {}
    for row in outcomes:
        for one in row.spent:
            pace, new = known[model_of(one.agent)], one.input - one.cached
            even = pace.read * new + pace.write * one.output
            found.setdefault((row.arm, model_of(one.agent)), []).append(
                (one.seconds, even, new, one.output)
            )
    lines = []
    for (arm, model), own in found.items():
        seconds, even, new, written = (sum(column) for column in zip(*own, strict=True))
        cells = [
            f"{new}",
            f"{written}",
            f"{seconds:.0f}",
            f"{even:.0f}",
            f"{seconds / max(even, 1e-9):.2f}",
        ]
        lines.append([f"`{arm}`", f"`{model}`", *cells])
    head = ["arm", "model", "tokens read anew", "written", "s", "s at an even pace", "slower by"]
    each = [
        f"`{model}` {1000 * p.read:.0f} and {1000 * p.write:.0f} ms" for model, p in known.items()
    ]
    return f"A token read anew, and a token written: {', '.join(each)}.\n\n{table(head, lines)}"


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """As Markdown."""
    if not lines:
        return "Not measured yet."
    return (
        "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *lines))
        + "\n"
    )
