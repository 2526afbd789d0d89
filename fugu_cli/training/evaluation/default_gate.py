"""The gate that decides which coordinator is the default, on recorded outcomes.

A candidate is compared with the cascade on pools that are drawn at random from each data set, with
checks that pass most right and some wrong work, with a budget and without one. The measure is
reward: solved, less a tenth of the cost in runs of the pool's dearest agent. Differences are paired
by task, draw and pool; intervals come from a bootstrap over tasks and pools within each data set.
`fugu help outcomes` states the four criteria.

Costs of a task's agents come from the other folds of its data set, never from the task itself.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fugu_cli.coordinators import Coordinator
from fugu_cli.coordinators.composed import expected_costs
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.coordinators.skills import canonical_model
from fugu_cli.errors import ConfigError
from fugu_cli.session.events import Member
from fugu_cli.training.evaluation.outcome_replay import (
    CHECKS,
    FOLDS,
    PRICE_OF_COST,
    SETTINGS,
    TURNS,
    Arm,
    DecidedByLog,
    OutcomeLimits,
    OutcomeTask,
    TaskDraw,
    draw_of,
    in_order,
    members_of,
    play,
    read_all_outcomes,
)

BUDGETS = (1.0, math.inf)
"""For a task, in mean runs of the dearest model: one run, and the user's default."""
CELLS = tuple((check, budget) for check in CHECKS for budget in BUDGETS)
MAIN_CELLS = tuple(
    index for index, (check, _) in enumerate(CELLS) if check in ((0.95, 0.10), (0.90, 0.20))
)
"""Cells by which a candidate must be ahead."""
POOLS = 32
SMALLEST_POOL, LARGEST_POOL = 3, 5
FEWEST_TASKS = 20
COVERAGE = 0.98
"""Share of the tasks on which a model was run that may be drawn."""
DRAWS = 8
"""Times that every task is played."""
RESAMPLES = 4000
LEVELS = (0.95, 0.975, 0.99)
"""Confidence of the intervals of a first, a second and every later look at the same data."""
MUCH_BEHIND = -2.0
"""Points below which no data set and no cell may be."""
TRAP = -5.0
TRAPS_ALLOWED = 0.05
"""Share of the pools that may be behind by more than `TRAP` points."""
CASCADE, RANDOM, TUNED, ORACLE = "cascade", "random order, verified", "tuned list", "oracle"

BuildCoordinator = Callable[[tuple[Member, ...]], Coordinator]
Rewards = NDArray[np.float64]


@dataclass(frozen=True)
class RecordedSet:
    """A data set, and the models that were run on nearly all of its tasks."""

    name: str
    tasks: Sequence[OutcomeTask]
    models: tuple[str, ...]
    vendors: Mapping[str, str]
    """Of each model, by its name."""


@dataclass(frozen=True)
class PoolRewards:
    """The result of each arm with one pool: reward by cell and task, not a number where a model of the
    pool was not run on the task.
    """

    pool: tuple[str, ...]
    rewards: Mapping[str, Rewards]

    def gap(self, candidate: str, measure: str) -> Rewards:
        """Return the candidate's reward less that of `measure`, in points."""
        return 100 * (self.rewards[candidate] - self.rewards[measure])


def read_recorded_set(path: Path, vendor_of: Callable[[str], str]) -> RecordedSet:
    """Read a file of outcomes. Raises ConfigError."""
    tasks = read_all_outcomes(path)
    counts: dict[str, int] = {}
    for task in tasks:
        for model in task.runs:
            counts[model] = counts.get(model, 0) + 1
    if len(tasks) < FEWEST_TASKS:
        raise ConfigError(
            f"{path}: at least {FEWEST_TASKS} tasks with outcomes are needed, and it has {len(tasks)}"
        )
    models = tuple(sorted(name for name, n in counts.items() if n >= COVERAGE * len(tasks)))
    if len({recorded_model(name) for name in models}) < LARGEST_POOL:
        raise ConfigError(
            f"{path}: {len(models)} models were run on {COVERAGE:.0%} of its tasks, "
            f"{LARGEST_POOL} are needed to draw pools from",
            hint="name the models of one pool: --model NAME --model NAME",
        )
    vendors = {name: vendor_of(name) for name in models}
    return RecordedSet(path.name.partition(".")[0], tasks, models, vendors)


