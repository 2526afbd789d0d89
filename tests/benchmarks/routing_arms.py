"""Compare ways to use several models by one replay of recorded outcomes.

    python -m tests.benchmarks.routing_arms RESULTS.jsonl.gz OUTCOMES [--packages FOLDER] [--out PAGE]

RESULTS and OUTCOMES are those of `tests.benchmarks.gate`; the pools are the first of its. FOLDER holds the
unpacked wheels of RouteLLM and LLMRouter (`pip download --no-deps routellm==0.2.0
llmrouter-lib==0.4.0`, then `unzip`); without it their routers are left out. Whatever an arm learns,
costs included, it learns on one half of a file's tasks and is judged on the other half.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fugu_cli.config.known_models import vendor_of
from fugu_cli.coordinators.composed import ComposedHead, expected_costs
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.coordinators.skills import SkillTable
from fugu_cli.session.events import Member
from fugu_cli.training.evaluation.default_gate import (
    MAIN_CELLS,
    DrawnTask,
    PoolRewards,
    RecordedSet,
    Resampled,
    draw_pools,
    fold_of,
    limits_of,
    play_tuned_lists,
    read_recorded_set,
)
from fugu_cli.training.evaluation.outcome_replay import (
    PRICE_OF_COST,
    SETTINGS,
    TURNS,
    Attempted,
    DecidedByLog,
    NextModel,
    OutcomeLimits,
    OutcomeTask,
    TaskDraw,
    attempt,
    draw_of,
    in_order,
    members_of,
    play,
)
from tests.benchmarks.gate import SETS, table_for
from tests.benchmarks.skills_fit import read_figures
from tests.benchmarks.text_routers import (
    Lesson,
    Router,
    embed,
    llmrouter_mf,
    llmrouter_mlp,
    ridge,
    routellm_mf,
)

PAGE = Path(__file__).parent / "results" / "routing-arms.md"
TEMPLATE = Path(__file__).parent / "routing_arms.template.md"
HALVES = 2
POOLS = 12
"""Of each file: the first of those that the gate draws."""
DRAWS = 4
PROPOSERS = 3
"""Agents that propose in a mixture of agents."""
OWN_OPINION = (0.80, 0.40)
"""Shares of right and of wrong work of its own that a model is taken to accept."""
CASCADE, BEST_ONCE = "cascade", "one model, once"
TRINITY, TUNED, ORACLE = "trinity (the default)", "tuned cascade", "oracle"
RETRY, REFLECTION = "retry of one model", "self-reflection (stand-in)"
MIXTURE, IDEAL_MIXTURE = "mixture of agents (stand-in)", "mixture of agents, ideal merge (bound)"
RANDOM = "random order"
REPEATED_RUNS = (RETRY, REFLECTION)
"""Arms that need several recorded runs of one model on a task."""
RUN_ONCE = ("swebench_verified",)
"""Files with one run of each model."""
Values = NDArray[np.float64]
Orders = Mapping[str, Mapping[str, tuple[str, ...]]]
"""For each text router and task, the pool's models from first to last."""


@dataclass(frozen=True)
class PoolPlayed:
    """What every arm solved and spent with one pool, by main cell and task; money in runs of the
    dearest model, and not a number where a model of the pool was not run.
    """

    pool: tuple[str, ...]
    solved: Mapping[str, Values]
    spent: Mapping[str, Values]


def main() -> None:
    """Train the routers, play all arms on all pools, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("outcomes", type=Path)
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--half", default="even")
    parser.add_argument("--seed", default="gate")
    parser.add_argument("--pools", type=int, default=POOLS)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args()
    started = time.monotonic()
    routers: dict[str, Router] = {"text classifier": ridge}
    if options.packages is not None:
        routers["RouteLLM mf"] = routellm_mf(options.packages)
        routers["LLMRouter mf"] = llmrouter_mf(options.packages)
        routers["LLMRouter mlp"] = llmrouter_mlp(options.packages)
    played: dict[str, list[PoolPlayed]] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, mp_context=context) as executor:
        for judged in SETS:
            path = options.outcomes / judged.file.format(half=options.half)
            recorded = replace(read_recorded_set(path, vendor_of), name=judged.name)
            table, _ = table_for(
                recorded, read_figures(options.results, [judged.boards]), judged.year
            )
            embeddings = embed([task.text for task in recorded.tasks])
            pools = draw_pools(recorded, options.pools, options.seed)
            orders = [text_orders(recorded, embeddings, routers, pool) for pool in pools]
            print(judged.name, f"routers trained after {time.monotonic() - started:.0f} s")
            play_one = partial(play_arms, recorded, table)
            played[judged.name] = list(executor.map(play_one, pools, orders))
    text = page(played, (time.monotonic() - started) / 60, options.packages is not None)
    options.out.write_text(text, encoding="utf-8")
    print(text)


def half_of(task: OutcomeTask) -> int:
    """Return the half of its file that a task is in, by its id alone."""
    return fold_of(task.id) % HALVES


def text_orders(
    recorded: RecordedSet, embeddings: Values, routers: Mapping[str, Router], pool: Sequence[str]
) -> Orders:
    """Return each router's order of the pool for every task, trained on the other half."""
    indexes = [
        i for i, task in enumerate(recorded.tasks) if all(name in task.runs for name in pool)
    ]
    orders: dict[str, dict[str, tuple[str, ...]]] = {name: {} for name in routers}
    for half in range(HALVES):
        train = [i for i in indexes if half_of(recorded.tasks[i]) != half]
        test = [i for i in indexes if half_of(recorded.tasks[i]) == half]
        costs = expected_costs(_members(recorded, [recorded.tasks[i] for i in train], pool), ())
        lesson = Lesson(
            embeddings[train],
            np.array([_values(recorded.tasks[i], pool, max(costs.values())) for i in train]),
        )
        for router_name, router in routers.items():
            scores = router(lesson, embeddings[test])
            for i, row in zip(test, scores, strict=True):
                ranked = tuple(pool[model] for model in np.argsort(-row, kind="stable"))
                orders[router_name][recorded.tasks[i].id] = ranked
    return orders


