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
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    """The rewards of each arm with one pool, as an array by cell and task.

    A reward is NaN if a model of the pool was not run on the task.
    """

    pool: tuple[str, ...]
    rewards: Mapping[str, Rewards]

    def gap(self, arm: str, reference: str) -> Rewards:
        """Return the reward of `arm` less that of `reference`, in points."""
        return 100 * (self.rewards[arm] - self.rewards[reference])


def read_recorded_set(path: Path, vendor_of: Callable[[str], str]) -> RecordedSet:
    """Read a file of outcomes. Raises ConfigError."""
    tasks = read_all_outcomes(path)
    tasks_by_model: Counter[str] = Counter()
    for task in tasks:
        tasks_by_model.update(task.runs.keys())
    if len(tasks) < FEWEST_TASKS:
        raise ConfigError(
            f"{path}: at least {FEWEST_TASKS} tasks with outcomes are needed, and it has {len(tasks)}"
        )
    enough = COVERAGE * len(tasks)
    models = tuple(sorted(name for name, count in tasks_by_model.items() if count >= enough))
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
    """Draw pools of three to five models at random.

    No pool has a model twice, at two efforts, or a model of `left_out`.
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
    tasks: dict[int, OutcomeTask] = {}
    for index, task in enumerate(recorded.tasks):
        if all(name in task.runs for name in pool):
            runs = {name: task.runs[name] for name in pool}
            tasks[index] = OutcomeTask(task.id, runs, task.text)
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
            # Arms of the gate decide without the words of the request.
            draws_of_task = [replace(draw_of(task, draw), text="") for draw in range(draws)]
            drawn_tasks.append(DrawnTask(index, fold, draws_of_task, costs))
            for cell in range(len(CELLS)):
                limits = limits_of(cell, costs)
                unit = max(costs.values())
                rewards[ORACLE][cell, index] = _oracle_reward(draws_of_task, limits, unit)
                for name, arm in arms.items():
                    rewards_of_draws = []
                    for draw in draws_of_task:
                        work = play(draw, arm(draw), limits)
                        rewards_of_draws.append(work.solved - PRICE_OF_COST * work.spent / unit)
                    rewards[name][cell, index] = np.mean(rewards_of_draws)
    for cell, index, solved, cost in play_tuned_lists(pool, drawn_tasks):
        rewards[TUNED][cell, index] = solved - PRICE_OF_COST * cost
    return PoolRewards(tuple(pool), rewards)


def limits_of(cell: int, costs: Mapping[str, float]) -> OutcomeLimits:
    """Return the check and the budget of a cell, for agents of these costs."""
    check, budget = CELLS[cell]
    return OutcomeLimits(check, budget * max(costs.values()), costs)


def _oracle_reward(draws: Sequence[TaskDraw], limits: OutcomeLimits, unit: float) -> float:
    """Return the mean reward of an oracle: in each draw it takes the cheapest affordable first run
    that is right, and asks nobody, for a reward of 0, if there is none.
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
    """A task with its index in the data set, its fold, its draws, and the costs of its agents."""

    index: int
    fold: int
    draws: Sequence[TaskDraw]
    costs: Mapping[str, float]


def play_tuned_lists(
    pool: Sequence[str], tasks: Sequence[DrawnTask]
) -> Iterator[tuple[int, int, float, float]]:
    """Play the tuned list of every task: of all lists of up to four runs, the list with the highest
    reward on the tasks of the other folds.

    Yield for each cell and task: the cell, the task's index, the share of its draws that the tuned
    list solves, and its mean cost, in runs of the dearest model.
    """
    draws_per_task = len(tasks[0].draws)
    draws = _draw_arrays(pool, tasks)
    unit = np.max([*draws.costs.values()], axis=0)
    folds = np.array([task.fold for task in tasks])
    for cell, ((right, wrong), budget) in enumerate(CELLS):
        limits = _CellLimits(budget * unit, right, wrong)
        solved, spent = [], []
        lists = [(_ListState.before_any_run(draws, limits), 0)]
        while lists:
            state, length = lists.pop()
            for name in pool:
                longer = state.attempt(name)
                solved.append(longer.solved.reshape(-1, draws_per_task).mean(axis=1))
                spent.append((longer.spent / unit).reshape(-1, draws_per_task).mean(axis=1))
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
class _DrawArrays:
    """All draws of all tasks as arrays, a row for each draw.

    `ok` and `paid` hold the runs of each model, a column for each; `checks` the luck of each check;
    `costs` the expected cost of a run of each model.
    """

    ok: Mapping[str, NDArray[np.bool_]]
    paid: Mapping[str, Rewards]
    checks: Rewards
    costs: Mapping[str, Rewards]