def recorded_model(name: str) -> str:
    """Return the model behind a recorded name, without vendor, date and effort."""
    return canonical_model(name.partition("@")[0])[0]


def draw_pools(
    recorded: RecordedSet, count: int, seed: str, left_out: Collection[str] = ()
) -> list[tuple[str, ...]]:
    """Draw pools of three to five models, none of which is in a pool twice at two efforts. A pool
    with a model of `left_out` is passed over.
    """
    chance = random.Random(f"{seed}/{recorded.name}")
    pools: list[tuple[str, ...]] = []
    while len(pools) < count:
        size = chance.randint(SMALLEST_POOL, LARGEST_POOL)
        pool = tuple(chance.sample(recorded.models, size))
        distinct = len({recorded_model(name) for name in pool}) == size
        if distinct and not set(pool) & set(left_out):
            pools.append(pool)
    return pools


def fold_of(task_id: str) -> int:
    """Return the fold of a task, by its id alone."""
    return hashlib.sha256(task_id.encode()).digest()[0] % FOLDS


def play_pool(
    recorded: RecordedSet,
    pool: Sequence[str],
    candidates: Mapping[str, BuildCoordinator],
    draws: int = DRAWS,
) -> PoolRewards:
    """Play every arm on every task of a data set with one pool."""
    builders: dict[str, BuildCoordinator] = {
        **candidates,
        CASCADE: lambda members: Cascade(members, SETTINGS),
    }
    tasks = {
        index: OutcomeTask(task.id, {name: task.runs[name] for name in pool}, task.text)
        for index, task in enumerate(recorded.tasks)
        if all(name in task.runs for name in pool)
    }
    shape = (len(CELLS), len(recorded.tasks))
    rewards = {name: np.full(shape, np.nan) for name in (*builders, RANDOM, TUNED, ORACLE)}
    drawn_tasks = []
    for fold in range(FOLDS):
        others = [task for task in tasks.values() if fold_of(task.id) != fold]
        members = members_of(others, {name: recorded.vendors[name] for name in pool})
        costs = expected_costs(members, ())
        arms: dict[str, Arm] = {
            name: DecidedByLog(build(members), members).on for name, build in builders.items()
        }
        arms[RANDOM] = lambda draw: in_order(draw.order * 2)
        for index, task in tasks.items():
            if fold_of(task.id) != fold:
                continue
            draws_of_task = [_without_text(draw_of(task, draw)) for draw in range(draws)]
            for cell in range(len(CELLS)):
                limits = limits_of(cell, costs)
                unit = max(costs.values())
                for name, arm in arms.items():
                    works = [play(draw, arm(draw), limits) for draw in draws_of_task]
                    rewards[name][cell, index] = np.mean(
                        [work.solved - PRICE_OF_COST * work.spent / unit for work in works]
                    )
                rewards[ORACLE][cell, index] = _oracle_reward(draws_of_task, limits, unit)
            drawn_tasks.append(DrawnTask(index, fold, draws_of_task, costs))
    for cell, index, solved, runs in play_tuned_lists(pool, drawn_tasks):
        rewards[TUNED][cell, index] = solved - PRICE_OF_COST * runs
    return PoolRewards(tuple(pool), rewards)


def limits_of(cell: int, costs: Mapping[str, float]) -> OutcomeLimits:
    """Return the check and the budget of a cell, for agents of these costs."""
    check, budget = CELLS[cell]
    return OutcomeLimits(check, budget * max(costs.values()), costs)


def _without_text(draw: TaskDraw) -> TaskDraw:
    """Leave out the request's words: arms of the gate decide without them."""
    return TaskDraw(draw.runs, draw.order, draw.checks)