def play_arms(
    recorded: RecordedSet, table: SkillTable, pool: Sequence[str], orders: Orders
) -> PoolPlayed:
    """Play every arm on every task of a data set with one pool."""
    tasks = {
        i: task for i, task in enumerate(recorded.tasks) if all(name in task.runs for name in pool)
    }
    shape = (len(MAIN_CELLS), len(recorded.tasks))
    solved: dict[str, Values] = {}
    spent: dict[str, Values] = {}
    drawn_tasks = []
    for half in range(HALVES):
        train = [task for task in tasks.values() if half_of(task) != half]
        members = _members(recorded, train, pool)
        costs = expected_costs(members, ())
        unit = max(costs.values())
        means = np.mean([_values(task, pool, unit) for task in train], axis=0)
        best_first = [pool[model] for model in np.argsort(-means, kind="stable")]
        cascade = DecidedByLog(Cascade(members, SETTINGS), members)
        trinity = DecidedByLog(ComposedHead(members, SETTINGS, table=table), members)
        for index, task in tasks.items():
            if half_of(task) != half:
                continue
            own_runs = {name: task.runs[name] for name in pool}
            draws = [
                replace(draw_of(replace(task, runs=own_runs), n), text="") for n in range(DRAWS)
            ]
            drawn_tasks.append(DrawnTask(index, half, draws, costs))
            for row, cell in enumerate(MAIN_CELLS):
                limits = limits_of(cell, costs)
                arms = {
                    CASCADE: _by(cascade.on),
                    TRINITY: _by(trinity.on),
                    BEST_ONCE: _by_list(best_first[:1]),
                    RETRY: _by_list(best_first[:1] * TURNS),
                    REFLECTION: _by_list(best_first[:1] * TURNS, OWN_OPINION),
                    MIXTURE: partial(_mixture, best_first),
                    IDEAL_MIXTURE: partial(_mixture, best_first, ideal=True),
                    RANDOM: _by(lambda draw: in_order(draw.order * 2)),
                    ORACLE: _oracle,
                    **dict(_text_arms(orders, task.id)),
                }
                for name, arm in arms.items():
                    works = [arm(draw, limits) for draw in draws]
                    for results in (solved, spent):
                        results.setdefault(name, np.full(shape, np.nan))
                    solved[name][row, index] = np.mean([work.solved for work in works])
                    spent[name][row, index] = np.mean([work.spent for work in works]) / unit
    solved[TUNED], spent[TUNED] = np.full(shape, np.nan), np.full(shape, np.nan)
    for cell, index, solved_by_list, runs in play_tuned_lists(pool, drawn_tasks):
        if cell in MAIN_CELLS:
            solved[TUNED][MAIN_CELLS.index(cell), index] = solved_by_list
            spent[TUNED][MAIN_CELLS.index(cell), index] = runs
    return PoolPlayed(tuple(pool), solved, spent)


PlayedArm = Callable[[TaskDraw, OutcomeLimits], Attempted]


def _by(decide: Callable[[TaskDraw], NextModel]) -> PlayedArm:
    return lambda draw, limits: play(draw, decide(draw), limits)


def _by_list(models: Sequence[str], check: tuple[float, float] | None = None) -> PlayedArm:
    """Ask these models in order while the check, or another one, refuses."""
    return lambda draw, limits: play(
        draw, in_order(models), replace(limits, check=check) if check else limits
    )


def _text_arms(orders: Orders, task_id: str) -> Iterator[tuple[str, PlayedArm]]:
    for name, of_task in orders.items():
        order = of_task[task_id]
        yield f"{name}, once", _by_list(order[:1])
        yield f"{name}, then its next", _by_list((order * 2)[:TURNS])