def _draw_arrays(pool: Sequence[str], tasks: Sequence[DrawnTask]) -> _DrawArrays:
    ok, paid, costs = {}, {}, {}
    for name in pool:
        ok_rows, paid_rows, cost_rows = [], [], []
        for task in tasks:
            for draw in task.draws:
                runs = draw.runs[name]
                repeated = [runs[turn % len(runs)] for turn in range(TURNS)]
                ok_rows.append([run.ok for run in repeated])
                paid_rows.append([run.cost for run in repeated])
                cost_rows.append(task.costs[name])
        ok[name], paid[name] = np.array(ok_rows), np.array(paid_rows)
        costs[name] = np.array(cost_rows)
    checks = np.array([draw.checks for task in tasks for draw in task.draws])
    return _DrawArrays(ok, paid, checks, costs)


@dataclass(frozen=True)
class _CellLimits:
    """The budget of every draw in a cell, and the shares of right and wrong work that pass its
    check.
    """

    budget: Rewards
    right: float
    wrong: float


@dataclass(frozen=True)
class _ListState:
    """The state of every draw after a list of runs, as in `outcome_replay.attempt`."""

    draws: _DrawArrays
    limits: _CellLimits
    solved: NDArray[np.bool_]
    passed: NDArray[np.bool_]
    spent: Rewards
    failures: NDArray[np.int64]
    tries: Mapping[str, NDArray[np.int64]]

    @classmethod
    def before_any_run(cls, draws: _DrawArrays, limits: _CellLimits) -> _ListState:
        count = len(draws.checks)
        zeros = np.zeros(count, dtype=np.int64)
        return cls(
            draws,
            limits,
            solved=np.zeros(count, dtype=np.bool_),
            passed=np.zeros(count, dtype=np.bool_),
            spent=np.zeros(count),
            failures=zeros,
            tries=dict.fromkeys(draws.ok, zeros),
        )

    def attempt(self, name: str) -> _ListState:
        """Return the state after one more run of `name` in each draw that has not passed its check
        and can afford the run.
        """
        draws, limits = self.draws, self.limits
        active = ~self.passed & (draws.costs[name] <= limits.budget - self.spent)
        rows = np.arange(len(self.passed))
        tries = np.minimum(self.tries[name], TURNS - 1)
        ok = draws.ok[name][rows, tries]
        check = draws.checks[rows, np.minimum(self.failures, TURNS - 1)]
        accepted = active & (check < np.where(ok, limits.right, limits.wrong))
        failed = active & ~accepted
        return replace(
            self,
            solved=np.where(active, ok, self.solved),
            passed=self.passed | accepted,
            spent=self.spent + np.where(active, draws.paid[name][rows, tries], 0.0),
            failures=self.failures + failed,
            tries={**self.tries, name: self.tries[name] + failed},
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
        """The difference as `+3.1 [1.0, 5.2]`."""
        return f"{self.mean:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"


@dataclass(frozen=True)
class Criterion:
    """One of the four conditions: whether it is met, and the figures that decide it."""

    name: str
    passes: bool
    figures: str


@dataclass(frozen=True)
class GateResult:
    """A candidate's differences to the cascade, and whether it passes.

    `pools` has for each pool its data set, its models, and the difference in the main cells. `arms`
    has the difference of every other arm.
    """

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
    to_cascade = resampled.interval(candidate, CASCADE, main)
    to_random = resampled.interval(candidate, RANDOM, main)
    by_set = {name: resampled.interval(candidate, CASCADE, main, [name]) for name in plays}
    by_set_all = {name: resampled.interval(candidate, CASCADE, every, [name]) for name in plays}
    by_cell = [resampled.interval(candidate, CASCADE, [cell]) for cell in every]
    bounds = [gap.bound for gap in (*by_set.values(), *by_set_all.values(), *by_cell)]

    pools: list[tuple[str, tuple[str, ...], float]] = []
    by_set_and_cell = {}
    for name, plays_of_set in plays.items():
        mean_gaps = []
        for rewards in plays_of_set:
            gaps = rewards.gap(candidate, CASCADE)
            pools.append((name, rewards.pool, float(np.nanmean(gaps[main]))))
            mean_gaps.append(np.nanmean(gaps, axis=1))
        by_set_and_cell[name] = [float(gap) for gap in np.mean(mean_gaps, axis=0)]
    pool_gaps = [gap for _, _, gap in pools]
    traps = sum(gap < TRAP for gap in pool_gaps)

    criteria = (
        Criterion("ahead of the cascade", to_cascade.low > 0, to_cascade.in_points),
        Criterion(
            "nowhere much behind",
            min(bounds) > MUCH_BEHIND,
            f"lowest one-sided bound {min(bounds):+.1f}",
        ),
        Criterion(
            "no trap",
            traps <= TRAPS_ALLOWED * len(pools),
            f"{traps} of {len(pools)} pools behind by more than {-TRAP:g}; the worst "
            f"{min(pool_gaps):+.1f}",
        ),
        Criterion("ahead of a random order", to_random.low > 0, to_random.in_points),
    )
    first = next(iter(plays.values()))[0]
    arms = {arm: resampled.interval(arm, CASCADE, main) for arm in first.rewards if arm != CASCADE}
    return GateResult(candidate, level, criteria, by_set, by_cell, by_set_and_cell, pools, arms)


class Resampled:
    """A bootstrap: the tasks and the pools of each data set are drawn again, both at once."""

    def __init__(self, plays: Mapping[str, Sequence[PoolRewards]], level: float, seed: int) -> None:
        self._plays = plays
        self._level = level
        chance = np.random.default_rng(seed)
        self._weights = {}
        for name, plays_of_set in plays.items():
            tasks = plays_of_set[0].rewards[CASCADE].shape[1]
            self._weights[name] = (
                _multiplicities(chance, len(plays_of_set)),
                _multiplicities(chance, tasks),
            )

    def interval(
        self, arm: str, reference: str, cells: Sequence[int], sets: Sequence[str] = ()
    ) -> Interval:
        """Return the mean difference of two arms over `cells` and `sets`, by default all sets."""
        means, resamples = [], []
        for name in sets or list(self._plays):
            gaps = np.array([play.gap(arm, reference)[list(cells)] for play in self._plays[name]])
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
    level = f"{100 * result.level:g} %"
    verdict = "passes" if result.passes else "does not pass"
    lines = [
        f"**{result.candidate} {verdict}** ({len(result.pools)} pools, intervals of {level}).",
        "",
        "| criterion | figures, in points of reward | met |",
        "|---|---|---|",
    ]
    for number, criterion in enumerate(result.criteria, start=1):
        met = "yes" if criterion.passes else "no"
        lines.append(f"| {number}. {criterion.name} | {criterion.figures} | {met} |")
    lines += [
        "",
        f"{result.candidate} less the cascade, by data set (checks 95/10 and 90/20, both budgets) "
        f"and by cell, with the one-sided {level} bound:",
        "",
        "| | points | bound |",
        "|---|---|---|",
    ]
    gaps_by_cell = {cell_name(cell): gap for cell, gap in enumerate(result.by_cell)}
    for name, gap in (*result.by_set.items(), *gaps_by_cell.items()):
        lines.append(f"| {name} | {gap.in_points} | {gap.bound:+.1f} |")
    lines += [
        "",
        f"| cell | {' | '.join(result.by_set)} |",
        "|---" * (1 + len(result.by_set)) + "|",
    ]
    for cell in range(len(CELLS)):
        points = [f"{result.by_set_and_cell[name][cell]:+.1f}" for name in result.by_set]
        lines.append(f"| {cell_name(cell)} | {' | '.join(points)} |")
    lines += [
        "",
        "Every arm less the cascade, measured as in 1. The tuned list is the best of all lists of "
        "up to four runs, chosen for each pool, check and budget on the other folds; it and the "
        "oracle decide nothing.",
        "",
        "| arm | points |",
        "|---|---|",
    ]
    for name, gap in result.arms.items():
        lines.append(f"| {name} | {gap.in_points} |")
    return "\n".join(lines) + "\n"


def cell_name(cell: int) -> str:
    """Return the check and the budget of a cell in words."""
    (right, wrong), budget = CELLS[cell]
    limit = "no budget" if math.isinf(budget) else "one dear run"
    return f"check {100 * right:.0f}/{100 * wrong:.0f}, {limit}"