def _oracle_reward(draws: Sequence[TaskDraw], limits: OutcomeLimits, unit: float) -> float:
    """Return the mean reward of the cheapest right first run, that of asking nobody where none is
    right and affordable.
    """
    total = 0.0
    for draw in draws:
        costs = [
            draw.runs[name][0].cost
            for name, cost in limits.costs.items()
            if draw.runs[name][0].ok and cost <= limits.budget
        ]
        if costs:
            total += max(1 - PRICE_OF_COST * min(costs) / unit, 0.0)
    return total / len(draws)


@dataclass(frozen=True)
class DrawnTask:
    """A task with its index in the data set, its draws, and the costs of its agents."""

    index: int
    fold: int
    draws: Sequence[TaskDraw]
    costs: Mapping[str, float]


def play_tuned_lists(
    pool: Sequence[str], tasks: Sequence[DrawnTask]
) -> Iterator[tuple[int, int, float, float]]:
    """Yield for each cell and task: the cell, the task's index, the share of its draws that the tuned
    list solves, and its mean cost, in runs of the dearest model.

    The tuned list of a task is the best, on the tasks of the other folds, of all lists of up to four
    runs.
    """
    draws = [draw for task in tasks for draw in task.draws]
    repeats = len(tasks[0].draws)
    costs = {name: np.repeat([task.costs[name] for task in tasks], repeats) for name in pool}
    ok, paid = {}, {}
    for name in pool:
        runs = [[draw.runs[name][k % len(draw.runs[name])] for k in range(TURNS)] for draw in draws]
        ok[name] = np.array([[run.ok for run in of_draw] for of_draw in runs])
        paid[name] = np.array([[run.cost for run in of_draw] for of_draw in runs])
    checks = np.array([draw.checks for draw in draws])
    unit = np.max([*costs.values()], axis=0)
    folds = np.array([task.fold for task in tasks])
    for cell, ((right, wrong), budget) in enumerate(CELLS):
        solved, spent = [], []
        played = _Played(ok, paid, checks, costs, budget * unit, right, wrong)
        lists = [(_Lists.start(played), 0)]
        while lists:
            state, length = lists.pop()
            for name in pool:
                longer = state.attempt(name)
                solved.append(longer.solved.reshape(-1, repeats).mean(axis=1))
                spent.append((longer.spent / unit).reshape(-1, repeats).mean(axis=1))
                if length + 1 < TURNS:
                    lists.append((longer, length + 1))
        solved_by_list, spent_by_list = np.array(solved), np.array(spent)
        rewards = solved_by_list - PRICE_OF_COST * spent_by_list
        for fold in range(FOLDS):
            best = int(np.argmax(rewards[:, folds != fold].sum(axis=1)))
            for row in np.flatnonzero(folds == fold):
                task = tasks[int(row)]
                yield (
                    cell,
                    task.index,
                    float(solved_by_list[best, row]),
                    float(spent_by_list[best, row]),
                )


@dataclass(frozen=True)
class _Played:
    """All draws of all tasks as arrays, and the limits of a cell."""

    ok: Mapping[str, NDArray[np.bool_]]
    paid: Mapping[str, Rewards]
    checks: Rewards
    costs: Mapping[str, Rewards]
    budget: Rewards
    right: float
    wrong: float