def _mixture(
    best_first: Sequence[str], draw: TaskDraw, limits: OutcomeLimits, ideal: bool = False
) -> Attempted:
    """Let the best models propose and the best of all pay one more run, which merges.

    No merged answer was recorded. The first proposal that the check passes stands for it (the
    strongest's, where none passes); with `ideal`, any right one.
    """
    merger = best_first[0]
    proposals: list[str] = []
    planned = 0.0
    for name in best_first[:PROPOSERS]:
        merging = limits.costs[merger] if proposals else 0.0
        if planned + limits.costs[name] + merging <= limits.budget:
            proposals.append(name)
            planned += limits.costs[name]
    if not proposals:
        return Attempted()
    spent = sum(draw.runs[name][0].cost for name in proposals)
    if len(proposals) > 1:
        spent += limits.costs[merger]
    right = [draw.runs[name][0].ok for name in proposals]
    passed = [
        is_right
        for is_right, check in zip(right, draw.checks, strict=False)
        if check < limits.check[0 if is_right else 1]
    ]
    solved = any(right) if ideal else (passed or right)[0]
    return Attempted(solved, spent)


def _oracle(draw: TaskDraw, limits: OutcomeLimits) -> Attempted:
    """Ask the cheapest model whose run is right, nobody where none is."""
    affordable = [name for name, cost in limits.costs.items() if cost <= limits.budget]
    right = [name for name in affordable if draw.runs[name][0].ok]
    if not right:
        return Attempted()
    cheapest = min(right, key=lambda name: draw.runs[name][0].cost)
    sure_check = replace(limits, check=(1.0, 0.0))
    return attempt(Attempted(), draw, cheapest, sure_check)


def _members(
    recorded: RecordedSet, tasks: Sequence[OutcomeTask], pool: Sequence[str]
) -> tuple[Member, ...]:
    return members_of(tasks, {name: recorded.vendors[name] for name in pool})


def _values(task: OutcomeTask, pool: Sequence[str], unit: float) -> list[float]:
    """Return what each model's runs were worth on a task, as the replay counts it."""
    return [
        float(np.mean([run.ok - PRICE_OF_COST * run.cost / unit for run in task.runs[name]]))
        for name in pool
    ]


def page(played: Mapping[str, Sequence[PoolPlayed]], minutes: float, with_packages: bool) -> str:
    """Return the results page."""
    names = list(next(iter(played.values()))[0].solved)
    rewards = Resampled(_rewards(played), 0.95, 0)
    cells = range(len(MAIN_CELLS))
    rows = []
    for name in names:
        sets = [s for s in played if not (name in REPEATED_RUNS and s in RUN_ONCE)]
        gap = rewards.interval(name, CASCADE, cells, sets)
        by_set = [
            f"{rewards.interval(name, CASCADE, cells, [s]).mean:+.1f}" if s in sets else "-"
            for s in played
        ]
        figures = [
            gap.in_points if name != CASCADE else "0",
            *by_set,
            rewards.interval(TRINITY, name, cells, sets).in_points if name != TRINITY else "0",
            f"{_ratio(played, sets, name, 'solved'):.2f}",
            f"{_ratio(played, sets, name, 'spent'):.2f}",
        ]
        rows.append((gap.mean, f"| {name} | {' | '.join(figures)} |"))
    pools = sum(len(of_set) for of_set in played.values())
    lines = [
        f"| arm | less the cascade | {' | '.join(played)} | trinity less it | "
        "solved, times | money, times |",
        "|---" * (5 + len(played)) + "|",
        *(line for _, line in sorted(rows, reverse=True)),
    ]
    if not with_packages:
        lines += ["", "Played without the routers of RouteLLM and LLMRouter."]
    template = TEMPLATE.read_text(encoding="utf-8")
    return template.format(pools=pools, minutes=f"{minutes:.0f}", table="\n".join(lines))


def _rewards(played: Mapping[str, Sequence[PoolPlayed]]) -> dict[str, list[PoolRewards]]:
    rewards: dict[str, list[PoolRewards]] = {}
    for name, of_set in played.items():
        rewards[name] = [
            PoolRewards(
                pool.pool,
                {arm: pool.solved[arm] - PRICE_OF_COST * pool.spent[arm] for arm in pool.solved},
            )
            for pool in of_set
        ]
    return rewards


def _ratio(
    played: Mapping[str, Sequence[PoolPlayed]], sets: Sequence[str], arm: str, measure: str
) -> float:
    """Return an arm's mean beside that of the best model asked once, over files of equal weight."""
    means = {}
    for name in (arm, BEST_ONCE):
        by_set = [
            np.mean([np.nanmean(getattr(pool, measure)[name]) for pool in played[of_set]])
            for of_set in sets
        ]
        means[name] = np.mean(by_set)
    return float(means[arm] / means[BEST_ONCE])


if __name__ == "__main__":
    main()