@dataclass(frozen=True)
class _Lists:
    """The state of every draw after a list of runs, as in `outcome_replay.attempt`."""

    played: _Played
    solved: NDArray[np.bool_]
    passed: NDArray[np.bool_]
    spent: Rewards
    failures: NDArray[np.int64]
    tries: Mapping[str, NDArray[np.int64]]

    @classmethod
    def start(cls, played: _Played) -> _Lists:
        """Return the state before any run."""
        count = len(played.checks)
        none = np.zeros(count, dtype=np.int64)
        no = np.zeros(count, dtype=np.bool_)
        return cls(played, no, no, np.zeros(count), none, dict.fromkeys(played.ok, none))

    def attempt(self, name: str) -> _Lists:
        """Return the state after one more run of `name`, where it is due and affordable."""
        played = self.played
        active = ~self.passed & (played.costs[name] <= played.budget - self.spent)
        rows = np.arange(len(self.passed))
        tries = np.minimum(self.tries[name], TURNS - 1)
        ok = played.ok[name][rows, tries]
        check = played.checks[rows, np.minimum(self.failures, TURNS - 1)]
        accepted = active & (check < np.where(ok, played.right, played.wrong))
        failed = active & ~accepted
        return _Lists(
            played,
            np.where(active, ok, self.solved),
            self.passed | accepted,
            self.spent + np.where(active, played.paid[name][rows, tries], 0.0),
            self.failures + failed,
            {**self.tries, name: self.tries[name] + failed},
        )


@dataclass(frozen=True)
class Interval:
    """A difference in points, with the ends of its interval and its one-sided lower bound."""

    mean: float
    low: float
    high: float
    bound: float

    @property
    def in_points(self) -> str:
        """The gap as `+3.1 [1.0, 5.2]`."""
        return f"{self.mean:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"


@dataclass(frozen=True)
class Criterion:
    """One of the four conditions: whether it is met, and the figures that decide it."""

    name: str
    passes: bool
    figures: str


@dataclass(frozen=True)
class GateResult:
    """A candidate's differences to the cascade, and whether it passes."""

    candidate: str
    level: float
    criteria: tuple[Criterion, ...]
    by_set: Mapping[str, Interval]
    by_cell: Sequence[Interval]
    by_set_and_cell: Mapping[str, Sequence[float]]
    pools: Sequence[tuple[str, tuple[str, ...], float]]
    arms: Mapping[str, Interval]

    @property
    def passes(self) -> bool:
        return all(criterion.passes for criterion in self.criteria)


def judge(
    plays: Mapping[str, Sequence[PoolRewards]], candidate: str, look: int = 1, seed: int = 0
) -> GateResult:
    """Judge a candidate by the pools that were played on each data set."""
    level = LEVELS[min(look, len(LEVELS)) - 1]
    resampled = Resampled(plays, level, seed)
    main = list(MAIN_CELLS)
    every = list(range(len(CELLS)))
    ahead = resampled.interval(candidate, CASCADE, main)
    beside_random = resampled.interval(candidate, RANDOM, main)
    by_set = {name: resampled.interval(candidate, CASCADE, main, [name]) for name in plays}
    by_set_all = {name: resampled.interval(candidate, CASCADE, every, [name]) for name in plays}
    by_cell = [resampled.interval(candidate, CASCADE, [cell]) for cell in every]
    pools = [
        (name, play.pool, float(np.nanmean(play.gap(candidate, CASCADE)[main])))
        for name in plays
        for play in plays[name]
    ]
    traps = sum(gap < TRAP for _, _, gap in pools)
    lowest = min(item.bound for item in (*by_set.values(), *by_set_all.values(), *by_cell))
    criteria = (
        Criterion("ahead of the cascade", ahead.low > 0, ahead.in_points),
        Criterion(
            "nowhere much behind", lowest > MUCH_BEHIND, f"lowest one-sided bound {lowest:+.1f}"
        ),
        Criterion(
            "no trap",
            traps <= TRAPS_ALLOWED * len(pools),
            f"{traps} of {len(pools)} pools behind by more than {-TRAP:g}; the worst "
            f"{min(gap for _, _, gap in pools):+.1f}",
        ),
        Criterion("ahead of a random order", beside_random.low > 0, beside_random.in_points),
    )
    first = next(iter(plays.values()))[0]
    return GateResult(
        candidate,
        level,
        criteria,
        by_set,
        by_cell,
        {
            name: [
                float(
                    np.mean([np.nanmean(play.gap(candidate, CASCADE)[cell]) for play in plays_of])
                )
                for cell in every
            ]
            for name, plays_of in plays.items()
        },
        pools,
        {arm: resampled.interval(arm, CASCADE, main) for arm in first.rewards if arm != CASCADE},
    )


class Resampled:
    """The bootstrap: tasks and pools of each data set are drawn again, both at once."""

    def __init__(self, plays: Mapping[str, Sequence[PoolRewards]], level: float, seed: int) -> None:
        self._plays = plays
        self._level = level
        chance = np.random.default_rng(seed)
        self._weights = {}
        for name, plays_of in plays.items():
            tasks = next(iter(plays_of[0].rewards.values())).shape[1]
            self._weights[name] = (
                _multiplicities(chance, len(plays_of)),
                _multiplicities(chance, tasks),
            )

    def interval(
        self, arm: str, measure: str, cells: Sequence[int], sets: Sequence[str] = ()
    ) -> Interval:
        """Return the mean difference over data sets (all of them without `sets`) and cells."""
        names = sets or list(self._plays)
        means, resamples = [], []
        for name in names:
            gaps = np.array([play.gap(arm, measure)[list(cells)] for play in self._plays[name]])
            by_task = gaps.mean(axis=1)
            present = ~np.isnan(by_task)
            filled = np.where(present, by_task, 0.0)
            pools, tasks = self._weights[name]
            total = ((pools @ filled) * tasks).sum(axis=1)
            count = ((pools @ present) * tasks).sum(axis=1)
            means.append(filled.sum() / present.sum())
            resamples.append(total / count)
        drawn = np.mean(resamples, axis=0)
        tail = (1 - self._level) / 2
        low, high, bound = np.quantile(drawn, [tail, 1 - tail, 1 - self._level])
        return Interval(float(np.mean(means)), float(low), float(high), float(bound))


def _multiplicities(chance: np.random.Generator, count: int) -> Rewards:
    """Return how often each of `count` things is drawn, resample by resample."""
    return chance.multinomial(count, np.full(count, 1 / count), RESAMPLES).astype(np.float64)


def gate_text(result: GateResult) -> str:
    """Return the result as Markdown."""
    sets = list(result.by_set)
    level = f"{100 * result.level:g} %"
    lines = [
        f"**{result.candidate} {'passes' if result.passes else 'does not pass'}** "
        f"({len(result.pools)} pools, intervals of {level}).",
        "",
        "| criterion | figures, in points of reward | met |",
        "|---|---|---|",
        *(
            f"| {number}. {item.name} | {item.figures} | {'yes' if item.passes else 'no'} |"
            for number, item in enumerate(result.criteria, start=1)
        ),
        "",
        f"{result.candidate} less the cascade, by data set (checks 95/10 and 90/20, both budgets) "
        f"and by cell, with the one-sided {level} bound:",
        "",
        "| | points | bound |",
        "|---|---|---|",
        *(
            f"| {name} | {item.in_points} | {item.bound:+.1f} |"
            for name, item in result.by_set.items()
        ),
        *(
            f"| {cell_name(cell)} | {item.in_points} | {item.bound:+.1f} |"
            for cell, item in enumerate(result.by_cell)
        ),
        "",
        f"| cell | {' | '.join(sets)} |",
        "|---" * (1 + len(sets)) + "|",
        *(
            f"| {cell_name(cell)} | "
            + " | ".join(f"{result.by_set_and_cell[name][cell]:+.1f}" for name in sets)
            + " |"
            for cell in range(len(CELLS))
        ),
        "",
        "Every arm less the cascade, measured as in 1. The tuned list is the best of all lists of "
        "up to four runs, chosen for each pool, check and budget on the other folds; it and the "
        "oracle decide nothing.",
        "",
        "| arm | points |",
        "|---|---|",
        *(f"| {name} | {item.in_points} |" for name, item in result.arms.items()),
    ]
    return "\n".join(lines) + "\n"


def cell_name(cell: int) -> str:
    """Return a cell in words."""
    (right, wrong), budget = CELLS[cell]
    limit = "no budget" if math.isinf(budget) else "one dear run"
    return f"check {100 * right:.0f}/{100 * wrong:.0f}, {limit}"
